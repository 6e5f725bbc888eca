"""Sources of one table mix in one run and in one file, whatever types they come from."""

import itertools
import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import fixture_cases
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_training as tiny
from runs import fmtkit

from fmtkit import convert
from fmtkit.core.errors import OptionError
from fmtkit.core.runner import find
from fmtkit.core.tables import final_rows, has_images, stored_schema, without_any_image
from fmtkit.rendering.template_sources import find_model_template
from fmtkit.running.pipeline import stream
from fmtkit.writing.common_schema import common_schema, fitted

METHODS = {
    "Conversation": "sft",
    "Completion": "sft",
    "Segments": "sft",
    "Preference": "dpo",
    "Unpaired": "kto",
    "Prompt": "grpo",
    "Stepwise": "prm",
    "Reference": "ebft",
    "Tokens": "ebft",
}
"""Table -> a method that takes it; a ranking becomes pairs before it is trained on."""


@cache
def tables() -> dict[str, dict[str, pa.Table]]:
    """Return what each fixture becomes: table -> case -> rows."""
    found: dict[str, dict[str, pa.Table]] = defaultdict(dict)
    for case in fixture_cases.cases():
        if case.name in ("targets", "tokenizer", "answers", "axolotl"):
            continue
        job = fixture_cases.job_of(case, case.source)
        pieces = [piece.table for piece in stream(job) if piece.table.num_rows]
        if pieces:
            found[job.table.name()][str(case)] = pa.concat_tables(pieces)
    return found


def plain(value: object) -> object:
    """Return rows without what is null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None}
    return [plain(v) for v in value] if isinstance(value, list) else value


def without_margin(rows: object) -> object:
    return [{k: v for k, v in row.items() if k != "margin"} for row in plain(rows)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("table", [*METHODS, "Ranking"])
def test_any_two_types_of_a_table_fit_into_one_file(table):
    texts_and_messages = clashes = 0
    for (one, first), (other, second) in itertools.product(tables()[table].items(), repeat=2):
        schemas = [stored_schema(part.schema) for part in (first, second)]
        try:
            schema = common_schema(schemas, [one, other])
        except OptionError as error:
            # Text beside messages: `convert -c` renders them. Columns that are carried may clash.
            is_mix = "text in rows of" in str(error) and "messages in rows of" in str(error)
            texts_and_messages += is_mix
            clashes += not is_mix
            continue
        rows = final_rows(first), final_rows(second)
        whole = pa.concat_tables([fitted(part, schema) for part in rows])
        if has_images(schema) and not all(has_images(part.schema) for part in rows):
            rows = [part if has_images(part.schema) else without_any_image(part) for part in rows]
        expected = [row for part in rows for row in part.to_pylist()]
        assert without_margin(whole.to_pylist()) == without_margin(expected), (one, other)
    has_both = {"string", "list"} == {
        "string" if pa.types.is_string(rows.schema.field(name).type) else "list"
        for rows in tables()[table].values()
        for name in rows.schema.names[:1]
        if name in ("text", "messages", "prompt")
    }
    assert bool(texts_and_messages) == (has_both and table != "Conversation")
    assert not clashes or table == "Prompt"


def kinds(table: str) -> list[tuple[str, pa.Table]]:
    """Return one case for each schema that types of a table have: rows reach the trainer by their schema."""
    return list({str(rows.schema): (case, rows) for case, rows in tables()[table].items()}.values())


PAIRS = [
    pytest.param(table, one, other, id=f"{table}: {one[0]} and {other[0]}")
    for table in METHODS
    for one, other in itertools.combinations(kinds(table), 2)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("trl")
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.mark.parametrize(("table", "one", "other"), PAIRS)
def test_any_two_kinds_of_rows_of_a_table_train_together(tmp_path, table, one, other):
    pytest.importorskip("datasets")
    from fmtkit.training.data import rows
    from fmtkit.training.planning.job import Source

    runner = find(METHODS[table])
    work = tiny.make_job(tmp_path, "a/m", "dpo", "Preference")
    sources = []
    for number, (_, part) in enumerate((one, other)):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(part, file)
        sources.append(Source((str(file),)))
    tokenizer = Rendering() if table == "Prompt" else None
    whole = rows.mixed(work, sources, runner, tokenizer=tokenizer)
    expected = [said(row) for part in (one[1], other[1]) for row in part.to_pylist()]
    found = [said(row) for row in whole]
    renders = table == "Prompt" and any(isinstance(row["prompt"], str) for row in whole)
    assert len(found) == len(expected)
    if not renders:
        assert found == expected


def said(row: dict) -> dict[str, object]:
    """Return what the conversations of a row say, whether they are text or messages, and its labels."""
    row = {("messages" if name == "text" else name): value for name, value in row.items()}
    names = ("messages", "prompt", "completion", "chosen", "rejected")
    out = {name: contents(row[name]) for name in names if row.get(name) is not None}
    return out | {name: row[name] for name in ("label", "labels", "ground_truth") if name in row}


def contents(value: object) -> list[object]:
    if isinstance(value, str):
        return [value]
    # A turn that calls tools needs no content.
    return [message.get("content") for message in value]  # type: ignore[attr-defined]


class Rendering:
    """A tokenizer, as far as prompts of messages are rendered by it."""

    bos_token = bos_token_id = None

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [1]}

    def apply_chat_template(self, messages, **_) -> str:
        return json.dumps(messages)


TEXTS = {
    "dpo": {"prompt": "Q: one ", "chosen": "good a", "rejected": "bad b"},
    "kto": {"prompt": "Q: one ", "completion": "good a", "label": True},
    "reward": {"prompt": "Q: one ", "chosen": "good a", "rejected": "bad b"},
    "cpo": {"prompt": "Q: one ", "chosen": "good a", "rejected": "bad b"},
    "sft": {"prompt": "Q: one ", "completion": "good a"},
    "gkd": {"prompt": "Q: one ", "completion": "good a"},
}
"""Method -> a row of prerendered text."""


def as_messages(row: dict) -> dict:
    def message(name: str, text: str) -> list[dict]:
        return [{"role": "user" if name == "prompt" else "assistant", "content": text}]

    return {n: v if n == "label" else message(n, v.strip()) for n, v in row.items()}


def prepared(folder: Path, model: str, method: str, *sources: list[dict]):
    """Return the parts of a run over files of rows, and its trainer."""
    from fmtkit.training.building import build
    from fmtkit.training.data import datasets, prerendered
    from fmtkit.training.planning import plan as planning
    from fmtkit.training.run import run

    entries = []
    for number, rows in enumerate(sources):
        file = folder / f"{number}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        entries.append({"path": str(file)})
    keys = {
        "base_model": model,
        "output_dir": str(folder / "run"),
        "datasets": entries,
        **tiny.STEP,
    }
    method_keys = {"reward": {"reward_model": True}, "sft": {}}.get(method, {"rl": method})
    teacher = {"teacher_model": model} if method == "gkd" else {}
    plan = planning.plan({**keys, **method_keys, **teacher})
    plan = prerendered.settled(plan, with_hub=False)
    tiny.check(plan)
    template = plan.template_text()
    plan.run.mkdir()
    work = run.job_of(plan, *datasets.prepare(plan, template), template)
    parts = build.parts_of(work, [])
    return plan, parts, build.make_trainer(work, parts)


def sequences(rows, tokenizer) -> set[str]:
    """Return the texts of the tokens that a trainer made of its rows."""
    found = set()
    for row in rows:
        for name, ids in row.items():
            prompt = row["prompt_ids"] if "prompt_ids" in row and name != "prompt_ids" else []
            if name.endswith(("input_ids", "chosen_ids", "rejected_ids", "completion_ids")):
                found.add(tokenizer.decode([*prompt, *ids]))
    return found


@pytest.mark.parametrize("method", [name for name in TEXTS if name != "gkd"])
def test_text_is_rendered_by_no_template_beside_messages_and_the_model_keeps_its_own(
    tmp_path, model, method
):
    row = TEXTS[method]
    rows = [row, row | {"label": False}] if method == "kto" else [row, row]
    plan, parts, trainer = prepared(tmp_path, model, method, rows, [*map(as_messages, rows)])
    assert plan.template == ("tokenizer_default", "default")
    found = sequences(trainer.train_dataset, parts.tokenizer)
    reply = row.get("chosen", row.get("completion"))
    user, answer = row["prompt"].strip(), reply.strip()
    turns = f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>"
    assert f"{row['prompt']}{reply}<|im_end|>" in found
    assert {turns, f"{turns}\n"} & found
    trainer.save_model(str(tmp_path / "saved"))
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(tmp_path / "saved").chat_template == tiny.TEMPLATE


@pytest.mark.parametrize("others", [[], [as_messages(TEXTS["gkd"])]])
def test_text_is_distilled_as_it_is(tmp_path, model, others):
    _, parts, trainer = prepared(
        tmp_path, model, "gkd", [TEXTS["gkd"]], *([others] if others else [])
    )
    batch = trainer.data_collator([*trainer.train_dataset])
    found = [parts.tokenizer.decode(ids, skip_special_tokens=False) for ids in batch["input_ids"]]
    assert any(text.endswith("Q: one good a") and "im_start" not in text for text in found)
    assert sum("<|im_start|>user" in text for text in found) == len(others)
    assert trainer.processing_class.chat_template == tiny.TEMPLATE


def test_a_run_on_text_alone_needs_no_template(tmp_path, tmp_path_factory):
    pytest.importorskip("trl")
    bare = tiny.make_model(tmp_path_factory.mktemp("bare"))
    plan, parts, trainer = prepared(tmp_path, bare, "dpo", [TEXTS["dpo"]])
    assert plan.template == ("none", "prerendered text")
    assert parts.tokenizer.chat_template is None
    assert "Q: one good a<|im_end|>" in sequences(trainer.train_dataset, parts.tokenizer)


def test_conversations_and_completions_are_masked_in_one_run(tmp_path, model):
    turns = [("user", "red"), ("assistant", "blue"), ("user", "green"), ("assistant", "stone")]
    chat = {"messages": [{"role": role, "content": text} for role, text in turns]}
    reply = {
        "prompt": [{"role": "user", "content": "apple"}],
        "completion": [{"role": "assistant", "content": "river"}],
    }
    _, parts, trainer = prepared(tmp_path, model, "sft", [chat], [reply], [{"text": "warm small"}])
    trained = {
        parts.tokenizer.decode([i for i in row["labels"] if i != -100]).strip()
        for row in trainer.train_dataset
    }
    assert trained == {"blue<|im_end|>stone<|im_end|>", "river<|im_end|>", "warm small<|im_end|>"}


STORY = {"text": "Plain text of a story."}
TALK = {
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
}
RENDERED = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>"


@pytest.fixture
def folder(tmp_path):
    """Return a folder of three files: text, messages, text."""
    sources = tmp_path / "sources"
    sources.mkdir()
    for name, row in (("a", STORY), ("b", TALK), ("c", {"text": "The end."})):
        (sources / f"{name}.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    return sources


def texts_of(file):
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    "words", [("passthrough", "--chat-template", "chatml"), ("chatml.passthrough",)]
)
def test_one_convert_mixes_text_and_messages_in_their_order(folder, capsys, words):
    out = folder.parent / "out.jsonl"
    command = ("convert", str(folder), "-t", *words, "-o", str(out), "--json")
    report = json.loads(fmtkit(capsys, *command).out)
    ends = ["The end."] * 2
    assert texts_of(out) == [STORY["text"]] * 2 + [RENDERED] * 2 + ends
    assert [source["rows"] for source in report["sources"]] == [2, 2, 2]
    assert (report["rows_written"], report["template"]) == (6, "chatml")
    again = fmtkit(capsys, *command, "--resume")
    assert (again.code, json.loads(again.out)["rows_written"]) == (0, 6)
    other = ("convert", str(folder / "a.jsonl"), *command[2:])
    assert fmtkit(capsys, *other, "--resume").code == 2


@pytest.mark.parametrize(("limit", "read"), [(1, [1, 0, 0]), (3, [2, 1, 0]), (9, [2, 2, 2])])
def test_a_limit_is_that_of_all_the_mixed_sources(folder, capsys, limit, read):
    out = str(folder.parent / "out.jsonl")
    command = ("convert", str(folder), "-t", "chatml.passthrough", "-o", out, "--json")
    report = json.loads(fmtkit(capsys, *command, "--limit", limit).out)
    assert [source["rows"] for source in report["sources"]] == read


def test_what_is_not_read_of_any_dataset_is_reported(folder, capsys, monkeypatch):
    pytest.importorskip("trl")
    monkeypatch.chdir(folder)
    said = [{"prompt": f"What is {i}?", "response": f"A number, {i}."} for i in range(3)]
    rated = [row | {"rating": i, "uid": f"a{i}"} for i, row in enumerate(said)]
    for name, rows in (("rated", rated), ("said", said)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entries = "".join(
        f"  - {{path: {n}.jsonl, type: question_answer}}\n" for n in ("rated", "said")
    )
    Path("c.yaml").write_text(f"rl: sft\ndatasets:\n{entries}")
    done = fmtkit(capsys, "convert", "-c", "c.yaml", "-o", "../out.jsonl", "--json")
    report = json.loads(done.out)
    assert report["open_columns"] == {"rating": "a score"}
    assert report["ignored_columns"] == ["rating", "uid"]
    assert report["warnings"]["extra_columns"] == 1


def test_mixed_sources_without_a_template_or_with_a_folder_say_what_to_do(folder, capsys):
    out = folder.parent / "out.jsonl"
    bare = fmtkit(capsys, "convert", str(folder), "-t", "passthrough", "-o", str(out))
    assert bare.code == 2
    assert "name a template that renders the messages (--chat-template)" in bare.err
    assert "a.jsonl" in bare.err
    assert "b.jsonl" in bare.err
    shards = ("convert", str(folder), "-t", "chatml.passthrough", "-o", f"{out}.d/")
    assert "give a file as OUT" in fmtkit(capsys, *shards).err
    checked = fmtkit(capsys, "validate", str(folder), "-t", "passthrough")
    assert "a.jsonl makes Conversation of text" in checked.err
    assert "all into one file" in checked.err
    assert list(folder.parent.iterdir()) == [folder]


def test_bad_rows_of_mixed_sources_are_replayed(folder, capsys):
    (folder / "b.jsonl").write_text(json.dumps(TALK) + "\n" + json.dumps({"messages": []}) + "\n")
    out = folder.parent / "out.jsonl"
    command = ("convert", str(folder), "-t", "chatml.passthrough", "-o", str(out), "--json")
    assert json.loads(fmtkit(capsys, *command).out)["quarantined"] == 1
    bad = out.with_name("out.quarantine.jsonl")
    row = json.loads(bad.read_text())
    bad.write_text(json.dumps({**row, "raw": json.dumps(TALK)}) + "\n")
    assert fmtkit(capsys, "replay", str(bad)).code == 0
    assert texts_of(out) == [STORY["text"]] * 2 + [RENDERED] * 2 + ["The end."] * 2


def test_a_finished_file_of_several_datasets_is_resumed(folder, capsys, monkeypatch):
    pytest.importorskip("trl")
    monkeypatch.chdir(folder)
    (folder / "c.yaml").write_text(
        "rl: sft\ndatasets:\n  - {path: a.jsonl, type: passthrough}\n"
        "  - {path: b.jsonl, type: chatml.passthrough}\n"
    )
    command = ("convert", "-c", "c.yaml", "-o", "../out.jsonl", "-q")
    assert fmtkit(capsys, *command).code == 0
    assert fmtkit(capsys, *command, "--resume").code == 0
    (folder / "b.jsonl").write_text(json.dumps(TALK) + "\n")
    assert fmtkit(capsys, *command, "--resume").code == 2


TRL = {
    "Conversation": ("SFTTrainer", "SFTConfig", {}),
    "Completion": ("SFTTrainer", "SFTConfig", {}),
    "Preference": ("DPOTrainer", "DPOConfig", {}),
    "Unpaired": ("KTOTrainer", "KTOConfig", {}),
    "Prompt": ("GRPOTrainer", "GRPOConfig", {"num_generations": 2, "max_completion_length": 4}),
}
"""Table -> the trainer of TRL that takes it, its config, and what is set there; fmtkit trains on the others."""
CALL = [{"type": "function", "function": {"name": "f", "arguments": {"zip": "02139"}}}]
ASKED = [{"role": "user", "content": "Where is 02139?"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALLING = {
    "Completion": [
        {"prompt": ASKED, "completion": [{"role": "assistant", "tool_calls": CALL}], "tools": TOOLS}
    ],
    "Unpaired": [
        {"prompt": ASKED, "completion": [reply], "label": label, "tools": TOOLS}
        for reply, label in (
            ({"role": "assistant", "tool_calls": CALL}, True),
            ({"role": "assistant", "content": "Who knows?"}, False),
        )
    ],
}
"""Tools in tables of which no fixture has a type with tools."""
WRITTEN = [
    *(
        pytest.param(table, case, id=f"{table}: {case}")
        for table in TRL
        for case, rows in kinds(table)
        # Those with images need a model with a vision tower: test_vision_runs.
        if not has_images(rows.schema)
    ),
    *(pytest.param(table, None, id=f"{table}: tools") for table in CALLING),
]


@pytest.fixture(scope="module")
def calling_model(tmp_path_factory):
    pytest.importorskip("trl")
    template = find_model_template("trl:qwen3").source
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=template)


def default_output(table: str, case: str | None, out: Path) -> Path:
    """Write the rows of a case, or those that call tools, without any option but those of the case."""
    if case is None:
        convert(CALLING[table], "passthrough", out)
        return out
    found = next(one for one in fixture_cases.cases() if str(one) == case)
    convert(str(found.source), found.name, out, **found.settings)
    return out


@pytest.mark.slow
@pytest.mark.parametrize(("table", "case"), WRITTEN)
def test_the_default_output_of_each_kind_goes_into_trls_trainer(
    tmp_path, calling_model, table, case
):
    trl = pytest.importorskip("trl")
    from datasets import load_dataset

    out = default_output(table, case, tmp_path / "out")
    rows = load_dataset("parquet", data_dir=str(out / "data"), cache_dir=str(tmp_path / "cache"))
    count = rows["train"].num_rows
    rows = rows["train"].select([i % count for i in range(max(count, 2))])
    trainer, config, settings = TRL[table]
    arguments = getattr(trl, config)(
        str(tmp_path / "run"),
        max_steps=1,
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        **settings,
    )
    rewards = {"reward_funcs": lambda completions, **_: [float(len(c)) for c in completions]}
    given = rewards if table == "Prompt" else {}
    made = getattr(trl, trainer)(calling_model, args=arguments, train_dataset=rows, **given)
    assert made.train().global_step == 1
    if case is None:
        text = made.processing_class.decode(ids_of(made.train_dataset[0]))
        assert '"zip": "02139"' in text
        assert json.dumps(TOOLS[0]) in text


def ids_of(row: dict) -> list[int]:
    return row["input_ids"] if "input_ids" in row else row["prompt_ids"] + row["completion_ids"]
