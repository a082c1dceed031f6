"""The command `alerts`: deliver what is due, show what would be sent, or test one sink."""

import argparse
import json
import os
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs import config as configuration
from jobs import engine, errors
from jobs.alerts import text
from jobs.alerts.outbox import FIRING, Due, Finding, Message
from jobs.alerts.sink import Sink
from jobs.alerts.sinks import SINK_TYPES
from jobs.arguments import add_command, add_wait
from jobs.config import Config
from jobs.config_entry import nearest
from jobs.errors import UsageError
from jobs.location import root_of
from jobs.progress import fail, stage
from parsers.explanation import counted

EXAMPLES = """\
examples:
  kafka-audit alerts --tables /data/audit --config audit.toml              # delivers what is due, also what failed before
  kafka-audit alerts --tables /data/audit --config audit.toml --dry-run    # prints what would go where; sends and writes nothing
  kafka-audit alerts --config audit.toml --test oncall                     # sends one alert that is marked as a test
  kafka-audit alerts --tables /data/audit --config audit.toml --again oncall
                                                                           after Alertmanager was restarted: it forgets all alerts

exit codes:
  0 all delivered   2 wrong usage or configuration   4 an alert could not be delivered
"""


def add_arguments(commands: Any) -> None:
    """Add `alerts` to the command line."""
    alerts = add_command(
        commands,
        "alerts",
        run,
        "",
        summary="deliver the alerts that are due; `audit` with [[alert]] does it, too",
        examples=EXAMPLES,
    )
    alerts.add_argument("--tables", metavar="DIR", help="folder of the Delta tables (not needed with --test)")
    alerts.add_argument(
        "--config", type=Path, required=True, metavar="audit.toml", help="the file with [[alert]]"
    )
    add_wait(alerts)
    what = alerts.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="print what would go where")
    what.add_argument("--test", metavar="SINK", help="send one alert marked as a test")
    what.add_argument("--again", metavar="SINK", help="notify a sink again of all that is firing")


def run(options: argparse.Namespace) -> int:
    """Return the exit code. Raises UsageError."""
    config = configuration.load(options.config)
    if not config.sinks:
        raise UsageError(f"{options.config}: no [[alert]]; nothing is sent anywhere")
    known = [sink.name for sink in config.sinks]
    for name in filter(None, (options.test, options.again)):
        if name not in known:
            raise UsageError(
                f"{options.config}: no alert is named {name!r}; did you mean {nearest(name, known)!r}?"
            )
    if options.again and not next(s for s in config.sinks if s.name == options.again).keeps_incidents:
        keepers = " and ".join(name for name, kind in SINK_TYPES.items() if kind.keeps_incidents)
        raise UsageError(
            f"--again {options.again}: only {keepers} keep incidents; people have read the messages of other sinks"
        )
    if options.test:
        return _test(next(sink for sink in config.sinks if sink.name == options.test), config, os.environ)
    if options.tables is None:
        raise UsageError("Give --tables DIR, the folder that `kafka-audit audit` wrote")
    from jobs.analysis import present

    present(options.tables)
    root = root_of(options.tables)
    if options.dry_run:
        return _with_tables(root, config, dry_run=True)
    from jobs.engine import damage, lease, session

    spark = session.start() if lease.needs_spark(root) else None
    with lease.acquire(root, uuid.uuid4().hex[:16], options.wait, spark) as lock:
        damage.refuse(root, versions=lock.versions)
        return _with_tables(root, config, again=options.again, guard=lock.check)


def _with_tables(
    root: str,
    config: Config,
    dry_run: bool = False,
    again: str | None = None,
    guard: Callable[[], None] = lambda: None,
) -> int:
    from jobs.alerts.delivery import Outbox, counts, findings_of, harms_of, plan

    store = None if dry_run else _store(root, guard)
    tables = engine.opened(
        root,
        names=("findings", "finding_subjects", "durability", "coverage", "alerts", "events"),
        store=store,
    )
    rows = engine.rows_of(tables.read("findings"))
    findings = findings_of(rows, harms_of(tables, rows))
    hours = tables.query("SELECT cluster, max(hour) AS hour FROM coverage GROUP BY cluster").rows()
    newest = {row["cluster"]: row["hour"] for row in hours if row["hour"] is not None}
    clusters = sorted({finding.cluster for finding in findings} | {row["cluster"] for row in hours})

    def append(rows: Any) -> None:
        assert store is not None
        store.append("alerts", rows)

    outbox = Outbox(tables, append, config, clusters, os.environ)
    if dry_run:
        now = datetime.now(UTC)
        planned = plan(config.sinks, findings, outbox.sent, now=now, newest=newest)
        context = outbox.context(planned, newest, now)
        for sink in config.sinks:
            print("\n".join(shown(sink, planned[sink.name], context)))
        return errors.CLEAN
    with stage("alerts") as doing:
        reports = outbox.deliver(findings, newest, again)
        doing.note(counts(reports))
    for report in reports:
        print(report.sentence())
    if not reports:
        print("Nothing is due.")
    return errors.DELIVERY if any(report.failed for report in reports) else errors.CLEAN


def _store(root: str, guard: Callable[[], None]) -> Any:
    """Return the store that writes the tables. guard: raises where the lease is lost."""
    from jobs.engine import session
    from jobs.engine.store import Store

    store = Store(session.start(), root, guard)
    store.open(rebuilds=False)
    return store


def shown(sink: Sink, messages: list[Message], context: text.Context) -> list[str]:
    """Return what would go to a sink, as lines: the bodies that would be sent, without secrets."""
    lines = [f"{sink.name} ({sink.type}, {sink.address()}): {counted(len(messages), 'message')}"]
    for request in sink.requests(messages, context):
        for message in request.messages:
            lines.append(f"  {message.state}: {text.summary(message, context)}")
        body = json.dumps(sink.readable(request.body), ensure_ascii=False, indent=2)
        lines += [f"    {line}" for line in body.splitlines()]
    return lines


def _test(sink: Sink, config: Config, environment: Mapping[str, str]) -> int:
    """Send one finding that is marked as a test; return the exit code."""
    from jobs.alerts.sink import Undelivered, deliver

    now = datetime.now(UTC)
    secrets = sink.secrets(environment)
    context = text.Context(
        tables="DIR",
        now=now,
        checks={"kafka_audit_test": "Test of kafka-audit"},
        report_url=config.report_url,
        hidden=secrets.hidden(),
        test=True,
    )
    finding = Finding(
        cluster=config.clusters[0].name if config.clusters else "test",
        fingerprint=f"test-{now:%Y%m%d%H%M%S}",
        check_id="kafka_audit_test",
        severity=sink.severity,
        status="new",
        title="Test of kafka-audit: sent by hand",
        detail=f"The command `kafka-audit alerts --test {sink.name}` sent it.",
        advice="Nothing. It shows that alerts arrive.",
        first_seen=now,
        last_seen=now,
    )
    message = Message(sink, finding.cluster, FIRING, finding.fingerprint, (Due(finding, FIRING, 1),))
    try:
        for request in sink.requests([message], context):
            deliver(sink, request, secrets)
    except Undelivered as error:
        fail(f"{sink.name}: {error}")
        return errors.DELIVERY
    print(f"Sent to {sink.name}: {text.summary(message, context)}")
    return errors.CLEAN
