"""min.insync.replicas, as lines tell it: of a topic or of the cluster, set, as a folder was created with, or in a broker's own configuration."""

import re
from typing import NamedTuple

from jobs.timelines.events import Event

MIN_ISR = "min.insync.replicas"
# as `{a -> b, ..}` up to 2.x prints it and in lines that update a configuration, as `{a=b, ..}` later does
_IN_TEXT = re.compile(r"\bmin\.insync\.replicas(?: -> |=)(\d+)")


class Setting(NamedTuple):
    """ts: microseconds; topic: null: of the cluster; value: null: removed; of_broker: what one broker was started with."""

    ts: int
    topic: str | None
    value: int | None
    of_broker: bool = False


def setting_of(e: Event) -> Setting | None:
    """What a line tells of it; null: nothing, or something about one broker that is set while it runs."""
    if e.ts is None:
        return None
    if e.event_type == "broker_configured":
        return Setting(e.ts, None, _number(e.config_value), True) if e.config_value else None
    if e.broker is not None:
        return None
    if e.config == MIN_ISR:
        return Setting(e.ts, e.topic, _number(e.config_value))
    if (
        e.event_type in ("config_updated", "config_override_read", "log_created")
        and e.text
        and (found := _IN_TEXT.search(e.text))
    ):
        return Setting(e.ts, e.topic, _number(found.group(1)))
    return None


def _number(text: str | None) -> int | None:
    # what has ten digits and more is none that a table could hold
    return int(text) if text and text.isdecimal() and len(text) < 10 else None
