"""The correction for the sampler's other probabilities, by worked numbers, as TRL computes it.

w = exp(log p of the trained model - log p of the sampler), token by token or summed over an answer;
`truncate` clips it, `mask` sets what lies outside the clips to 0. `off_policy_mask_threshold` drops an
answer of negative advantage whose mean log(p of the sampler / p of the model) is above it.
"""

import pytest

pytest.importorskip("trl")

import scripted_rollouts as scripted
import tiny_training as tiny
import torch
import vllm_stub as vllm
from trl.trainer.grpo_trainer import GRPOTrainer

from fmtkit.training.run import process

OLD = [-1.0, -2.0, -0.5]
SAMPLED = [-1.0, -3.5, -0.5]


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """A trainer whose sampler and whose model give every answer the probabilities of the example."""
    process.quiet()
    folder = tmp_path_factory.mktemp("run")
    model = tiny.make_model(folder / "model", template=tiny.TEMPLATE)
    made = scripted.make_trainer(model, folder)
    vllm.attach(made, Client())
    made.vllm_generation.sync_weights = lambda: None

    def of_example(model, ids, mask, logits_to_keep, **_):
        return torch.tensor(OLD).repeat(len(ids), 1), None, None

    made._get_per_token_logps_and_entropies = of_example
    return made


class Client:
    """Samples three tokens for each answer; `logprobs` are theirs."""

    logprobs = SAMPLED

    def generate(self, prompts, n=1, **_):
        count = len(prompts) * n
        return {
            "prompt_ids": prompts,
            "completion_ids": [[20, 21, 3]] * count,
            "logprobs": [[[p] for p in self.logprobs]] * count,
        }


def ratio(trainer, mode: str, low: float | None = None, high: float | None = 3.0) -> list[float]:
    """Return TRL's ratio of one answer."""
    trainer.vllm_importance_sampling_mode = mode
    trainer.vllm_importance_sampling_clip_min = low
    trainer.vllm_importance_sampling_clip_max = high
    trainer.model.train()
    batch = [row for row in scripted.rows(2) for _ in range(2)]
    output = trainer._generate_and_score_completions(batch)
    rows = output["importance_sampling_ratio"]
    assert torch.equal(rows, rows[:1].expand_as(rows))
    return rows[0].tolist()


@pytest.mark.parametrize(
    ("mode", "limits", "wanted"),
    [
        ("token_truncate", {"high": 99.0}, [1, 4.481689, 1]),
        ("token_truncate", {}, [1, 3, 1]),
        ("token_mask", {}, [1, 0, 1]),
        ("sequence_truncate", {"high": 99.0}, [4.481689]),
        ("sequence_truncate", {}, [3]),
        ("sequence_mask", {}, [0]),
        ("sequence_mask", {"high": 5.0}, [4.481689]),
        ("token_truncate", {"low": 1.5}, [1.5, 3, 1.5]),
        ("token_mask", {"low": 1.5, "high": 5.0}, [0, 4.481689, 0]),
    ],
    ids=str,
)
def test_the_ratio_is_clipped_or_masked(trainer, mode, limits, wanted):
    assert ratio(trainer, mode, **limits) == pytest.approx(wanted, abs=1e-5)


def test_a_token_without_a_probability_is_not_corrected(trainer, monkeypatch):
    monkeypatch.setattr(Client, "logprobs", [-1.0, None, -1.5])
    assert ratio(trainer, "token_truncate", high=99.0) == pytest.approx([1, 1, 2.718282], abs=1e-5)
    assert ratio(trainer, "sequence_truncate", high=99.0) == pytest.approx([2.718282], abs=1e-5)


@pytest.mark.parametrize(
    ("advantage", "threshold", "kept"),
    [
        (-1.0, 0.5, [1, 0]),
        (1.0, 0.5, [1, 1]),
        (0.0, 0.5, [1, 1]),
        (-1.0, 1.5, [1, 1]),
        (-1.0, -1.0, [0, 0]),
    ],
)
def test_bad_answers_far_from_the_sampler_are_dropped(advantage, threshold, kept):
    """Mean divergences of the two answers: -0.0667 and 1.5."""
    model = torch.tensor([[-1.0, -1.0, -1.0], [-3.0, -3.0, 0.0]])
    sampler = torch.tensor([[-1.0, -1.2, -1.0], [-1.0, -2.0, 0.0]])
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0]])
    found = GRPOTrainer.get_off_policy_mask(
        torch.full((2, 1), advantage), model, sampler, mask, threshold
    )
    assert found.flatten().tolist() == kept
