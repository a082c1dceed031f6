"""Draw the pictures of the report: aggregate rows of the tables, then write self-contained SVG.

The pictures are rectangles on a time axis, written by hand. altair with vl-convert, which draws without
network and browser, was tried. It adds 84 MB of native code and takes 70 ms and 14 kB for two bars. Its links
within the page lead to vega.github.io, its pictures have no title or description, and its text has one size
on a screen, a phone and paper.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from markupsafe import Markup

from jobs.analysis import PHASES
from parsers.explanation import counted
from schemas.durations import two_units
from schemas.moments import moment

if TYPE_CHECKING:
    from jobs.engine.queries import Queries

# number of the newest hours that the strip and the heat map of a cluster show
HOURS = 24
# most brokers that a picture shows: those with the longest outages, or out of sync most
BROKERS = 40
# most days and topics of a cluster whose durability is drawn: the newest days and the worst topics
DAYS, TOPICS = 7, 12
# most findings of a cluster with a partition's strip; most replicas of a strip; most marks of a picture
STRIPS, REPLICAS, MARKS = 20, 30, 60
BINS = 96
# pixels: height of a lane, width of its name, width of its drawing on a screen and on a phone
ROW, NAMES, WIDE, NARROW = 22, 140, 800, 190
# least width of a shape, in per cent of the picture
SLIVER = 0.25


class Span(NamedTuple):
    """An interval of time. what: the state in it."""

    since: datetime
    until: datetime
    what: str = ""


@dataclass(frozen=True)
class DrawnInterval:
    """An interval of a partition."""

    span: Span
    leader: int
    phase: str | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True)
class Strip:
    """The history of one partition around a finding. states: replica -> states other than OnlineReplica.

    marks: moments of the proof.
    """

    topic: str
    partition: int
    steps: list[DrawnInterval]
    states: dict[int, list[Span]]
    marks: list[datetime]


@dataclass
class RecentHours:
    """The newest hours of one cluster."""

    span: Span
    # (begin of a term, controller)
    terms: list[tuple[datetime, int]] = field(default_factory=list)
    # (end of a term by its controller's log, controller)
    ends: list[tuple[datetime, int]] = field(default_factory=list)
    # broker -> its outages
    outages: dict[int, list[Span]] = field(default_factory=dict)
    brokers: int = 0
    # kind of event -> number in each of BINS equal parts of the span
    counts: dict[str, list[int]] = field(default_factory=dict)
    # broker -> hour -> number of partitions in which its replica was out of sync
    out_of_sync: dict[int, dict[datetime, int]] = field(default_factory=dict)


class TopicDay(NamedTuple):
    """The durability of a topic on one day: seconds summed over its partitions, as in `durability`."""

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
    """The newest days of one cluster. days: of its worst topics, the worst first.

    topics: the number of all topics.
    """

    days: list[TopicDay]
    topics: int


@dataclass(frozen=True)
class Pictures:
    """Recent hours and durability by cluster, strip by fingerprint."""

    recent: dict[str, RecentHours] = field(default_factory=dict)
    strips: dict[str, Strip] = field(default_factory=dict)
    durability: dict[str, Durability] = field(default_factory=dict)


# -- the rows -----------------------------------------------------------------------------------------


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def read(queries: "Queries", clusters: Sequence[str], findings: Sequence[Mapping[str, Any]]) -> Pictures:
    """Read the rows of the pictures from the views of `checks.register`.

    findings: rows of `findings`, the most important first; the first STRIPS of each cluster that are about a
    partition get a strip.
    """
    recent = {}
    for row in queries.rows(
        f"""SELECT cluster, greatest(min(ts), max(ts) - INTERVAL {HOURS} HOURS) AS since, max(ts) AS until
        FROM audited_events WHERE ts IS NOT NULL GROUP BY cluster"""
    ):
        if row["cluster"] in clusters:
            recent[row["cluster"]] = RecentHours(Span(row["since"], row["until"]))
    if recent:
        moment = pa.timestamp("us", "UTC")
        spans = [
            {"cluster": name, "since": hours.span.since, "until": hours.span.until}
            for name, hours in recent.items()
        ]
        kinds = pa.schema([("cluster", pa.string()), ("since", moment), ("until", moment)])
        queries.view("recent_spans", pa.Table.from_pylist(spans, schema=kinds))
        for add in (_terms, _outages, _counts, _heat):
            add(queries, recent)
    return Pictures(recent, _strips(queries, findings), _durability(queries, clusters))


def _durability(queries: "Queries", clusters: Sequence[str]) -> dict[str, Durability]:
    """Read the newest DAYS of the worst TOPICS.

    They are ordered by time without a leader or below min ISR, then by time under-replicated.
    """
    sums = ", ".join(f"sum({name}) AS {name}" for name in TopicDay._fields[3:])
    rows = queries.rows(
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
    )
    found: dict[str, Durability] = {}
    for row in rows:
        if row["cluster"] in clusters:
            found.setdefault(row["cluster"], Durability([], row["topics"])).days.append(
                TopicDay(*(row[name] for name in TopicDay._fields))
            )
    return found


def _terms(queries: "Queries", recent: dict[str, RecentHours]) -> None:
    ends = "SELECT cluster, resigned_at, node FROM audited_controllers WHERE resigned_at IS NOT NULL ORDER BY cluster, resigned_at"
    for row in queries.rows(ends):
        if hours := recent.get(row["cluster"]):
            hours.ends.append((row["resigned_at"], row["node"]))
    rows = queries.rows(
        """SELECT cluster, ts, coalesce(controller, node) AS node FROM audited_events
        WHERE ts IS NOT NULL AND event_type IN ('controller_elected', 'controller_epoch_incremented', 'controller_activated', 'controller_znode_claimed')
        ORDER BY cluster, ts"""
    )
    for row in rows:
        at, node = row["ts"], row["node"]
        if (hours := recent.get(row["cluster"])) is None or node is None:
            continue
        # several lines log one election
        since, last = hours.terms[-1] if hours.terms else (at, None)
        if last != node or any(who == node and since < end <= at for end, who in hours.ends):
            hours.terms.append((at, node))


def _outages(queries: "Queries", recent: dict[str, RecentHours]) -> None:
    rows = queries.rows(
        """SELECT cluster, broker, o.since, coalesce(o.until, n.until) AS until, how, coalesce(o.until >= n.since, TRUE) AS shown
        FROM audited_broker_outages o JOIN recent_spans n USING (cluster) WHERE broker IS NOT NULL ORDER BY o.since"""
    )
    seen: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        seen[row["cluster"]].add(row["broker"])
        if row["shown"]:
            recent[row["cluster"]].outages.setdefault(row["broker"], []).append(
                Span(row["since"], row["until"], row["how"])
            )
    for row in queries.rows(
        "SELECT DISTINCT cluster, explode(replicas) AS broker FROM audited_partitions_now"
    ):
        seen[row["cluster"]].add(row["broker"])
    for cluster, hours in recent.items():
        hours.brokers = len(seen[cluster])


def _counts(queries: "Queries", recent: dict[str, RecentHours]) -> None:
    """Count by bin the elections, ISR shrinks and expansions, and the reassignments that ran in it."""
    place = f"least({BINS - 1}, floor({BINS} * (unix_millis(%s) - unix_millis(n.since)) / greatest(1, unix_millis(n.until) - unix_millis(n.since))))"
    rows = queries.rows(
        f"""WITH steps AS (
          SELECT cluster, valid_from, leader, isr, lag(isr) OVER w AS isr_before, lag(leader) OVER w AS leader_before
          FROM audited_partition_timeline
          WINDOW w AS (PARTITION BY cluster, incarnation, topic, partition ORDER BY step)
        )
        SELECT cluster, {place % "valid_from"} AS bin, count_if(size(array_except(isr_before, isr)) > 0) AS `ISR shrinks`,
          count_if(size(array_except(isr, isr_before)) > 0) AS `ISR expansions`, count_if(leader <> leader_before) AS `Elections`,
          0 AS `Reassignments`
        FROM steps JOIN recent_spans n USING (cluster) WHERE valid_from BETWEEN n.since AND n.until GROUP BY ALL
        UNION ALL
        SELECT cluster, bin, 0, 0, 0, count(*) FROM (
          SELECT cluster, explode(sequence({place % "greatest(started_at, n.since)"}, {place % "least(coalesce(completed_at, n.until), n.until)"})) AS bin
          FROM audited_reassignments JOIN recent_spans n USING (cluster)
          WHERE outcome <> 'never_started' AND started_at <= n.until AND coalesce(completed_at, n.until) >= greatest(started_at, n.since)
        ) GROUP BY ALL"""
    )
    for row in rows:
        for what in list(row)[2:]:
            recent[row["cluster"]].counts.setdefault(what, [0] * BINS)[row["bin"]] += row[what]


def _heat(queries: "Queries", recent: dict[str, RecentHours]) -> None:
    rows = queries.rows(
        """SELECT cluster, replica, hour, count(DISTINCT topic, partition) AS partitions FROM (
          SELECT cluster, s.replica, s.topic, s.partition, explode(sequence(
            date_trunc('HOUR', greatest(s.since, n.since)), date_trunc('HOUR', least(s.until, n.until)), INTERVAL 1 HOUR)) AS hour
          FROM partition_episodes s JOIN recent_spans n USING (cluster)
          WHERE s.kind = 'out_of_sync' AND s.until >= greatest(s.since, n.since) AND s.since <= n.until
        ) GROUP BY ALL"""
    )
    for row in rows:
        recent[row["cluster"]].out_of_sync.setdefault(row["replica"], {})[row["hour"]] = row["partitions"]


def _strips(queries: "Queries", findings: Sequence[Mapping[str, Any]]) -> dict[str, Strip]:
    """Read the partition of each of the first findings of every cluster."""
    chosen: dict[str, Mapping[str, Any]] = {}
    so_far: dict[str, int] = defaultdict(int)
    for finding in findings:
        subject = finding.get("subject")
        if subject and so_far[finding["cluster"]] < STRIPS:
            so_far[finding["cluster"]] += 1
            chosen[finding["fingerprint"]] = finding
    if not chosen:
        return {}
    keys = sorted({(f["cluster"], f["incarnation"], *f["subject"]) for f in chosen.values()})
    kinds = {"cluster": pa.string(), "incarnation": pa.int32(), "topic": pa.string(), "partition": pa.int32()}
    queries.view(
        "drawn",
        pa.table(
            [
                pa.array(some, kind)
                for some, kind in zip(zip(*keys, strict=True), kinds.values(), strict=True)
            ],
            names=list(kinds),
        ),
    )
    proofs = sorted({record for finding in chosen.values() for record in list(finding["evidence"])[:10]})
    queries.view("proofs", pa.table({"record_id": pa.array(proofs, pa.string())}))
    of_drawn = "JOIN drawn USING (cluster, incarnation, topic, partition) ORDER BY step"
    steps: dict[tuple[Any, ...], list[Any]] = {key: [] for key in keys}
    states: dict[tuple[Any, ...], list[Any]] = {key: [] for key in keys}
    for by_partition, table in ((steps, "partition_timeline"), (states, "replica_timeline")):
        for row in queries.rows(f"SELECT * FROM audited_{table} {of_drawn}"):
            by_partition[tuple(row[name] for name in kinds)].append(row)
    proven = "SELECT record_id, ts FROM audited_events JOIN proofs USING (record_id) WHERE item = 0 AND ts IS NOT NULL"
    at = {row["record_id"]: row["ts"] for row in queries.rows(proven)}
    found = {}
    for fingerprint, finding in chosen.items():
        key = (finding["cluster"], finding["incarnation"], *finding["subject"][:2])
        strip = _strip(
            finding, steps[key], states[key], [at[record] for record in finding["evidence"] if record in at]
        )
        if strip is not None:
            found[fingerprint] = strip
    return found


def _strip(
    finding: Mapping[str, Any], steps: list[Any], states: list[Any], marks: list[datetime]
) -> Strip | None:
    begin, end = finding["first_seen"], finding["last_seen"]
    if begin is None or end is None:
        return None
    begin, end = _utc(begin), _utc(end)
    margin = max((end - begin) / 4, timedelta(seconds=20))
    try:
        first, last = begin - margin, end + margin
    except OverflowError:  # a forged time stamp may be at either end of the calendar
        return None
    clipped = partial(_clipped, first=first, last=last)
    shown = [
        DrawnInterval(span, row["leader"], row["reassignment_phase"], *_ids_of(row))
        for row in steps
        if (span := clipped(row)) and row["leader"] is not None
    ]
    if not shown:
        return None
    unusual: dict[int, list[Span]] = defaultdict(list)
    for row in states:
        if row["state"] not in {"OnlineReplica", "KRaftOnline", "NonExistentReplica", "KRaftRemoved"} and (
            span := clipped(row)
        ):
            unusual[row["replica"]].append(span._replace(what=row["state"]))
    topic, partition = finding["subject"]
    return Strip(topic, partition, shown, dict(unusual), sorted({at for at in marks if first <= at <= last}))


def _ids_of(row: Any) -> Iterable[tuple[int, ...]]:
    return (
        tuple(some or ())
        for some in (row["isr"], row["replicas"], row["adding_replicas"], row["removing_replicas"])
    )


def _clipped(row: Any, first: datetime, last: datetime) -> Span | None:
    """Return the part of an interval between two moments."""
    since = max(first, row["valid_from"]) if row["valid_from"] else first
    until = min(last, row["valid_to"]) if row["valid_to"] else last
    return Span(since, until) if since < until else None


# -- the drawing ---------------------------------------------------------------------------------------

HOW = {
    "shut_down": "shut down",
    "crashed": "process ended",
    "session_lost": "lost its session, or fenced",
    "broke_down": "gave up",
    "absent": "not there",
    "first_start": "starting",
}
DURABLE = {
    "full_isr": "full ISR",
    "under_replicated": "under-replicated",
    "leaderless": "no leader",
    "unknown": "not covered",
}
# class of a shape -> its meaning; the key below a picture lists the classes in it
KEY = {
    "up": "serves",
    **{f"down {how}": words for how, words in HOW.items()},
    "no-leader": "no leader",
    "in-sync": "in the ISR",
    "out-of-sync": "not in the ISR",
    "added": "being added (AR)",
    "removed": "being removed (RR)",
    "state": "in a state other than online",
    "proof": "a record that proves it",
    **{f"phase {phase}": f"phase {phase}: {words}" for phase, words in PHASES.items()},
    **{f"durable {kind}": words for kind, words in DURABLE.items()},
    "durable below_min_isr": "below min ISR",
    "mark error": "finding: critical or error",
    "mark warning": "finding: warning or info",
}


class _Drawing:
    """Lanes below one another.

    Places across are per cent of the width, so that text has one size on a screen, a phone and paper.
    """

    def __init__(self, span: Span | None = None) -> None:
        self.names: list[Markup] = []
        self.parts: list[Markup] = []
        self.kinds: set[str] = set()
        self.top, self.high = 0.0, 18.0
        self.span = span or Span(datetime.now(UTC), datetime.now(UTC))
        self.seconds = max((self.span.until - self.span.since).total_seconds(), 1)

    def lane(self, name: str) -> None:
        """Begin the next lane."""
        self.names.append(Markup('<text x="0" y="{}">{}</text>').format(self.high + 13, _plain(name, 20)))
        self.top, self.high = self.high, self.high + ROW

    def place(self, at: datetime) -> float:
        return min(max((at - self.span.since).total_seconds() / self.seconds, 0), 1) * 100

    def bar(
        self, span: Span, kind: str, words: str, *, text: str = "", top: float = 0, high: float = ROW - 4
    ) -> None:
        """Draw a box from one moment to another."""
        x, when = self.place(span.since), f"{_clock(span.since)} to {_clock(span.until)}"
        self.box((x, self.place(span.until) - x), kind, f"{words}, {when}", text=text, top=top, high=high)

    def box(
        self,
        across: tuple[float, float],
        kind: str,
        words: str,
        *,
        text: str = "",
        top: float = 0,
        high: float = ROW - 4,
    ) -> None:
        """Draw a box that is wide enough to be seen. across: (place, width). text: shown where it fits."""
        x, wide = across[0], max(across[1], 0.2)
        self.kinds.add(kind)
        across_and_down = Markup('x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}"').format(
            x, self.top + top, wide, high
        )
        self.parts.append(
            Markup('<rect {} class="{}"><title>{}</title></rect>').format(
                across_and_down, kind, _plain(words, 200)
            )
        )
        needed = 7 * len(text) + 6
        if text and wide * WIDE / 100 >= needed:
            narrow = " wide-only" if wide * NARROW / 100 < needed else ""
            inner = Markup('<svg {}><text x="4" y="13" class="inner{}">{}</text></svg>')
            self.parts.append(inner.format(across_and_down, narrow, text))

    def tick(self, x: float, label: str, number: int, line: bool = True) -> None:
        """Draw a label on top; a phone shows every third one."""
        sparse = " wide-only" if number % 3 else ""
        text = '<text x="{:.2f}%" y="11" class="tick-label{}" text-anchor="{}">{}</text>'
        self.parts.append(Markup(text).format(x, sparse, "end" if x > 94 else "start", label))
        if line:
            self.parts.append(
                Markup('<line x1="{0:.2f}%" y1="14" x2="{0:.2f}%" y2="{1}" class="tick"/>').format(
                    x, self.high
                )
            )

    def ticks(self) -> None:
        """Draw ticks for days, hours, minutes or seconds behind the shapes."""
        for step in (5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 7 * 86400):
            if self.seconds / step <= 8:
                break
        first = datetime.fromtimestamp(-(-self.span.since.timestamp() // step) * step, UTC)
        form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%m-%d"
        drawn, self.parts = self.parts, []
        for number in range(10):
            if (at := first + timedelta(seconds=step * number)) <= self.span.until:
                self.tick(self.place(at), f"{at:{form}}", number)
        self.parts += drawn

    def figure(
        self, name: str, words: tuple[str, str], table: Markup, *, linked: bool = False, note: str = ""
    ) -> Markup:
        """Return the picture with its key and the same data as a table.

        name: an id that no other figure has. words: title, description. linked: its marks lead to findings.
        note: a line below it.
        """
        swatch = '<span><svg width="16" height="12" aria-hidden="true"><rect width="16" height="12" class="{}"/></svg> {}</span>'
        key = Markup(" ").join(
            Markup(swatch).format(kind, meaning) for kind, meaning in KEY.items() if kind in self.kinds
        )
        return Markup(
            '<figure class="picture"><figcaption>{t}</figcaption><div class="lanes">'
            '<svg class="names" width="{names}" height="{h}" aria-hidden="true" xmlns="{ns}">{labels}</svg>'
            '<svg class="plot" height="{h}" role="{role}" aria-labelledby="{n}-t {n}-d" xmlns="{ns}">'
            '<title id="{n}-t">{t}</title><desc id="{n}-d">{d}</desc>{p}</svg></div><p class="key">{key} {note}</p>'
            '<details class="trace"><summary>The same as a table</summary>{table}</details></figure>'
        ).format(
            n=name,
            t=words[0],
            d=words[1],
            h=self.high + 2,
            ns="http://www.w3.org/2000/svg",
            names=NAMES,
            labels=Markup("").join(self.names),
            role="group" if linked else "img",
            p=Markup("").join(self.parts),
            key=key,
            note=note,
            table=table,
        )


def _rows(head: Sequence[str], rows: Iterable[Sequence[object]], most: int = 200) -> Markup:
    cells = [list(row) for row in rows]
    row = Markup("<tr>{}</tr>")
    body = [
        row.format(Markup("").join(Markup("<td>{}</td>").format(_plain(str(cell))) for cell in line))
        for line in cells[:most]
    ]
    if len(cells) > most:
        body.append(
            Markup('<tr><td colspan="{}">and {:,} more</td></tr>').format(len(head), len(cells) - most)
        )
    heads = row.format(Markup("").join(Markup('<th scope="col">{}</th>').format(name) for name in head))
    table = Markup('<div class="wide"><table><thead>{}</thead><tbody>{}</tbody></table></div>')
    return table.format(heads, Markup("").join(body))


def _plain(text: str, width: int = 80) -> str:
    """Return the text of a log as printable text of limited length."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: width + 1])
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def _clock(at: datetime) -> str:
    return f"{at:%m-%d %H:%M:%S}"


def _between(span: Span) -> str:
    """Return a span such as `2026-11-20 10:00:00 UTC to 11:00:00 UTC`."""
    return f"{moment(span.since)} to {moment(span.until, span.since)}"


def _ids(some: Iterable[int]) -> str:
    return ", ".join(map(str, some))


def _terms_shown(hours: RecentHours) -> Iterator[tuple[datetime, datetime, int]]:
    """Yield begin, end and controller of each term.

    It ends when its controller resigns, or when the next one begins.
    """
    for number, (since, node) in enumerate(hours.terms):
        following = [begin for begin, _ in hours.terms[number + 1 : number + 2]]
        resigned = [end for end, who in hours.ends if who == node and end > since]
        yield since, min([hours.span.until, *following, *resigned]), node


def recent_strip(
    name: str, cluster: str, hours: RecentHours, findings: Sequence[Mapping[str, Any]]
) -> Markup:
    """Draw controllers, brokers, counts and findings of the newest hours.

    findings: `anchor`, `severity`, `title`, `first_seen`, the worst first; the first MARKS in these hours are
    drawn.
    """
    drawing = _Drawing(hours.span)
    table: list[Sequence[object]] = []
    terms = [(node, Span(since, until)) for since, until, node in _terms_shown(hours)]
    if terms:
        drawing.lane("Controller")
    for node, term in terms:
        if term.until >= hours.span.since:
            drawing.bar(term, "term", f"controller {node}", text=str(node))
            table.append(("controller", node, _clock(term.since), _clock(term.until), ""))
    longest = {
        broker: sum((o.until - o.since).total_seconds() for o in some)
        for broker, some in hours.outages.items()
    }
    troubled = sorted(longest, key=lambda broker: (-longest[broker], broker))
    for broker in sorted(troubled[:BROKERS]):
        drawing.lane(f"Broker {broker}")
        drawing.box((0, 100), "up", "serves", top=7, high=4)
        for outage in hours.outages[broker]:
            drawing.bar(outage, f"down {outage.what}", f"broker {broker} {HOW[outage.what]}")
            table.append(("broker", broker, _clock(outage.since), _clock(outage.until), HOW[outage.what]))
    rest = hours.brokers - min(len(troubled), BROKERS)
    if rest > 0:
        drawing.lane(counted(rest, "more broker" if troubled else "broker"))
        shown = "up" if len(troubled) <= BROKERS else "not-shown"
        drawing.box((0, 100), shown, "served throughout" if shown == "up" else "not shown", top=7, high=4)
    for what, counts in hours.counts.items():
        if (most := max(counts)) == 0:
            continue
        drawing.lane(f"{what}, up to {most:,}")
        for number, count in enumerate(counts):
            if count:
                high = max(2.0, (ROW - 4) * count / most)
                words = f"{what}: {count:,}, about {_clock(hours.span.since + (number + 0.5) / BINS * (hours.span.until - hours.span.since))}"
                drawing.box(
                    (100 * number / BINS, 100 / BINS - 0.06), "count", words, top=ROW - 4 - high, high=high
                )
        table.append(
            (
                what,
                "",
                "",
                "",
                f"up to {most:,} within {two_units((hours.span.until - hours.span.since).total_seconds() / BINS)}",
            )
        )
    marked = [
        f for f in findings if f["first_seen"] is not None and _utc(f["first_seen"]) >= hours.span.since
    ]
    if marked:
        drawing.lane("Findings")
    link = Markup(
        '<a href="#{}" aria-label="{}: {}"><svg x="{:.2f}%" y="{}" class="free"><path d="M0 0 l6 15 l-12 0 z" class="mark {}">'
        "<title>{}</title></path></svg></a>"
    )
    for finding in reversed(marked[:MARKS]):  # the worst is drawn last, above the others
        x = drawing.place(_utc(finding["first_seen"]))
        title = _plain(finding["title"], 120)
        severity = finding["severity"]
        drawing.kinds.add("mark error" if severity in {"critical", "error"} else "mark warning")
        drawing.parts.append(
            link.format(finding["anchor"], severity, title, x, drawing.top + 1, severity, title)
        )
    drawing.ticks()
    down = {
        broker: count
        for broker, some in hours.outages.items()
        if (count := sum(one.what != "first_start" for one in some))
    }
    description = (
        f"{counted(len(terms), 'controller term')}, {counted(sum(down.values()), 'outage')} of {len(down)} of {counted(hours.brokers, 'broker')}, "
        f"{counted(len(marked), 'finding')}."
    )
    rows = _rows(("What", "Which", "From", "To", "How, or how many"), table)
    title = f"What happened in {_plain(cluster, 60)}, {_between(hours.span)}"
    return drawing.figure(name, (title, description), rows, linked=bool(marked))


def partition_strip(name: str, strip: Strip) -> Markup:
    """Draw leader, ISR, reassignment and replica states of one partition."""
    span = Span(strip.steps[0].span.since, strip.steps[-1].span.until)
    drawing = _Drawing(span)
    replicas = sorted({r for step in strip.steps for r in (*step.replicas, *step.isr)} | set(strip.states))[
        :REPLICAS
    ]
    drawing.lane("Leader")
    for step in strip.steps:
        leads = step.leader != -1
        words = f"leader {step.leader}" if leads else "no leader"
        drawing.bar(
            step.span, "leader" if leads else "no-leader", words, text=str(step.leader) if leads else "none"
        )
    for replica in replicas:
        drawing.lane(f"Replica {replica}")
        for step in strip.steps:
            if replica not in step.replicas and replica not in step.isr:
                continue
            kind, words = (
                ("in-sync", "in the ISR") if replica in step.isr else ("out-of-sync", "not in the ISR")
            )
            drawing.bar(step.span, kind, f"replica {replica} {words}", top=4, high=ROW - 12)
            for kind, some in (("added", step.adding), ("removed", step.removing)):
                if replica in some:
                    drawing.bar(step.span, kind, f"being {kind}", high=4)
        for state in strip.states.get(replica, []):
            drawing.bar(state, "state", state.what, top=ROW - 7, high=4)
    if any(step.phase for step in strip.steps):
        drawing.lane("Reassignment")
    for step in strip.steps:
        if step.phase:
            drawing.bar(step.span, f"phase {step.phase}", f"phase {step.phase}", text=step.phase)
    drawing.top = 14
    for at in strip.marks[:MARKS]:
        drawing.box(
            (drawing.place(at), 0), "proof", f"a record that proves it, {_clock(at)}", high=drawing.high - 16
        )
    drawing.ticks()
    title = f"{_plain(strip.topic, 80)}-{strip.partition}, {_between(span)}"
    leaderless = sum(
        (step.span.until - step.span.since).total_seconds() for step in strip.steps if step.leader == -1
    )
    description = f"{counted(len(strip.steps), 'interval')} of replicas {_ids(replicas)}; {leaderless:.0f} s without a leader."
    rows = [
        (
            _clock(s.span.since),
            "none" if s.leader == -1 else s.leader,
            *map(_ids, (s.isr, s.replicas, s.adding, s.removing)),
            s.phase or "",
        )
        for s in strip.steps
    ]
    table = _rows(("From", "Leader", "ISR", "Replicas", "Added", "Removed", "Phase"), rows, 60)
    return drawing.figure(name, (title, description), table)


def heat_map(name: str, recent: RecentHours) -> Markup | None:
    """Draw the number of partitions in which a broker's replica was out of sync, by hour.

    None where there were none.
    """
    if not recent.out_of_sync:
        return None
    found = {hour for row in recent.out_of_sync.values() for hour in row}
    first, hours = min(found), int((max(found) - min(found)).total_seconds() // 3600) + 1
    most = max(count for row in recent.out_of_sync.values() for count in row.values())
    ranked = sorted(
        recent.out_of_sync, key=lambda broker: (-sum(recent.out_of_sync[broker].values()), broker)
    )
    brokers = sorted(ranked[:BROKERS])
    wide = min(100 / hours, 10)
    drawing = _Drawing()
    shown = [(n, first + timedelta(hours=n)) for n in range(hours)]
    for n, hour in shown[:: max(1, hours // 12)]:
        drawing.tick(n * wide, f"{hour:%H:%M}", n // max(1, hours // 12), line=False)
    for broker in brokers:
        drawing.lane(f"Broker {broker}")
        for n, hour in shown:
            count = recent.out_of_sync[broker].get(hour, 0)
            shade = 0 if not count else 1 + min(3, int(4 * count / (most + 1)))
            words = f"broker {broker}, {hour:%m-%d %H}:00: {counted(count, 'partition')}"
            drawing.box(
                (n * wide, wide - 0.1),
                f"heat heat-{shade}",
                words,
                text=f"{count:,}" if count else "",
                high=ROW - 2,
            )
    rest = len(recent.out_of_sync) - len(brokers)
    description = f"At most {counted(most, 'partition')} in an hour." + (
        f" {counted(rest, 'more broker')} with fewer." if rest else ""
    )
    rows = ((b, f"{h:%m-%d %H}:00", c) for b in brokers for h, c in sorted(recent.out_of_sync[b].items()))
    title = "Under-replicated partitions: those that a broker's replica was out of sync in, by hour (UTC)"
    return drawing.figure(name, (title, description), _rows(("Broker", "Hour", "Partitions"), rows))


def durability_bars(name: str, durable: Durability) -> Markup:
    """Draw a bar per topic and day: the share of time in each state, and below it the share below min ISR."""
    topics = list(dict.fromkeys(one.topic for one in durable.days))
    days = sorted({one.day for one in durable.days})
    wide = 100 / max(len(days), 1)
    drawing = _Drawing()
    for n, day in enumerate(days):
        drawing.tick(n * wide, f"{day:%m-%d}", n, line=False)
    table = []
    for topic in topics:
        drawing.lane(topic)
        for one in (one for one in durable.days if one.topic == topic):
            seconds = {kind: getattr(one, kind) for kind in DURABLE}
            whole, across, x = sum(seconds.values()), wide * 0.96, days.index(one.day) * wide
            if whole <= 0:
                continue
            label = f"{_plain(topic, 60)}, {one.day}: " + ", ".join(
                f"{_share(value, whole)} {DURABLE[kind]}" for kind, value in seconds.items() if value > 0
            )
            label += f"; below min ISR {one.below_min_isr:,.3f} s" if one.below_min_isr > 0 else ""
            at = x
            for kind, width in _widths(seconds, across).items():
                drawing.box((at, width), f"durable {kind}", label, high=ROW - 8)
                at += width
            if one.below_min_isr > 0:
                below = min(across, across * one.below_min_isr / whole)
                drawing.box((x, below), "durable below_min_isr", label, top=ROW - 7, high=4)
            table.append(
                (
                    topic,
                    one.day,
                    one.partitions,
                    *(f"{value:,.3f}" for value in (*seconds.values(), one.below_min_isr)),
                )
            )
    rest = durable.topics - len(topics)
    title = "Durability by topic and day (UTC), share of the time of all partitions"
    note = f"{rest:,} more topics, which were better off: kafka-audit durability --tables DIR" if rest else ""
    shown = f"{len(topics)} of {durable.topics:,} topics" if rest else counted(durable.topics, "topic")
    description = f"{shown}, those first that were longest without a leader or below min ISR."
    heads = ("Topic", "Day", "Partitions", *(f"{word}, s" for word in DURABLE.values()), "below min ISR, s")
    return drawing.figure(name, (title, description), _rows(heads, table), note=note)


def _share(seconds: float, whole: float) -> str:
    """Return a share such as `99.9 %`; it is 100 % only for all, and never 0 %."""
    share = 100 * seconds / whole
    return "100 %" if seconds >= whole else "< 0.1 %" if share < 0.1 else f"{min(share, 99.9):.1f} %"


def _widths(seconds: Mapping[str, float], across: float) -> dict[str, float]:
    """Return kind -> its share of a width, at least SLIVER.

    The widest share is reduced by what the others gain.
    """
    whole = sum(seconds.values())
    found = {kind: max(SLIVER, across * value / whole) for kind, value in seconds.items() if value > 0}
    widest = max(found, key=lambda kind: found[kind])
    return found | {
        widest: max(SLIVER, across - sum(width for kind, width in found.items() if kind != widest))
    }


# colours are in the page's style; patterns distinguish kinds in black and white
PATTERNS = Markup(
    '<svg width="0" height="0" aria-hidden="true" focusable="false"><defs>'
    '<pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" class="paper"/><rect width="2" height="6" class="ink"/></pattern>'
    '<pattern id="dotted" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" class="paper"/><circle cx="3" cy="3" r="1.6" class="ink"/></pattern>'
    "</defs></svg>"
)
