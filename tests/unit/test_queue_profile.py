"""Promises about queue profiles: the switch's marking law; SONiC's files read as they are or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.topology.queue_profile import EcnProfile, QueueProfile, from_sonic

REPOSITORY = Path(__file__).parents[2]
REAL_FILE = REPOSITORY / "../shared/data/sonic/qos-nokia-ixr7250e-36x400g.json"
TWO_PROFILES = Path(__file__).parent / "fixtures" / "sonic_two_profiles.json"
GOOD = {"ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000", "green_drop_probability": "5"}


def written(tmp_path: Path, content: object) -> str:
    path = tmp_path / "qos.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as refused:
        from_sonic(spec)
    assert "\n" not in str(refused.value), refused.value
    return str(refused.value)


def test_marking_is_zero_below_kmin_a_ramp_to_pmax_and_certain_from_kmax_on():
    ecn = EcnProfile(kmin_bytes=1000, kmax_bytes=3000, pmax=0.2)
    depths = (0, 999, 1000, 1500, 2000, 2999, 3000, 10**9)
    assert [ecn.probability(q) for q in depths] == pytest.approx([0, 0, 0, 0.05, 0.1, 0.1999, 1, 1])


def test_a_step_marks_nothing_below_and_everything_from_its_threshold_on():
    step = EcnProfile(kmin_bytes=1000, kmax_bytes=1000, pmax=0.05)
    assert step.is_step
    assert [step.probability(q) for q in (999, 1000, 1001)] == [0, 1, 1]


@given(
    st.integers(0, 10**7), st.integers(1, 10**7), st.floats(0.001, 1), st.lists(st.integers(0, 3 * 10**7), min_size=2)
)
def test_a_longer_queue_never_marks_less(kmin, ramp, pmax, depths):
    ecn = EcnProfile(kmin_bytes=kmin, kmax_bytes=kmin + ramp, pmax=pmax)
    shares = [ecn.probability(q) for q in sorted(depths)]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize(
    ("kmin", "kmax", "pmax", "words"),
    [
        (-1, 10, 0.1, "0 <= kmin_bytes"),
        (10, 9, 0.1, "kmin_bytes <= kmax_bytes"),
        (0, 0, 0.1, "kmax_bytes > 0"),
        (1, 2, 0, "pmax=0 "),
        (1, 2, 1.01, "pmax=1.01 "),
        (1, 2, -0.1, "pmax=-0.1 "),
        (1, 2, float("nan"), "pmax=nan "),
    ],
)
def test_impossible_thresholds_are_refused(kmin, kmax, pmax, words):
    with pytest.raises(UsageError) as refused:
        EcnProfile(kmin_bytes=kmin, kmax_bytes=kmax, pmax=pmax)
    assert words in str(refused.value) and "want" in str(refused.value), refused.value


@pytest.mark.parametrize("buffer_bytes", [0, -1])
def test_a_queue_without_a_buffer_is_refused(buffer_bytes):
    with pytest.raises(UsageError, match=f"buffer_bytes={buffer_bytes} holds no packet; want at least one MTU"):
        QueueProfile(buffer_bytes=buffer_bytes)


@pytest.mark.parametrize(("buffer_bytes", "ok"), [(2000, False), (2001, True)])
def test_a_buffer_must_reach_beyond_kmax(buffer_bytes, ok):
    ecn = EcnProfile(kmin_bytes=1000, kmax_bytes=2000, pmax=1)
    if ok:
        assert QueueProfile(buffer_bytes=buffer_bytes, ecn=ecn).buffer_bytes == buffer_bytes
        return
    with pytest.raises(UsageError, match="want buffer_bytes > kmax_bytes"):
        QueueProfile(buffer_bytes=buffer_bytes, ecn=ecn)


@pytest.mark.parametrize("name", ["", ":AZURE_LOSSLESS"], ids=["only profile", "by name"])
def test_the_published_nokia_file_gives_its_2_mb_10_mb_5_percent(name):
    if not REAL_FILE.exists():
        pytest.skip(f"the published SONiC file is not here: {REAL_FILE.name}")
    assert from_sonic(f"{REAL_FILE}{name}") == EcnProfile(kmin_bytes=2_000_000, kmax_bytes=10_000_000, pmax=0.05)


@pytest.mark.parametrize(
    ("name", "ecn"),
    [
        ("LOSSLESS", EcnProfile(kmin_bytes=250_000, kmax_bytes=1_048_576, pmax=0.05)),
        ("STEP", EcnProfile(kmin_bytes=100_000, kmax_bytes=100_000, pmax=1.0)),
    ],
)
def test_a_named_profile_gives_its_green_fields(name, ecn):
    assert from_sonic(f"{TWO_PROFILES}:{name}") == ecn


def test_a_path_with_a_colon_is_a_path_where_such_a_file_exists(tmp_path):
    path = tmp_path / "a:b"
    path.write_text(json.dumps({"WRED_PROFILE": {"P": GOOD}}))
    assert from_sonic(str(path)) == from_sonic(f"{path}:P") == EcnProfile(kmin_bytes=1000, kmax_bytes=2000, pmax=0.05)


def test_numbers_may_be_json_numbers_too(tmp_path):
    numbers = {"ecn": "ecn_all", "green_min_threshold": 1000, "green_max_threshold": 2000, "green_drop_probability": 5}
    assert from_sonic(written(tmp_path, {"WRED_PROFILE": {"P": numbers}})).kmax_bytes == 2000


def test_a_file_of_several_profiles_asks_for_a_name_and_shows_how():
    assert f"{TWO_PROFILES}:NAME (LOSSLESS, STEP)" in refusal(str(TWO_PROFILES))


def test_an_unknown_profile_is_named_with_the_nearest_and_all():
    message = refusal(f"{TWO_PROFILES}:LOSLESS")
    assert "'LOSLESS' (did you mean 'LOSSLESS'?)" in message and "allowed: LOSSLESS, STEP" in message, message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere.json", "No such file"),
        ("nowhere.json:NAME", "No such file"),
        (str(REPOSITORY), "directory"),
        ("x" * 300 + ":P", "too long"),
        ("", "directory"),
    ],
    ids=["missing", "missing with a name", "a folder", "a name no file system takes", "nothing"],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(spec, words):
    message = refusal(spec)
    assert words in message and "want a SONiC CONFIG_DB JSON file" in message, message


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "not json",
        "[]",
        "{}",
        '{"WRED_PROFILE": {}}',
        '{"WRED_PROFILE": []}',
        '{"WRED_PROFILE": "AZURE"}',
        "3",
        "null",
    ],
)
def test_what_is_no_config_db_is_refused(tmp_path, content):
    message = refusal(written(tmp_path, content))
    assert "qos.json" in message and "want a SONiC CONFIG_DB JSON file" in message, message


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "qos.json"
    path.write_bytes(bytes(range(256)))
    assert "not JSON" in refusal(str(path))


@pytest.mark.parametrize("fields", ["AZURE", None, ["ecn_all"], 5])
def test_a_profile_that_is_no_table_is_refused(tmp_path, fields):
    message = refusal(written(tmp_path, {"WRED_PROFILE": {"P": fields}}))
    assert ":P is " in message and "want a table of fields" in message, message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ecn": "ecn_none"}, "marks no green packet"),
        ({"ecn": "ecn_yellow"}, "marks no green packet"),
        ({"ecn": "ECN_ALL"}, "marks no green packet"),
        ({"ecn": ["ecn_all"]}, "marks no green packet"),
        ({"green_min_threshold": "2k"}, "green_min_threshold is '2k'; want a whole number"),
        ({"green_min_threshold": None}, "green_min_threshold is None; want a whole number"),
        ({"green_max_threshold": ""}, "green_max_threshold is ''; want a whole number"),
        ({"green_drop_probability": "5%"}, "green_drop_probability is '5%'; want a whole number"),
        ({"green_drop_probability": ["5"]}, "green_drop_probability is ['5']; want a whole number"),
        ({"green_drop_probability": "0"}, "pmax=0"),
        ({"green_drop_probability": "101"}, "pmax=1.01"),
        ({"green_min_threshold": "3000"}, "0 <= kmin_bytes <= kmax_bytes"),
        ({"green_min_threshold": "-1"}, "0 <= kmin_bytes"),
    ],
)
def test_a_malformed_field_is_refused_with_its_profile(tmp_path, changes, words):
    message = refusal(written(tmp_path, {"WRED_PROFILE": {"P": GOOD | changes}}))
    assert "qos.json:P" in message and words in message, message


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_named(tmp_path, field):
    message = refusal(written(tmp_path, {"WRED_PROFILE": {"P": {k: v for k, v in GOOD.items() if k != field}}}))
    assert "qos.json:P" in message, message
    assert field in message or "ecn is 'ecn_none'" in message, message
