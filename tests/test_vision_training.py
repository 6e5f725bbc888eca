"""Rows with images reach vision-language models of four families, by every method that takes images."""

import copy
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")
pytest.importorskip("PIL")

import tiny_training as tiny
import tiny_vision as vision
from PIL import Image

import fmtkit
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.building import build, image_lengths, images_seen, processors, vision_parts
from fmtkit.training.data import image_rows
from fmtkit.training.planning import job
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import process, run

Models = Callable[[str], str]

TABLES = {
    "sft": "Conversation",
    "dpo": "Preference",
    "kto": "Unpaired",
    "grpo": "Prompt",
    "rloo": "Prompt",
}
MIXED = (1, 0, 2, 1, 1, 0, 1, 1)
"""Images of each row: rows with one, with two and with none."""
EACH = (1, 1, 2, 1, 1, 1, 1, 2)
REWARD = """
def score(completions, images, **columns):
    assert all(image.size for row in images for image in row)
    return [len(row) + len(c[0]["content"]) / 100 for row, c in zip(images, completions)]
"""


def make_job(
    folder: Path,
    model: str,
    method: str,
    table: str | None = None,
    images: tuple[int, ...] | None = None,
    **more: Any,
) -> job.Job:
    """Write rows with images as fmtkit converts them, and the job of a run over them."""
    counts = images or (EACH if method == "grpo" else MIXED)
    folder.mkdir(parents=True, exist_ok=True)
    rows = vision.image_rows(table or TABLES[method], counts)
    file = vision.write_image_rows(folder / "rows.parquet", rows)
    keys: dict[str, Any] = {
        "base_model": model,
        "output_dir": str(folder),
        **tiny.STEP,
        "max_steps": 2,
        "sequence_len": 512,
    }
    if method != "sft":
        keys["rl"] = method
    if "Prompt" in TABLES[method]:
        del keys["sequence_len"]
        (folder / "image_rewards.py").write_text(REWARD)
        keys["trl"] = {
            "reward_funcs": ["image_rewards.score"],
            "num_generations": 2,
            "max_completion_length": 8,
        }
    plan = planning.plan(keys | more, partial=True)
    made = run.job_of(plan, (job.Source((str(file),)),), (), None)
    return replace(made, places=(str(folder),))


def trainer_of(work: job.Job) -> tuple[Any, build.Parts]:
    parts = build.parts_of(work, [])
    return build.make_trainer(work, parts), parts


def opened(row: dict[str, Any]) -> list[Any]:
    return [Image.open(io.BytesIO(one["bytes"])) for one in row["images"]]


def by_hand(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a user of TRL writes it: pictures, and parts that have no nulls."""

    def parts(content: Any) -> Any:
        return [{k: v for k, v in part.items() if v is not None} for part in content]

    return {
        name: opened(row)
        if name == "images"
        else value
        if name == "label"
        else [{**message, "content": parts(message["content"])} for message in value]
        for name, value in row.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("method", TABLES)
@pytest.mark.parametrize("family", vision.FAMILIES)
def test_two_steps_train_and_the_folder_has_its_processor(
    family: str, method: str, vision_model: Models, tmp_path: Path
) -> None:
    assert process.train(make_job(tmp_path / "run", vision_model(family), method)) == 0
    saved = processors.load(str(tmp_path / "run" / "model"))
    first = processors.load(vision_model(family))
    assert type(saved) is type(first)
    image = Image.open(io.BytesIO(vision.picture(1)))
    asked = [{"role": "user", "content": [{"type": "image", "image": image}]}]
    given = {"tokenize": True, "return_dict": True, "add_generation_prompt": True}
    assert images_seen.are_same(
        dict(saved.apply_chat_template(asked, **given)),
        dict(first.apply_chat_template(asked, **given)),
    )


@pytest.mark.slow
def test_a_merged_model_and_one_trained_on_text_keep_their_processor(
    vision_model: Models, tmp_path: Path
) -> None:
    keys = {"adapter": "lora", "lora_r": 2, "merge_lora": True}
    work = make_job(tmp_path / "images", vision_model("llava"), "sft", **keys)
    assert process.train(work) == 0
    file = tiny.write_table("Conversation", tmp_path / "text.parquet")
    text = replace(work, run=str(tmp_path / "text"), train=(job.Source((str(file),)),), peft=None)
    (tmp_path / "text").mkdir()
    assert process.train(text) == 0
    first = processors.load(vision_model("llava"))
    for folder in (tmp_path / "images" / "merged", tmp_path / "text" / "model"):
        assert processors.load(str(folder)).to_dict() == first.to_dict()


def test_a_processor_is_loaded_by_the_class_and_with_the_arguments_that_are_named(
    vision_model: Models,
) -> None:
    named = processors.load(
        vision_model("llava"), kind="LlavaProcessor", given={"size": {"shortest_edge": 14}}
    )
    assert named.image_processor.size["shortest_edge"] == 14
    with pytest.raises(OptionError, match="processor_type: transformers has no LavaProcessor"):
        processors.load(vision_model("llava"), kind="LavaProcessor")


def test_a_model_without_a_processor_is_told_for_rows_with_images(
    model: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=r"base_model: .* has no processor"):
        build.parts_of(make_job(tmp_path, model, "sft"), [])


def test_a_processor_without_torchvision_refuses_videos_and_is_saved_as_it_was(
    vision_model: Models, tmp_path: Path
) -> None:
    loaded = processors.load(vision_model("qwen2_5_vl"))
    with pytest.raises(DependencyError, match="videos need torchvision"):
        loaded.video_processor.preprocess([])
    loaded.save_pretrained(tmp_path)
    assert processors.load(str(tmp_path)).to_dict() == loaded.to_dict()
    assert loaded.to_dict()["video_processor"] == {"video_processor_type": "Qwen2VLVideoProcessor"}


@pytest.mark.slow
def test_a_model_whose_template_takes_only_parts_is_tried_on_a_prompt(
    vision_model: Models, tmp_path: Path
) -> None:
    work = make_job(tmp_path / "run", vision_model("llava"), "sft")
    work.write()
    assert process.train(work) == 0
    trial = fmtkit.try_run(tmp_path / "run", prompt=["the big stone"], max_new_tokens=3)
    (item,) = trial.items
    assert item.prompt == "the big stone"
    assert item.trained["tokens"] == 3


def test_a_processor_is_loaded_from_the_files_of_former_versions(
    vision_model: Models, tmp_path: Path
) -> None:
    loaded = processors.load(vision_model("qwen2_5_vl"))
    folder = Path(shutil.copytree(vision_model("qwen2_5_vl"), tmp_path / "model"))
    settings = json.loads((folder / "processor_config.json").read_text())
    of_images = {**settings["image_processor"], "processor_class": settings["processor_class"]}
    (folder / "preprocessor_config.json").write_text(json.dumps(of_images))
    of_videos = json.dumps(settings["video_processor"])
    (folder / "video_preprocessor_config.json").write_text(of_videos)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    for name in ("processor_config.json", "chat_template.jinja"):
        (folder / name).unlink()
    former = processors.load(str(folder))
    assert former.to_dict() == loaded.to_dict()
    assert former.chat_template == loaded.chat_template


def collator_by_hand(method: str, processor: Any) -> Any:
    """Return TRL's collator of a method, made as its trainers make it."""
    from trl.chat_template_utils import get_training_chat_template
    from trl.trainer import dpo_trainer, kto_trainer, sft_trainer

    if method == "dpo":
        return dpo_trainer.DataCollatorForVisionPreference(processor, max_length=512)
    if method == "kto":
        return kto_trainer.DataCollatorForVisionUnpairedPreference(processor, max_length=512)
    return sft_trainer.DataCollatorForVisionLanguageModeling(
        processor,
        max_length=512,
        assistant_only_loss=True,
        chat_template=get_training_chat_template(processor),
    )


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
@pytest.mark.parametrize("family", ["llava", pytest.param("idefics3", marks=pytest.mark.slow)])
def test_a_batch_is_the_one_that_trl_makes_of_rows_made_by_hand(
    family: str, method: str, vision_model: Models, tmp_path: Path
) -> None:
    trainer, parts = trainer_of(make_job(tmp_path, vision_model(family), method))
    # KTO's rows are interleaved by their labels; the pictures tell which row is which.
    rows = {row["images"][0]["bytes"]: row for row in _rows(method) if row["images"]}
    drawn = [row for row in (parts.train[n] for n in range(len(parts.train))) if row["images"]][:3]
    pictures = {_png(key): key for key in rows}
    hand = [by_hand(rows[pictures[_pixels(row["images"][0])]]) for row in drawn]
    processor = processors.load(vision_model(family))
    made = trainer.data_collator(copy.deepcopy(drawn))
    assert {"input_ids", "pixel_values"} <= {*made}
    assert images_seen.are_same(dict(made), dict(collator_by_hand(method, processor)(hand)))


def _rows(method: str) -> list[dict[str, Any]]:
    return vision.image_rows(TABLES[method], MIXED)


def _png(data: bytes) -> bytes:
    return _pixels(Image.open(io.BytesIO(data)))


def _pixels(image: Any) -> bytes:
    return bytes(image.convert("RGB").tobytes())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
@pytest.mark.parametrize("family", vision.FAMILIES)
def test_the_loss_of_a_row_is_another_with_a_blank_image_and_with_that_of_another_row(
    family: str, method: str, vision_model: Models, tmp_path: Path
) -> None:
    import torch

    work = make_job(tmp_path, vision_model(family), method, images=(1,) * 8)
    trainer, parts = trainer_of(work)
    # Before a step the loss of DPO and KTO is the same for every row: model and reference are equal.
    trainer.train()
    trainer.model.eval()
    rows = [parts.train[0], parts.train[1]]
    other = [{**rows[n], "images": rows[1 - n]["images"]} for n in range(2)]

    def loss(of: list[dict[str, Any]]) -> float:
        batch = trainer._prepare_inputs(trainer.data_collator(copy.deepcopy(of)))
        with torch.no_grad():
            return float(trainer.compute_loss(trainer.model, dict(batch)))

    assert loss(rows) == loss(rows)
    assert loss(rows) != loss(images_seen.blank(rows, (0, 0, 0)))
    assert loss(rows) != loss(other)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "rloo"])
@pytest.mark.parametrize("family", vision.FAMILIES)
def test_what_is_answered_depends_on_the_images_of_the_prompt(
    family: str, method: str, vision_model: Models, tmp_path: Path
) -> None:
    import torch

    trainer, parts = trainer_of(make_job(tmp_path, vision_model(family), method, images=(1,) * 4))
    assert trainer.processing_class.tokenizer.padding_side == "left"
    trainer.model.eval()
    rows = [parts.train[0]]

    def logits(of: list[dict[str, Any]]) -> Any:
        inputs = images_seen.prompt_inputs(trainer, of)
        tensors = {name: torch.as_tensor(np.array(value)) for name, value in inputs.items()}
        with torch.no_grad():
            return trainer.model(**tensors).logits[:, -1]

    other = [{**rows[0], "images": parts.train[1]["images"]}]
    assert torch.equal(logits(rows), logits(rows))
    assert not torch.equal(logits(rows), logits(images_seen.blank(rows, (0, 0, 0))))
    assert not torch.equal(logits(rows), logits(other))


def test_images_that_change_no_model_input_end_the_run_before_the_first_step(
    vision_model: Models, tmp_path: Path
) -> None:
    trainer, parts = trainer_of(make_job(tmp_path, vision_model("llava"), "sft"))
    images_seen.check(trainer, parts.train)
    collate = trainer.data_collator

    def without_pixels(rows: list[dict[str, Any]]) -> dict[str, Any]:
        made = dict(collate(rows))
        del made["pixel_values"]
        return made

    trainer.data_collator = without_pixels
    with pytest.raises(OptionError, match="blank images give the same model inputs"):
        images_seen.check(trainer, parts.train)


def test_a_template_that_writes_no_image_ends_the_run(vision_model: Models, tmp_path: Path) -> None:
    text = vision.template("llava").replace("<image>", "")
    work = replace(
        make_job(tmp_path, vision_model("llava"), "sft", train_on_inputs=True), template_text=text
    )
    trainer, parts = trainer_of(work)
    with pytest.raises(OptionError, match="images"):
        images_seen.check(trainer, parts.train)


def test_a_length_that_cuts_every_image_ends_the_run_with_its_key(
    vision_model: Models, tmp_path: Path
) -> None:
    work = make_job(tmp_path, vision_model("llava"), "sft", sequence_len=10)
    with pytest.raises(OptionError, match="sequence_len: no row has at most 10 tokens"):
        build.parts_of(work, [])


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "grpo"])
@pytest.mark.parametrize("family", vision.FAMILIES)
def test_the_tokens_of_a_row_are_those_of_its_batch(
    family: str, method: str, vision_model: Models, tmp_path: Path
) -> None:
    work = make_job(tmp_path, vision_model(family), method, images=EACH)
    trainer, parts = trainer_of(work)
    measure = image_lengths.Measure(work, parts.processor)
    assert measure.rule is not None
    for number in range(len(parts.train)):
        drawn = parts.train[number]
        inputs = images_seen.model_inputs(trainer, [copy.deepcopy(drawn)])
        length = max(map(len, inputs["input_ids"]))
        stored = [{"bytes": _stored(image), "path": None} for image in drawn["images"]]
        counted = measure.length({**drawn, "images": stored})
        # TRL renders a prompt of GRPO with the beginning of the answer, which is its first tokens.
        assert counted == length


def _stored(image: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def test_rows_that_are_longer_with_their_images_are_left_out_and_counted(
    vision_model: Models, tmp_path: Path
) -> None:
    # LLaVA's tiny images are 16 tokens each: rows with two are longer than rows with one or none.
    whole = build.parts_of(make_job(tmp_path / "a", vision_model("llava"), "dpo"), [])
    assert not whole.notes
    fewer = build.parts_of(
        make_job(tmp_path / "b", vision_model("llava"), "dpo", sequence_len=56), []
    )
    assert len(fewer.train) == 7
    assert all(len(fewer.train[n]["images"]) < 2 for n in range(7))
    (note,) = fewer.notes
    assert note.startswith("1 of 8 rows have more than 56 tokens with their images")


@pytest.mark.parametrize("given", [{}, {"size": 16}, {"size": (10, 30)}, {"most": 200}])
@pytest.mark.parametrize("shape", [(40, 20), (7, 90), (300, 300)])
def test_the_size_that_is_counted_is_the_size_that_an_image_gets(
    given: dict[str, Any], shape: tuple[int, int]
) -> None:
    size = image_rows.ImageSize(**given)
    assert size.apply(Image.new("RGB", shape)).size == size.result(*shape)


def test_grpo_refuses_rows_without_images_among_others(
    vision_model: Models, tmp_path: Path
) -> None:
    work = make_job(tmp_path, vision_model("llava"), "grpo", images=MIXED)
    with pytest.raises(OptionError, match="grpo: 2 of 8 rows have no image"):
        build.parts_of(work, [])


def test_rows_whose_image_lists_are_all_empty_train_as_text(
    vision_model: Models, tmp_path: Path
) -> None:
    parts = build.parts_of(make_job(tmp_path, vision_model("llava"), "sft", images=(0, 0, 0)), [])
    assert parts.processor is None
    assert "images" not in parts.train.column_names


def test_bytes_of_images_are_as_stored_until_a_batch_is_drawn(tmp_path: Path) -> None:
    from datasets import Dataset

    rows = vision.image_rows("Conversation", (1, 2))
    file = vision.write_image_rows(tmp_path / "rows.parquet", rows)
    loaded: Any = image_rows.as_stored(Dataset.from_parquet(str(file), cache_dir=str(tmp_path)))
    assert [row["images"] for row in loaded] == [row["images"] for row in rows]
    drawn = image_rows.for_trainer(loaded, image_rows.ImageSize())
    assert [i.size for i in drawn[1]["images"]] == [(vision.SIDE, vision.SIDE)] * 2


@pytest.mark.parametrize(
    ("size", "result"),
    [
        (image_rows.ImageSize(), (40, 20)),
        (image_rows.ImageSize(size=16), (16, 16)),
        (image_rows.ImageSize(size=(10, 30)), (10, 30)),
        (image_rows.ImageSize(most=200), (20, 10)),
        (image_rows.ImageSize(least=3200), (80, 40)),
    ],
)
def test_an_image_has_the_size_that_the_keys_say(
    size: image_rows.ImageSize, result: tuple[int, int]
) -> None:
    assert size.apply(Image.new("RGB", (40, 20), (255, 0, 0))).size == result


def test_a_square_is_filled_up_with_black_and_not_stretched() -> None:
    square = image_rows.ImageSize(size=16).apply(Image.new("RGB", (40, 20), (255, 0, 0)))
    assert [square.getpixel((8, y)) for y in (0, 8, 15)] == [(0, 0, 0), (255, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize("family", vision.FAMILIES)
def test_adapters_are_in_the_language_model_unless_a_key_says_more(
    family: str, vision_model: Models, tmp_path: Path
) -> None:
    def adapted(**more: Any) -> set[str]:
        work = make_job(tmp_path, vision_model(family), "sft", adapter="lora", lora_r=2, **more)
        trainer, _ = trainer_of(work)
        names = [n for n, w in trainer.model.named_parameters() if w.requires_grad]
        assert names
        assert all("lora_" in name for name in names)
        return {name.partition("base_model.model.")[2] for name in names}

    import transformers

    bare = transformers.AutoModelForImageTextToText.from_pretrained(vision_model(family))
    parts = vision_parts.parts_of(bare)
    assert parts is not None
    language, head = parts.language
    assert all(name.startswith(language) for name in adapted())
    more = adapted(freeze_vision_tower=False)
    assert any(name.startswith(parts.tower) for name in more)
    assert not any(name.startswith(parts.projector) for name in more)
    listed = adapted(lora_target_modules=["q_proj", "v_proj"])
    assert all(name.startswith(language) for name in listed)
    assert not any(name.startswith(head) for name in more)


def test_a_frozen_tower_keeps_its_weights_while_the_rest_trains(
    vision_model: Models, tmp_path: Path
) -> None:
    work = make_job(tmp_path, vision_model("llava"), "sft", freeze_vision_tower=True)
    trainer, _ = trainer_of(work)
    frozen = {n for n, w in trainer.model.named_parameters() if not w.requires_grad}
    assert frozen == {
        n for n, _ in trainer.model.named_parameters() if n.startswith("model.vision_tower.")
    }
    assert frozen
