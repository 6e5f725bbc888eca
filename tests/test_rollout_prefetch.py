"""Prefetch: the same answers and losses as without, made while the batch before trains."""


import pytest

pytest.importorskip("trl")

import scripted_rollouts as scripted
import tiny_training as tiny
from transformers import AutoTokenizer

from fmtkit.training import process
from fmtkit.training.rl.rollouts.settings import RolloutSettings

AHEAD = RolloutSettings(async_prefetch=True)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.fixture(scope="session")
def tokenizer(model):
    return AutoTokenizer.from_pretrained(model)


@pytest.fixture(autouse=True)
def quiet():
    process._quiet()


def trained(model, folder, tokenizer, rollouts=None, **arguments):
    script = scripted.Script(tokenizer)
    trainer = scripted.make_trainer(model, folder, rollout=script, rollouts=rollouts, **arguments)
    trainer.train()
    return script, trainer


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 6},
        {"gradient_accumulation_steps": 3, "steps_per_generation": 2, "max_steps": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("depth", [1, 2])
def test_batches_and_losses_are_those_without_prefetch(
    model, tokenizer, tmp_path, arguments, depth
):
    plain, before = trained(model, tmp_path / "a", tokenizer, **arguments)
    settings = RolloutSettings(async_prefetch=True, prefetch_depth=depth)
    ahead, after = trained(model, tmp_path / "b", tokenizer, settings, **arguments)
    assert ahead.asked == plain.asked
    assert scripted.losses(after) == scripted.losses(before)
    assert any(loss != 0 for loss in scripted.losses(after))
    assert ahead.threads[0] == "MainThread"
    assert set(ahead.threads[1:]) == {"fmtkit-prefetch"}
