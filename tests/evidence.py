"""The order of the records of findings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jobs import engine


def out_of_order(tables: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (check, cluster, title) of each finding whose records are not in the order of their time stamps."""
    opened = engine.opened(str(tables), names=("findings", "events"))
    query = """
      WITH quoted AS (SELECT fingerprint, cluster, check_id, title, posexplode(evidence) AS (place, record_id) FROM findings),
      dated AS (
        SELECT q.*, e.ts, lag(e.ts) OVER (PARTITION BY q.cluster, q.fingerprint ORDER BY q.place) AS before
        FROM quoted q JOIN (SELECT DISTINCT cluster, record_id, ts FROM events WHERE item = 0) e ON e.cluster = q.cluster AND e.record_id = q.record_id
        WHERE e.ts IS NOT NULL)
      SELECT DISTINCT check_id, cluster, title FROM dated WHERE ts < before ORDER BY 1, 2, 3
    """
    for row in opened.query(query).rows():
        yield row["check_id"], row["cluster"], row["title"]
