"""A reader who follows one block, or one config, through the code passes few modules."""

import pytest
from benchmark_modules import load

from fmtkit.reading import native

MOST_MODULES = 18
MOST_MODULES_OF_A_CONFIG = 22
"""Modules of checks and notes are entered for their keys alone: one names the settings of a learning-rate
schedule, one the rows that a few steps draw, one what TRL's source refuses, by the one that follows it."""


@pytest.mark.skipif(
    native.kernel() is None, reason=f"there is no native kernel: {native.why_not()}"
)
def test_a_block_passes_few_modules():
    walk = load("walk").block()
    assert "fmtkit.converting.fusing" in walk
    assert len(walk) <= MOST_MODULES, list(walk)


def test_a_config_passes_few_modules():
    walk = load("walk").config()
    assert "fmtkit.training.planning.plan" in walk
    assert len(walk) <= MOST_MODULES_OF_A_CONFIG, list(walk)
