"""Configs of axolotl's run unchanged: what it has is honoured, noted once, or refused by name.

`python tests/test_axolotl_configs.py` prints what stops each of axolotl's own example configs, where
they are at hand, and the counts.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from fmtkit.core.errors import FmtkitError
from fmtkit.core.runner import find
from fmtkit.training.config.keys import aliases, dataset_table, table
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.planning import device_checks, resolve
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "axolotl"
EXAMPLES = Path(__file__).parents[2] / "shared" / "data" / "axolotl_examples"
"""Half of axolotl's own examples, each with what is to become of it; users of fmtkit have none."""
PLANS = sorted(path.stem for path in (FIXTURES / "plans").glob("*.yaml"))
ENOUGH = 0.95


def plan_of(name: str) -> planning.Plan:
    return planning.plan(FIXTURES / "plans" / f"{name}.yaml")


def lines_of(file: Path) -> dict[str, int]:
    """Return the line of each key at the top level."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {line.partition(":")[0]: n for n, line in enumerate(lines, 1) if line[:1].isalpha()}


@pytest.mark.parametrize("name", PLANS)
def test_a_config_as_axolotls_users_have_it_plans(name):
    plan = plan_of(name)
    assert plan.missing == ()
    assert plan.model is not None
    assert plan.datasets


@pytest.mark.parametrize("name", PLANS)
def test_every_note_is_said_once(name):
    notes = plan_of(name).notes
    assert [note for note, count in Counter(notes).items() if count > 1] == []


def test_keys_that_cannot_be_done_are_refused_all_at_once_each_with_its_line():
    file = FIXTURES / "refused" / "all-at-once.yaml"
    with pytest.raises(RefusalError) as error:
        planning.plan(file)
    told = error.value.lines[1:]
    harmless = {"base_model", "datasets", "sequence_len", "micro_batch_size", "num_epochs"}
    keys = {k: n for k, n in lines_of(file).items() if k not in {*harmless, "learning_rate"}}
    for key, number in keys.items():
        # A plugin is told with the line of the key that lists it.
        assert [line for line in told if line.lstrip().startswith(f"{file}:{number}: {key}:")], key
    assert len(told) == len(keys)


REFUSED = sorted(key.name for key in table().values() if key.to == "refused")


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_that_cannot_be_honoured_says_so_by_its_name_and_asks_for_nothing_when_idle(name):
    whole, _, inner = name.rpartition(".")
    value = {"any": 7, "bool": True, "number": 7.5, "text": "x", "count": 7, "natural": 7}.get(
        table()[name].kind, 0.5
    )
    value = False if value in table()[name].idle else value
    with pytest.raises(FmtkitError, match=f"{name}: .* cannot be honoured: ") as error:
        planning.plan({whole: {inner: value}} if whole else {name: value}, partial=True)
    assert error.value.exit_code == 2
    for idle in table()[name].idle:
        planning.plan({whole: {inner: idle}} if whole else {name: idle}, partial=True)


NOTED = sorted(
    key.name for key in table().values() if key.to == "nothing" and "adapter_name" not in key.name
)
"""`model_adapter_name` and `ref_adapter_name` are refused where there is no reference: `test_extensions`."""


@pytest.mark.parametrize("name", NOTED)
def test_a_key_that_changes_no_result_is_a_note_and_its_false_or_null_is_none(name):
    method = {"ebft": "ebft", "trl": "grpo", "vllm": "grpo"}.get(name.partition(".")[0], "sft")
    value = {"bool": True, "text": "x", "texts": ["x"], "number": 0.5}.get(table()[name].kind, 3)
    whole, _, inner = name.rpartition(".")

    def notes(given: object) -> list[str]:
        keys = {whole: {inner: given}} if whole else {name: given}
        made = planning.plan({"rl": method, **keys}, partial=True)
        return [note for note in made.notes if note.startswith(f"{name} changes nothing: ")]

    assert len(notes(value)) == 1
    assert notes(None) == notes(False if table()[name].kind == "bool" else None) == []


def test_every_note_says_what_axolotl_does_with_the_key():
    every = [*table().values(), *dataset_table().values()]
    own = {"model_adapter_name", "ref_adapter_name"}  # TRL's, not axolotl's
    assert {key.name for key in every if key.to == "nothing" and not key.axolotl} == own
    notes = planning.plan({"streaming": True}, partial=True).notes
    (note,) = [note for note in notes if note.startswith("streaming changes nothing")]
    assert "axolotl tokenizes rows while training" in note


def test_packing_is_a_note_where_the_trainer_has_none_and_nothing_where_it_is_false():
    noted, idle = plan_of("orpo"), plan_of("dpo-qlora")
    assert [n for n in noted.notes if n.startswith("sample_packing changes nothing: ORPOConfig")]
    assert not [n for n in idle.notes if "sample_packing" in n]
    assert "packing" not in noted.arguments.trainer
    assert plan_of("sft-lora-packed").arguments.trainer["packing"].value is True


def test_evaluations_without_rows_to_evaluate_on_are_a_note():
    plan = plan_of("sft-lora-packed")
    assert [n for n in plan.notes if n.startswith("evals_per_epoch changes nothing: there is")]
    assert not {"eval_steps", "eval_strategy"} & set(plan.arguments.trainer)


def test_two_trackers_names_that_are_null_are_no_contradiction():
    assert "run_name" not in plan_of("sft-lora-packed").arguments.trainer


def test_named_modules_beside_all_linear_layers_are_a_union():
    assert plan_of("sft-lora-packed").arguments.peft["target_modules"].value == [
        "all-linear",
        "embed_tokens",
        "q_proj",
    ]


def test_a_floor_makes_the_cosine_one_with_a_floor():
    trainer = plan_of("sft-lora-packed").arguments.trainer
    assert trainer["lr_scheduler_type"].value == "cosine_with_min_lr"
    assert trainer["lr_scheduler_kwargs"].value == {"min_lr_rate": 0.1}
    made = planning.plan({"lr_scheduler": "linear", "cosine_min_lr_ratio": 0.1}, partial=True)
    assert made.arguments.trainer["lr_scheduler_type"].value == "linear"
    assert [n for n in made.notes if n.startswith("cosine_min_lr_ratio changes nothing")]


def test_xformers_falls_back_to_sdpa_with_a_note():
    for keys in ({"xformers_attention": True}, {"attn_implementation": "xformers"}):
        made = planning.plan(keys, partial=True)
        assert made.arguments.model["attn_implementation"].value == "sdpa"
        assert [n for n in made.notes if "sdpa computes the same function" in n]


def test_a_template_that_the_tokenizer_brings_is_taken_from_it_and_said():
    plan = plan_of("sft-kernels")
    assert plan.template == ("tokenizer_default", "key chat_template")
    assert [n for n in plan.notes if n.startswith("chat_template: qwen3_5 is axolotl's copy")]


def test_how_a_quantized_checkpoint_is_read_goes_to_its_class_and_needs_no_device():
    given = plan_of("sft-fsdp-thinking").arguments
    assert {a.name: a.value for a in given.quantization.values()} == {
        "config_class": "Mxfp4Config",
        "dequantize": True,
    }
    assert not given.is_quantized
    assert given.model["output_router_logits"].value is True
    assert given.model["experts_implementation"].value == "grouped_mm"


def test_loftq_starts_the_adapter():
    peft = plan_of("sft-loftq").arguments.peft
    assert peft["init_lora_weights"].value == "loftq"
    assert peft["loftq_config"].value == {"loftq_bits": 4}


def test_loftq_has_pefts_defaults_for_what_is_not_set(monkeypatch):
    from peft import LoftQConfig
    from transformers import LlamaConfig

    from fmtkit.training.building import build

    # peft looks whether scipy is there, which LoftQ's code for a GPU needs.
    monkeypatch.setitem(sys.modules, "scipy", SimpleNamespace(__spec__=object()))
    peft = {"init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 8}}
    work = SimpleNamespace(peft=peft, setting=lambda _: None)
    monkeypatch.setattr(build, "model_config_of", lambda _: LlamaConfig())
    made = build.make_peft(work, find("sft")).loftq_config
    assert made == vars(LoftQConfig()) | {"loftq_bits": 8}


@pytest.mark.parametrize("is_there", [True, False])
def test_ligers_kernels_are_switched_on_where_they_are_and_a_note_where_not(is_there, monkeypatch):
    monkeypatch.setattr(resolve, "installed", lambda _: "0.6" if is_there else None)
    for keys in ({"use_liger_kernel": True}, {"liger_rope": True, "liger_rms_norm": True}):
        made = planning.plan(keys, partial=True)
        noted = [n for n in made.notes if "liger-kernel is not installed" in n]
        assert ("use_liger_kernel" in made.arguments.trainer) is is_there
        assert bool(noted) is not is_there
    parts = made.arguments.trainer.get("liger_kernel_config")
    if is_there:
        assert {name for name, on in parts.value.items() if on} == {"rope", "rms_norm"}


def test_loftq_without_its_packages_or_a_device_is_told_before_anything_is_converted(monkeypatch):
    monkeypatch.setattr("fmtkit.training.planning.device_checks.find_spec", lambda _: None)
    monkeypatch.setattr("fmtkit.training.planning.visible_gpus.may_be_there", lambda _: False)
    keys = {"adapter": "lora", "peft": {"loftq_config": {"loftq_bits": 4}}}
    plan = planning.plan(keys, partial=True)
    found = device_checks.find_packages(Run(plan))
    assert found is not None
    assert "LoftQ needs bitsandbytes and scipy: pip install bitsandbytes scipy" in found.message
    assert "LoftQ needs a CUDA device" in (device_checks.find_device(Run(plan)) or "")
    plain = planning.plan({"adapter": "lora"}, partial=True)
    assert device_checks.find_packages(Run(plain)) is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"peft": {"loftq_config": {"loftq_bit": 4}}}, "loftq_bit: LoftQ has no such setting; did"),
        ({"peft": {"loftq_config": {"loftq_bits": 3}}}, "loftq_bits: 3 is not one of 4, 8"),
        ({"peft": {"loftq_config": {"loftq_bits": 2}}}, "loftq_bits: 2 is not one of 4, 8"),
        (
            {"model_quantization_config": "Mxfp4Config"},
            "MXFP4 weights cannot be trained; add model_quantiz",
        ),
        (
            {"tokens": {"pad_token": "<pad>"}},
            "tokens: .* is not a list of strings; axolotl .* special_tokens",
        ),
        ({"peft": {"loftq": 1}}, "no key named 'peft.loftq'"),
        (
            {"adapter": "qlora", "peft": {"loftq_config": {"loftq_bits": 4}}},
            "LoftQ quantizes the weights by itself; write adapter: lora",
        ),
        (
            {"fsdp": "full_shard", "fsdp_config": {"offload_param": True}},
            "no key of fsdp_config named 'offload_param'; did you mean 'offload_params'",
        ),
    ],
)
def test_what_stands_inside_a_section_is_checked(keys, message):
    with pytest.raises(FmtkitError, match=message):
        planning.plan(keys, partial=True)


def test_what_only_the_first_fsdp_had_is_a_note_and_the_rest_reaches_accelerate():
    plan = plan_of("sft-fsdp-thinking")
    (note,) = [n for n in plan.notes if n.startswith("fsdp_config: ")]
    assert "limit_all_gathers, sharding_strategy, sync_module_states, use_orig_params" in note
    config = plan.launch.accelerate["fsdp_config"]
    assert config["fsdp_offload_params"] is True
    assert config["fsdp_state_dict_type"] == "SHARDED_STATE_DICT"
    assert "fsdp_sharding_strategy" not in config


def test_swanlab_is_reported_to_as_its_keys_say():
    plan = plan_of("dpo-qlora")
    assert plan.arguments.trainer["report_to"].value == ["swanlab"]
    assert plan.arguments.trainer["run_name"].value == "first"
    assert plan.arguments.of("environment")["SWANLAB_PROJECT"].value == "pairs"
    assert plan.arguments.of("environment")["SWANLAB_MODE"].value == "local"


def test_no_key_stands_both_as_a_name_and_as_an_alias():
    assert not set(table()) & set(aliases())


def examples(expected: str) -> list[tuple[str, list[str]]]:
    """Return axolotl's own examples that are to plan, or to be refused, with the keys at fault."""
    if not (EXAMPLES / "classes.json").is_file():
        return []
    classes = json.loads((EXAMPLES / "classes.json").read_text(encoding="utf-8"))
    return [(name, c.get("names", [])) for name, c in classes.items() if c["class"] == expected]


OF_IMAGES = {"freeze_mm_modules", "processor_type", "skip_prepare_dataset"}
"""Keys of axolotl's vision examples, which plan since fmtkit trains on rows with images."""


def stops(name: str) -> str | None:
    """Return what stops the plan of one of axolotl's examples, or None."""
    try:
        planning.plan(EXAMPLES / "examples" / name)
    except FmtkitError as error:
        return str(error)
    return None


def failures(expected: str) -> dict[str, str]:
    """Return the examples that do not become what they are to, and why."""
    out = {}
    for name, keys in examples(expected):
        stop = stops(name)
        if expected == "must_plan" and stop is not None:
            out[name] = stop
        left = {*keys} - OF_IMAGES
        if expected == "must_refuse" and left and not any(key in (stop or "") for key in left):
            out[name] = f"not refused for {' or '.join(left)}: {stop}"
        if expected == "must_refuse" and not left and stop is not None:
            out[name] = stop
    return out


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="axolotl's own examples are not at hand")
@pytest.mark.parametrize("expected", ["must_plan", "must_refuse"])
def test_axolotls_own_examples_plan_or_are_refused_by_name(expected, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found, wrong = examples(expected), failures(expected)
    assert 1 - len(wrong) / len(found) >= ENOUGH, wrong


def main() -> None:
    """Print what stops each example, and how many become what they are to."""
    for expected in ("must_plan", "must_refuse"):
        wrong = failures(expected)
        for name, why in wrong.items():
            sys.stdout.write(f"{expected}: {name}\n    {why}\n")
        count = len(examples(expected))
        sys.stdout.write(f"{expected}: {count - len(wrong)} of {count}\n")


if __name__ == "__main__":
    main()
