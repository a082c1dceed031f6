"""Settings of the session: no JVM is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.engine import session


@pytest.mark.parametrize(
    ("megabytes", "input_bytes", "heap"),
    [(4_000, 10**9, "2048m"), (16_000, 10**9, "4000m"), (64_000, None, "8192m"), (64_000, 1000, "2048m")],
)
def test_memory(monkeypatch: pytest.MonkeyPatch, megabytes: int, input_bytes: int | None, heap: str) -> None:
    monkeypatch.delenv("KAFKA_AUDIT_MEMORY", raising=False)
    monkeypatch.setattr(session, "memory_mb", lambda: megabytes)
    assert session.settings(input_bytes)["spark.driver.memory"] == heap
    monkeypatch.setenv("KAFKA_AUDIT_MEMORY", "3g")
    assert session.settings(input_bytes)["spark.driver.memory"] == "3g"


def test_a_container_has_less_memory_than_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(session, "CGROUP_LIMITS", (limit, tmp_path / "none"))
    whole = session.memory_mb()
    limit.write_text("max\n")
    assert session.memory_mb() == whole > 0
    limit.write_text(f"{512 << 20}\n")
    assert session.memory_mb() == min(whole, 512)
