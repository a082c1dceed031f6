"""The one entry, `kafka-audit` and `spark-submit jobs/nightly_audit.py`. Signals are handled before anything else is imported."""

import sys

from jobs import interrupts


def main(arguments: list[str] | None = None) -> int:
    """Console script; returns the exit code. arguments: None: those of this process, which ends with it."""
    is_process = arguments is None
    try:
        return _code(arguments, is_process)
    finally:
        if not is_process:
            interrupts.remove()


def _code(arguments: list[str] | None, is_process: bool) -> int:
    try:
        interrupts.install()
        from jobs.commands import command_line

        code = command_line.run(arguments)
        interrupts.check()
        interrupts.ended(code)
        if is_process:
            interrupts.is_over(code)
        return code
    except KeyboardInterrupt:
        code = interrupts.finish()
    except Exception as error:
        if interrupts.received() is None and not interrupts.is_driver_gone(error):
            if is_process:
                interrupts.is_over()
            code = interrupts.ended(command_line.failed(error))
            if is_process:
                interrupts.is_over(code)
            return code
        code = interrupts.finish()
    if is_process:
        # threads that wait for a process which has ended would keep this one alive
        interrupts.leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
