"""What is wrong with the input is said before Spark starts, in a sentence and an exit code.

Nothing is written.
"""

import gzip
from pathlib import Path

import pytest

from jobs import errors
from jobs.nightly_audit import main

LINE = "[2026-03-01 12:00:00,000] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)\n"


def said(capsys, *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


def _truncated(path: Path) -> None:
    packed = gzip.compress((LINE * 2000).encode())
    path.write_bytes(packed[: len(packed) // 2])


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("empty.log", lambda p: p.write_text(""), "is empty"),
        (
            "prose.txt",
            lambda p: p.write_text("Dear diary,\ntoday nothing happened.\n"),
            "has a Kafka log record",
        ),
        ("image.bin", lambda p: p.write_bytes(bytes(range(256)) * 200), "has a Kafka log record"),
        ("cut.log.gz", _truncated, "truncated"),
        ("logs.rar", lambda p: p.write_bytes(b"Rar!\x1a\x07" + bytes(100)), "it is a .rar; unpack it"),
        ("logs.7z", lambda p: p.write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(100)), "the .7z is damaged"),
    ],
)
def test_nothing_to_audit(capsys, tmp_path, name, write, words):
    file = tmp_path / "logs" / name
    file.parent.mkdir()
    write(file)
    tables = tmp_path / "tables"
    for given in (file, file.parent):
        code, text = said(capsys, "audit", str(given), "--tables", str(tables))
        assert code == errors.INPUT
        assert words in text
        assert "Traceback" not in text
    assert not tables.exists()


def test_a_folder_that_does_not_exist(capsys, tmp_path):
    code, text = said(capsys, "audit", str(tmp_path / "nowhere"), "--tables", str(tmp_path / "tables"))
    assert code == errors.INPUT
    assert "nowhere: no such file or folder" in text
    assert not (tmp_path / "tables").exists()


def test_an_empty_folder(capsys, tmp_path):
    code, text = said(capsys, "audit", str(tmp_path), "--tables", str(tmp_path / "tables"))
    assert code == errors.INPUT
    assert "No file was found" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--timezone", "Mars/Base"], "no such zone"),
        (["--day", "yesterday"], "--day takes"),
        (["--days", "2026-03-02..2026-03-01"], "before the first"),
        (["--now", "soon"], "give a time"),
        (["--config", "none.toml"], "No such file"),
    ],
)
def test_wrong_usage(capsys, tmp_path, arguments, words):
    (tmp_path / "a.log").write_text(LINE)
    code, text = said(capsys, "audit", str(tmp_path), "--tables", str(tmp_path / "tables"), *arguments)
    assert code == errors.USAGE
    assert words in text


def test_no_logs_given(capsys, tmp_path):
    code, text = said(capsys, "audit", "--tables", str(tmp_path / "tables"))
    assert code == errors.USAGE
    assert "No LOGS given" in text
