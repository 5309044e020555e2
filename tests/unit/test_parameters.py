"""Promises about parameters: what is accepted, what is refused with which words, and that nobody can change one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.scenario import Parameter, parameters
from emu.scenario.sizes import SUFFIXES, parse_bytes

DECLARED = parameters.select(
    "mtu",
    "kmin_bytes",
    rate_gbps=100,
    lb=("ecmp", "spray"),
    senders=Parameter(int, 8, "hosts that send", minimum=1),
    load=Parameter(float, 0.5, "offered load", minimum=0),
)


def refusal(*settings: str) -> str:
    with pytest.raises(UsageError) as caught:
        DECLARED.choose(settings)
    message = str(caught.value)
    assert "\n" not in message, f"more than one line: {message!r}"
    return message


def test_defaults_are_the_common_ones_unless_the_scenario_has_its_own():
    values = DECLARED.choose().values
    assert values == {
        "mtu": 4096,
        "kmin_bytes": 1 << 20,
        "rate_gbps": 100,
        "lb": ("ecmp", "spray"),
        "senders": 8,
        "load": 0.5,
        "capture": "",
    }


def test_every_common_default_is_allowed_and_explained():
    chosen = parameters.select(*parameters.COMMON).choose()
    assert set(chosen.values) == set(parameters.COMMON)
    unexplained = [name for name, parameter in parameters.COMMON.items() if not parameter.help]
    assert not unexplained, unexplained


def test_lists_expand_to_the_product_in_stated_order_first_outermost():
    choice = DECLARED.choose(["load=0.5,1.2", "lb=spray,ecmp"])
    pairs = [(p.load, p.lb) for p in choice.combinations()]
    assert choice.varied == ("load", "lb")
    assert pairs == [(0.5, "spray"), (0.5, "ecmp"), (1.2, "spray"), (1.2, "ecmp")]


def test_a_list_by_default_becomes_one_row_when_set_to_one_value():
    assert [p.lb for p in DECLARED.choose().combinations()] == ["ecmp", "spray"]
    assert [p.lb for p in DECLARED.choose(["lb=spray"]).combinations()] == ["spray"]


@pytest.mark.parametrize(
    "setting, words",
    [
        ("rate_gpbs=100", ["unknown parameter 'rate_gpbs'", "did you mean 'rate_gbps'", "senders"]),
        ("gpus=64", ["unknown parameter 'gpus'", "rate_gbps"]),  # common, but this scenario does not honour it
        ("lb=ecpm", ["'ecpm'", "did you mean 'ecmp'", "spray"]),
        ("rate_gbps=-1", ["rate_gbps", "-1", "from 1 up to 1,600 Gb/s"]),
        ("rate_gbps=1601", ["rate_gbps", "1601", "from 1 up to 1,600 Gb/s"]),
        ("rate_gbps=fast", ["rate_gbps", "'fast'", "not a whole number"]),
        ("senders=", ["senders", "''", "not a whole number", "from 1"]),
        ("senders=1,,2", ["senders", "''"]),
        ("load=nan", ["load", "not finite"]),
        ("load=inf", ["load", "not finite"]),
        ("mtu=1500", ["mtu", "1500", "1024", "4096"]),
        ("kmin_bytes=0", ["kmin_bytes", "out of range", "from 1 bytes"]),
        ("senders", ["'senders'", "no '='", "KEY=VALUE"]),
        ("=5", ["unknown parameter ''"]),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_with_what_would(setting, words):
    message = refusal(setting)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in {message!r}"


def test_limits_themselves_are_accepted():
    rates = [p.rate_gbps for p in DECLARED.choose(["rate_gbps=1,1600", "lb=ecmp"]).combinations()]
    assert rates == [1, 1600]


def test_a_parameter_set_twice_is_refused_because_one_would_silently_win():
    assert "set twice" in refusal("senders=1", "senders=2")


@pytest.mark.parametrize(
    "text, size_bytes",
    [
        ("4096", 4096),
        ("64k", 64_000),
        ("64kB", 64_000),
        ("64Ki", 65_536),
        ("64KiB", 65_536),
        ("10MB", 10_000_000),
        ("4MiB", 4 << 20),
        ("1.5G", 1_500_000_000),
        ("2 GiB", 2 << 30),
        ("0.5k", 500),
        ("512B", 512),
    ],
)
def test_sizes_are_read_as_written(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text, words",
    [
        ("64K", ["ambiguous", "64k (64,000 bytes)", "64Ki (65,536 bytes)"]),
        ("64KB", ["ambiguous"]),
        ("10m", ["ambiguous", "10M", "10Mi"]),
        ("1g", ["ambiguous", "1G", "1Gi"]),
        ("10Mb", ["unknown suffix 'Mb'", "MiB"]),
        ("0.3", ["whole number of bytes"]),
        ("-5k", ["not a size"]),
        ("", ["not a size"]),
        ("1e6", ["not a size"]),
        ("0x10", ["not a size"]),
    ],
)
def test_sizes_that_mean_two_things_or_none_are_refused(text, words):
    with pytest.raises(ValueError) as caught:
        parse_bytes(text)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


@given(st.integers(0, 10**9), st.sampled_from(sorted(SUFFIXES)))
def test_a_whole_number_of_any_unit_is_exact(number, suffix):
    assert parse_bytes(f"{number}{suffix}") == number * SUFFIXES[suffix]


def test_values_are_immutable_and_know_who_was_read():
    p = next(DECLARED.choose(seed=7).combinations())
    assert (p.senders, p.seed) == (8, 7)
    assert p.as_dict()["load"] == 0.5
    assert p.names_read() == {"senders", "seed"}
    with pytest.raises(AttributeError, match="fixed for the run"):
        p.senders = 9
    with pytest.raises(AttributeError, match="fixed for the run"):
        del p.senders
    assert p.senders == 8


def test_reading_an_undeclared_parameter_names_the_nearest_one():
    p = next(DECLARED.choose().combinations())
    with pytest.raises(AttributeError, match="'rate_gbs'.*did you mean 'rate_gbps'"):
        _ = p.rate_gbs


def test_a_scenario_cannot_select_what_is_not_common_nor_default_to_what_is_not_allowed():
    with pytest.raises(UsageError, match="unknown common parameter 'mtuu'.*did you mean 'mtu'"):
        parameters.select("mtuu")
    with pytest.raises(UsageError, match="out of range"):
        parameters.select(rate_gbps=2000)
    with pytest.raises(UsageError, match="'seed'"):
        parameters.select(seed=Parameter(int, 1, "mine"))


def test_a_scenario_can_narrow_a_common_parameter():
    narrowed = parameters.select(lb=Parameter(str, "ecmp", "only this one works here", choices=("ecmp",)))
    with pytest.raises(UsageError, match="allowed: ecmp$"):
        narrowed.choose(["lb=spray"])
