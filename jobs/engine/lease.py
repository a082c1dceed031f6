"""One run at a time: a lease beside the tables, kept as the last commit of a Delta table without rows.

Each commit of that table takes the number after the last one, which Delta gives to one writer only: that is
the whole protocol. A commit names the holder of the lease, or nobody. The holder commits again while it
works. A lease that was not renewed for EXPIRES seconds, or whose process has ended on this machine, is taken
over. The text of a commit is its `userMetadata`, which delta-rs and Spark both read and write.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from jobs.engine.conflicts import Conflict, refused
from jobs.errors import AuditError, UsageError
from jobs.location import delta_rs_uri, local_folder, writable
from jobs.progress import warn
from schemas.moments import moment

TABLE = "_lease"
# seconds after which a lease that was not renewed is taken over; the clocks of two machines must differ by
# less
EXPIRES = 180
RENEWED_EVERY = 30
# between two looks of a run that waits
LOOKS_EVERY = 1.0
# name of Delta's application transactions: Spark refuses a number that is taken
TRANSACTIONS = "kafka_audit.lease"
COLUMN = "holder"
PROPERTIES = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
# what delta-rs raises where it cannot do something
CANNOT = (DeltaError, OSError)
# options of delta-rs for an object store: an unreachable one is reported soon
LIMITS = {"max_retries": "3", "retry_timeout": "30s", "connect_timeout": "10s"}
# setting of Spark -> its name in delta-rs
S3_OPTIONS = {
    "spark.hadoop.fs.s3a.access.key": "aws_access_key_id",
    "spark.hadoop.fs.s3a.secret.key": "aws_secret_access_key",
    "spark.hadoop.fs.s3a.session.token": "aws_session_token",
    "spark.hadoop.fs.s3a.endpoint": "aws_endpoint_url",
    "spark.hadoop.fs.s3a.endpoint.region": "aws_region",
}


class LeaseError(AuditError):
    """Another run holds the lease, or has taken it over."""

    exit_code = UsageError.exit_code


class Commits(Protocol):
    """The table of the lease."""

    def last(self) -> tuple[int, str]:
        """Return the number and the text of the last commit; the table is created where it is missing."""

    def commit(self, after: int, text: str) -> bool:
        """Add the commit after one; False where another run has added it. text: of no other commit."""


@dataclass(frozen=True)
class Holder:
    """A run that holds the lease.

    machine: identifies where the process number is valid; began: start of the process in ticks, 0: not known.
    """

    host: str
    process: int
    run_id: str
    since: str
    machine: str = ""
    began: int = 0

    @classmethod
    def of_this_process(cls, run_id: str) -> "Holder":
        """This run."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), run_id, since, _machine(), _began(os.getpid()) or 0)

    @property
    def is_dead(self) -> bool:
        """Return whether it ran on this machine and its process has ended."""
        if not self.machine or self.machine != _machine():
            return False
        began = _began(self.process)
        return began is None or self.began not in (0, began)

    def __str__(self) -> str:
        since = moment(datetime.fromisoformat(self.since))
        return f"host {self.host}, process {self.process}, run {self.run_id}, since {since}"


def _machine() -> str:
    """Return what a process number belongs to: this boot of this machine, and its namespace of processes.

    Empty where it is not known.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _began(process: int) -> int | None:
    """Return when a process began, in ticks since the boot; None where there is none."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # a zombie has ended
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class State:
    """The content of the last commit.

    holder: None: the lease is free. versions: table -> number of its last commit, when a run ended in order.
    """

    holder: Holder | None
    renewed_at: float
    expires: float
    versions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "State":
        """Read the text of a commit; a lease that cannot be read is free."""
        try:
            content = json.loads(text)
            holder = Holder(**content["holder"]) if content["holder"] else None
            versions = {str(name): int(version) for name, version in content.get("versions", {}).items()}
            return cls(holder, float(content["renewed_at"]), float(content["expires"]), versions)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(None, 0, 0)

    def text(self) -> str:
        """For a commit; no two are the same."""
        return json.dumps(asdict(self) | {"key": uuid.uuid4().hex})

    @property
    def is_over(self) -> bool:
        """Return whether it may be taken."""
        return self.holder is None or self.holder.is_dead or time.time() - self.renewed_at > self.expires


class Lease:
    """A lease that this run holds.

    Threads may share it. versions: of the tables, for the next run; those that the last run left.
    """

    def __init__(
        self, commits: Commits, holder: Holder, version: int, versions: Mapping[str, int] | None = None
    ) -> None:
        self._commits, self._holder, self._version = commits, holder, version
        self.versions: Mapping[str, int] = versions or {}
        self._renewed_at = time.time()
        self._turn, self._stop = threading.Lock(), threading.Event()
        self._taken_by: str | None = None
        self._renewing = threading.Thread(target=self._renew, daemon=True, name="lease")

    def _renew(self) -> None:
        while not self._stop.wait(RENEWED_EVERY):
            with self._turn:
                self._renew_once()

    def _renew_once(self) -> None:
        if self._taken_by is not None or self._stop.is_set():
            return
        try:
            if self._commits.commit(
                self._version, State(self._holder, time.time(), EXPIRES, self.versions).text()
            ):
                self._version, self._renewed_at = self._version + 1, time.time()
            else:
                self._taken_by = str(State.of(self._commits.last()[1]).holder or "a run that has ended")
        except Exception:
            # the place may be out of reach for a moment; the lease is lost when it expires
            if time.time() - self._renewed_at > EXPIRES:
                self._taken_by = "nobody; it could not be renewed"

    def check(self) -> None:
        """Raise LeaseError where this run does not hold the lease any more: it must not write."""
        if self._taken_by is None and time.time() - self._renewed_at > EXPIRES / 2:
            # the process was stopped for a while
            with self._turn:
                self._renew_once()
        if self._taken_by is not None:
            raise LeaseError(
                f"this run lost its lease on the tables ({self._taken_by}) and stopped; written data stays. Run the same command again"
            )

    def begin(self) -> None:
        """Renews it from now on."""
        self._renewing.start()

    def release(self) -> None:
        """Frees it for the next run."""
        self._stop.set()
        with self._turn:
            if self._taken_by is None:
                try:
                    self._commits.commit(self._version, State(None, time.time(), 0, self.versions).text())
                except Exception as error:
                    # the next run takes it over
                    warn(
                        f"the lease on the tables could not be released: {type(error).__name__}; it expires in {EXPIRES} s"
                    )


def _acquired(commits: Commits, root: str, holder: Holder, wait: float) -> Lease:
    ends, is_reported = time.monotonic() + wait, False
    while True:
        version, text = commits.last()
        state = State.of(text)
        if state.is_over:
            if commits.commit(version, State(holder, time.time(), EXPIRES, state.versions).text()):
                if state.holder is not None:
                    warn(f"took over the lease on {root} from a run that died ({state.holder})")
                return Lease(commits, holder, version + 1, state.versions)
            continue  # another run was faster
        left = ends - time.monotonic()
        if left <= 0:
            raise LeaseError(
                f"Another run is writing to {root}: {state.holder}. Wait for it with --wait SECONDS, or give --tables another folder"
            )
        if not is_reported:
            warn(f"waiting for another run: {state.holder}")
            is_reported = True
        time.sleep(min(LOOKS_EVERY, left))


@contextmanager
def acquire(root: str, run_id: str, wait: float = 0, spark: Any = None) -> Iterator[Lease]:
    """Hold the lease on the tables under a root.

    wait: seconds. spark: a session that commits where delta-rs does not reach the tables.

    Raises LeaseError where another run holds it, UsageError where nothing can be written there.
    """
    writable(root)
    commits = commits_of(root, spark)
    lease = _acquired(commits, root, Holder.of_this_process(run_id), wait)
    try:
        lease.begin()
        yield lease
    finally:
        lease.release()


def needs_spark(root: str) -> bool:
    """Return whether Spark may have to commit to the lease, so that it is started first."""
    return local_folder(root) is None or delta_rs_uri(root) is None


def commits_of(root: str, spark: Any = None) -> Commits:
    """The table of the lease under a root: by delta-rs, else by Spark.

    Raises UsageError where neither of them reaches it.
    """
    uri = delta_rs_uri(root)
    why = "delta-rs does not write there"
    if uri is not None:
        is_local = local_folder(root) is not None
        found = ByDeltaRs(f"{uri}/{TABLE}", None if is_local else LIMITS | _options_of(spark, uri))
        try:
            found.last()
            return found
        except (DeltaError, OSError, ValueError) as error:
            why = str(error).splitlines()[0]
        except BaseException as error:
            # a panic of Rust is no Exception, and has no name that can be imported
            if type(error).__name__ != "PanicException":
                raise
    if spark is None:
        raise UsageError(f"--tables {root} cannot be written: {why}")
    if uri is not None and uri.startswith("s3:"):
        # Hadoop's S3A does not create objects conditionally: two runs could both get a lease of Spark's
        raise UsageError(
            f"--tables {root}: delta-rs keeps the lease on S3, and does not reach it: {why}. "
            "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or the settings spark.hadoop.fs.s3a.*"
        )
    if uri is not None:
        warn(f"Spark keeps the lease on {root}, for delta-rs does not reach it ({why})")
    return BySpark(spark, f"{root}/{TABLE}")


def _options_of(spark: Any, uri: str) -> dict[str, str]:
    """Return Spark's settings for S3 under delta-rs's names; delta-rs reads all others from the environment."""
    if spark is None or not uri.startswith("s3:"):
        return {}
    found = {name: value for key, name in S3_OPTIONS.items() if (value := spark.conf.get(key, None))}
    endpoint = found.get("aws_endpoint_url", "")
    if endpoint and "://" not in endpoint:
        found["aws_endpoint_url"] = f"https://{endpoint}"
    return found | ({"aws_allow_http": "true"} if endpoint.startswith("http://") else {})


class ByDeltaRs:
    """The table of the lease as delta-rs commits to it."""

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        self.uri, self.options = uri, options

    def _opened(self) -> DeltaTable:
        try:
            return DeltaTable(self.uri, storage_options=self.options)
        except TableNotFoundError:
            columns = Schema.from_json(json.dumps({"type": "struct", "fields": [_field()]}))
            try:
                return DeltaTable.create(
                    self.uri, columns, configuration=PROPERTIES, storage_options=self.options
                )
            except CANNOT:
                # another run was faster
                return DeltaTable(self.uri, storage_options=self.options)

    def last(self) -> tuple[int, str]:
        """Return the number and the text of the last commit."""
        # the history also has the commits of others since then
        newest = max(self._opened().history(1), key=lambda commit: commit["version"])
        return newest["version"], str(newest.get("userMetadata", ""))

    def commit(self, after: int, text: str) -> bool:
        """Add the commit after one; False where another run has added it."""
        opened = self._opened()
        if opened.version() != after:
            return False
        properties = CommitProperties(
            custom_metadata={"userMetadata": text},
            max_commit_retries=0,
            app_transactions=[Transaction(TRANSACTIONS, after + 1)],
        )
        hooks = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)
        try:
            opened.create_write_transaction(
                [], "append", opened.schema(), commit_properties=properties, post_commithook_properties=hooks
            )
        except CANNOT:
            # what delta-rs does after a commit can fail, too
            if self.last() == (after + 1, text):
                return True
            if self.last()[0] == after:
                raise
            return False
        return True


class BySpark:
    """The table of the lease as Spark commits to it.

    Delta skips a commit whose transaction number another run has used.
    """

    def __init__(self, spark: Any, path: str) -> None:
        self._spark, self._path = spark, path
        self._nothing = spark.createDataFrame([], f"{COLUMN} STRING")
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in PROPERTIES.items())
        self._identifier = f"delta.`{path.replace('`', '``')}`"
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._identifier} ({COLUMN} STRING) USING delta TBLPROPERTIES ({properties})"
        )

    def last(self) -> tuple[int, str]:
        """Return the number and the text of the last commit."""
        (row,) = (
            self._spark.sql(f"DESCRIBE HISTORY {self._identifier} LIMIT 1")
            .select("version", "userMetadata")
            .collect()
        )
        return row.version, row.userMetadata or ""

    def commit(self, after: int, text: str) -> bool:
        """Add the commit after one; False where another run has added it."""
        writer = self._nothing.write.format("delta").mode("append").option("userMetadata", text)
        try:
            with refused(TABLE):
                writer.option("txnAppId", TRANSACTIONS).option("txnVersion", after + 1).save(self._path)
        except Conflict:
            return False
        return self.last() == (after + 1, text)


def _field() -> dict[str, Any]:
    return {"name": COLUMN, "type": "string", "nullable": True, "metadata": {}}
