"""Errors that end a run, and their exit codes (contract of the command line)."""

CLEAN, FINDINGS, USAGE, INPUT, DELIVERY, INTERNAL = 0, 1, 2, 3, 4, 70
# the codes of signals are in `jobs.interrupts`, which is loaded before anything else


class AuditError(Exception):
    """A run cannot continue; the text says what to do next."""

    exit_code = INTERNAL


class UsageError(AuditError):
    """Wrong arguments, configuration or environment."""

    exit_code = USAGE


class InputError(AuditError):
    """No log found, or nothing in it recognised."""

    exit_code = INPUT


class ContractError(AuditError):
    """A written table breaks its contract."""

    exit_code = INTERNAL


class ConservationError(AuditError):
    """Records were lost or counted twice between reading and writing."""

    exit_code = INTERNAL
