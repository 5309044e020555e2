"""The promise of conservation at every size, which takes longer than a unit test may."""

from __future__ import annotations

import pytest

from emu.collectives.catalogue import COLLECTIVES
from emu.collectives.conservation import problems
from tests.collective_cases import BYTES, cases

SIZES = (*range(2, 65), 81, 96, 127)  # GPUs


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_rank_ends_with_every_contribution_exactly_once_at_every_size(name):
    for collective in cases(name, SIZES, BYTES):
        wrong = list(problems(collective))
        assert not wrong, f"{name} on {collective.placement}: {len(wrong)} faults, the first: {wrong[0]}"
