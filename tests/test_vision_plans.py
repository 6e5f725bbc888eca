"""What cannot be done with rows with images is refused in the plan, by the name of the key at fault."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("trl")
pytest.importorskip("PIL")

import tiny_vision as vision

from fmtkit.core.errors import FmtkitError
from fmtkit.core.runner import shipped
from fmtkit.training.config.problems import Problems
from fmtkit.training.planning import images
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run, of_run, run_checks
from fmtkit.training.planning.types import FirstRows
from fmtkit.training.run import checklist

Models = Callable[[str], str]
assert checklist.MODULES  # They declare the checks.

REWARDED: dict[str, Any] = {"rl": "grpo", "trl": {"reward_funcs": ["fmtkit.rewards.accuracy"]}}


def table(kind: str, counts: tuple[int, ...], **columns: list[Any]) -> pa.Table:
    """Return rows with images as the plan sees them, before they are written."""
    rows = [
        row | {name: values[n] for name, values in columns.items()}
        for n, row in enumerate(vision.image_rows(kind, counts))
    ]
    made = pa.Table.from_pylist(rows)
    index = made.column_names.index("images")
    kinds = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    return made.set_column(index, "images", made.column("images").cast(kinds))


def run_of(keys: dict[str, Any], *tables: pa.Table) -> Run:
    """Return a run whose plan has seen these rows."""
    given = {"base_model": "a/model", "datasets": [{"path": "a/rows"}], **keys}
    seen = FirstRows("a/rows", tables=tables, is_all=True)
    return Run(planning.plan(given), first_rows={"datasets.0": seen})


def problems(run: Run) -> dict[str, str]:
    """Return code and message of what the checks of images find."""
    found = Problems()
    mine = [c for c in of_run(("files",)) if c.code.startswith(("image_", "trainer_rule_images"))]
    assert len(mine) >= 10
    run_checks(run, found, mine)
    return {one.code: one.message for one in found.found}


CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    # What is refused -> keys, table, code, message.
    "packing": ({"sample_packing": True}, "Conversation", "image_packing", "sample_packing: rows"),
    "padding_free": (
        {"padding_free": True, "sample_packing": True},
        "Conversation",
        "image_packing",
        "sample_packing: rows",
    ),
    "a precomputed reference": (
        {"rl": "dpo", "precompute_ref_log_probs": True},
        "Preference",
        "image_reference",
        "precompute_ref_log_probs: ",
    ),
    "keeping the end": (
        {"excess_length_strategy": "truncate", "trainer_args": {"truncation_mode": "keep_end"}},
        "Completion",
        "trainer_rule_images",
        "keep_end' is not supported for vision datasets",
    ),
    "truncation": (
        {"excess_length_strategy": "truncate"},
        "Completion",
        "image_length",
        "excess_length_strategy: a row that is cut may lose part of an image",
    ),
    "rows grouped by their lengths": (
        {"group_by_length": True},
        "Conversation",
        "image_batch",
        "group_by_length: rows with images have no length",
    ),
    "padding to a multiple": (
        {"rl": "dpo", "trainer_args": {"pad_to_multiple_of": 8}},
        "Preference",
        "image_batch",
        "pad_to_multiple_of: TRL's collator of prompts with images has no such padding",
    ),
    "another tokenizer": (
        {"tokenizer_config": "b/other"},
        "Completion",
        "image_tokenizer",
        "tokenizer_config: rows with images are tokenized by the model's processor",
    ),
    "a choice of turns": (
        {"roles_to_train": ["user"]},
        "Conversation",
        "image_mask",
        "datasets.0: which turns of rows with images are trained on cannot be chosen",
    ),
    "variables of the template": (
        {"chat_template_kwargs": {"enable_thinking": True}},
        "Conversation",
        "image_mask",
        "chat_template_kwargs: TRL's collator of messages with images passes none",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_trls_trainers_cannot_do_with_images_is_refused_by_its_key(name: str) -> None:
    keys, kind, code, message = CASES[name]
    found = problems(run_of(keys, table(kind, (1, 2, 1))))
    assert message in found[code]
    assert problems(run_of(keys, table(kind, (0, 0, 0)))) == {}


@pytest.mark.parametrize(
    "method", sorted(one.method for one in shipped() if "Preference" in one.tables)
)
def test_a_method_that_has_no_path_for_images_is_refused_with_those_that_have(method: str) -> None:
    keys = {"reward_model": True} if method == "reward" else {"rl": method}
    found = problems(run_of(keys, table("Preference", (1, 1))))
    takes = method in {"dpo", "ipo"}
    assert ("image_method" in found) is not takes
    if not takes:
        assert "use dpo, gdpo, grpo, ipo, kto, rloo and sft" in found["image_method"]


def test_grpo_does_not_mix_rows_with_and_without_images_and_rloo_does() -> None:
    mixed, whole = table("Prompt", (1, 0, 2)), table("Prompt", (1, 1, 2))
    assert "grpo: 1 of 3 rows have no image" in problems(run_of(REWARDED, mixed))["image_mix"]
    assert problems(run_of(REWARDED, whole)) == {}
    assert problems(run_of({**REWARDED, "rl": "rloo"}, mixed)) == {}
    # In two datasets as well.
    assert "image_mix" in problems(run_of(REWARDED, whole, table("Prompt", (0,))))


def test_a_replay_buffer_is_refused_for_rows_with_images() -> None:
    keys = {"rl": "grpo", "trl": {**REWARDED["trl"], "replay_buffer_size": 4}}
    message = problems(run_of(keys, table("Prompt", (1, 1))))["image_replay"]
    assert message == "trl.replay_buffer_size: groups with images cannot be kept; set it to 0"
    assert problems(run_of(keys, table("Prompt", (0, 0)))) == {}
    assert problems(run_of(REWARDED, table("Prompt", (1, 1)))) == {}


def test_images_in_replies_are_refused() -> None:
    rows = table("Preference", (1, 1))
    chosen = rows.column("prompt")
    swapped = rows.set_column(rows.column_names.index("chosen"), "chosen", chosen)
    found = problems(run_of({"rl": "dpo"}, swapped))
    assert "datasets: chosen has images" in found["image_reply"]
    assert problems(run_of({"rl": "dpo"}, rows)) == {}


def test_tools_of_messages_with_images_are_refused() -> None:
    rows = table("Conversation", (1, 1), tools=['[{"type": "function"}]'] * 2)
    assert "tools of messages with images" in problems(run_of({}, rows))["image_mask"]


def test_images_for_a_text_model_are_refused_and_its_tower_cannot_be_frozen(
    model: str, vision_model: Models
) -> None:
    keys = {"base_model": model, "freeze_vision_tower": True, "train_on_inputs": True}
    found = problems(run_of(keys, table("Conversation", (1,))))
    assert f"base_model: the rows have images, and {model} takes text only" in found["image_model"]
    assert "freeze_vision_tower: " in found["image_keys"]
    seeing = run_of(keys | {"base_model": vision_model("llava")}, table("Conversation", (1,)))
    assert problems(seeing) == {}


@pytest.mark.parametrize("family", vision.FAMILIES)
def test_what_a_model_takes_is_read_off_its_config(
    family: str, model: str, vision_model: Models
) -> None:
    def takes(name: str) -> bool | None:
        return images.is_vision_model(planning.plan({"base_model": name}, partial=True))

    assert takes(vision_model(family)) is True
    assert takes(model) is False
    assert takes("a/model") is None


def test_messages_whose_template_marks_no_replies_are_refused(
    vision_model: Models, tmp_path: Path
) -> None:
    import shutil

    folder = shutil.copytree(vision_model("llava"), tmp_path / "model")
    rows = table("Conversation", (1, 1))
    keys = {"base_model": str(folder)}
    assert problems(run_of(keys, rows)) == {}
    file = folder / "chat_template.jinja"
    file.write_text(file.read_text() + " ")
    assert "marks no replies" in problems(run_of(keys, rows))["image_mask"]
    assert problems(run_of(keys, table("Completion", (1, 1)))) == {}
    assert problems(run_of(keys | {"train_on_inputs": True}, rows)) == {}


def test_rows_without_images_make_keys_of_images_idle_or_wrong() -> None:
    keys = {"processor_type": "AutoProcessor", "image_size": 224}
    run = run_of(keys, table("Conversation", (0, 0)))
    assert list(images.notes(run)) == [
        "image_size, processor_type change nothing: no row has an image"
    ]
    unprepared = run_of({"skip_prepare_dataset": True}, table("Conversation", (0,)))
    assert "skip_prepare_dataset: the rows have no images" in problems(unprepared)["image_keys"]
    seen = run_of({"skip_prepare_dataset": True, **keys}, table("Conversation", (1,)))
    assert problems(seen) == {}
    assert list(images.notes(seen)) == []
    # Rows that the plan cannot see may have images.
    assert list(images.notes(replace(run, first_rows={}))) == []


def test_the_plan_says_which_parts_have_no_adapter_and_that_placeholders_are_trained_on() -> None:
    rows = table("Conversation", (1,))
    (note,) = images.notes(run_of({"adapter": "lora"}, rows))
    assert note.startswith("adapter: the vision tower and the projector get none")
    both = {"freeze_vision_tower": False, "freeze_multi_modal_projector": False}
    assert list(images.notes(run_of({"adapter": "lora", **both}, rows))) == []
    named = {"adapter": "lora", "lora_target_modules": "model.language_model.*q_proj"}
    assert list(images.notes(run_of(named, rows))) == []
    (note,) = images.notes(run_of({"train_on_inputs": True}, rows))
    assert note.startswith("train_on_inputs: the placeholders of images are trained on as well")


@pytest.mark.parametrize("value", [0, [224], [224, 0], "224"])
def test_an_image_size_that_no_image_has_is_refused(value: object) -> None:
    with pytest.raises(FmtkitError, match=r"image_size: .* a whole number from 1, or \[width"):
        planning.plan({"image_size": value}, partial=True)


@pytest.mark.parametrize("name", ["AutoModelForImageTextToText", "AutoModelForVision2Seq"])
def test_the_class_of_a_vision_language_model_may_be_named(name: str) -> None:
    planning.plan({"model_type": name}, partial=True)
    with pytest.raises(FmtkitError, match="model_type"):
        planning.plan({"model_type": name, "reward_model": True}, partial=True)
