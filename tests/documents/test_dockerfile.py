"""The Dockerfile: its targets, its user, and the packages that it omits, which are documented and locked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
LEFT_OUT = re.compile(r"--no-install-package (\S+)")


def stages() -> dict[str, str]:
    """Return name of a stage -> its instructions."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_both_targets_run_as_a_user_without_privileges():
    for name in ("local", "spark"):
        stage = stages()[name]
        assert "USER 10001" in stage
        assert stage.index("USER") < stage.index("ENTRYPOINT")
        assert f"COPY --from=build-{name}" in stage
    assert "openjdk" not in stages()["local"] + stages()["build-local"]


def test_omitted_packages_are_locked_and_documented():
    locked = {package["name"] for package in tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]}
    left_out = LEFT_OUT.findall(stages()["build-local"])
    assert set(left_out) <= locked
    assert {"pyspark", "delta-spark", "great-expectations"} <= set(left_out)
    assert LEFT_OUT.findall((ROOT / "docs" / "concepts" / "engines.md").read_text("utf-8")) == left_out
    assert "--locked" in stages()["build-local"]
    assert "--locked" in stages()["build-spark"]


def test_copied_files_exist():
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, flags=re.M):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
