"""The documents agree with the definitions, their links resolve, and the example of the README is a real
line.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import schemas
from jobs.commands import documentation
from parsers.events import Parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker" / "broker-1" / "state-change.log"
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")


@pytest.mark.parametrize("name", documentation.PAGES)
def test_generated_parts_are_fresh(name):
    part, make = documentation.PAGES[name]
    text = documentation.page_of(name).read_text("utf-8")
    assert documentation.renewed(text, part, make()) == text, "run `make docs`"


def test_a_check_with_a_todo_is_named(tmp_path, monkeypatch, capsys):
    template = schemas.folder("templates").joinpath("check.sql").read_text("utf-8")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "my_check.sql").write_text(template)
    monkeypatch.setattr(schemas, "folder", lambda name: tmp_path / name)
    monkeypatch.setattr(sys, "argv", ["documentation"])
    assert documentation.main() == 1
    assert (
        capsys.readouterr().err
        == "schemas/checks/my_check.sql: fill in each TODO first; `kafka-audit lint` names them\n"
    )


def test_a_page_without_its_markers_is_an_error():
    with pytest.raises(ValueError, match="no part"):
        documentation.renewed("# Tables\n", "dictionary", "x")


def defined(file):
    """Return the functions, classes and methods of a file, as `Class.method`."""
    names = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return names


def test_functions_on_the_way_of_a_record_exist():
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text("utf-8")
    section = page.partition("## The way of a record\n")[2].partition("\n## ")[0]
    rows = [
        line.strip("| ").split(" | ")
        for line in section.splitlines()
        if re.search(r"`[\w/]+\.py`", line) and line[0] == "|"
    ]
    assert len(rows) == 61
    for *_, file, functions in rows:
        named = set(re.findall(r"`([\w.]+)`", functions))
        assert named, f"{file} has no function in the table"
        missing = named - defined(ROOT / file.strip("`"))
        assert not missing, f"{file} has no {', '.join(sorted(missing))}"


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 250


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document):
    for target, anchor in LINK.findall(re.sub(r"`[^`\n]+`", "code", document.read_text("utf-8"))):
        page = (document.parent / target).resolve()
        assert page.exists(), f"{document.name} links to {target}, which does not exist"
        if anchor and page.suffix == ".md":
            headings = [
                line.lstrip("#").strip()
                for line in page.read_text("utf-8").splitlines()
                if line.startswith("#")
            ]
            anchors = {
                "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
            }
            assert anchor in anchors, f"{document.name} links to {target}{anchor}"


def test_every_document_is_reached_from_the_readme():
    reached = {(ROOT / target).resolve() for target, _ in LINK.findall(README)}
    assert set(DOCUMENTS[1:]) <= reached, "link each page from the README"


def test_the_site_is_built_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "properdocs",
        "build",
        "--strict",
        "-f",
        str(ROOT / ".properdocs.yml"),
        "-d",
        str(tmp_path),
    ]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "search" / "search_index.json").is_file()


def test_the_example_is_a_line_of_the_samples():
    (line,) = [line.strip() for line in README.splitlines() if line.startswith("    [20")]
    assert line in SAMPLE.read_text().splitlines()
    parser = Parser()
    (event,) = parser.events(parser.record(line))
    for value in (
        "replica_state_changed",
        "happened",
        "audit",
        "OfflineReplica",
        "ReplicaDeletionIneligible",
    ):
        assert value in event.values()


def test_logs_to_begin_a_scenario_with_are_recognised():
    page = documentation.page_of("contributing/checks").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("[20")]
    assert len(lines) > 12
    parser = Parser()
    for line in lines:
        assert all(event.get("event_type") for event in parser.events(parser.record(line))), line


def test_comments_of_all_columns_are_found():
    import schemas

    dictionary = documentation.dictionary()
    for table in schemas.statements("tables"):
        for column in schemas.columns(table.name):
            assert f"| `{column}` |" in dictionary
