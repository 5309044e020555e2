"""One family of errors. Each message is one line: which thing, what is wrong, what would be right.

Libraries raise; only the command line prints and exits. The exit code belongs to the kind of fault (docs/design.md).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RailbedError(Exception):
    """Root of every error that a user may see; `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageError(RailbedError):
    """The user asked for something that does not exist or does not fit: name it and say what would fit."""

    exit_code = 2


class TopologyError(UsageError):
    """A cluster description that no switch or kernel could hold."""


class MissingFeature(RailbedError):
    """This kernel, machine or user lacks something; the message ends with the command that helps."""

    exit_code = 3


class FabricError(RailbedError):
    """The live fabric differs from its plan: a request the kernel refused, or a knob read back unequal."""


class ExpectationFailed(RailbedError):
    """A scenario's expect() was not met; the numbers are in the message."""


def unknown(kind: str, given: str, allowed: Iterable[str]) -> UsageError:
    """UsageError that names the thing, the nearest match and the allowed values, in one line."""
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return UsageError(f"unknown {kind} {given!r}{hint}; allowed: {', '.join(names)}")
