"""The output of --json matches the published schemas."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from jobs import errors
from jobs.commands import documentation
from jobs.nightly_audit import main
from jobs.reporting import json_schemas

SAMPLES = Path(__file__).parents[2] / "sample_logs"


@pytest.mark.parametrize("name", json_schemas.FILES)
def test_the_published_schemas_are_fresh(name):
    published = (documentation.REFERENCE / name).read_text("utf-8")
    assert published == documentation.schema_text(json_schemas.FILES[name]()), "run `make docs`"
    jsonschema.Draft202012Validator.check_schema(json.loads(published))


def test_outputs_of_two_clusters_fit_and_count_each_on_its_own(tmp_path, capsys):
    config = tmp_path / "audit.toml"
    logs = {"a": SAMPLES / "3.3.2-default" / "reassign", "b": SAMPLES / "3.9.1-kraft" / "controller-failover"}
    config.write_text(
        "".join(f'[[cluster]]\nname = "{name}"\nlogs = ["{folder}"]\n' for name, folder in logs.items())
    )
    tables = str(tmp_path / "tables")
    main(["audit", "--config", str(config), "--tables", tables, "--engine", "local", "--json"])
    verdict = json.loads(capsys.readouterr().out)
    jsonschema.validate(verdict, json_schemas.verdict())
    read = [one["records_read"] for one in verdict["clusters"]]
    assert all(read)
    assert read[0] != read[1]
    assert sum(read) == verdict["records_read"]
    assert main(["findings", "--tables", tables, "--json"]) == errors.CLEAN
    lines = capsys.readouterr().out.splitlines()
    assert lines
    for line in lines:
        jsonschema.validate(json.loads(line), json_schemas.finding())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(verdict | {"exit_code": "0"}, json_schemas.verdict())
