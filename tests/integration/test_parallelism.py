"""Promises of parallelism and connection_matrix: what goes over the wire is what the closed forms say, when it may go."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_virtual_clock
FIXTURES = Path(__file__).parents[1] / "unit" / "fixtures"
SMALL = ("gpus_per_server=4", "domain_gpus=4", "leaf_down=4", "leaf_up=4", "sequence=1024", "micro_batches=2", "scale_down=256")


def run_valid(run_scenario, name, *settings):
    exit_code, result = run_scenario(name, *settings)
    assert exit_code == 0 and result.valid, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    return {row.get("kind"): row for row in result.rows}, result


def test_an_iteration_puts_tp_on_scale_up_and_the_rest_on_nics_to_the_byte(run_scenario):
    rows, result = run_valid(run_scenario, "parallelism", "tp=4", "dp=2", "pp=2", "layers=2", *SMALL)
    for kind in ("tp", "pp", "dp"):
        row = rows[kind]
        inside = row["emulated_bytes"] if kind == "tp" else 0
        assert row["scale_up_placed_bytes"] == inside, f"{kind}: {row['scale_up_placed_bytes']} bytes on scale-up, want {inside}"
        assert row["nic_placed_bytes"] == row["emulated_bytes"] - inside, f"{kind}: {row}"
        assert row["busy_us"] > 0.99 * row["bound_us"], f"{kind}: {row['busy_us']} us, at link rate {row['bound_us']}"
    asked, took = rows["compute"]["bound_us"], rows["compute"]["busy_us"]
    assert abs(took / asked - 1) < 0.001, f"computations took {took} us, want {asked}"
    lanes = {bars.lane for bars in result.bars}
    assert lanes == {"stage 0", "stage 1", "stage 0>1", "stage 1>0"}, lanes


def test_experts_cross_rails_on_the_wire_without_pxn_and_stay_on_them_with_it(run_scenario):
    sizes = ("model=deepseek-v3", "tp=1", "dp=8", "ep=8", "pp=1", "layers=4", "wiring=rail")
    off, on = (run_valid(run_scenario, "parallelism", *sizes, *SMALL, f"pxn={pxn}")[0]["ep"] for pxn in ("off", "on"))
    assert off["nic_placed_bytes"] == on["nic_placed_bytes"] == off["emulated_bytes"] * 4 // 7, (off, on)
    assert on["scale_up_placed_bytes"] > off["scale_up_placed_bytes"] > 0, (off, on)


def test_a_simai_file_runs_on_the_nics_that_an_nccl_file_gives_its_gpus(run_scenario):
    files = (f"workload={FIXTURES / 'simai_small.txt'}", f"nccl_topology={FIXTURES / 'nccl_small.xml'}")
    rows, result = run_valid(run_scenario, "parallelism", *files, "gpus_per_server=2", "domain_gpus=2", "dp=4", "scale_down=1")
    assert result["nic_of_gpu"].value == "1 0", result["nic_of_gpu"]
    assert {kind for kind in rows} == {"tp", "dp", "ep", "compute", "iteration"}, list(rows)
    assert rows["tp"]["nic_placed_bytes"] == 0 < rows["ep"]["nic_placed_bytes"] == rows["ep"]["emulated_bytes"], rows


def test_a_matrix_keeps_its_start_times_and_triggers(run_scenario):
    settings = ("gpus_per_server=1", "lb=ecmp", "delay_ns=500")
    _, result = run_valid(run_scenario, "connection_matrix", f"matrix={FIXTURES / 'htsim_small.cm'}", *settings)
    (row,) = result.rows
    assert row["flow_bytes"] == 9060 and row["notices"] == 5, row
    # a small message takes 1 us; the last starts at 5 us and is the third in a row, with two notices between
    assert abs(row["last_us"] - 10) < 0.1, f"last byte after {row['last_us']} us, want 5 + 3 x 1 + 2 x 1"


def test_a_matrix_runs_on_its_own_topology_file(run_scenario, tmp_path):
    matrix = tmp_path / "two.cm"
    matrix.write_text("Nodes 12\nConnections 2\n0->4 start 0 size 1000000\n1->5 start 0 size 1000000\n")
    files = (f"matrix={matrix}", f"htsim_topology={FIXTURES / 'htsim_small.topo'}")
    _, result = run_valid(run_scenario, "connection_matrix", *files, "lb=spray")
    (row,) = result.rows
    assert row["rate_gbps"] == 100 and 80 < row["last_us"] < 100, f"1 MB at 100 Gb/s: {row['last_us']} us, want 80 to 100"
