"""A reader who follows one block, or one config, through the code passes few modules."""

import pytest
from benchmark_modules import load

from fmtkit.reading import native

MOST_MODULES, MOST_HOPS = 18, 21
MOST_MODULES_OF_A_CONFIG, MOST_HOPS_OF_A_CONFIG = 22, 51
"""Modules of checks and notes are entered for their keys alone: one names the settings of a learning-rate
schedule, one the rows that a few steps draw, one what TRL's source refuses, by the one that follows it."""


def hops_of(passed) -> int:
    return sum(map(len, passed.hops.values()))


@pytest.mark.skipif(
    native.kernel() is None, reason=f"there is no native kernel: {native.why_not()}"
)
def test_a_block_passes_few_modules():
    passed = load("walk").block()
    assert "Fusion.fuse" in passed.hops["fmtkit.stages.fusing"]
    assert len(passed.walk) <= MOST_MODULES, list(passed.walk)
    assert hops_of(passed) <= MOST_HOPS, passed.hops


def test_a_config_passes_few_modules():
    passed = load("walk").config()
    assert "derive" in passed.hops["fmtkit.training.planning.resolve"]
    assert len(passed.walk) <= MOST_MODULES_OF_A_CONFIG, list(passed.walk)
    assert hops_of(passed) <= MOST_HOPS_OF_A_CONFIG, passed.hops


def test_what_is_given_a_part_or_decides_nothing_is_no_hop():
    hops = load("walk").config().hops
    # A property of the plan; a check of one value; a function without a condition.
    assert "fmtkit.training.planning.run_plan" not in hops
    assert "fmtkit.training.config.class_arguments" not in hops
    assert "entries" not in hops["fmtkit.training.planning.dataset_entries"]
