"""Promises of the scenario ecmp_imbalance as a user runs it: what hashing loses, what path navigation and spray give back.

hash_seed=shared changes nothing here that could be promised: a Spine-Leaf fabric hashes once, at the leaf, as a spine has one
cable to each leaf. Polarization needs a second tier that hashes: test_switch_balances.py has one.
"""

from __future__ import annotations

import pytest

from emu.measure.hashing import busiest_distribution, expected_efficiency

pytestmark = [pytest.mark.needs_virtual_clock, pytest.mark.needs_red]
EVEN_MAX, GOOD, HASHED_MAX = 1.02, 0.95, 0.75
SMALL = ("gpus_per_server=4", "leaf_down=4", "leaf_up=4", "traffic=permutation")
CONVERGENCE_US, RTO_US, FAIL_US, SOON_US = 100, 50, 20, 20
DEVIATIONS = 3


def rows_of(run_scenario, *settings):
    exit_code, result = run_scenario("ecmp_imbalance", *SMALL, *settings)
    assert result.valid, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    return {row["lb"]: row for row in result.rows}


def test_path_and_spray_give_back_what_hashing_loses(run_scenario):
    rows = rows_of(run_scenario, "gpus=16", "size_bytes=8MiB", "lb=ecmp,path,spray")
    reached = {lb: row["busbw_fraction"] for lb, row in rows.items()}
    assert reached["path"] >= GOOD and reached["spray"] >= GOOD, f"of ideal: {reached}, want {GOOD} with path and spray"
    assert reached["ecmp"] <= HASHED_MAX, f"ecmp reached {reached['ecmp']:.1%} of ideal: no collision, no test"
    busiest = rows["ecmp"]["uplink_max_over_mean"]
    assert reached["ecmp"] <= 1.01 / busiest, f"ecmp: {reached['ecmp']:.1%} of ideal, but an uplink has {busiest:.2f} of the mean"
    assert rows["path"]["uplink_max_over_mean"] <= 1.001, f"path: max/mean {rows['path']['uplink_max_over_mean']}"
    assert rows["path"]["promised_max_bytes"] == rows["path"]["bound_max_bytes"]
    assert rows["spray"]["uplink_max_over_mean"] <= EVEN_MAX, f"spray: max/mean {rows['spray']['uplink_max_over_mean']}"
    reordered = {lb: row["reordered_ratio"] for lb, row in rows.items()}
    assert reordered["ecmp"] == reordered["path"] == 0 < reordered["spray"], f"reordered: {reordered}"


def test_ecmp_spreads_flows_as_well_as_the_closed_form_of_fair_draws_says_and_no_better(run_scenario):
    """The mean of 32 leaves, each with a seed of its own and 16 flows, within three standard errors."""
    leaves, uplinks, flows = 32, 4, 16
    row = rows_of(run_scenario, f"gpus={leaves * uplinks}", "qps=4", "size_bytes=256KiB", "lb=ecmp")["ecmp"]
    mean = expected_efficiency(uplinks, flows)
    square = sum(chance * (flows / uplinks / busiest) ** 2 for busiest, chance in busiest_distribution(uplinks, flows))
    allowed = DEVIATIONS * ((square - mean**2) / leaves) ** 0.5
    assert row["flows_per_uplink"] == flows / uplinks
    assert mean + allowed < 0.8, f"a band of ±{allowed:.3f} round {mean:.3f} would pass for hashing that spreads well"
    off = row["uplink_efficiency"] - mean
    assert abs(off) <= allowed, f"efficiency {row['uplink_efficiency']:.3f}, closed form {mean:.3f}, allowed ±{allowed:.3f}"


def test_every_message_completes_although_a_cable_dies_and_only_hashed_flows_wait_for_routing(run_scenario):
    """A hashed flow towards the dead cable loses all until routing has converged, and moves with its next timeouts; a sprayed
    one has the other uplinks, and waits for a timeout at most, where what it sends again is lost too; the controller moves
    the flows itself."""
    rows = rows_of(run_scenario, "gpus=16", "size_bytes=4MiB", "lb=ecmp,path,spray", "fail=leaf0:up0", f"fail_us={FAIL_US}",
                   f"rto_us={RTO_US}")
    for lb, row in rows.items():
        assert row["delivered_bytes"] == 16 * (4 << 20), f"lb={lb}: {row['delivered_bytes']} bytes arrived"
        lost, again = row["lost_packets"], row["retransmitted_packets"]
        assert lost > 0 and again > 0, f"lb={lb}: {lost} packets lost, {again} sent again: no test"
    again_us = {lb: row["moves_again_us"] for lb, row in rows.items()}
    assert CONVERGENCE_US <= again_us["ecmp"] <= CONVERGENCE_US + 3 * RTO_US, f"all flows move again after {again_us} us"
    assert 0 < again_us["path"] <= SOON_US, f"all flows move again after {again_us} us"
    assert 0 < again_us["spray"] <= RTO_US + SOON_US, f"all flows move again after {again_us} us"
    assert rows["path"]["moved_flows"] > 0


def test_one_seed_gives_the_same_rows_again_whatever_ran_between_and_another_seed_others(run_scenario):
    """Two boots with one seed give the same digits too: test_virtual_clock.py."""
    settings = (*SMALL, "gpus=16", "size_bytes=256KiB")
    _, result = run_scenario("ecmp_imbalance", *settings, "lb=ecmp,spray,ecmp,spray")
    ecmp, spray, *again = result.rows
    assert len(again) == 2, f"{len(result.rows)} rows, want 4"
    for first, second in zip((ecmp, spray), again, strict=True):
        different = {key: (first[key], second[key]) for key in first if first[key] != second[key]}
        assert not different, f"lb={first['lb']}: {different}"
    _, other = run_scenario("ecmp_imbalance", *settings, "lb=ecmp", seed=2)
    assert ecmp["uplink_bytes"] != other.rows[0]["uplink_bytes"], "seeds 1 and 2 hash alike"
