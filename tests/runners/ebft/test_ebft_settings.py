"""The keys under `ebft:`, their defaults and what is refused."""

from dataclasses import asdict, fields

import pytest

from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.runners.ebft.settings import EbftSettings, read_settings
from fmtkit.runners.ebft.settings_plan import plan_settings, scale_rewards
from fmtkit.training.config.keys import table

DEFAULTS = {
    "mode": "structured",
    "feature_layers": (0.25, 0.5, 0.75),
    "embed_method": "last_token",
    "use_whitening": False,
    "alignment_coef": 1.0,
    "diversity_coef": 1.0,
    "ce_coef": 0.0,
    "adaptive_max_tokens": True,
    "gt_length_multiplier": 1.5,
    "stride": 8,
    "context_length": 8,
    "generate_max_len": 8,
    "n_samples_per_prompt": 4,
    "temperature": 0.6,
    "top_p": 1.0,
    "rl_coef": 1.0,
    "advantage_estimator": "rloo",
    "min_completion_prefix": 0,
    "mask_thinking_ce": False,
    "diversity_baseline": "group",
    "whitening_space": "feature",
    "multi_turn_train": "all",
}


@pytest.mark.parametrize("values", [None, {}, {"stride": None}])
def test_defaults_are_those_of_the_documentation(values) -> None:
    assert asdict(read_settings(values)) == DEFAULTS


def test_the_documented_strided_config_is_read() -> None:
    settings = read_settings(
        {
            "mode": "strided",
            "stride": 8,
            "context_length": 8,
            "generate_max_len": 8,
            "n_samples_per_prompt": 4,
            "temperature": 0.6,
            "feature_layers": [0.25, 0.5, 0.75],
            "embed_method": "last_token",
            "use_whitening": True,
            "alignment_coef": 1,
            "diversity_coef": 1.0,
            "rl_coef": 1.0,
            "ce_coef": 0.03,
            "advantage_estimator": "grpo",
        }
    )
    assert settings.advantage_estimator == "group_norm"
    assert settings.alignment_coef == 1.0
    assert settings.ce_coef == 0.03


def test_an_unknown_key_is_refused_with_the_one_meant() -> None:
    with pytest.raises(
        UnknownNameError, match="no key of ebft named 'strid'; did you mean 'stride'"
    ):
        read_settings({"strid": 8})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "async"),
        ("embed_method", "first_token"),
        ("feature_layers", []),
        ("feature_layers", [1.5]),
        ("feature_layers", [True]),
        ("feature_layers", 0.5),
        ("use_whitening", 1),
        ("alignment_coef", float("nan")),
        ("diversity_coef", -0.1),
        ("ce_coef", -1),
        ("gt_length_multiplier", 0.05),
        ("stride", 0),
        ("stride", 2.0),
        ("stride", True),
        ("context_length", 0),
        ("generate_max_len", 0),
        ("n_samples_per_prompt", 0),
        ("temperature", -0.5),
        ("top_p", 0),
        ("top_p", 1.2),
        ("rl_coef", float("inf")),
        ("rl_coef", "1.0"),
        ("advantage_estimator", "ppo"),
        ("min_completion_prefix", -1),
        ("diversity_baseline", "none"),
        ("whitening_space", "both"),
        ("multi_turn_train", "last"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_key(key, value) -> None:
    with pytest.raises(OptionError, match=rf"ebft\.{key} is"):
        read_settings({key: value})


def test_one_sample_means_reinforce_without_diversity() -> None:
    plan = plan_settings({"mode": "strided", "n_samples_per_prompt": 1})
    assert plan.settings.advantage_estimator == "reinforce"
    assert plan.settings.diversity_coef == 0
    assert "one sample per prompt" in plan.remarks[0]


@pytest.mark.parametrize("group", [1, 2])
def test_the_unbiased_form_needs_three_samples(group: int) -> None:
    with pytest.raises(
        OptionError, match=rf"diversity_baseline: loo .* trl\.num_generations is {group}"
    ):
        plan_settings({"diversity_baseline": "loo"}, num_generations=group)
    plan_settings({"diversity_baseline": "loo"}, num_generations=3)
    plan_settings({"diversity_baseline": "loo", "diversity_coef": 0}, num_generations=group)


def test_the_unbiased_form_counts_strided_samples() -> None:
    with pytest.raises(OptionError, match=r"ebft\.n_samples_per_prompt is 2"):
        plan_settings({"mode": "strided", "diversity_baseline": "loo", "n_samples_per_prompt": 2})


def test_keys_of_the_other_mode_are_named() -> None:
    plan = plan_settings({"mode": "strided", "adaptive_max_tokens": True})
    assert plan.remarks == ("ebft.mode is strided: adaptive_max_tokens has no effect",)
    plan = plan_settings({"stride": 4, "rl_coef": 0.5})
    assert plan.remarks == ("ebft.mode is structured: rl_coef, stride has no effect",)


def test_whitening_says_that_it_leaves_little_to_diversity() -> None:
    assert "orthogonal" in plan_settings({"use_whitening": True}).remarks[0]
    assert not plan_settings({"use_whitening": True, "diversity_coef": 0}).remarks


@pytest.mark.parametrize(
    ("given", "scale"),
    [(None, None), ("rloo", "none"), ("group_norm", "group"), ("grpo", "group")],
)
def test_an_estimator_in_structured_mode_becomes_trls_scaling(given, scale) -> None:
    assert scale_rewards({"advantage_estimator": given}) == scale


def test_reinforce_has_no_structured_form() -> None:
    with pytest.raises(OptionError, match="reinforce has no form in structured mode"):
        plan_settings({"advantage_estimator": "reinforce"})


def test_the_unbiased_form_leaves_rewards_unscaled() -> None:
    assert scale_rewards({"diversity_baseline": "loo"}) == "none"


def test_every_setting_is_a_key_and_every_key_a_setting() -> None:
    known = {name.removeprefix("ebft.") for name in table() if name.startswith("ebft.")}
    assert known == {one.name for one in fields(EbftSettings)}
