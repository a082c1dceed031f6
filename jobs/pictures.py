"""What the report draws: rows of the tables, made small, then SVG that needs nothing but the page.

The strips are rectangles on a time axis. They are written by hand, not by a charting library: each mark is a link to its finding, colours
are the page's own (dark, light, print), and each picture has a title, a description and a table beside it for those who cannot see it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# the newest hours of a cluster's logs that its strip and its heat map show
HOURS = 24
# brokers that a picture shows; the ones with most to tell
BROKERS = 40
# days and topics of a cluster whose durability is drawn; the newest, and the worst
DAYS, TOPICS = 7, 12
# findings of a cluster that come with the strip of a partition
STRIPS = 20
BINS = 96
WIDTH, LEFT, ROW = 1000, 150, 22


class Span(NamedTuple):
    """A stretch of time, or a stretch in which `what` was so."""

    since: datetime
    until: datetime
    what: str = ""


@dataclass(frozen=True)
class Step:
    """An interval of a partition."""

    since: datetime
    until: datetime
    leader: int | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    phase: str | None


@dataclass(frozen=True)
class Strip:
    """The course of one partition around a finding. states: replica -> states that are not OnlineReplica. marks: moments of the proof."""

    topic: str
    partition: int
    steps: list[Step]
    states: dict[int, list[Span]]
    marks: list[datetime]


@dataclass(frozen=True)
class Night:
    """The newest hours of one cluster."""

    span: Span
    # begin of the term, controller
    terms: list[tuple[datetime, int]] = field(default_factory=list)
    # broker -> its outages
    outages: dict[int, list[Span]] = field(default_factory=dict)
    brokers: int = 0
    # what is counted -> number in each of BINS
    counts: dict[str, list[int]] = field(default_factory=dict)
    # broker -> hour -> partitions that its replica was out of sync in
    out_of_sync: dict[int, dict[datetime, int]] = field(default_factory=dict)


class TopicDay(NamedTuple):
    """How durable a topic was on one day: seconds summed over its partitions, as in `durability`."""

    topic: str
    day: date
    partitions: int
    full_isr: float
    under_replicated: float
    leaderless: float
    unknown: float
    below_min_isr: float


@dataclass(frozen=True)
class Durability:
    """The newest days of one cluster. days: of its worst topics, these in order. topics: how many there are."""

    days: list[TopicDay]
    topics: int


@dataclass(frozen=True)
class Pictures:
    """Night and durability by cluster, strip by fingerprint."""

    nights: dict[str, Night] = field(default_factory=dict)
    strips: dict[str, Strip] = field(default_factory=dict)
    durability: dict[str, Durability] = field(default_factory=dict)


# -- what is shown -----------------------------------------------------------------------------------------


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def gather(spark: "SparkSession", clusters: Sequence[str], findings: Sequence[Mapping[str, Any]]) -> Pictures:
    """Reads what is drawn, from the frames of `checks.register`.

    findings: rows of `findings`, the most important first; of each cluster the first STRIPS that are about a partition get a strip.
    """
    nights = {}
    for row in spark.sql(
        "SELECT cluster, min(ts) AS first, max(ts) AS last FROM audited_events WHERE ts IS NOT NULL GROUP BY cluster"
    ).collect():
        if row.cluster in clusters:
            last = _utc(row["last"])
            first, whole = _utc(row.first), timedelta(hours=HOURS)
            nights[row.cluster] = Night(Span(last - whole if last - first > whole else first, last))
    _terms(spark, nights)
    _outages(spark, nights)
    _counts(spark, nights)
    _heat(spark, nights)
    return Pictures(nights, _strips(spark, findings), _durability(spark, clusters))


def _durability(spark: "SparkSession", clusters: Sequence[str]) -> dict[str, Durability]:
    """Of the newest DAYS, the TOPICS that were longest without a leader or below min ISR, then those that lacked replicas longest."""
    sums = ", ".join(f"sum({name}) AS {name}" for name in TopicDay._fields[3:])
    rows = spark.sql(
        f"""WITH days AS (
          SELECT d.cluster, topic, day, max(partitions) AS partitions, {sums} FROM audited_durability d
          JOIN (SELECT cluster, max(day) AS newest FROM audited_durability GROUP BY cluster) n ON n.cluster = d.cluster
          WHERE day > date_sub(newest, {DAYS}) GROUP BY d.cluster, topic, day
        ), topics AS (
          SELECT cluster, topic, count(*) OVER (PARTITION BY cluster) AS topics, row_number() OVER (PARTITION BY cluster
            ORDER BY sum(leaderless) + sum(below_min_isr) DESC, sum(under_replicated) DESC, topic) AS place
          FROM days GROUP BY cluster, topic
        )
        SELECT * FROM days JOIN topics USING (cluster, topic) WHERE place <= {TOPICS} ORDER BY cluster, place, day"""
    ).collect()
    found: dict[str, Durability] = {}
    for row in rows:
        if row.cluster in clusters:
            found.setdefault(row.cluster, Durability([], row.topics)).days.append(
                TopicDay(*(row[name] for name in TopicDay._fields))
            )
    return found


def _terms(spark: "SparkSession", nights: dict[str, Night]) -> None:
    rows = spark.sql(
        """SELECT cluster, ts, coalesce(controller, node) AS node FROM audited_events
        WHERE ts IS NOT NULL AND event_type IN ('controller_elected', 'controller_epoch_incremented', 'controller_activated', 'controller_znode_claimed')
        ORDER BY cluster, ts"""
    ).collect()
    for row in rows:
        if (night := nights.get(row.cluster)) and row.node is not None and (not night.terms or night.terms[-1][1] != row.node):
            night.terms.append((_utc(row.ts), row.node))


def _outages(spark: "SparkSession", nights: dict[str, Night]) -> None:
    rows = spark.sql("SELECT cluster, broker, since, until, how FROM audited_broker_outages WHERE broker IS NOT NULL").collect()
    seen = defaultdict(set)
    for row in sorted(rows, key=lambda row: row.since):
        if night := nights.get(row.cluster):
            seen[row.cluster].add(row.broker)
            until = _utc(row.until) if row.until else night.span.until
            if until >= night.span.since:
                night.outages.setdefault(row.broker, []).append(Span(_utc(row.since), until, row.how))
    for row in spark.sql("SELECT DISTINCT cluster, explode(replicas) AS broker FROM audited_partitions_now").collect():
        seen[row.cluster].add(row.broker)
    for cluster, night in list(nights.items()):
        nights[cluster] = Night(night.span, night.terms, night.outages, len(seen[cluster]), night.counts, night.out_of_sync)


def _counts(spark: "SparkSession", nights: dict[str, Night]) -> None:
    """Elections, ISRs that shrink and grow, running reassignments, by bin."""
    rows = spark.sql(
        """WITH steps AS (
          SELECT cluster, valid_from, leader, leader_epoch, isr, size(coalesce(adding_replicas, array())) + size(coalesce(removing_replicas, array())) > 0 AS moving,
            coalesce(valid_to, current_timestamp()) AS valid_to, lag(isr) OVER w AS isr_before, lag(leader) OVER w AS leader_before
          FROM audited_partition_timeline
          WINDOW w AS (PARTITION BY cluster, incarnation, topic, partition ORDER BY step)
        ), spans AS (
          SELECT cluster, greatest(min(ts), max(ts) - INTERVAL 24 HOURS) AS since, max(ts) AS until FROM audited_events WHERE ts IS NOT NULL GROUP BY cluster
        )
        SELECT s.cluster, least(95, floor(96 * (unix_millis(s.valid_from) - unix_millis(p.since)) / greatest(1, unix_millis(p.until) - unix_millis(p.since)))) AS bin,
          count_if(size(array_except(s.isr_before, s.isr)) > 0) AS shrinks, count_if(size(array_except(s.isr, s.isr_before)) > 0) AS expansions,
          count_if(s.leader <> s.leader_before) AS elections, count_if(s.moving) AS reassignments
        FROM steps s JOIN spans p ON p.cluster = s.cluster AND s.valid_from BETWEEN p.since AND p.until
        GROUP BY 1, 2"""
    ).collect()
    names = {
        "shrinks": "ISR shrinks",
        "expansions": "ISR grows",
        "elections": "Leader changes",
        "reassignments": "Reassignment steps",
    }
    for row in rows:
        if night := nights.get(row.cluster):
            for column, name in names.items():
                night.counts.setdefault(name, [0] * BINS)[row.bin] += row[column]


def _heat(spark: "SparkSession", nights: dict[str, Night]) -> None:
    rows = spark.sql(
        """SELECT cluster, replica, hour, count(DISTINCT topic, partition) AS partitions FROM (
          SELECT s.cluster, s.replica, s.topic, s.partition, explode(sequence(
            date_trunc('HOUR', greatest(s.since, k.now - INTERVAL 24 HOURS)), date_trunc('HOUR', s.until), INTERVAL 1 HOUR)) AS hour
          FROM partition_spells s JOIN clocks k ON k.cluster = s.cluster
          WHERE s.kind = 'out_of_sync' AND s.until >= k.now - INTERVAL 24 HOURS AND s.since <= s.until
        ) GROUP BY cluster, replica, hour"""
    ).collect()
    for row in rows:
        if night := nights.get(row.cluster):
            night.out_of_sync.setdefault(row.replica, {})[_utc(row.hour)] = row.partitions


def _strips(spark: "SparkSession", findings: Sequence[Mapping[str, Any]]) -> dict[str, Strip]:
    """One partition each for the first findings of every cluster."""
    from jobs.store import quoted

    wanted: dict[str, Mapping[str, Any]] = {}
    so_far: dict[str, int] = defaultdict(int)
    for finding in findings:
        subject = finding.get("subject")
        if subject and so_far[finding["cluster"]] < STRIPS:
            so_far[finding["cluster"]] += 1
            wanted[finding["fingerprint"]] = finding
    if not wanted:
        return {}
    keys = {(f["cluster"], f["incarnation"], f["subject"][0], f["subject"][1]) for f in wanted.values()}
    values = ", ".join(f"({quoted(c)}, {i}, {quoted(t)}, {p})" for c, i, t, p in sorted(keys))
    of_these = f"JOIN VALUES {values} AS k(cluster, incarnation, topic, partition) USING (cluster, incarnation, topic, partition)"
    steps = defaultdict(list)
    for row in spark.sql(f"SELECT * FROM audited_partition_timeline {of_these} ORDER BY step").collect():
        steps[row.cluster, row.incarnation, row.topic, row.partition].append(row)
    states = defaultdict(list)
    for row in spark.sql(f"SELECT * FROM audited_replica_timeline {of_these} ORDER BY step").collect():
        states[row.cluster, row.incarnation, row.topic, row.partition].append(row)
    ids = sorted({record for finding in wanted.values() for record in list(finding["evidence"])[:10]})
    listed = ", ".join(map(quoted, ids))
    at = {row.record_id: _utc(row.ts) for row in spark.sql(f"SELECT record_id, ts FROM audited_events WHERE item = 0 AND ts IS NOT NULL AND record_id IN ({listed})").collect()}  # fmt: skip
    found = {}
    for fingerprint, finding in wanted.items():
        key = (finding["cluster"], finding["incarnation"], *finding["subject"][:2])
        strip = _strip(finding, steps[key], states[key], [at[record] for record in finding["evidence"] if record in at])
        if strip is not None:
            found[fingerprint] = strip
    return found


def _strip(finding: Mapping[str, Any], steps: list[Any], states: list[Any], marks: list[datetime]) -> Strip | None:
    begin, end = finding["first_seen"], finding["last_seen"]
    if begin is None or end is None:
        return None
    begin, end = _utc(begin), _utc(end)
    margin = max((end - begin) / 4, timedelta(seconds=20))
    try:
        first, last = begin - margin, end + margin
    except OverflowError:  # a forged time stamp at either end of the calendar
        return None
    shown = []
    for row in steps:
        since, until = (
            max(first, _utc(row.valid_from)) if row.valid_from else first,
            min(last, _utc(row.valid_to)) if row.valid_to else last,
        )
        if since < until and row.leader is not None:
            isr, replicas = tuple(row.isr or ()), tuple(row.replicas or ())
            adding, removing = tuple(row.adding_replicas or ()), tuple(row.removing_replicas or ())
            shown.append(Step(since, until, row.leader, isr, replicas, adding, removing, row.reassignment_phase))
    if not shown:
        return None
    unusual: dict[int, list[Span]] = defaultdict(list)
    for row in states:
        since, until = (
            max(first, _utc(row.valid_from)) if row.valid_from else first,
            min(last, _utc(row.valid_to)) if row.valid_to else last,
        )
        if since < until and row.state not in {"OnlineReplica", "KRaftOnline", "NonExistentReplica", "KRaftRemoved"}:
            unusual[row.replica].append(Span(since, until, row.state))
    topic, partition = finding["subject"]
    return Strip(topic, partition, shown, dict(unusual), sorted({at for at in marks if first <= at <= last}))


# -- how it is drawn ---------------------------------------------------------------------------------------


class _Axis:
    """Moments to places."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.seconds = max((span.until - span.since).total_seconds(), 1)

    def x(self, at: datetime) -> float:
        part = (at - self.span.since).total_seconds() / self.seconds
        return round(LEFT + min(max(part, 0), 1) * (WIDTH - LEFT - 10), 1)

    def bar(self, since: datetime, until: datetime) -> tuple[float, float]:
        """(x, width), never so narrow that it cannot be seen."""
        x = self.x(since)
        return x, max(round(self.x(until) - x, 1), 1.5)

    def ticks(self) -> list[tuple[float, str]]:
        for step in (5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 7 * 86400):
            if self.seconds / step <= 8:
                break
        first = datetime.fromtimestamp(-(-self.span.since.timestamp() // step) * step, UTC)
        form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%m-%d"
        times = [
            first + timedelta(seconds=step * number)
            for number in range(10)
            if self.span.until - first >= timedelta(seconds=step * number)
        ]
        return [(self.x(at), f"{at:{form}}") for at in times]


def _figure(name: str, words: tuple[str, str], parts: Iterable[Markup], height: float, table: Markup) -> Markup:
    """A picture with all that a reader of it may need. name: an id that no other figure of the page has. words: title, description."""
    svg = Markup(
        '<figure class="picture"><svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{n}-t {n}-d" xmlns="http://www.w3.org/2000/svg">'
        '<title id="{n}-t">{t}</title><desc id="{n}-d">{d}</desc>{p}</svg>'
        '<figcaption>{t}</figcaption><details class="trace"><summary>The same as a table</summary>{table}</details></figure>'
    )
    return svg.format(w=WIDTH, h=height, n=name, t=words[0], d=words[1], p=Markup("").join(parts), table=table)


def _rows(head: Sequence[str], rows: Iterable[Sequence[object]], most: int = 200) -> Markup:
    cells = [list(row) for row in rows]
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(_plain(str(cell))) for cell in row))
        for row in cells[:most]
    )
    rest = (
        Markup('<tr><td colspan="{}">and {} more</td></tr>').format(len(head), len(cells) - most)
        if len(cells) > most
        else Markup("")
    )
    heads = Markup("").join(Markup('<th scope="col">{}</th>').format(name) for name in head)
    return Markup('<div class="wide"><table><thead><tr>{}</tr></thead><tbody>{}{}</tbody></table></div>').format(
        heads, body, rest
    )


def _plain(text: str, width: int = 80) -> str:
    """Text of a log that may stand in a picture: printable, not too long."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: width + 1])
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def _text(x: float, y: float, text: str, kind: str = "label", width: int = 20) -> Markup:
    return Markup('<text x="{}" y="{}" class="{}">{}</text>').format(x, y, kind, _plain(text, width))


def _box(across: tuple[float, float], y: float, height: float, kind: str, title: str = "") -> Markup:
    """across: (x, width)"""
    inner = Markup("<title>{}</title>").format(_plain(title, 200)) if title else Markup("")
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}">{}</rect>').format(
        across[0], y, across[1], height, kind, inner
    )


def _scale(axis: _Axis, height: float) -> list[Markup]:
    parts = []
    for x, label in axis.ticks():
        parts.append(Markup('<line x1="{0}" y1="16" x2="{0}" y2="{1}" class="tick"/>').format(x, height))
        parts.append(_text(x, 12, label, "tick-label"))
    return parts


def _clock(at: datetime) -> str:
    return f"{at:%m-%d %H:%M:%S}"


HOW = {
    "shut_down": "shut down",
    "crashed": "process ended",
    "session_lost": "session lost",
    "broke_down": "gave up",
    "absent": "not there",
    "first_start": "starting",
}


def night_strip(name: str, cluster: str, night: Night, findings: Sequence[Mapping[str, Any]]) -> Markup:
    """Controllers, brokers, counts and findings of the newest hours. findings: with `anchor`, `severity`, `title`, first_seen."""
    axis = _Axis(night.span)
    parts: list[Markup] = []
    table: list[Sequence[object]] = []
    y = 24.0
    if night.terms:
        parts.append(_text(4, y + 15, "Controller"))
        for number, (since, node) in enumerate(night.terms):
            until = night.terms[number + 1][0] if number + 1 < len(night.terms) else night.span.until
            if until < night.span.since:
                continue
            x, width = axis.bar(since, until)
            parts.append(_box((x, width), y, ROW - 4, "term", f"controller {node} from {_clock(since)}"))
            if width > 14:
                parts.append(_text(x + 4, y + 13, str(node), "term-label"))
            table.append(("controller", node, _clock(since), _clock(until), ""))
        y += ROW
    troubled = sorted(
        night.outages, key=lambda broker: (-sum((o.until - o.since).total_seconds() for o in night.outages[broker]), broker)
    )
    for broker in sorted(troubled[:BROKERS]):
        parts.append(_text(4, y + 15, f"Broker {broker}"))
        parts.append(_box((LEFT, WIDTH - LEFT - 10), y + 7, 4, "up"))
        for outage in night.outages[broker]:
            x, width = axis.bar(outage.since, outage.until)
            parts.append(
                _box(
                    (x, width),
                    y,
                    ROW - 4,
                    f"down {outage.what}",
                    f"broker {broker} {HOW[outage.what]} {_clock(outage.since)} to {_clock(outage.until)}",
                )
            )
            table.append(("broker", broker, _clock(outage.since), _clock(outage.until), HOW[outage.what]))
        y += ROW
    quiet = night.brokers - min(len(troubled), BROKERS)
    if quiet > 0:
        parts.append(_text(4, y + 15, f"{quiet} more broker{'s' if quiet > 1 else ''}"))
        parts.append(
            _box((LEFT, WIDTH - LEFT - 10), y + 7, 4, "up", "served throughout" if len(troubled) <= BROKERS else "not shown")
        )
        y += ROW
    for what, counts in night.counts.items():
        if not any(counts):
            continue
        most = max(counts)
        parts.append(_text(4, y + 15, f"{what} (max {most})", width=24))
        wide = (WIDTH - LEFT - 10) / BINS
        for number, count in enumerate(counts):
            if count:
                high = max(2.0, round((ROW - 4) * count / most, 1))
                parts.append(
                    _box(
                        (round(LEFT + number * wide, 1), round(wide - 0.6, 1)),
                        round(y + ROW - 4 - high, 1),
                        high,
                        "count",
                        str(count),
                    )
                )
        table.append(("count", what, "", "", sum(counts)))
        y += ROW
    marked = [f for f in findings if f["first_seen"] is not None and _utc(f["first_seen"]) >= night.span.since][:200]
    if marked:
        parts.append(_text(4, y + 15, "Findings"))
        for finding in marked:
            x = axis.x(_utc(finding["first_seen"]))
            parts.append(
                Markup(
                    '<a href="#{}" aria-label="{}"><path d="M{} {} l6 14 l-12 0 z" class="mark {}"><title>{}</title></path></a>'
                ).format(
                    finding["anchor"], _plain(finding["title"], 120), x, y + 1, finding["severity"], _plain(finding["title"], 120)
                )
            )
        y += ROW
    title = f"{_plain(cluster, 60)}: {_clock(night.span.since)} to {_clock(night.span.until)} UTC"
    downs = sum(len(some) for some in night.outages.values())
    description = f"{len(night.terms)} controller terms, {downs} outages of {len(night.outages)} of {night.brokers} brokers, {len(marked)} findings."
    rows = _rows(("What", "Which", "From", "To", "How"), table)
    return _figure(name, (title, description), [*_scale(axis, y), *parts], y + 4, rows)


def partition_strip(name: str, strip: Strip) -> Markup:
    """Leader, ISR, reassignment and replica states of one partition."""
    span = Span(strip.steps[0].since, strip.steps[-1].until)
    axis = _Axis(span)
    replicas = sorted({r for step in strip.steps for r in (*step.replicas, *step.isr)} | set(strip.states))[:30]
    parts: list[Markup] = [_text(4, 39, "Leader")]
    for step in strip.steps:
        x, width = axis.bar(step.since, step.until)
        kind = "no-leader" if step.leader == -1 else "leader"
        parts.append(
            _box(
                (x, width),
                24,
                ROW - 4,
                kind,
                f"{'no leader' if step.leader == -1 else f'leader {step.leader}'} from {_clock(step.since)}",
            )
        )
        if width > 30:
            parts.append(_text(x + 4, 37, "none" if step.leader == -1 else str(step.leader), "term-label"))
    y = 24.0 + ROW
    for replica in replicas:
        parts.append(_text(4, y + 15, f"Replica {replica}"))
        for step in strip.steps:
            if replica not in step.replicas and replica not in step.isr:
                continue
            x, width = axis.bar(step.since, step.until)
            kind = "in-sync" if replica in step.isr else "out-of-sync"
            parts.append(
                _box(
                    (x, width),
                    y + 3,
                    ROW - 10,
                    kind,
                    f"replica {replica} {'in' if replica in step.isr else 'not in'} the ISR from {_clock(step.since)}",
                )
            )
            if replica in step.adding or replica in step.removing:
                word = "added" if replica in step.adding else "removed"
                parts.append(_box((x, width), y, 3, word, f"being {word}"))
        for state in strip.states.get(replica, []):
            x, width = axis.bar(state.since, state.until)
            parts.append(_box((x, width), y + ROW - 6, 3, "state", f"{state.what} from {_clock(state.since)}"))
        y += ROW
    phases = [step for step in strip.steps if step.phase]
    if phases:
        parts.append(_text(4, y + 15, "Reassignment"))
        for step in phases:
            x, width = axis.bar(step.since, step.until)
            parts.append(_box((x, width), y, ROW - 4, "phase", f"phase {step.phase} from {_clock(step.since)}"))
            if width > 12:
                parts.append(_text(x + 3, y + 13, step.phase or "", "term-label"))
        y += ROW
    for at in strip.marks[:20]:
        x = axis.x(at)
        parts.append(
            Markup('<line x1="{0}" y1="18" x2="{0}" y2="{1}" class="proof"><title>{2}</title></line>').format(
                x, y, f"a record that proves it, {_clock(at)}"
            )
        )
    title = f"{_plain(strip.topic, 80)}-{strip.partition}, {_clock(span.since)} to {_clock(span.until)} UTC"
    gone = sum((s.until - s.since).total_seconds() for s in strip.steps if s.leader == -1)
    description = f"{len(strip.steps)} intervals of replicas {', '.join(map(str, replicas))}; {gone:.0f} s without a leader."
    rows = (
        (
            _clock(s.since),
            "none" if s.leader == -1 else s.leader,
            _ids(s.isr),
            _ids(s.replicas),
            _ids(s.adding),
            _ids(s.removing),
            s.phase or "",
        )
        for s in strip.steps
    )
    table = _rows(("From", "Leader", "ISR", "Replicas", "Added", "Removed", "Phase"), rows, 60)
    return _figure(name, (title, description), [*_scale(axis, y), *parts], y + 4, table)


def _ids(some: Iterable[int]) -> str:
    return ",".join(map(str, some))


def heat_map(name: str, night: Night) -> Markup | None:
    """Broker by hour: partitions that its replica was out of sync in; None where there were none."""
    if not night.out_of_sync:
        return None
    hours = sorted({hour for row in night.out_of_sync.values() for hour in row})
    first, last = hours[0], hours[-1]
    hours = [first + timedelta(hours=n) for n in range(int((last - first).total_seconds() // 3600) + 1)]
    most = max(count for row in night.out_of_sync.values() for count in row.values())
    ranked = sorted(night.out_of_sync, key=lambda broker: (-sum(night.out_of_sync[broker].values()), broker))
    brokers = sorted(ranked[:BROKERS])
    wide = min((WIDTH - LEFT - 10) / len(hours), 80)
    parts = [
        _text(round(LEFT + n * wide, 1), 12, f"{hour:%H:%M}", "tick-label")
        for n, hour in enumerate(hours)
        if n % max(1, len(hours) // 12) == 0
    ]
    for place, broker in enumerate(brokers):
        y = 18 + place * ROW
        parts.append(_text(4, y + 15, f"Broker {broker}"))
        for n, hour in enumerate(hours):
            count = night.out_of_sync[broker].get(hour, 0)
            shade = 0 if not count else 1 + min(3, int(4 * count / (most + 1)))
            parts.append(
                _box(
                    (round(LEFT + n * wide, 1), round(wide - 1, 1)),
                    y,
                    ROW - 2,
                    f"heat heat-{shade}",
                    f"broker {broker}, {hour:%m-%d %H}:00: {count} partition(s)",
                )
            )
            if count and wide > 24:
                parts.append(_text(round(LEFT + n * wide + 4, 1), y + 14, f"{count:,}", "heat-label"))
    title = "Replicas out of sync, by broker and hour (UTC)"
    rest = len(night.out_of_sync) - len(brokers)
    description = f"Largest: {most} partitions." + (f" {rest} brokers with fewer are not shown." if rest else "")
    rows = ((b, f"{h:%m-%d %H}:00", c) for b in brokers for h, c in sorted(night.out_of_sync[b].items()))
    return _figure(name, (title, description), parts, 22 + len(brokers) * ROW, _rows(("Broker", "Hour", "Partitions"), rows))


DURABLE = {
    "full_isr": "full ISR",
    "under_replicated": "under-replicated",
    "leaderless": "no leader",
    "unknown": "not covered",
}


def durability_bars(name: str, durable: Durability) -> Markup:
    """A bar a topic and day: which share of the time its partitions were in which state, and below it how much of it was below min ISR.

    What is there at all can be seen: no part is narrower than two pixels.
    """
    topics = list(dict.fromkeys(one.topic for one in durable.days))
    days = sorted({one.day for one in durable.days})
    wide = (WIDTH - LEFT - 10) / max(len(days), 1)
    parts = [_text(round(LEFT + n * wide, 1), 12, f"{day:%Y-%m-%d}", "tick-label") for n, day in enumerate(days)]
    parts += [_text(4, 18 + n * ROW + 14, topic) for n, topic in enumerate(topics)]
    table = []
    for one in durable.days:
        x, y = LEFT + days.index(one.day) * wide, 18 + topics.index(one.topic) * ROW
        seconds = {kind: getattr(one, kind) for kind in DURABLE}
        whole, across = sum(seconds.values()), wide - 6
        if whole <= 0:
            continue
        label = f"{_plain(one.topic, 60)}, {one.day}: " + ", ".join(
            f"{_share(value, whole)} {DURABLE[kind]}" for kind, value in seconds.items() if value > 0
        )
        label += f"; below min ISR {one.below_min_isr:,.3f} s" if one.below_min_isr > 0 else ""
        at = x
        for kind, width in _widths(seconds, across).items():
            parts.append(_box((round(at, 1), round(width, 1)), y, ROW - 8, f"durable {kind}", label))
            at += width
        if one.below_min_isr > 0:
            below = max(2.0, min(across, across * one.below_min_isr / whole))
            parts.append(_box((round(x, 1), round(below, 1)), y + ROW - 7, 4, "durable below_min_isr", label))
        table.append(
            (one.topic, one.day, one.partitions, *(f"{value:,.3f}" for value in seconds.values()), f"{one.below_min_isr:,.3f}")
        )
    height = 18.0 + len(topics) * ROW + 6
    for n, (kind, word) in enumerate([*DURABLE.items(), ("below_min_isr", "below min ISR")]):
        x = LEFT + n * 168
        parts.append(
            _box(
                (x, 16),
                height + (5 if kind == "below_min_isr" else 0),
                4 if kind == "below_min_isr" else ROW - 8,
                f"durable {kind}",
            )
        )
        parts.append(_text(x + 21, height + 11, word, "label", 30))
    rest = durable.topics - len(topics)
    words = "Durability by topic and day (UTC), share of the time of all partitions"
    told = f"{len(topics)} of {durable.topics} topics" if rest else f"{durable.topics} topics"
    description = f"{told}, those first that were longest without a leader or below min ISR."
    description += f" The other {rest:,}: kafka-audit durability --tables DIR" if rest else ""
    if rest:
        height += ROW
        parts.append(
            _text(
                LEFT,
                height + 11,
                f"{rest:,} more topics, which were better off: kafka-audit durability --tables DIR",
                "tick-label",
                100,
            )
        )
    heads = ("Topic", "Day", "Partitions", *(f"{word}, s" for word in DURABLE.values()), "below min ISR, s")
    return _figure(name, (words, description), parts, height + ROW, _rows(heads, table))


def _share(seconds: float, whole: float) -> str:
    """`99.9 %`, never 0 of what there is, nor 100 of what is not all."""
    share = 100 * seconds / whole
    return "100 %" if seconds >= whole else "< 0.1 %" if share < 0.1 else f"{min(share, 99.9):.1f} %"


def _widths(seconds: Mapping[str, float], across: float) -> dict[str, float]:
    """Kind -> its share of a width, two at least where there is any; the widest gives."""
    whole = sum(seconds.values())
    found = {kind: max(2.0, across * value / whole) for kind, value in seconds.items() if value > 0}
    widest = max(found, key=lambda kind: found[kind])
    return found | {widest: max(2.0, across - sum(width for kind, width in found.items() if kind != widest))}


# colours are the page's; patterns tell kinds apart in black and white
PATTERNS = Markup(
    '<svg width="0" height="0" aria-hidden="true" focusable="false"><defs>'
    '<pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" class="paper"/><rect width="2" height="6" class="ink"/></pattern>'
    '<pattern id="dotted" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" class="paper"/><circle cx="3" cy="3" r="1.6" class="ink"/></pattern>'
    "</defs></svg>"
)
