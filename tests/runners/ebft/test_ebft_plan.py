"""What is wrong with an EBFT run, or changes nothing in it, is said while planning."""

import pytest

pytest.importorskip("trl")

from fmtkit.core.errors import DependencyError, OptionError, UnknownNameError
from fmtkit.core.runner import find
from fmtkit.training.building.online_health import OnlineHealth
from fmtkit.training.config.yaml_file import parse
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning import trainer_choice

STRIDED = """
base_model: a/m
rl: ebft
sequence_len: 256
ebft: {mode: strided}
datasets: [{path: a/b, type: ebft_reasoning.transform_strided}]
"""
STRUCTURED = """
base_model: a/m
rl: ebft
ebft: {feature_layers: [0.5]}
datasets: [{path: a/b, type: ebft_opencode.transform}]
"""


def planned(text: str, *overrides: str) -> planning.Plan:
    return planning.plan(parse(text, "block"), overrides)


@pytest.mark.parametrize(
    ("text", "override", "words"),
    [
        (STRUCTURED, "ebft.strid=8", "did you mean 'ebft.stride'"),
        (STRUCTURED, "ebft.feature_layers=[1.5]", "fractions of the depth"),
        (STRUCTURED, "ebft.advantage_estimator=reinforce", "no form in structured mode"),
        (STRUCTURED, "ebft.ce_coef=-1", "ebft.ce_coef is -1"),
        (STRIDED, "ebft.top_p=0", "ebft.top_p is 0"),
        (STRIDED, "ebft.stride=0", "ebft.stride"),
    ],
)
def test_a_wrong_value_fails_before_anything_is_converted(text, override, words) -> None:
    with pytest.raises((OptionError, UnknownNameError), match=words):
        planned(text, override)


@pytest.mark.parametrize(
    ("text", "key"), [(STRIDED, "ebft.n_samples_per_prompt"), (STRUCTURED, "trl.num_generations")]
)
def test_groups_of_two_are_refused_for_the_unbiased_diversity(text, key) -> None:
    with pytest.raises(OptionError, match=f"needs at least 3 samples of a prompt and {key} is 2"):
        planned(text, "ebft.diversity_baseline=loo", f"{key}=2")


@pytest.mark.parametrize(
    ("text", "override", "words"),
    [
        (STRIDED, "ebft.gt_length_multiplier=2.0", "gt_length_multiplier has no effect"),
        (STRIDED, "ebft.n_samples_per_prompt=1", "one sample per prompt"),
        (STRUCTURED, "ebft.stride=4", "stride has no effect"),
        (STRUCTURED, "ebft.use_whitening=true", "whitened samples are orthogonal"),
        (
            STRUCTURED,
            "ebft.mask_thinking_ce=true",
            "it is for datasets of type ebft_reasoning.transform_strided",
        ),
    ],
)
def test_what_changes_nothing_is_a_note(text, override, words) -> None:
    notes = planned(text, override).notes
    assert [note for note in notes if words in note], notes


def test_a_transformers_that_gives_no_logits_per_row_is_refused_with_what_to_do(
    monkeypatch,
) -> None:
    monkeypatch.setattr(
        trainer_choice, "installed", {"trl": "1.16.0", "transformers": "5.17.0"}.get
    )
    with pytest.raises(
        DependencyError, match=r"needs transformers>=5.21, and transformers 5.17.0 is .*structured"
    ):
        planned(STRIDED)
    assert planned(STRUCTURED).runner.method == "ebft"


def test_thinking_is_left_out_by_the_type_that_knows_it() -> None:
    off = planned(STRIDED, "ebft.mask_thinking_ce=false")
    assert off.datasets[0].reading.options == {}
    plan = planned(STRIDED, "ebft.mask_thinking_ce=true")
    assert plan.datasets[0].reading.options == {"mask_thinking_ce": True}
    assert not [note for note in plan.notes if "mask_thinking_ce" in note]
    own = planned(
        STRIDED,
        "ebft.mask_thinking_ce=true",
        "datasets.0.options={mask_thinking_ce: false}",
    )
    assert own.datasets[0].reading.options == {"mask_thinking_ce": False}


@pytest.mark.parametrize("key", ["flash_attention", "attn_implementation"])
def test_flash_attention_is_dropped_by_name_in_strided_mode(key) -> None:
    value = "true" if key == "flash_attention" else "flash_attention_3"
    plan = planned(STRIDED, f"{key}={value}")
    assert "attn_implementation" not in plan.arguments.model
    assert [note for note in plan.notes if note.startswith(f"--set {key}") or key in note]


def test_flex_attention_and_structured_mode_keep_what_was_asked_for() -> None:
    asked = planned(STRIDED, "flex_attention=true").arguments.model["attn_implementation"]
    assert asked.value == "flex_attention"
    kept = planned(STRUCTURED, "flash_attention=true").arguments.model["attn_implementation"]
    assert kept.value == "flash_attention_2"


def test_keys_of_another_way_of_sampling_are_one_note_in_strided_mode() -> None:
    plan = planned(STRIDED, "trl.num_generations=4", "trl.use_vllm=true", "vllm.port=8000")
    about = [note for note in plan.notes if "trl.num_generations" in note or "vllm.port" in note]
    assert len(about) == 1
    assert "trl.num_generations, trl.use_vllm, vllm.port change nothing" in about[0]


def test_documents_have_a_length_where_none_is_set() -> None:
    plan = planned(STRIDED, "sequence_len=null")
    assert plan.arguments.own["max_length"].value == 1024
    assert any("documents are cut at 1024 tokens" in note for note in plan.notes)


def test_the_scale_of_ebfts_reward_is_its_own() -> None:
    limits = find("ebft").health
    assert limits is not None
    health = OnlineHealth(limits)
    log = {"loss": 0.0, "rewards/ebft/mean": -0.5, "entropy": 0.3}
    assert [text for step in range(40) for text in health.see(log, step)] == []
