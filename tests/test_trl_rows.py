"""Rows of TRL's dataset types reach the trainers of the installed TRL with the ids and labels that TRL makes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import tiny_training as tiny
from datasets import Dataset

from fmtkit.core.errors import FmtkitError
from fmtkit.masks.masking import Masking
from fmtkit.masks.masks import mask_row
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.tokenizers import tokens
from fmtkit.training.data.convert_config import convert_config
from fmtkit.training.data.inspect_config import inspect_config

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
SPECIAL = (
    "plain",
    pytest.param("bos", marks=pytest.mark.slow),
    "begins",
    pytest.param("begins and ends", marks=pytest.mark.slow),
)
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
    whole = {
        "base_model": model,
        "output_dir": str(folder / "run"),
        "datasets": entries,
        "shuffle_merged_datasets": False,
        **tiny.STEP,
        **named(method),
        **keys,
    }
    plan = prerendered.settled(planning.plan(whole), with_hub=False)
    tiny.check(plan)
    text = plan.template_text()
    plan.run.mkdir(parents=True)
    work = run.job_of(plan, *datasets.prepare(plan, text), text)
    parts = build.parts_of(work, [])
    return plan, parts, build.make_trainer(work, parts)


def named(method: str) -> dict[str, object]:
    """Return the keys that choose a method."""
    return {
        "reward": {"reward_model": True},
        "prm": {"process_reward_model": True},
        "sft": {},
    }.get(method, {"rl": method})


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


@pytest.mark.parametrize(("method", "rows"), CASES, ids=TEXTS)
def test_the_length_limit_counts_what_trl_adds_to_text(tmp_path, bare, method, rows):
    """A row that passes is whole in the trainer: neither its EOS is cut, nor the row left out."""
    sizes = [trained_length(one) for one in of_trl(method, bare, rows, tmp_path)]
    assert len(set(sizes)) > 1
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for limit in sorted({min(sizes), max(sizes) - 1, max(sizes)}):
        kept = sum(size <= limit for size in sizes)
        keys = {
            "base_model": bare,
            "output_dir": str(tmp_path / "run"),
            "datasets": [{"path": str(source)}],
            **tiny.STEP,
            **named(method),
            "sequence_len": limit,
        }
        config = keys_file(keys, tmp_path)
        (report,) = convert_config(config, [], tmp_path / f"{limit}.parquet", ConvertOptions())
        assert report.converted == kept
        [(_, found)] = inspect_config(config, [], InspectOptions())
        cut = next(one for one in found.survey.cutting.cuts if one.way == "drop")
        assert (cut.max_length, cut.rows_lost) == (limit, len(rows) - kept)
        folder = tmp_path / str(limit)
        folder.mkdir()
        _, _, trainer = of_fmtkit(method, bare, [rows], folder, sequence_len=limit)
        assert sorted(map(trained_length, trainer.train_dataset)) == sorted(sizes)[:kept]


LONG = {
    "sft": [{"text": "red apple big river stone warm of the"}],
    "sft completion": [{"prompt": "red", "completion": " apple big river stone warm of the"}],
    "dpo": [{"prompt": "red", "chosen": " big apple river stone warm", "rejected": " river" * 9}],
    "kto": [{"prompt": "red", "completion": " big apple river stone warm", "label": True}],
}
LONG |= dict.fromkeys(("reward", "cpo"), LONG["dpo"])


@pytest.mark.parametrize("name", LONG)
def test_text_that_is_cut_in_a_file_is_whole_in_trl(tmp_path, bare, name):
    """The trainer cuts no row again, and no EOS that it adds."""
    method, rows, limit = name.partition(" ")[0], [*LONG[name], *TEXTS[name]], 6
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = {
        "base_model": bare,
        "datasets": [{"path": str(source)}],
        **tiny.STEP,
        **named(method),
        "sequence_len": limit,
    }
    options = ConvertOptions(on_overlong="truncate-end", max_length=limit, tokenizer=bare)
    convert_config(keys_file(keys, tmp_path), [], tmp_path / "cut.jsonl", options)
    cut = [json.loads(line) for line in (tmp_path / "cut.jsonl").read_text().splitlines()]
    sizes = [trained_length(row) for row in of_trl(method, bare, cut, tmp_path)]
    assert max(sizes) == limit


def test_the_length_of_a_prompt_of_text_has_what_the_tokenizer_adds(tmp_path, bare):
    rows = [{"prompt": "red apple big red apple big"}, {"prompt": "red"}]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    from transformers import AutoTokenizer

    size = len(AutoTokenizer.from_pretrained(bare)(rows[0]["prompt"])["input_ids"])
    for limit in (size - 1, size):
        keys = {
            "base_model": bare,
            "datasets": [{"path": str(source)}],
            **tiny.STEP,
            "rl": "grpo",
            "trl": {"num_generations": 2},
            "sequence_len": limit,
        }
        out = tmp_path / f"{limit}.jsonl"
        (report,) = convert_config(keys_file(keys, tmp_path), [], out, ConvertOptions())
        assert report.converted == 1 + (limit == size)


def test_the_length_of_steps_has_bos_and_separators(tmp_path, bare):
    """As `inspect` and the trainer count them."""
    rows = [
        {"prompt": "red", "completions": ["big apple", "river"], "labels": [True, False]},
        {"prompt": "blue", "completions": ["stone"], "labels": [True]},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    whole = tmp_path / "whole"
    whole.mkdir()
    _, _, trainer = of_fmtkit("prm", bare, [rows], whole)
    size = max(map(trained_length, trainer.train_dataset))
    for limit in (size - 1, size):
        keys = {
            "base_model": bare,
            "datasets": [{"path": str(source), "type": "stepwise_supervised"}],
            **tiny.STEP,
            "process_reward_model": True,
            "sequence_len": limit,
        }
        out = tmp_path / f"{limit}.jsonl"
        (report,) = convert_config(keys_file(keys, tmp_path), [], out, ConvertOptions())
        assert report.converted == 1 + (limit == size)


def keys_file(keys: Mapping[str, object], folder: Path) -> Path:
    file = folder / "config.yaml"
    file.write_text(json.dumps(keys))
    return file


def trained_length(row: Mapping[str, Any]) -> int:
    """Return how long the longest sequence of a trainer's row is."""
    prompt = len(row.get("prompt_ids", ()))
    replies = [len(row[n]) for n in ("completion_ids", "chosen_ids", "rejected_ids") if n in row]
    whole = [len(v) for n, v in row.items() if n == "input_ids"]
    whole += [len(row[n]) for n in ("chosen_input_ids", "rejected_input_ids") if n in row]
    return max([*whole, *(prompt + size for size in replies)])


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


@pytest.fixture(scope="module")
def chatting(tmp_path_factory):
    """Return a model whose tokenizer begins every text with BOS, and has a template that marks replies."""
    folder = tmp_path_factory.mktemp("chatting") / "model"
    template = tiny.TEMPLATE
    return tiny.with_beginning(tiny.make_model(folder, bos=True, template=template))


def said(role: str, text: str) -> list[dict]:
    return [{"role": role, "content": text}]


PAIRS = [
    {
        "prompt": said("user", "red"),
        "chosen": said("assistant", "big apple"),
        "rejected": said("assistant", "river"),
    },
    {
        "prompt": said("user", "blue stone"),
        "chosen": said("assistant", "warm"),
        "rejected": said("assistant", "of the"),
    },
]
IMPLICIT = [{n: row["prompt"] + row[n] for n in ("chosen", "rejected")} for row in PAIRS]
MESSAGES = [{"messages": row["prompt"] + row["chosen"]} for row in PAIRS]
COMPLETIONS = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in PAIRS]
JUDGED = [{**row, "label": label} for row, label in zip(COMPLETIONS, (True, False), strict=True)]
WORDED = [
    {"chosen": "Say red. Yes.", "rejected": "Say red. No."},
    {"chosen": "Say blue. Good.", "rejected": "Say blue. Bad."},
]
ALL = {"assistant_only_loss": False}
CHATS = {
    "sft": ("sft", MESSAGES, {}, {"assistant_only_loss": True}),
    "sft on all tokens": ("sft", MESSAGES, ALL, ALL),
    "sft completion": ("sft", COMPLETIONS, {}, {}),
    "sft on all of a completion": (
        "sft",
        COMPLETIONS,
        {"completion_only_loss": False},
        {"completion_only_loss": False},
    ),
    "sft on replies within completions": (
        "sft",
        COMPLETIONS,
        {"assistant_only_loss": True},
        {"assistant_only_loss": True},
    ),
    "dpo": ("dpo", PAIRS, {}, {}),
    "dpo of implicit prompts": ("dpo", IMPLICIT, {}, {}),
    "dpo of implicit prompts of text": ("dpo", WORDED, {}, {}),
    "kto": ("kto", JUDGED, {}, {}),
    "reward": ("reward", PAIRS, {}, {}),
    "reward of implicit prompts": ("reward", IMPLICIT, {}, {}),
    "reward of implicit prompts of text": ("reward", WORDED, {}, {}),
}
"""Method, rows without a type, keys of the configuration, arguments of TRL's config class."""


@pytest.mark.parametrize(("method", "rows", "keys", "arguments"), CHATS.values(), ids=CHATS)
def test_conversations_and_implicit_prompts_are_tokenized_as_by_trl(
    tmp_path, chatting, method, rows, keys, arguments
):
    _, _, trainer = of_fmtkit(method, chatting, [rows], tmp_path, **keys)
    expected = of_trl(method, chatting, rows, tmp_path, **arguments)
    assert made(trainer.train_dataset) == made(expected)


MIXED = {
    "sft": ("sft", MESSAGES, {"assistant_only_loss": True}),
    "sft completion": ("sft", COMPLETIONS, {}),
    "dpo": ("dpo", PAIRS, {}),
    "kto": ("kto", JUDGED, {}),
    "reward": ("reward", PAIRS, {}),
}


@pytest.mark.parametrize("name", MIXED)
def test_text_beside_messages_is_tokenized_as_each_alone_by_trl(tmp_path, chatting, name):
    method, chats, arguments = MIXED[name]
    texts = TEXTS[name]
    _, parts, trainer = of_fmtkit(method, chatting, [texts, chats], tmp_path)
    alone = of_trl(method, chatting, texts, tmp_path)
    alone += of_trl(method, chatting, chats, tmp_path, **arguments)
    assert made(trainer.train_dataset) == made(alone)
    assert parts.tokenizer.chat_template == tiny.TEMPLATE


@pytest.mark.parametrize("method", ["cpo", "orpo"])
def test_text_beside_messages_has_the_ids_that_cpo_and_orpo_put_around_it(
    tmp_path, chatting, method
):
    _, _, trainer = of_fmtkit(method, chatting, [TEXTS["dpo"], PAIRS], tmp_path)
    found = made(trainer.train_dataset)
    assert all(row in found for row in made(of_trl(method, chatting, TEXTS["dpo"], tmp_path)))


def test_a_text_that_must_end_needs_a_token_for_it(tmp_path, chatting):
    bare = tiny.with_template(chatting, tmp_path, "", eos_token=None)
    with pytest.raises(FmtkitError, match=r"no eos_token.*special_tokens\.eos_token"):
        of_fmtkit("dpo", bare, [TEXTS["dpo"]], tmp_path)


def test_text_that_no_message_can_hold_beside_messages_is_one_line(tmp_path, chatting):
    """Llama 2's tokenizer puts a space before a text, and none behind a BOS that is written out."""
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import Metaspace

    model = Path(tiny.with_template(chatting, tmp_path, tiny.TEMPLATE))
    loaded = Tokenizer.from_file(str(model / "tokenizer.json"))
    loaded.pre_tokenizer = Metaspace("Ġ", prepend_scheme="first")
    loaded.save(str(model / "tokenizer.json"))
    with pytest.raises(FmtkitError, match=r"rows of text beside rows of messages: .* two runs"):
        of_fmtkit("dpo", str(model), [TEXTS["dpo"], PAIRS], tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    _, _, trainer = of_fmtkit("dpo", str(model), [TEXTS["dpo"]], alone)
    expected = of_trl("dpo", str(model), TEXTS["dpo"], tmp_path)
    assert made(trainer.train_dataset) == made(expected)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", "cpo"])
def test_a_model_of_text_is_tried_with_the_bos_of_its_training(tmp_path, chatting, method):
    """Its tokenizer has a template, by which none of its rows was rendered."""
    import fmtkit

    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in TEXTS["dpo"]))
    keys = {
        "base_model": chatting,
        "rl": method,
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": str(rows)}],
        **tiny.STEP,
    }
    fmtkit.train({**keys, "max_steps": 1})
    run = tmp_path / "run"
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    assert tokenizer.chat_template == tiny.TEMPLATE
    asked = tokenizer("big red", return_tensors="pt")
    assert asked["input_ids"][0, 0] == tokenizer.bos_token_id
    model = AutoModelForCausalLM.from_pretrained(run / "model")
    written = model.generate(**asked, max_new_tokens=4, do_sample=False)[
        0, asked["input_ids"].shape[1] :
    ]
    trial = fmtkit.try_run(str(run), prompt=["big red"], max_new_tokens=4)
    (item,) = trial.items
    assert item.trained["tokens"] == len(written)
    assert item.trained["answer"] == tokenizer.decode(written).removesuffix(END)
    pairs = fmtkit.try_run(str(run), data=str(rows))
    (first, *_) = pairs.items
    ids = shown(TEXTS["dpo"][0], method, tokens.load(chatting))
    length = (
        ids["chosen_ids"] if method == "dpo" else [i for i in ids["chosen_labels"] if i != -100]
    )
    assert first.trained["chosen"]["tokens"] == len(length)


CLONED = "{% for m in messages %}<|turn|>{{ m['role'] }} {{ m['content'] }}<|over|>{% endfor %}"


@pytest.fixture
def other(tmp_path, bare):
    """Return a tokenizer with a template, an EOS and a token that a model of text lacks, in a hub cache too."""
    from transformers import AddedToken, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bare)
    tokenizer.add_tokens([AddedToken("<|over|>", special=True), AddedToken("<|turn|>")])
    tokenizer.eos_token = "<|over|>"
    tokenizer.chat_template = CLONED
    folder = tmp_path / "hub" / "models--of--another" / "snapshots" / "1"
    tokenizer.save_pretrained(folder)
    refs = folder.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("1")
    return folder


@pytest.mark.parametrize("place", ["folder", "hub"])
@pytest.mark.parametrize("adapter", [False, True])
def test_a_tokenizer_of_chat_template_path_is_cloned_as_by_trl(
    tmp_path, bare, other, monkeypatch, place, adapter
):
    from huggingface_hub import constants

    from fmtkit.training.building import build
    from fmtkit.training.data import datasets
    from fmtkit.training.planning import plan as planning
    from fmtkit.training.run import run

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    name = str(other) if place == "folder" else "of/another"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in MESSAGES))
    keys = {
        "model_name_or_path": bare,
        "dataset_name": str(tmp_path / "rows.jsonl"),
        "chat_template_path": name,
        "output_dir": str(tmp_path / "run"),
        "max_steps": 2,
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "use_peft": adapter,
        "lora_target_modules": ["q_proj"],
    }
    plan = planning.plan(keys_file(keys, tmp_path))
    tiny.check(plan)
    text = plan.template_text()
    plan.run.mkdir(parents=True)
    work = run.job_of(plan, *datasets.prepare(plan, text), text)
    parts = build.parts_of(work, [])
    trainer = build.make_trainer(work, parts)
    expected = of_trl("sft", bare, MESSAGES, tmp_path, chat_template_path=str(other))
    assert [row["input_ids"] for row in trainer.train_dataset] == [
        row["input_ids"] for row in expected
    ]
    assert parts.tokenizer.eos_token == "<|over|>"
    trainer.train()
    ends = trainer.model.generation_config.eos_token_id
    assert parts.tokenizer.eos_token_id in (ends if isinstance(ends, list) else [ends])
    grown = trainer.model.get_input_embeddings()
    assert {"<|turn|>", "<|over|>"} <= parts.tokenizer.get_vocab().keys()
    if adapter:
        new = {
            n
            for n, p in trainer.model.named_parameters()
            if "trainable_tokens" in n and p.requires_grad
        }
        assert new
    else:
        assert grown.num_embeddings >= len(parts.tokenizer)


UNMARKED = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template without `{% generation %}`, by which TRL cannot find the replies."""


@pytest.mark.parametrize("rows", [MESSAGES, COMPLETIONS], ids=["messages", "completions"])
@pytest.mark.parametrize(
    ("keys", "trained"),
    [
        ({}, "reply"),
        ({"assistant_only_loss": True}, "reply"),
        ({"assistant_only_loss": False, "completion_only_loss": False}, "everything"),
        ({"train_on_inputs": True}, "everything"),
    ],
)
def test_a_template_without_marks_trains_what_the_keys_say(tmp_path, chatting, rows, keys, trained):
    model = tiny.with_template(chatting, tmp_path, UNMARKED)
    plan, parts, trainer = of_fmtkit("sft", model, [rows], tmp_path, **keys)
    (first, *_) = trainer.train_dataset
    said = parts.tokenizer.decode([i for i in first["labels"] if i != -100])
    whole = parts.tokenizer.decode(first["input_ids"])
    assert said.strip() == (f"big apple{END}" if trained == "reply" else whole.strip())
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({**plan.config.nested(), "output_dir": str(tmp_path / "other")}))
    [(_, found)] = inspect_config(config, [], InspectOptions(show_mask=1))
    (row, *_) = found.survey.shown
    (side,) = row.sides
    labels = [place for start, end in side.trained for place in range(start, end)]
    assert labels == [place for place, i in enumerate(first["labels"]) if i != -100]


@pytest.mark.parametrize("name", ["assistant_only_loss", "completion_only_loss"])
def test_keys_that_say_opposite_things_are_refused(name):
    from fmtkit.training.planning import plan as planning

    keys = {"base_model": "a/m", "datasets": [{"path": "a/b"}], "train_on_inputs": True, name: True}
    with pytest.raises(
        FmtkitError, match=f"train_on_inputs: true .* {name}: true does not; keep one"
    ):
        planning.plan(keys)
