"""One knob of a scenario: its kind, unit and range, and the one-line refusal of anything else."""

from __future__ import annotations

import math
from dataclasses import dataclass

from emu.errors import UsageError, unknown
from emu.scenario.sizes import parse_bytes

Value = int | float | str
KIND_NAMES = {int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True)
class Parameter:
    """One knob. `unit="bytes"` accepts 64k and 4MiB; a tuple as default makes one row for each of its values."""

    kind: type[int] | type[float] | type[str]
    default: Value | tuple[Value, ...]
    help: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Value, ...] = ()

    def parse(self, name: str, text: str) -> Value:
        """The value that `text` stands for; UsageError that names the parameter and what it allows."""
        try:
            value = self._convert(text.strip())
        except ValueError as error:
            raise UsageError(f"parameter {name}: {text!r} {error}; allowed: {self.allowed()}") from error
        self.check(name, value)
        return value

    def check(self, name: str, value: Value) -> None:
        """UsageError when the value is outside the choices or the range."""
        if self.choices and value not in self.choices:
            raise unknown(f"value of {name}", str(value), map(str, self.choices))
        low, high = self.minimum, self.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise UsageError(f"parameter {name}: {value} is out of range; allowed: {self.allowed()}")

    def allowed(self) -> str:
        """In words: 'a whole number from 1 up to 1,600 Gb/s'."""
        if self.choices:
            return ", ".join(map(str, self.choices))
        low = "" if self.minimum is None else f" from {self.minimum:,}"
        high = "" if self.maximum is None else f" up to {self.maximum:,}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{KIND_NAMES[self.kind]}{low}{high}{unit}"

    def _convert(self, text: str) -> Value:
        if self.kind is int and self.unit == "bytes":
            return parse_bytes(text)
        try:
            value = self.kind(text)
        except ValueError:
            raise ValueError(f"is not {KIND_NAMES[self.kind]}") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("is not finite")
        return value
