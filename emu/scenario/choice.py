"""From `--set KEY=VALUE,VALUE` to the combinations that are run, and who read what of them.

Values are immutable and count their readers, because a knob that can be set but changes nothing makes every result
that quotes it wrong.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from emu.errors import UsageError, unknown
from emu.scenario.parameter import Parameter, Value

ValueOrList = Value | tuple[Value, ...]


class Values:
    """The parameters of one combination as attributes: `p.rate_gbps`, `p.seed`."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        object.__setattr__(self, "_values", dict(values))
        object.__setattr__(self, "_names_read", set())

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            near = difflib.get_close_matches(name, self._values, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise AttributeError(f"the scenario reads {name!r}{hint} but its PARAMETERS do not declare it")
        self._names_read.add(name)
        return self._values[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"parameter {name!r} is fixed for the run")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"parameter {name!r} is fixed for the run")

    def __repr__(self) -> str:
        return f"Values({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def as_dict(self) -> dict[str, Value]:
        """A copy; does not count as reading."""
        return dict(self._values)

    def names_read(self) -> frozenset[str]:
        return frozenset(self._names_read)


@dataclass(frozen=True)
class Choice:
    """Parameters as chosen for a run: those set by hand, those that vary (outermost first), and every value."""

    seed: int
    given: tuple[str, ...]
    varied: tuple[str, ...]
    values: Mapping[str, ValueOrList]

    def combinations(self) -> Iterator[Values]:
        """The cartesian product of the varied parameters, in stated order."""
        fixed = {name: value for name, value in self.values.items() if name not in self.varied}
        for picked in itertools.product(*(self.values[name] for name in self.varied)):
            yield Values(fixed | dict(zip(self.varied, picked, strict=True)) | {"seed": self.seed})

    def as_json(self) -> dict[str, object]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.values.items()}


class ParameterSet(Mapping[str, Parameter]):
    """What one scenario honours; anything else is refused."""

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        if "seed" in parameters:
            raise UsageError("a scenario cannot declare the parameter 'seed': every scenario has it as p.seed (--seed)")
        for name, parameter in parameters.items():
            for value in parameter.default if isinstance(parameter.default, tuple) else (parameter.default,):
                parameter.check(name, value)
        self._parameters = dict(parameters)

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def choose(self, settings: Iterable[str] = (), *, seed: int = 1) -> Choice:
        """Apply 'KEY=VALUE[,VALUE...]' settings to the defaults; UsageError for whatever does not fit."""
        given: dict[str, ValueOrList] = {}
        for setting in settings:
            name, value = self._parse(setting)
            if name in given:
                raise UsageError(f"parameter {name} is set twice; for one row each write --set {name}=VALUE,VALUE")
            given[name] = value
        values = {name: parameter.default for name, parameter in self.items()} | given
        stated = [*given, *(name for name in self if name not in given)]
        varied = tuple(name for name in stated if isinstance(values[name], tuple))
        return Choice(seed=seed, given=tuple(given), varied=varied, values=values)

    def _parse(self, setting: str) -> tuple[str, ValueOrList]:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting!r} has no '='; write KEY=VALUE, KEY one of {', '.join(sorted(self))}")
        if name not in self:
            raise unknown("parameter", name, self)
        values = tuple(self[name].parse(name, part) for part in text.split(","))
        return name, values if len(values) > 1 else values[0]
