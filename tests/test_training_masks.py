"""What `fmtkit inspect` shows of a row is what the trainer's batch holds: ids, masks and labels."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.errors import TemplateError
from fmtkit.core.tables import TABLES
from fmtkit.inspection.shown_rows import Place, RowViewer
from fmtkit.masks import masks
from fmtkit.masks.masking import Masking
from fmtkit.rendering import row_templates
from fmtkit.tokenizers import tokens
from fmtkit.training.building import build
from fmtkit.training.planning.job import Job, Source
from fmtkit.training.run import process

TABLE = {
    "sft": "Conversation",
    "dpo": "Preference",
    "ipo": "Preference",
    "kto": "Unpaired",
    "orpo": "Preference",
    "cpo": "Preference",
    "simpo": "Preference",
    "alphapo": "Preference",
    "gkd": "Conversation",
    "reward": "Preference",
}
PAIRWISE = {"orpo", "cpo", "simpo", "alphapo"}

# A reply ends with a token that is not the tokenizer's EOS, as Llama 3 ends turns.
OWN_END = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|pad|>\n{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"chatml": tiny.TEMPLATE, "own_end": OWN_END}
UNMARKED = OWN_END.replace("{% generation %}", "").replace("{% endgeneration %}", "")


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "bos"])
def model(request, tmp_path_factory):
    process.quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"), bos=request.param)


def batch_of(work: Job) -> dict:
    """Return all rows of a run as one batch of its trainer."""
    parts = build.parts_of(work, [])
    trainer = build.make_trainer(work, parts)
    return next(iter(trainer.get_train_dataloader()))


def shown(
    model: str, table: str, rows: list[dict], masking: Masking, source: str = tiny.TEMPLATE
) -> list[tuple]:
    """Return ids and trained marks of every sequence, as the survey shows them."""
    tokenizer = tokens.load(model)
    template = row_templates.compile_template(source, tokenizer)
    found = [
        one for row in rows for one in masks.mask_row(row, table, tokenizer, template, masking)
    ]
    return [(tuple(one.ids.tolist()), tuple(one.trained.tolist())) for one in found]


def sequences(ids, mask, trained) -> list[tuple]:
    """Return ids and marks of a padded batch without its padding."""
    out = []
    for row, keep, marks in zip(ids.tolist(), mask.tolist(), trained.tolist(), strict=True):
        kept = [(i, bool(t)) for i, k, t in zip(row, keep, marks, strict=True) if k]
        out.append((tuple(i for i, _ in kept), tuple(t for _, t in kept)))
    return out


def seen(method: str, batch: dict) -> list[tuple]:
    """Return ids and trained marks of every sequence of a batch."""
    if method in PAIRWISE:
        sides = [f"{side}_" for side in ("chosen", "rejected")]
        return [
            sequence
            for s in sides
            for sequence in sequences(
                batch[f"{s}input_ids"], batch[f"{s}attention_mask"], batch[f"{s}labels"] != -100
            )
        ]
    if "labels" in batch:
        return sequences(batch["input_ids"], batch["attention_mask"], batch["labels"] != -100)
    return sequences(batch["input_ids"], batch["attention_mask"], batch["completion_mask"])


def one_batch(
    folder: Path, model: str, method: str, *, wide: bool = False, **keys
) -> tuple[list[dict], Job]:
    """Return rows of a method's table, and the job that takes all of them at once."""
    rows = tiny.ROWS[TABLE[method]]()
    keys = {"micro_batch_size": len(rows), "max_steps": 1, **keys}
    keys |= {"teacher_model": model} if method == "gkd" else {}
    return rows, tiny.make_job(folder, model, method, TABLE[method], keys, wide=wide)


@pytest.mark.parametrize("method", TABLE)
def test_messages_that_may_call_tools_make_the_same_batch_as_plain_ones(method, model, tmp_path):
    plain, wide = (
        batch_of(one_batch(tmp_path / str(wide), model, method, wide=wide)[1])
        for wide in (False, True)
    )
    assert sorted(plain) == sorted(wide)
    tensors = [name for name, value in plain.items() if hasattr(value, "equal")]
    assert tensors
    assert all(plain[name].equal(wide[name]) for name in tensors)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("method", [method for method in TABLE if method != "reward"])
def test_a_batch_is_what_inspect_shows(method, template, model, tmp_path):
    source = TEMPLATES[template]
    rows, work = one_batch(tmp_path, model, method)
    batch = batch_of(Job(**{**work.__dict__, "template_text": source}))
    expected = shown(model, TABLE[method], rows, Masking(method), source)
    assert sorted(seen(method, batch)) == sorted(expected)


def test_gkd_takes_prompts_with_completions_as_conversations(model, tmp_path):
    rows = tiny.completion_rows()
    keys = {"micro_batch_size": len(rows), "max_steps": 1, "teacher_model": model}
    batch = batch_of(tiny.make_job(tmp_path, model, "gkd", "Completion", keys))
    expected = shown(model, "Completion", rows, Masking("gkd"))
    assert sorted(seen("gkd", batch)) == sorted(expected)


def test_prompts_that_are_trained_on_are_shown_as_learnt(model, tmp_path):
    rows, work = one_batch(tmp_path, model, "sft", train_on_inputs=True)
    expected = shown(model, "Conversation", rows, Masking("sft", train_on_inputs=True))
    assert sorted(seen("sft", batch_of(work))) == sorted(expected)


@pytest.mark.parametrize(
    "options", [{}, {"train_on_last_step_only": True}, {"step_separator": " ; "}]
)
def test_steps_are_labelled_as_inspect_shows(options, model, tmp_path):
    rows = tiny.stepwise_rows()
    work = tiny.make_job(
        tmp_path, model, "prm", "Stepwise", {"micro_batch_size": len(rows), "max_steps": 1}
    )
    settings = {**work.settings, "type_options": options}
    batch = batch_of(Job(**{**work.__dict__, "settings": settings}))
    tokenizer = tokens.load(model)
    masking = Masking("prm", **options)
    found = [masks.mask_row(row, "Stepwise", tokenizer, None, masking)[0] for row in rows]
    labels = [
        tuple(int(label) for label in row if label != -100) for row in batch["labels"].tolist()
    ]
    learnt = sequences(batch["input_ids"], batch["attention_mask"], batch["labels"] != -100)
    mine = [(tuple(one.ids.tolist()), tuple(one.trained.tolist())) for one in found]
    assert sorted(zip(learnt, labels, strict=True)) == sorted(
        zip(mine, [one.steps for one in found], strict=True)
    )


def test_a_student_is_prompted_as_inspect_shows(model, tmp_path):
    rows = tiny.prompt_rows()
    keys = {"micro_batch_size": len(rows), "max_steps": 1, "teacher_model": model}
    keys |= {"trainer_args": {"max_completion_length": 2}}
    work = tiny.make_job(tmp_path, model, "distillation", "Prompt", keys)
    parts = build.parts_of(work, [])
    trainer = build.make_trainer(work, parts)
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    pairs = zip(batch["prompt_ids"].tolist(), batch["prompt_mask"].tolist(), strict=True)
    prompted = [tuple(i for i, k in zip(row, keep, strict=True) if k) for row, keep in pairs]
    expected = shown(model, "Prompt", rows, Masking("distillation"))
    assert not any(any(marks) for _, marks in expected)
    assert sorted(prompted) == sorted(ids for ids, _ in expected)


def test_a_reward_model_scores_the_ids_that_inspect_shows(model, tmp_path):
    rows = tiny.preference_rows()
    work = tiny.make_job(tmp_path, model, "reward", "Preference", {"micro_batch_size": len(rows)})
    batch = batch_of(work)
    pairs = zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True)
    ids = [tuple(i for i, k in zip(row, keep, strict=True) if k) for row, keep in pairs]
    expected = shown(model, "Preference", rows, Masking("reward"))
    assert sorted(ids) == sorted(i for i, _ in expected)


TEXTS = {
    "sft": ("Conversation", {"text": "red apple<|im_end|>"}),
    "dpo": ("Preference", {"prompt": "red ", "chosen": "big apple<|im_end|>", "rejected": "river"}),
    "orpo": ("Preference", {"prompt": "red", "chosen": " apple", "rejected": " river<|im_end|>"}),
    "kto": ("Unpaired", {"prompt": "red ", "completion": "big apple", "label": True}),
    "gkd": ("Completion", {"prompt": "red ", "completion": "apple<|im_end|>"}),
}
"""Method -> its table, and a row of prerendered text."""


@pytest.mark.parametrize("method", TEXTS)
def test_finished_text_is_trained_as_inspect_shows(method, model, tmp_path):
    table, row = TEXTS[method]
    rows = [row, {**row, **({"label": False} if method == "kto" else {})}]
    schema = TABLES[table].schema(frozenset(row), wide=False, text=True)
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    keys = {"micro_batch_size": 2, "max_steps": 1}
    keys |= {"teacher_model": model} if method == "gkd" else {}
    work = tiny.make_job(tmp_path / "run", model, method, table, keys)
    identity = (tiny.TEMPLATES / "identity.jinja").read_text(encoding="utf-8")
    changed = {"train": (Source((str(path),)),), "template_text": identity}
    batch = batch_of(Job(**{**work.__dict__, **changed}))
    viewer = RowViewer(table, tokens.load(model), None, Masking(method))
    place = Place(0, "texts.parquet", 0, None)
    expected = [one for row in rows for one in viewer.show(row, place)[1]]
    found = [(tuple(one.ids.tolist()), tuple(one.trained.tolist())) for one in expected]
    assert sorted(seen(method, batch)) == sorted(found)


def test_a_prompt_of_text_is_sampled_from_as_it_is_shown(model):
    from transformers import AutoTokenizer

    viewer = RowViewer("Prompt", tokens.load(model), None, Masking("grpo"))
    (one,) = viewer.show({"prompt": "red apple"}, Place(0, "p", 0, None))[1]
    assert one.ids.tolist() == AutoTokenizer.from_pretrained(model)("red apple")["input_ids"]


CHAT = [
    {"role": "user", "content": "red"},
    {"role": "assistant", "content": "big apple", "train": False},
    {"role": "user", "content": "blue"},
    {"role": "assistant", "content": "warm river", "train": True},
]


def chat_job(folder: Path, model: str, conversations: list[list[dict]], **keys) -> Job:
    schema = TABLES["Conversation"].schema(frozenset({"messages"}), wide=True, text=False)
    rows = [{"messages": conversation} for conversation in conversations]
    path = folder / "wide.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    work = tiny.make_job(folder, model, "sft", "Conversation", {"max_steps": 1, **keys})
    return Job(**{**work.__dict__, "train": (Source((str(path),)),)})


def learnt(model: str, batch: dict) -> list[str]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return sorted(
        tokenizer.decode([i for i in row if i != -100]) for row in batch["labels"].tolist()
    )


def test_a_message_that_is_not_to_be_learnt_has_no_labels(model, tmp_path):
    both = [{**message, "train": None} for message in CHAT]
    batch = batch_of(chat_job(tmp_path, model, [CHAT, both]))
    assert learnt(model, batch) == [
        "big apple<|im_end|>warm river<|im_end|>",
        "warm river<|im_end|>",
    ]
    # What the model reads is the same for both.
    assert batch["input_ids"][0].tolist() == batch["input_ids"][1].tolist()


@pytest.mark.parametrize("everything", [False, True])
def test_inspect_shows_which_messages_are_not_learnt(everything, model, tmp_path):
    both = [{**message, "train": None} for message in CHAT]
    keys = {"train_on_inputs": everything, "micro_batch_size": 2}
    batch = batch_of(chat_job(tmp_path, model, [CHAT, both], **keys))
    rows = [{"messages": CHAT}, {"messages": both}]
    masking = Masking("sft", train_on_inputs=everything)
    expected = shown(model, "Conversation", rows, masking)
    assert sorted(seen("sft", batch)) == sorted(expected)
    assert expected[0][0] == expected[1][0]
    assert sum(expected[0][1]) < sum(expected[1][1])


@pytest.mark.parametrize("flagged", [False, True])
def test_replies_are_found_where_the_template_marks_none(flagged, model, tmp_path):
    conversation = CHAT if flagged else [{**message, "train": None} for message in CHAT]
    work = chat_job(tmp_path, model, [conversation, conversation], micro_batch_size=2)
    batch = batch_of(Job(**{**work.__dict__, "template_text": UNMARKED}))
    last = "warm river<|pad|>\n"
    assert learnt(model, batch) == [last if flagged else "big apple<|pad|>\n" + last] * 2
    expected = shown(
        model, "Conversation", [{"messages": conversation}] * 2, Masking("sft"), UNMARKED
    )
    assert sorted(seen("sft", batch)) == sorted(expected)


def test_thinking_that_the_template_leaves_out_costs_no_row(model, tmp_path):
    # Models' templates leave the thinking of earlier turns out, and write that of the last.
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'user' or loop.last %}"
        "{{ m.content }}{% else %}{{ m.content.split('</think>')[-1] }}{% endif %}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    conversation = [
        {"role": "user", "content": "red"},
        {"role": "assistant", "content": "<think>stone</think>big apple"},
        {"role": "user", "content": "blue"},
        {"role": "assistant", "content": "<think>a</think>warm river"},
    ]
    work = chat_job(tmp_path, model, [conversation], micro_batch_size=1)
    batch = batch_of(Job(**{**work.__dict__, "template_text": source}))
    assert learnt(model, batch) == ["big apple<think>a</think>warm river<|im_end|>\n"]


def test_a_template_that_drops_a_reply_is_refused(model, tmp_path):
    drops = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    work = chat_job(tmp_path, model, [CHAT])
    with pytest.raises(TemplateError, match=r"the text of messages\[1\] is not found"):
        build.parts_of(Job(**{**work.__dict__, "template_text": drops}), [])


def test_a_message_that_is_not_to_be_learnt_is_none_among_all_inputs(model, tmp_path):
    keys = {"train_on_inputs": True, "micro_batch_size": 1}
    (text,) = learnt(model, batch_of(chat_job(tmp_path, model, [CHAT], **keys)))
    assert "big apple" not in text
    assert "red<|im_end|>" in text


def test_rows_without_such_a_message_are_left_to_the_trainer(model, tmp_path):
    both = [{**message, "train": None} for message in CHAT]
    parts = build.parts_of(chat_job(tmp_path, model, [both]), [])
    assert parts.train.column_names == ["messages"]


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "orpo", "reward"])
def test_variables_reach_the_template(method, model, tmp_path):
    template = "{{ mood }}" + tiny.TEMPLATE
    keys = {"chat_template_kwargs": {"mood": "warm"}, "micro_batch_size": 2}
    work = tiny.make_job(tmp_path, model, method, TABLE[method], keys)
    batch = batch_of(Job(**{**work.__dict__, "template_text": template}))
    name = "chosen_input_ids" if method == "orpo" else "input_ids"
    first = tokens.load(model).encode("warm").ids
    for row, keep in zip(
        batch[name].tolist(), batch[name.replace("input_ids", "attention_mask")], strict=True
    ):
        assert [i for i, k in zip(row, keep, strict=True) if k][: len(first)] == first
