"""How a command ends: every fault is one line on stderr and the exit code that belongs to it (docs/design.md).

RAILBED_TRACEBACK=1 adds Python's trace. Click's own usage errors take the same form as ours.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import click

from emu.errors import RailbedError

EXIT_USAGE = 2
EXIT_MEMORY = 1
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT


def run_command(command: click.Command, arguments: Sequence[str], prog: str = "railbed") -> int:
    """Run a click command whose functions return their exit code; the exit code."""
    _end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    try:
        return command.main(list(arguments), prog_name=prog, standalone_mode=False) or 0
    except RailbedError as error:
        return _fail(str(error), error.exit_code)
    except click.ClickException as error:
        return _fail(_usage(error), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", EXIT_INTERRUPTED)
    except MemoryError:
        return _fail("out of memory; make the cluster, its traffic or buffer_bytes smaller", EXIT_MEMORY)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(where.filename)}:{where.lineno}"
        what = f"unexpected {type(error).__name__} at {place}: {error}"
        return _fail(f"{what} (set RAILBED_TRACEBACK=1 for the trace)", EXIT_BUG)


def complain(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    print("railbed:", " ".join(message.split()), file=sys.stderr)


def _end_as_by_ctrl_c(*signals: signal.Signals) -> None:
    """A polite kill or a closed terminal also leaves nothing behind: it unwinds as Ctrl-C does."""
    for number in signals:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup's choice to ignore SIGHUP stays
            signal.signal(number, signal.default_int_handler)


def _fail(message: str, exit_code: int) -> int:
    if os.environ.get("RAILBED_TRACEBACK"):
        traceback.print_exc()
    complain(message)
    return exit_code


def _usage(error: click.ClickException) -> str:
    message = error.message
    if isinstance(error, click.BadParameter):  # only the formatted message of these names the option
        message = error.format_message()
    message = message[:1].lower() + message[1:].removesuffix(".")
    near = getattr(error, "possibilities", None)
    hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    context = getattr(error, "ctx", None)
    return f"{message}{hint}; see `{context.command_path} --help`" if context else f"{message}{hint}"
