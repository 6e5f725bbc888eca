"""From a config and a file of rows with images to a trained vision-language model, as users run it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("PIL")
pytest.importorskip("fmtkit.core.image_columns")

import tiny_training as tiny
import tiny_vision as vision
import yaml

import fmtkit
from fmtkit.core.errors import FmtkitError
from fmtkit.core.runner import find
from fmtkit.training.building import images_seen, processors
from fmtkit.training.config.config import load
from fmtkit.training.data import dataset_samples
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run
from fmtkit.training.run import checklist, process
from fmtkit.training.run import run as training_run

Models = Callable[[str], str]

REWARD = """
def score(completions, images, **columns):
    assert all(image.size for row in images for image in row)
    return [len(row) + len(c[0]["content"]) / 100 for row, c in zip(images, completions)]
"""
AXOLOTLS = {
    "processor_type": "AutoProcessor",
    "skip_prepare_dataset": True,
    "remove_unused_columns": False,
    "sample_packing": False,
}
"""What axolotl's vision examples have."""
TABLES = {
    "sft": "Conversation",
    "dpo": "Preference",
    "ipo": "Preference",
    "kto": "Preference",
    "grpo": "Prompt",
    "gdpo": "Prompt",
    "rloo": "Prompt",
}
"""KTO is given pairs, which become single replies with their images."""
MIXED, EACH = (1, 0, 2, 1, 1, 0, 1, 1), (1, 1, 2, 1, 1, 1, 1, 2)


def write_rows(folder: Path, table: str, counts: tuple[int, ...]) -> Path:
    """Write rows as users have them: JSON lines, with the paths of images beside them."""
    lines = []
    for number, row in enumerate(vision.image_rows(table, counts)):
        names = []
        for index, image in enumerate(row["images"]):
            names.append(f"pictures/{number}-{index}.png")
            (folder / names[-1]).parent.mkdir(exist_ok=True)
            (folder / names[-1]).write_bytes(image["bytes"])
        messages = {name: row[name] for name in row if name != "images"}
        lines.append(json.dumps({**_without_nulls(messages), "images": names}))
    file = folder / "rows.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(inside) for name, inside in value.items() if inside is not None
        }
    return [_without_nulls(inside) for inside in value] if isinstance(value, list) else value


def config_of(
    folder: Path, model: str, method: str, counts: tuple[int, ...] | None = None, **more: Any
) -> Path:
    """Write a config and its rows."""
    runner = find(method)
    rows = write_rows(folder, TABLES[method], counts or (MIXED if runner.mixes_images else EACH))
    keys: dict[str, Any] = {
        "base_model": model,
        "datasets": [{"path": str(rows)}],
        "output_dir": str(folder / "run"),
        **tiny.STEP,
        **AXOLOTLS,
        "sequence_len": 512,
        "max_steps": 2,
    }
    if method != "sft":
        keys["rl"] = method
    if "Prompt" in runner.tables:
        del keys["sample_packing"]
        (folder / "image_rewards.py").write_text(REWARD)
        keys["trl"] = {
            "reward_funcs": ["image_rewards.score"],
            "num_generations": 2,
            "max_completion_length": 8,
        }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(keys | more, sort_keys=False))
    return file


def planned(file: Path) -> planning.Plan:
    """Plan a config, and make every check that needs its files."""
    plan = planning.plan(load(str(file), collect=True))
    run = Run(plan, first_rows=dataset_samples.look(plan))
    checklist.check(run, "files", "modules")
    return plan


def trained(file: Path, capfd: Any) -> Path:
    """Train as a config says, in this process; return the folder of the model."""
    plan = planned(file)
    training_run.prepare(plan, resume=False, rebuild=False)
    capfd.readouterr()
    code = process.main([str(plan.run)])
    assert code == 0, capfd.readouterr().err
    return plan.run / "model"


@pytest.mark.slow
@pytest.mark.parametrize("method", TABLES)
@pytest.mark.parametrize("family", vision.FAMILIES)
def test_a_config_trains_two_steps_on_rows_with_images(
    family: str, method: str, vision_model: Models, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    checked: list[int] = []
    monkeypatch.setattr(images_seen, "check", _counting(images_seen.check, checked))
    model = trained(config_of(tmp_path, vision_model(family), method), capfd)
    assert checked == [1]
    assert type(processors.load(str(model))) is type(processors.load(vision_model(family)))
    report = json.loads((model.parent / "report.json").read_text())
    assert report["steps"] == 2


def _counting(check: Callable[..., None], calls: list[int]) -> Callable[..., None]:
    def counting(*given: Any) -> None:
        calls.append(1)
        check(*given)

    return counting


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "table"), [("sft", "Conversation"), ("dpo", "Preference"), ("kto", "Unpaired")]
)
@pytest.mark.parametrize("family", vision.FAMILIES)
def test_a_model_is_tried_on_rows_with_images(
    family: str,
    method: str,
    table: str,
    vision_model: Models,
    tmp_path: Path,
    capfd: Any,
    monkeypatch: Any,
) -> None:
    monkeypatch.setitem(TABLES, method, table)
    trained(config_of(tmp_path, vision_model(family), method), capfd)
    rows = tmp_path / "rows.jsonl"
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    # The same rows, but that the first has the image of another.
    lines[0]["images"] = lines[4]["images"]
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(map(json.dumps, lines)) + "\n")
    first, again = (
        fmtkit.try_run(tmp_path / "run", data=str(file), max_new_tokens=4).items
        for file in (rows, other)
    )
    assert len(first) == len(MIXED)
    assert [one.prompt.startswith("[image]") for one in first[:2]] == [True, False]
    if method == "sft":
        assert all(0 < one.trained["tokens"] <= 4 for one in first)
        assert all("good" in one.expected for one in first)
        return
    changed = [a.trained != b.trained for a, b in zip(first, again, strict=True)]
    assert changed == [True] + [False] * (len(first) - 1)
    assert all(
        side["tokens"] > 0 and side["logps"] < 0 for one in first for side in one.trained.values()
    )


@pytest.mark.slow
def test_rows_are_held_out_and_an_adapter_is_merged(
    vision_model: Models, tmp_path: Path, capfd: Any
) -> None:
    more = {"adapter": "lora", "lora_r": 2, "merge_lora": True, "val_set_size": 2, "image_size": 14}
    file = config_of(tmp_path, vision_model("llava"), "sft", **more)
    model = trained(file, capfd)
    assert processors.load(str(model.parent / "merged")).image_processor is not None
    logs = [json.loads(line) for line in (model.parent / "metrics.jsonl").read_text().splitlines()]
    assert any("eval_loss" in log for log in logs)


@pytest.mark.slow
def test_pairs_of_whole_conversations_get_their_prompt_and_its_images(
    vision_model: Models, tmp_path: Path, capfd: Any
) -> None:
    file = config_of(tmp_path, vision_model("llava"), "dpo", EACH)
    rows = tmp_path / "rows.jsonl"
    implicit = []
    for line in rows.read_text().splitlines():
        row = json.loads(line)
        prompt = row.pop("prompt")
        implicit.append({**row, **{name: prompt + row[name] for name in ("chosen", "rejected")}})
    rows.write_text("\n".join(map(json.dumps, implicit)) + "\n")
    keys = yaml.safe_load(file.read_text())
    keys["datasets"][0]["type"] = "implicit_prompt"
    file.write_text(yaml.safe_dump(keys))
    assert (trained(file, capfd) / "processor_config.json").is_file()


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("sft", {"sample_packing": True}, "sample_packing: rows with images cannot be packed"),
        ("sft", {"roles_to_train": ["user"]}, "which turns of rows with images are trained on"),
        (
            "sft",
            {"excess_length_strategy": "truncate"},
            "excess_length_strategy: a row that is cut",
        ),
        (
            "dpo",
            {"precompute_ref_log_probs": True},
            "precompute_ref_log_probs: TRL's trainer does not",
        ),
        ("dpo", {"rl": "orpo"}, "orpo: the rows have images, and its trainer trains without them"),
        ("dpo", {"rl": None, "reward_model": True}, "reward: the rows have images"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_converted(
    method: str, more: dict[str, Any], message: str, vision_model: Models, tmp_path: Path
) -> None:
    file = config_of(tmp_path, vision_model("llava"), method, EACH, **more)
    with pytest.raises(FmtkitError) as error:
        planned(file)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("length", [{}, {"max_length": 64}, {"max_length": None}])
def test_a_file_of_trl_with_images_trains_whatever_its_length(
    length: dict[str, Any], vision_model: Models, tmp_path: Path, capfd: Any
) -> None:
    """TRL's scripts cut rows by default; of rows with images nobody asked for that."""
    ours = yaml.safe_load(config_of(tmp_path, vision_model("llava"), "sft", EACH).read_text())
    names = {"base_model": "model_name_or_path", "micro_batch_size": "per_device_train_batch_size"}
    own = ("sequence_len", "adapter")
    keys = {names.get(name, name): value for name, value in ours.items() if name not in own}
    file = tmp_path / "trl.yaml"
    file.write_text(yaml.safe_dump({**keys, **length}))
    assert (trained(file, capfd) / "processor_config.json").is_file()


def test_images_for_a_text_model_are_refused(model: str, tmp_path: Path) -> None:
    with pytest.raises(
        FmtkitError, match=r"base_model: the rows have images, and .* takes text only"
    ):
        planned(config_of(tmp_path, model, "dpo"))


def test_grpo_refuses_rows_that_have_no_image_among_others(
    vision_model: Models, tmp_path: Path
) -> None:
    with pytest.raises(FmtkitError, match="grpo: 2 of 8 rows have no image"):
        planned(config_of(tmp_path, vision_model("llava"), "grpo", MIXED))


def test_an_image_that_is_not_there_is_a_bad_row_of_the_plan(
    vision_model: Models, tmp_path: Path
) -> None:
    file = config_of(tmp_path, vision_model("llava"), "sft", EACH)
    shutil.rmtree(tmp_path / "pictures")
    with pytest.raises(FmtkitError, match="image_missing"):
        planned(file)
