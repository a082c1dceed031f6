"""Read min.insync.replicas from lines.

They are about a topic or the cluster, a created log, or a broker's own configuration.
"""

import re
from typing import NamedTuple

from jobs.timelines.event import Event

MIN_ISR = "min.insync.replicas"
# printed as `{a -> b, ..}` up to 2.x and in lines that update a configuration, later as `{a=b, ..}`
_IN_TEXT = re.compile(r"\bmin\.insync\.replicas(?: -> |=)(\d+)")


class Setting(NamedTuple):
    """A logged value.

    ts: microseconds. topic: None: the cluster. value: None: removed. of_broker: a broker was started with it.
    """

    ts: int
    topic: str | None
    value: int | None
    of_broker: bool = False


def setting_of(e: Event) -> Setting | None:
    """Return the setting that a line shows; None: none, or a setting of one running broker."""
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
    # a number of ten digits and more does not fit into a column
    return int(text) if text and text.isdecimal() and len(text) < 10 else None
