"""Rows of TRL's dataset types reach the trainers of the installed TRL with the ids and labels that TRL makes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import tiny_training as tiny
from datasets import Dataset

from fmtkit.inspection.masking import Masking
from fmtkit.inspection.masks import mask_row
from fmtkit.tokenizers import tokens

METHODS = {
    "sft": ("trl", "SFTTrainer", "SFTConfig"),
    "dpo": ("trl", "DPOTrainer", "DPOConfig"),
    "ipo": ("trl", "DPOTrainer", "DPOConfig"),
    "kto": ("trl", "KTOTrainer", "KTOConfig"),
    "reward": ("trl", "RewardTrainer", "RewardConfig"),
    "cpo": ("trl.experimental.cpo", "CPOTrainer", "CPOConfig"),
    "orpo": ("trl.experimental.orpo", "ORPOTrainer", "ORPOConfig"),
}
END = "<|im_end|>"
TEXTS = {
    "sft": [{"text": "red apple"}, {"text": f"blue river{END}"}],
    "sft completion": [
        {"prompt": "red ", "completion": "apple"},
        {"prompt": "blue", "completion": f" river{END}"},
    ],
    "dpo": [
        {"prompt": "red ", "chosen": "big apple", "rejected": "river"},
        {"prompt": "blue", "chosen": f" stone{END}", "rejected": " warm stone"},
    ],
    "kto": [
        {"prompt": "red ", "completion": "big apple", "label": True},
        {"prompt": "blue", "completion": f" stone{END}", "label": False},
    ],
}
TEXTS |= dict.fromkeys(("ipo", "reward", "cpo", "orpo"), TEXTS["dpo"])
CASES = [(name.partition(" ")[0], rows) for name, rows in TEXTS.items()]
SPECIAL = ("plain", "bos", "begins", "begins and ends")
"""Tokenizers: without BOS, with one, with one before every text, and with EOS behind it too."""


@pytest.fixture(scope="module", params=SPECIAL)
def bare(request, tmp_path_factory):
    """Return a base model, whose tokenizer has no chat template."""
    folder = tmp_path_factory.mktemp("bare") / "model"
    model = tiny.make_model(folder, bos=request.param != "plain")
    if request.param.startswith("begins"):
        tiny.with_beginning(model, end="ends" in request.param)
    return model


def of_trl(method: str, model: str, rows: list[dict], folder: Path, **keys: Any) -> list[dict]:
    """Return what TRL's own trainer makes of rows as they are."""
    import importlib

    module, trainer, config = METHODS[method]
    loaded = importlib.import_module(module)
    arguments = getattr(loaded, config)(
        str(folder / "trl"),
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        max_length=128,
        **keys,
    )
    if method in ("cpo", "orpo"):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model_, tokenizer = (
            one.from_pretrained(model) for one in (AutoModelForCausalLM, AutoTokenizer)
        )
        made = getattr(loaded, trainer)(
            model_,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )
    else:
        made = getattr(loaded, trainer)(
            model, args=arguments, train_dataset=Dataset.from_list(rows)
        )
    return made.train_dataset.to_list()


def of_fmtkit(method: str, model: str, sources: list[list[dict]], folder: Path, **keys: Any):
    """Return the plan of a run over files of rows, its parts and its trainer."""
    from fmtkit.training.building import build
    from fmtkit.training.data import datasets, prerendered
    from fmtkit.training.planning import plan as planning
    from fmtkit.training.run import run

    entries = []
    for number, rows in enumerate(sources):
        file = folder / f"{number}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        entries.append({"path": str(file)})
    named = {"reward": {"reward_model": True}, "sft": {}}.get(method, {"rl": method})
    whole = {
        "base_model": model,
        "output_dir": str(folder / "run"),
        "datasets": entries,
        "shuffle_merged_datasets": False,
        **tiny.STEP,
        **named,
        **keys,
    }
    plan = prerendered.settled(planning.plan(whole), with_hub=False)
    tiny.check(plan)
    text = plan.template_text()
    plan.run.mkdir(parents=True)
    work = run.job_of(plan, *datasets.prepare(plan, text), text)
    parts = build.parts_of(work, [])
    return plan, parts, build.make_trainer(work, parts)


IDS = ("input_ids", "labels", "prompt_ids", "completion_ids", "chosen_ids", "rejected_ids")


def made(rows: list[Mapping[str, Any]]) -> list[dict[str, list[int]]]:
    """Return the ids and labels of a trainer's rows, without what only one method's collator reads."""
    keys = ("_input_ids", "_labels")
    return sorted(
        ({n: v for n, v in row.items() if n in IDS or n.endswith(keys)} for row in rows),
        key=str,
    )


@pytest.mark.parametrize(("method", "rows"), CASES, ids=TEXTS)
def test_rows_of_text_are_tokenized_as_by_trl(tmp_path, bare, method, rows):
    plan, parts, trainer = of_fmtkit(method, bare, [rows], tmp_path)
    assert plan.template[0] == "none"
    assert parts.tokenizer.chat_template is None
    assert made(trainer.train_dataset) == made(of_trl(method, bare, rows, tmp_path))


@pytest.mark.parametrize(("method", "rows"), CASES, ids=TEXTS)
def test_inspect_shows_the_ids_and_labels_of_text_that_trl_makes(tmp_path, bare, method, rows):
    found = made(of_trl(method, bare, rows, tmp_path))
    tokenizer = tokens.load(bare)
    assert sorted(map(str, found)) == sorted(str(shown(row, method, tokenizer)) for row in rows)


def shown(row: dict, method: str, tokenizer: tokens.Tokenizer) -> dict[str, list[int]]:
    """Return what `inspect` shows of a row, in the columns of its trainer."""
    table = (
        "Conversation"
        if "text" in row
        else "Preference"
        if "chosen" in row
        else "Unpaired"
        if "label" in row
        else "Completion"
    )
    sides = mask_row(row, table, tokenizer, None, Masking(method))
    out: dict[str, list[int]] = {}
    for one in sides:
        ids, name = one.ids.tolist(), one.side or "completion"
        labels = [i if t else -100 for i, t in zip(ids, one.trained.tolist(), strict=True)]
        begins = one.prompt_length
        if method == "sft":
            out |= {"input_ids": ids, "labels": labels}
        elif method == "reward":
            out[f"{name}_ids"] = ids
        elif method in ("cpo", "orpo"):
            out |= {f"{name}_input_ids": ids, f"{name}_labels": labels}
            out["prompt_input_ids"] = ids[:begins]
        else:
            out |= {"prompt_ids": ids[:begins], f"{name}_ids": ids[begins:]}
    order = ("input_ids", "labels", "prompt_ids", "completion_ids", "chosen_ids", "rejected_ids")
    more = [
        name for side in ("chosen", "rejected") for name in (f"{side}_input_ids", f"{side}_labels")
    ]
    return {name: out[name] for name in (*order, *more, "prompt_input_ids") if name in out}
