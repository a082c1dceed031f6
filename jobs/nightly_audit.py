"""The entry point of `kafka-audit` and `spark-submit jobs/nightly_audit.py`.

It handles signals before it imports anything else.
"""

import sys

from jobs import interrupts


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code. arguments: None: those of the process, which then ends."""
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
            interrupts.work_is_done(code)
        return code
    except KeyboardInterrupt:
        code = interrupts.finish()
    except Exception as error:
        if interrupts.received() is None and not interrupts.is_driver_ending(error):
            if is_process:
                interrupts.work_is_done()
            code = interrupts.ended(command_line.failed(error))
            if is_process:
                interrupts.work_is_done(code)
            return code
        code = interrupts.finish()
    if is_process:
        # threads may wait forever for a process that has ended
        interrupts.leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
