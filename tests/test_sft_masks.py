"""What of an axolotl config's sft data is trained on: from the config to ids and labels of TRL's batch."""

import json
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny
from runs import fmtkit

from fmtkit.core.errors import OptionError
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.training.building import build
from fmtkit.training.data import inspect_config
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.job import read as read_job
from fmtkit.training.run import process, run

TURNS = [
    {"from": "system", "value": "big stone", "train": False},
    {"from": "human", "value": "warm apple", "train": False},
    {"from": "assistant", "value": "a river", "train": True},
    {"from": "human", "value": "small of", "train": True},
    {"from": "assistant", "value": "the blue river", "train": False},
    {"from": "human", "value": "green red", "train": True},
    {"from": "assistant", "value": "good"},
]
CHAT = {
    "type": "chat_template",
    "field_messages": "conversations",
    "message_property_mappings": {"role": "from", "content": "value"},
}
STANFORD = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{}\n\n### Response:\n"
)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "bos"])
def any_model(request, tmp_path_factory):
    """A model whose tokenizer begins each text with a BOS, and one whose does not."""
    process.quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"), bos=request.param)


BOS_TOO = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=BOS_TOO, ids=["plain", "bos"])
def model(request, tmp_path_factory):
    """The same for what is trained on of a template's text, whose BOS test_training_masks looks at."""
    process.quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"), bos=request.param)


def batches(folder: Path, model: str, rows: list[dict], entry: dict, **keys) -> list[tuple]:
    """Prepare a config's run, and return ids and labels of each row of its trainer's batches."""
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = {
        "base_model": model,
        "output_dir": str(folder / "run"),
        "chat_template": "chatml",
        "datasets": [{"path": str(source), **entry}],
        **tiny.STEP,
        "sequence_len": 512,
        **keys,
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({k: v for k, v in values.items() if v is not None}))
    made = run.train(str(file), prepare=True)
    assert made.exit_code == 0
    return batches_of(folder / "run")


def batches_of(folder: Path) -> list[tuple]:
    work = read_job(folder)
    trainer = build.make_trainer(work, build.parts_of(work, []))
    found = []
    for batch in trainer.get_train_dataloader():
        for ids, mask, labels in zip(
            batch["input_ids"].tolist(),
            batch["attention_mask"].tolist(),
            batch["labels"].tolist(),
            strict=True,
        ):
            kept = [(i, t) for i, keep, t in zip(ids, mask, labels, strict=True) if keep]
            found.append(([i for i, _ in kept], [t for _, t in kept]))
    return found


def spelled(model: str, ids: list[int], labels: list[int]) -> str:
    """Write tokens out, what is trained on in brackets."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    out, inside = "", False
    for i, label in zip(ids, labels, strict=True):
        assert label in (-100, i)
        if (label != -100) != inside:
            out += "]" if inside else "["
            inside = not inside
        out += tokenizer.decode([i])
    return out + ("]" if inside else "")


def one(folder: Path, model: str, row: dict, entry: dict, **keys) -> str:
    """Return the one row of a run as text, what is trained on in brackets, without a BOS."""
    [(ids, labels)] = batches(folder, model, [row], entry, **keys)
    return spelled(model, ids, labels).removeprefix("<s>").removeprefix("<|bos|>")


END = "<|im_end|>"
PLAIN = [{k: v for k, v in turn.items() if k != "train"} for turn in TURNS]
REPLIES = ["a river", "the blue river", "good"]
PROMPTS = ["warm apple", "small of", "green red"]


def trained_parts(text: str) -> list[str]:
    return [part.split("]")[0] for part in text.split("[")[1:]]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [reply + END for reply in REPLIES]),
        ({"roles_to_train": ["gpt"]}, [reply + END for reply in REPLIES]),
        ({"roles_to_train": ["human"]}, [prompt + END for prompt in PROMPTS]),
        ({"roles_to_train": ["human"], "train_on_eos": "none"}, PROMPTS),
        ({"roles_to_train": ["system", "user"]}, ["big stone" + END, *(p + END for p in PROMPTS)]),
        ({"train_on_eos": "turn"}, [reply + END for reply in REPLIES]),
        ({"train_on_eos": "none"}, REPLIES),
        ({"train_on_eot": "none"}, REPLIES),
        (
            {"train_on_eos": "all", "train_on_eot": "last"},
            ["a river", "the blue river", "good" + END],
        ),
        ({"train_on_eos": "last"}, ["a river", "the blue river", "good" + END]),
        (
            {"train_on_eos": "all"},
            [END, END, "a river" + END, END, "the blue river" + END, END, "good" + END],
        ),
    ],
)
def test_turns_and_ends_are_trained_on_as_the_config_names_them(keys, expected, model, tmp_path):
    text = one(tmp_path, model, {"conversations": PLAIN}, CHAT | keys)
    assert trained_parts(text) == expected


def test_the_keys_of_the_run_hold_for_datasets_that_set_none(model, tmp_path):
    keys = {"roles_to_train": ["user"], "train_on_eos": "none"}
    assert trained_parts(one(tmp_path, model, {"conversations": PLAIN}, CHAT, **keys)) == PROMPTS


def test_messages_say_themselves_whether_they_are_trained_on(any_model, tmp_path):
    keys = {"roles_to_train": [], "message_field_training": "train"}
    text = one(tmp_path, any_model, {"conversations": TURNS}, CHAT | keys)
    assert trained_parts(text) == ["a river" + END, "small of" + END, "green red" + END]


def test_a_prompt_that_is_to_be_trained_on_is_trained_on_beside_the_replies(model, tmp_path):
    text = one(tmp_path, model, {"conversations": TURNS}, CHAT)
    assert trained_parts(text) == [
        "a river" + END,
        "small of" + END,
        "green red" + END,
        "good" + END,
    ]


def test_all_inputs_are_trained_on_where_that_is_asked_for(any_model, tmp_path):
    text = one(tmp_path, any_model, {"conversations": PLAIN}, CHAT, train_on_inputs=True)
    assert len(trained_parts(text)) == 1


def test_all_of_messages_is_trained_on_without_a_loss_of_the_assistant_alone(model, tmp_path):
    """As TRL's script does by default; the plan says that `inspect` shows the replies."""
    text = one(tmp_path, model, {"conversations": PLAIN}, CHAT, assistant_only_loss=False)
    assert len(trained_parts(text)) == 1


def stretches(*found: tuple[int, int, bool]) -> list[dict]:
    return [{"begin_offset": a, "end_offset": b, "train": learns} for a, b, learns in found]


SAID = "the blue river warm apple"


@pytest.mark.parametrize(
    ("key", "details", "expected"),
    [
        ("train_detail", stretches((4, 13, True)), ["blue river", END]),
        ("train_detail", stretches((4, 7, True), (20, 24, True)), ["blue", "apple" + END]),
        ("train_detail", stretches((0, 24, True), (4, 7, False)), [SAID + END]),
        ("which", stretches((0, 24, True), (4, 7, False)), [SAID + END]),
        ("which", stretches((0, 2, False), (3, 24, True)), ["blue river warm apple" + END]),
        ("train_detail", stretches((0, 24, False)), [END]),
        ("which", stretches((99, 120, True)), [END]),
    ],
)
def test_stretches_of_a_reply_are_trained_on_by_their_characters(
    key, details, expected, model, tmp_path
):
    turns = [
        {"from": "human", "value": "small of"},
        {"from": "gpt", "value": SAID, key: details},
    ]
    keys = {"message_field_training_detail": key}
    text = one(tmp_path, model, {"conversations": turns}, CHAT | keys)
    assert [part.strip() for part in trained_parts(text)] == expected


def test_a_prompt_with_stretches_is_trained_on_and_an_exempt_reply_is_not(model, tmp_path):
    turns = [
        {"from": "human", "value": "small of", "train_detail": stretches((0, 4, True))},
        {"from": "gpt", "value": SAID, "train_detail": stretches((0, 9, True)), "train": False},
        {"from": "human", "value": "red", "train_detail": []},
        {"from": "gpt", "value": "good"},
    ]
    text = one(tmp_path, model, {"conversations": turns}, CHAT)
    assert trained_parts(text) == ["small", END, "good" + END]


@pytest.mark.parametrize(("flag", "value"), [("train", False), ("weight", 0), ("weight", 0.0)])
def test_parts_of_a_content_that_say_so_are_not_learnt(flag, value, model, tmp_path):
    parts = [
        {"type": "text", "text": "the blue", flag: value},
        {"type": "text", "text": " river"},
        {"type": "text", "text": " warm", flag: value},
        {"type": "text", "text": " apple", flag: True},
    ]
    turns = [{"role": "user", "content": "small"}, {"role": "assistant", "content": parts}]
    text = one(tmp_path, model, {"messages": turns}, {"type": "chat_template"})
    assert [part.strip() for part in trained_parts(text)] == ["river", "apple" + END]


def test_stretches_without_their_offsets_are_quarantined(model, tmp_path):
    wrong = [{"begin_offset": 3, "train": True}]
    rows = [
        {"conversations": [PLAIN[1], {**PLAIN[2], "train_detail": wrong}]},
        {"conversations": [PLAIN[1], PLAIN[2]]},
    ]
    batches(tmp_path, model, rows, CHAT)
    bad = (tmp_path / "run" / "data" / "00" / "quarantine.jsonl").read_text()
    assert json.loads(bad)["column"] == "conversations[1].train_detail"
    assert "is not a list of objects of begin_offset, end_offset and train" in bad


@pytest.mark.parametrize("mark", ["no", [True], {"train": False}])
def test_a_mark_under_a_key_of_ones_own_that_is_no_flag_is_quarantined(mark, model, tmp_path):
    entry = {**CHAT, "message_field_training": "learn it"}
    rows = [
        {"conversations": [PLAIN[1], {**PLAIN[2], "learn it": mark}]},
        {"conversations": [PLAIN[1], {**PLAIN[2], "learn it": True}]},
    ]
    batches(tmp_path, model, rows, entry)
    [bad] = (tmp_path / "run" / "data" / "00" / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(bad)["code"] == "type_error"
    assert json.loads(bad)["column"] == "conversations[1].learn it"


@pytest.mark.parametrize("method", ["dpo", "grpo", "prm"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message_field_training_detail", "which"),
        ("roles_to_train", ["user"]),
        ("train_on_eos", "last"),
        ("train_on_eot", "none"),
    ],
)
def test_only_sft_chooses_the_turns_that_are_trained_on(method, key, value):
    datasets = [{"path": "a.jsonl", key: value}]
    told = rf"{key}: only sft can choose .* \(the method is {method}\)"
    with pytest.raises(OptionError, match=told):
        planning.plan({"rl": method, "datasets": datasets}, partial=True)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_contents_that_stand_twice_and_white_space_do_not_move_a_mask(role, model, tmp_path):
    turns = [
        {"from": "human", "value": " red "},
        {"from": "gpt", "value": "red"},
        {"from": "human", "value": "red red"},
        {"from": "gpt", "value": "red"},
    ]
    keys = {"roles_to_train": [role], "train_on_eos": "none"}
    text = one(tmp_path, model, {"conversations": turns}, CHAT | keys)
    assert trained_parts(text) == ([" red ", "red red"] if role == "user" else ["red", "red"])


def test_an_alpaca_row_is_trained_on_in_stanfords_prompt_text(any_model, tmp_path):
    row = {"instruction": "red", "input": "", "output": "blue"}
    text = one(tmp_path, any_model, row, {"type": "alpaca"}, chat_template=None)
    assert text == STANFORD.format("red") + "[blue" + END + "]"


def test_an_alpaca_row_is_trained_on_whole_with_its_inputs(any_model, tmp_path):
    row = {"instruction": "red", "input": "", "output": "blue"}
    [(ids, labels)] = batches(
        tmp_path, any_model, [row], {"type": "alpaca"}, chat_template=None, train_on_inputs=True
    )
    assert labels == ids


def test_what_is_trained_on_and_what_is_not_are_tokenized_apart(any_model, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(any_model)
    row = {"instruction": "red", "input": "apple", "output": "blue"}
    [(ids, labels)] = batches(tmp_path, any_model, [row], {"type": "alpaca"}, chat_template=None)
    output = tokenizer("blue", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    assert [i for i in labels if i != -100] == output
    assert ids[-len(output) :] == output
    prompt = tokenizer.decode(ids[: -len(output)], skip_special_tokens=True)
    assert ids[: -len(output)] == tokenizer(prompt)["input_ids"]


def test_segments_are_trained_on_as_they_are_marked_and_nothing_is_added(any_model, tmp_path):
    segments = [
        {"label": True, "text": "<|im_start|>good\n"},
        {"label": True, "text": "a river. "},
        {"label": False, "text": "green "},
        {"label": True, "text": "small<|im_end|>"},
    ]
    [(ids, labels)] = batches(
        tmp_path, any_model, [{"segments": segments}], {"type": "input_output"}, chat_template=None
    )
    text = spelled(any_model, ids, labels)
    assert text == "[<|im_start|>good\na river. ]green [small<|im_end|>]"


def test_raw_text_is_trained_on_whole_and_cut_into_rows(any_model, tmp_path):
    rows = [{"body": "red blue " * 40}, {"body": "warm"}]
    entry = {"type": "completion", "field": "body"}
    found = batches(tmp_path, any_model, rows, entry, chat_template=None, sequence_len=32)
    assert all(ids == labels for ids, labels in found)
    assert max(len(ids) for ids, _ in found) == 32
    text = "".join(spelled(any_model, *row) for row in sorted(found, key=len))
    assert text.count("red blue") == 40
    assert text.count(END) == 2


def test_a_mapping_of_fields_makes_the_users_own_prompt(any_model, tmp_path):
    kind = {
        "system_prompt": "big",
        "system_format": "<{system}>",
        "field_instruction": "q",
        "field_input": "more",
        "field_output": "a",
        "field_system": None,
        "format": "[INST] {instruction} + {input} [/INST]",
        "no_input_format": "[INST] {instruction} [/INST]",
    }
    row = {"q": "red", "more": "apple", "a": "blue"}
    [(ids, labels)] = batches(tmp_path, any_model, [row], {"type": kind}, chat_template=None)
    text = spelled(any_model, ids, labels)
    assert text.endswith("<big>[INST] red + apple [/INST][blue" + END + "]")


def test_segments_and_conversations_are_mixed_in_one_run(any_model, tmp_path):
    more = tmp_path / "alpaca.jsonl"
    more.write_text(json.dumps({"instruction": "red", "output": "blue"}))
    other = tmp_path / "qa.jsonl"
    other.write_text(json.dumps({"prompt": "small", "completion": "warm"}))
    found = batches(
        tmp_path,
        any_model,
        [{"conversations": PLAIN}],
        CHAT | {"train_on_eos": "last"},
        datasets=[
            {"path": str(tmp_path / "rows.jsonl"), **CHAT, "train_on_eos": "last"},
            {"path": str(more), "type": "alpaca"},
            {"path": str(other), "type": "completion"},
        ],
    )
    texts = [trained_parts(spelled(any_model, *row)) for row in found]
    assert sorted(texts) == sorted(
        [["a river", "the blue river", "good" + END], ["blue" + END], ["warm" + END]]
    )


SHOWN = {
    "turns": ([{"conversations": TURNS}], CHAT | {"roles_to_train": ["user"]}),
    "stretches": (
        [
            {
                "conversations": [
                    PLAIN[1],
                    {
                        **PLAIN[2],
                        "train_detail": [{"begin_offset": 2, "end_offset": 6, "train": True}],
                    },
                ]
            }
        ],
        CHAT,
    ),
    "ends": ([{"conversations": PLAIN}], CHAT | {"train_on_eos": "all"}),
    "replies": ([{"conversations": PLAIN}], CHAT),
    "alpaca": ([{"instruction": "red", "input": "big", "output": "blue"}], {"type": "alpaca"}),
    "segments": (
        [{"segments": [{"text": "red ", "label": False}, {"text": "blue", "label": True}]}],
        {"type": "input_output"},
    ),
    "document": ([{"text": "red blue " * 300}], {"type": "completion"}),
    "completion": ([{"prompt": "red", "completion": "blue"}], {"type": "completion"}),
}


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("case", SHOWN)
def test_inspect_shows_what_the_batches_of_the_config_hold(case, everything, model, tmp_path):
    rows, entry = SHOWN[case]
    keys = {"train_on_inputs": True} if everything else {}
    trained = batches(tmp_path, model, rows, entry, **keys)
    options = InspectOptions(show_mask=9)
    [(_, inspection)] = inspect_config.inspect_config(tmp_path / "config.yaml", [], options)
    shown = [side for row in inspection.survey.shown for side in row.sides]
    marks = [[any(a <= i < b for a, b in s.trained) for i in range(len(s.ids))] for s in shown]
    expected = [
        (list(side.ids), [i if m else -100 for i, m in zip(side.ids, mark, strict=True)])
        for side, mark in zip(shown, marks, strict=True)
    ]
    assert sorted(trained) == sorted(expected)


def test_every_dataset_of_a_config_is_inspected(model, tmp_path, capsys):
    batches(tmp_path, model, [{"conversations": PLAIN}], CHAT)
    file = tmp_path / "config.yaml"
    values = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(values | {"datasets": values["datasets"] * 2}))
    capsys.readouterr()  # the bars of the trainer that made the batches
    done = fmtkit(capsys, "inspect", "-c", file, "--show-mask", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("⟦a river<|im_end|>⟧") == 2
    refused = fmtkit(capsys, "inspect", "-c", file, "--html", tmp_path / "page.html")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "2 datasets" in refused.err
    both = fmtkit(capsys, "inspect", tmp_path / "rows.jsonl", "-c", file)
    assert (both.code, both.err.count("\n")) == (2, 1)


def test_the_key_that_marks_a_message_may_have_any_name(model, tmp_path):
    turns = [
        {"who": "human", "said": "red", "learn it": 1},
        {"who": "gpt", "said": "blue", "learn it": False, "train": True},
        {"who": "gpt", "said": "warm"},
    ]
    entry = {
        "type": "chat_template",
        "message_property_mappings": {"role": "who", "content": "said"},
        "message_field_training": "learn it",
    }
    text = one(tmp_path, model, {"messages": turns}, entry)
    assert trained_parts(text) == ["red" + END, "warm" + END]


def test_properties_of_messages_may_have_other_names(model, tmp_path):
    turns = [
        {"role": "user", "content": "red"},
        {"role": "assistant", "content": "blue", "why": "warm"},
    ]
    source = (
        "{% for m in messages %}{{ m.role }}{% if m.reasoning_content %}({{ m.reasoning_content }})"
        "{% endif %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    entry = {
        "type": "chat_template",
        "message_property_mappings": {"reasoning_content": "why"},
        "chat_template_jinja": source,
    }
    text = one(tmp_path, model, {"messages": turns}, entry, chat_template=None)
    assert text.replace("[", "").replace("]", "") == "userredassistant(warm)blue"
