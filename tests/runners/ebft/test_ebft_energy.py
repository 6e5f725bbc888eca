"""Features, whitening, rewards and advantages against the worked numbers of the specification."""

import math

import pytest
import torch
from torch import Tensor, tensor

from fmtkit.core.errors import FmtkitError
from fmtkit.runners.ebft import whitening
from fmtkit.runners.ebft.energy_reward import Weights, advantages, energy
from fmtkit.runners.ebft.features import (
    check_finite,
    layer_indices,
    normalized_layers,
    pool,
    pool_steps,
)
from fmtkit.runners.ebft.whitening import whiten

E1 = tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), tensor([0.8, 0.6])
E2 = tensor([[1.0, 0.0], [0.6, 0.8]]), tensor([1.0, 0.0])
W1 = tensor([[2.0, 0, 0], [0, 1, 0]]), tensor([1.0, 1, 1])
W2 = tensor([[1.0, 0, 0], [1, 1, 0]]), tensor([1.0, 2, 2])
W3 = tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]), tensor([1.0, 1, 0])
FEATURE, SAMPLE = Weights(whitening="feature"), Weights(whitening="sample")


def near(actual: Tensor, expected: list[float] | float, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, tensor(expected), atol=tolerance, rtol=0)


# --- layers and pooling -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(2, (1, 1, 1)), (12, (3, 6, 9)), (28, (7, 14, 21)), (32, (8, 16, 24))],
)
def test_quarters_of_the_depth_are_these_layers(layers: int, expected: tuple[int, ...]) -> None:
    assert layer_indices([0.25, 0.5, 0.75], layers) == expected


def test_depth_zero_is_the_first_layer_and_one_the_last() -> None:
    assert layer_indices([0.0, 1.0], 10) == (1, 10)


def test_a_fraction_that_floats_cannot_hold_reaches_its_layer() -> None:
    assert int(0.57 * 100) == 56
    assert layer_indices([0.57], 100) == (57,)


def test_each_layer_counts_the_same_whatever_its_scale() -> None:
    small, large = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    torch.testing.assert_close(
        normalized_layers([small, large]), normalized_layers([small * 1000, large / 1000])
    )


def test_layers_of_half_precision_are_normalised_in_single() -> None:
    out = normalized_layers([torch.full((1, 1, 4), 30000.0, dtype=torch.float16)])
    near(out, [[[0.5, 0.5, 0.5, 0.5]]])


def worked_features() -> Tensor:
    row = torch.arange(1, 13, dtype=torch.float32).view(6, 2)
    return torch.stack([row, row * 10])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("last_token", [[7, 8], [110, 120]]),
        ("mean_pooling", [[4, 5], [60, 70]]),
        ("completion_mean", [[6, 7], [90, 100]]),
        ("concat", [[3, 4, 5, 6, 7, 8], [30, 40, 70, 80, 90, 100]]),
    ],
)
def test_pooling_gives_the_worked_numbers(method, expected) -> None:
    out = pool(worked_features(), tensor([4, 6]), tensor([2, 3]), method)
    near(out, [[float(value) for value in row] for row in expected])


@pytest.mark.parametrize("method", ["last_token", "mean_pooling", "completion_mean", "concat"])
def test_pooling_does_not_see_the_padding(method) -> None:
    features = torch.randn(2, 6, 4)
    spoiled = features.clone()
    spoiled[0, 4:] = 1e6
    lengths, prompts = tensor([4, 6]), tensor([2, 3])
    torch.testing.assert_close(
        pool(spoiled, lengths, prompts, method), pool(features, lengths, prompts, method)
    )


def test_an_empty_completion_is_the_last_prompt_token() -> None:
    features = torch.randn(1, 5, 4)
    out = pool(features, tensor([3]), tensor([3]), "completion_mean")
    torch.testing.assert_close(out, features[:, 2])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("last_token", [[7.0]]),
        ("mean_pooling", [[3.5]]),
        ("completion_mean", [[3.5]]),
        ("concat", [[2.0, 4.0, 6.0]]),
    ],
)
def test_a_block_is_pooled_over_its_steps(method, expected) -> None:
    near(pool_steps(torch.arange(8.0).view(1, 8, 1), method), expected)


def test_features_that_are_no_number_name_the_row() -> None:
    features = torch.zeros(3, 4)
    features[1, 2] = math.nan
    with pytest.raises(FmtkitError, match="row 1 of the completions"):
        check_finite(features, "the completions")


# --- rewards ------------------------------------------------------------------------------------


def test_e1_without_whitening() -> None:
    out = energy(*E1, Weights())
    near(out.alignment, [0.8, 0.6, 0.96])
    near(out.diversity, [0.3, 0.4, 0.7])
    near(out.reward, [1.0, 0.4, 0.52])
    near(out.distance, 0.0711111)


def test_e1_with_half_the_diversity() -> None:
    near(energy(*E1, Weights(diversity=0.5)).reward, [1.3, 0.8, 1.22])


def test_e1_advantages_of_each_kind() -> None:
    reward = energy(*E1, Weights()).reward
    near(advantages(reward, "rloo"), [0.54, -0.36, -0.18])
    near(reward - reward.mean(), [0.36, -0.24, -0.12])
    near((reward - reward.mean()) / (reward.std() + 1e-4), [1.133536, -0.755691, -0.377846])
    near(advantages(reward, "reinforce"), [1.0, 0.4, 0.52])
    near(advantages(reward, "group_norm"), [1.133893, -0.755929, -0.377964])


def test_e1_unbiased_diversity_gives_the_authors_advantages() -> None:
    out = energy(*E1, Weights(baseline="loo"))
    near(advantages(out.reward, "rloo"), [1.04, -0.16, -0.88])


def test_the_unbiased_form_equals_the_authors_estimator_on_any_group() -> None:
    generator = torch.Generator().manual_seed(3)
    for n in (3, 4, 7):
        samples = torch.randn(n, 16, generator=generator)
        reference = torch.randn(16, generator=generator)
        mine = advantages(energy(samples, reference, Weights(baseline="loo")).reward, "rloo")
        plain = energy(samples, reference, Weights())
        aligned, likeness = 2 * plain.alignment, 2 * plain.diversity
        baseline = (likeness.sum() - 2 * likeness) / (n - 2)
        authors = advantages(aligned, "rloo") - (likeness - baseline)
        torch.testing.assert_close(mine, authors, atol=1e-5, rtol=0)


def test_e2_two_samples_cannot_be_told_apart_by_diversity() -> None:
    out = energy(*E2, Weights())
    near(out.diversity, [0.6, 0.6])
    near(out.reward, [0.8, 0.0])
    near(advantages(out.reward, "rloo"), [0.8, -0.8])
    alone = energy(*E2, Weights(diversity=0.0))
    near(advantages(alone.reward, "rloo"), [0.8, -0.8])


def test_w1_orthogonal_samples() -> None:
    samples, reference = whiten(*W1)
    near(samples @ samples.T, [[1.0, 0.0], [0.0, 1.0]])
    near(samples @ reference, [0.5, 1.0])
    out = energy(*W1, FEATURE)
    near(out.alignment, [0.447214, 0.894427])
    near(out.diversity, [0.0, 0.0])
    near(out.reward, [0.894427, 1.788854])
    near(energy(*W1, SAMPLE).alignment, [0.577350, 0.577350])


def test_w2_oblique_samples() -> None:
    near(torch.linalg.svdvals(W2[0]), [1.618034, 0.618034])
    out = energy(*W2, FEATURE)
    near(out.alignment, [-0.447214, 0.894427])
    near(out.alignment.square().sum(), 1.0)
    near(out.diversity, [0.0, 0.0])
    near(out.reward, [-0.894427, 1.788855])
    near(energy(*W2, SAMPLE).alignment, [0.0, 0.745356])


def test_w3_duplicates_share_one_direction() -> None:
    near(torch.linalg.svdvals(W3[0]), [1.414214, 1.0, 0.0])
    samples, _ = whiten(*W3)
    near(samples @ samples.T, [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    out = energy(*W3, FEATURE)
    near(out.alignment, [0.577350, 0.577350, 0.816497])
    near(out.diversity, [0.25, 0.25, 0.0])
    near(out.reward, [0.654701, 0.654701, 1.632993])


def test_w4_more_samples_than_features() -> None:
    out = energy(*E1, FEATURE)
    near(out.alignment, [0.769995, 0.356717, 0.924445])
    near(out.diversity, [0.03, 0.08, 0.35])
    near(out.reward, [1.479991, 0.553435, 1.148891])


def test_whitening_equals_its_definition_with_the_square_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(5, 40, generator=generator, dtype=torch.float64)
    reference = torch.randn(40, generator=generator, dtype=torch.float64)
    u, s, _ = torch.linalg.svd(samples.T, full_matrices=False)
    square = u @ torch.diag(1 / (s + 1e-12)) @ u.T
    placed, target = whiten(samples, reference)
    torch.testing.assert_close(placed @ placed.T, samples @ square @ (samples @ square).T)
    torch.testing.assert_close(placed @ target, samples @ square @ (square @ reference))
    torch.testing.assert_close(target @ target, reference @ square @ (square @ reference))


def test_whitened_samples_of_full_rank_are_orthonormal() -> None:
    samples, reference = torch.randn(4, 64), torch.randn(64)
    out = energy(samples, reference, FEATURE)
    near(out.diversity, [0.0] * 4)
    near(out.alignment.square().sum(), 1.0)


def test_whitening_a_group_of_large_features_needs_no_square_matrix() -> None:
    # 200,000 features: the D×D matrix would take 160 GB.
    samples, reference = torch.randn(4, 200_000), torch.randn(200_000)
    placed, target = whiten(samples, reference)
    assert placed.shape == (4, 4)
    assert target.shape == (4,)


@pytest.mark.parametrize("weights", [Weights(), FEATURE, SAMPLE])
def test_groups_are_rewarded_alone_and_together_alike(weights: Weights) -> None:
    samples, references = torch.randn(2, 3, 4, 12), torch.randn(2, 3, 12)
    samples[0, 1, 2] = samples[0, 1, 0]
    together = energy(samples, references, weights).reward
    for i in range(2):
        for j in range(3):
            alone = energy(samples[i, j], references[i, j], weights).reward
            torch.testing.assert_close(together[i, j], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("weights", [Weights(), FEATURE, SAMPLE])
def test_permuting_a_group_permutes_its_rewards(weights: Weights) -> None:
    samples, reference = torch.randn(5, 12), torch.randn(12)
    order = tensor([3, 1, 4, 0, 2])
    straight = energy(samples, reference, weights).reward
    torch.testing.assert_close(
        energy(samples[order], reference, weights).reward, straight[order], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("weights", [Weights(), FEATURE, SAMPLE])
def test_the_scale_of_the_features_does_not_matter(weights: Weights) -> None:
    samples, reference = torch.randn(4, 12), torch.randn(12)
    torch.testing.assert_close(
        energy(samples * 37, reference * 37, weights).reward,
        energy(samples, reference, weights).reward,
        atol=1e-5,
        rtol=0,
    )


def test_identical_samples_are_as_alike_as_can_be() -> None:
    near(energy(torch.ones(3, 4), torch.ones(4), Weights()).diversity, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("weights", [Weights(), FEATURE, SAMPLE])
def test_a_feature_vector_without_length_aligns_with_nothing(weights: Weights) -> None:
    near(energy(torch.zeros(2, 4), torch.ones(4), weights).alignment, [0.0, 0.0])
    near(energy(torch.eye(2, 4), torch.zeros(4), weights).alignment, [0.0, 0.0])


@pytest.mark.parametrize("weights", [Weights(), FEATURE, Weights(baseline="loo")])
def test_a_single_sample_has_no_diversity(weights: Weights) -> None:
    out = energy(tensor([[3.0, 0.0]]), tensor([1.0, 1.0]), weights)
    near(out.diversity, [0.0])
    near(out.reward, [math.sqrt(2)])


def test_a_decomposition_that_never_converges_falls_back_to_unit_vectors(monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise torch.linalg.LinAlgError

    monkeypatch.setattr(whitening.torch.linalg, "svd", fails)
    out = energy(*E1, FEATURE)
    assert out.whitening_failed
    near(out.reward, [1.0, 0.4, 0.52])


# --- what a whitened run shows ------------------------------------------------------------------


@pytest.mark.parametrize("weights", [FEATURE, SAMPLE])
def test_whitened_alignment_is_bounded_where_that_of_unit_vectors_tells_near_from_far(
    weights,
) -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(16, 32, generator=generator)
    noise = torch.randn(16, 4, 32, generator=generator)
    chosen = torch.ones(16, dtype=torch.bool)
    near_it, far = (
        energy(reference[:, None] + scale * noise, reference, weights).metrics(chosen)
        for scale in (0.1, 3.0)
    )
    assert near_it["ebft/alignment_unwhitened"] > 1.9
    assert far["ebft/alignment_unwhitened"] < 1.0
    # The squares of four cosines add up to at most 1, so that their mean is at most a half.
    assert max(near_it["ebft/alignment"], far["ebft/alignment"]) <= 1.0 + 1e-5
    assert near_it["ebft/diversity"] == pytest.approx(0.0, abs=1e-4)
    assert near_it["ebft/diversity_unwhitened"] > 1.9


def test_the_unwhitened_terms_are_those_of_a_reward_without_whitening() -> None:
    whitened, plain = energy(*E1, FEATURE), energy(*E1, Weights())
    assert whitened.unwhitened is not None
    for found, wanted in zip(whitened.unwhitened, (plain.alignment, plain.diversity), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    assert plain.unwhitened is None
    assert "ebft/alignment_unwhitened" not in plain.metrics(torch.tensor(True))
