"""What can end a run, with the exit code that says so (contract of the command line)."""

CLEAN, FINDINGS, USAGE, INPUT, DELIVERY, INTERNAL = 0, 1, 2, 3, 4, 70
# `jobs.interrupts` has those of signals: it is loaded before anything else


class AuditError(Exception):
    """A run that cannot go on; the text says what to do next."""

    exit_code = INTERNAL


class UsageError(AuditError):
    """Wrong arguments, configuration or environment."""

    exit_code = USAGE


class InputError(AuditError):
    """No log found, or nothing in it recognised."""

    exit_code = INPUT


class ContractError(AuditError):
    """A written table does not keep its contract."""

    exit_code = INTERNAL


class ConservationError(AuditError):
    """Records were lost or counted twice between reading and writing."""

    exit_code = INTERNAL
