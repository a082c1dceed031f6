"""Two runs that write to one table at the same time: what Delta refuses, and the numbers by which nobody
appends twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.errors import AuditError, UsageError

# name of Delta's application transactions: an append carries the number of the commit that it makes
LANDING = "kafka_audit.landing"


class Conflict(AuditError):
    """Another run has committed to a table since this run looked at it."""

    exit_code = UsageError.exit_code

    @classmethod
    def on(cls, table: str) -> "Conflict":
        """For people."""
        return cls(
            f"another run has written to table {table} at the same time; written data stays. Run the same command again"
        )


@contextmanager
def refused(table: str) -> Iterator[None]:
    """Raise Conflict where Delta refuses a commit of Spark's, because another run has made one."""
    from delta import exceptions

    # these exceptions have no common class
    conflicts = (
        exceptions.ConcurrentAppendException,
        exceptions.ConcurrentDeleteDeleteException,
        exceptions.ConcurrentDeleteReadException,
        exceptions.ConcurrentTransactionException,
        exceptions.ConcurrentWriteException,
        exceptions.DeltaConcurrentModificationException,
        exceptions.MetadataChangedException,
        exceptions.ProtocolChangedException,
    )
    try:
        yield
    except conflicts:
        raise Conflict.on(table) from None
