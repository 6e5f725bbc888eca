"""Targets of --to: what is written comes back equal, and what has no place is counted by name."""

import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import drawn_conversations as drawn
import fixture_cases
import pyarrow.parquet as pq
import pytest
import tiny_training as tiny
import yaml
from fixture_cases import METHODS, target_file, without_any_null, write_target
from typer.testing import CliRunner

import fmtkit
from fmtkit.commands import flags
from fmtkit.commands.application import application
from fmtkit.core.errors import NothingWrittenError, OptionError, UnknownNameError
from fmtkit.core.tables import final_rows
from fmtkit.formats import target_registry
from fmtkit.options.convert_options import RowOptions
from fmtkit.rendering.template_sources import find_model_template
from fmtkit.running.conversions import RowStream

CASES = [
    pytest.param(found.name, table, id=f"{found.name}-{table}")
    for found in target_registry.targets()
    for table in sorted(
        {found.takes.name(), target_registry.CONVERTIBLE.get(found.takes.name(), "")}
    )
    if table in drawn.ROWS and not found.text
]
EVERY_LOSS = tuple(target_registry.LOSSES)


def canonical(rows: list[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    """Return rows as fmtkit has them, those that it takes."""
    rejects: list[Any] = []
    made = fmtkit.table(rows, "passthrough", method=METHODS[table], rejects=rejects)
    return made.to_pylist()


@cache
def drawn_rows(table: str) -> list[dict[str, Any]]:
    return canonical(drawn.sample(table), table)


def export(rows: list[Any], to: str, table: str, folder: Path, **options: Any) -> tuple[Path, Any]:
    target = target_registry.find(to, fmtkit_table(table), text=False)
    out = folder / f"out.{target.formats[0]}"
    method = METHODS[table]
    report = fmtkit.convert(
        rows, "passthrough", out, to=to, method=method, overwrite=True, **options
    )
    return out, report


def fmtkit_table(name: str) -> Any:
    from fmtkit.core.tables import TABLES

    return TABLES[name]


def rejected(out: Path) -> set[int]:
    quarantine = out.with_suffix(".quarantine.jsonl")
    if not quarantine.exists():
        return set()
    return {json.loads(line)["row"] for line in quarantine.read_text().splitlines()}


def read_back(out: Path, to: str, table: str) -> list[dict[str, Any]]:
    target = target_registry.find(to, fmtkit_table(table), text=False)
    made = target.takes.name()
    rejects: list[Any] = []
    found = fmtkit.table(str(out), target.reads, method=METHODS[made], rejects=rejects)
    assert rejects == []
    return found.to_pylist()


@pytest.mark.parametrize(("to", "table"), CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_written_comes_back_equal(to: str, table: str, tmp_path: Path) -> None:
    rows = drawn_rows(table)
    out, report = export(rows, to, table, tmp_path)
    gone = rejected(out)
    kept = [drawn.said(row) for number, row in enumerate(rows) if number not in gone]
    found = [drawn.said(row) for row in read_back(out, to, table)]
    assert report.losses == {}
    assert len(found) == len(kept) > 5
    for one, other in zip(found, kept, strict=True):
        assert drawn.as_conversation(one) == drawn.as_conversation(other)


@pytest.mark.parametrize(("to", "table"), CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_written_with_losses_is_read(to: str, table: str, tmp_path: Path) -> None:
    rows = drawn_rows(table)
    out, report = export(rows, to, table, tmp_path, allow_loss=EVERY_LOSS)
    assert len(read_back(out, to, table)) == report.rows_written
    assert report.rows_written + sum(report.no_place.values()) == len(rows)


WRITTEN = [
    pytest.param(found.name, found.takes.name(), id=f"{found.name}-{found.takes.name()}")
    for found in target_registry.targets()
    if found.takes.name() in METHODS and not found.text and found.is_ours
]


@pytest.mark.parametrize(("to", "table"), WRITTEN)
def test_a_target_writes_what_its_fixtures_say(to: str, table: str, tmp_path: Path) -> None:
    written, rejected = write_target(to, table, tmp_path)
    for what, found in (("written", written), ("rejected", rejected)):
        file = target_file(to, table, what)
        held = fixture_cases.read_lines(file) if file.exists() else []
        assert found == [json.loads(line) for line in held]


def read_lines(path: Path) -> list[Any]:
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return [json.loads(line) for line in lines if line]


def read_rows(out: Path) -> list[Any]:
    if out.suffix == ".jsonl":
        return read_lines(out)
    return [without_any_null(row) for row in pq.read_table(out).to_pylist()]


CHAT = {
    "messages": [
        {"role": "user", "content": "Where?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "f", "arguments": {"zip": "02139"}},
                }
            ],
        },
        {"role": "tool", "content": "", "tool_call_id": "c1"},
        {"role": "assistant", "content": "There.", "reasoning_content": "Hm."},
    ],
    "tools": drawn.TOOLS,
    "source": "web",
}


def test_each_loss_is_a_number_and_happens_only_where_it_is_allowed(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    losses: tuple[str, ...] = ()
    for name in ("tools", "source", "tool_calls", "reasoning_content"):
        with pytest.raises(NothingWrittenError):
            fmtkit.convert(
                [CHAT], "openai", out, to="alpaca", keep="source", allow_loss=losses, overwrite=True
            )
        (bad,) = read_lines(tmp_path / "out.quarantine.jsonl")
        assert (bad["code"], bad["column"]) == ("no_place", name)
        assert f"--allow-loss {name}" in bad["message"]
        losses = (*losses, name)
    report = fmtkit.convert(
        [CHAT], "openai", out, to="alpaca", keep="source", allow_loss=losses, overwrite=True
    )
    assert report.losses == dict.fromkeys(sorted(losses), 1)
    assert read_lines(out) == [{"instruction": "Where?", "input": "", "output": "There."}]


def test_report_and_manifest_of_a_folder_count_losses_and_rows_without_place(
    tmp_path: Path,
) -> None:
    rows = [CHAT, {"messages": CHAT["messages"][::3]}, {"messages": CHAT["messages"][:1]}]
    report = fmtkit.convert(
        rows, "openai", tmp_path / "out", to="sharegpt", allow_loss="reasoning,weights"
    )
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert report.losses == manifest["losses"] == {"reasoning_content": 1}
    assert report.no_place == manifest["no_place"] == {"tool_call_id": 1}
    assert report.reasons == {"no_assistant_turn": 1, "no_place": 1}
    assert (report.to, manifest["to"], report.rows_written) == ("sharegpt", "sharegpt", 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "opnai"}, "no target named 'opnai'; did you mean 'openai'?"),
        (
            {"to": "hh-rlhf"},
            "can write Preference rows, but these are Conversation rows; targets that can write them: alpaca, axolotl",
        ),
        ({"to": "openai", "allow_loss": "raesoning"}, "did you mean 'reasoning_content'?"),
        ({"to": "openai", "allow_loss": "source"}, "--allow-loss source: no such field"),
        ({"allow_loss": "tools"}, "give --to"),
        ({"to": "openai", "as_": "text", "chat_template": "chatml"}, "leave the template out"),
        ({"to": "trl"}, "--to trl is written as parquet"),
    ],
)
def test_what_cannot_be_written_is_one_line(options: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises((OptionError, UnknownNameError)) as caught:
        fmtkit.convert([CHAT], "openai", tmp_path / "out.jsonl", **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_fmtkit_wrote_needs_no_type(tmp_path: Path) -> None:
    rows = [{"instruction": "q", "output": "a"}, {"instruction": "Ä", "output": "b", "system": "s"}]
    fmtkit.convert(rows, "alpaca", tmp_path / "folder")
    fmtkit.convert(rows, "alpaca", tmp_path / "file.jsonl")
    wanted = fmtkit.table(rows, "alpaca", to="openai").to_pylist()
    for source in ("folder", "file.jsonl"):
        out = tmp_path / f"{source.partition('.')[0]}-openai"
        command = ["convert", str(tmp_path / source), "--to", "openai", "-o", str(out)]
        assert CliRunner().invoke(application(), command).exit_code == 0
        assert fmtkit.table(str(out), "openai").num_rows == 2
        back = tmp_path / f"{source.partition('.')[0]}-back"
        assert (
            CliRunner()
            .invoke(application(), ["convert", str(out), "--to", "trl", "-o", str(back)])
            .exit_code
            == 0
        )
        (shard,) = (back / "data").iterdir()
        assert [r["messages"][0]["content"] for r in pq.read_table(shard).to_pylist()] == ["q", "s"]
    assert len(wanted) == 2


def test_help_and_shells_know_the_targets() -> None:
    told = CliRunner().invoke(application(), ["convert", "--help"], env={"COLUMNS": "300"}).output
    assert all(name in told for name in ("openai-preference", "messages-parquet", "--allow-loss"))
    assert flags.target_names("open") == ["openai", "openai-preference"]
    assert flags.loss_names("tools,tool_call") == ["tools,tool_calls", "tools,tool_call_id"]


def test_lengths_are_counted_by_a_template_and_the_rows_stay_messages(tmp_path: Path) -> None:
    tokenizer = Path(__file__).parents[1] / "fixtures" / "tokenizer"
    long = {"instruction": "q " * 400, "output": "a"}
    report = fmtkit.convert(
        [long, {"instruction": "q", "output": "a"}],
        "alpaca",
        tmp_path / "out.jsonl",
        to="openai",
        tokenizer=tokenizer,
        chat_template="chatml",
        max_length=100,
        on_overlong="drop",
    )
    assert (report.overlong_dropped, report.rows_written) == (1, 1)
    (row,) = read_lines(tmp_path / "out.jsonl")
    assert row["messages"][0] == {"role": "user", "content": "q"}


def test_a_plugin_adds_a_target(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from fmtkit.columns.exports import question, text_of_reply\n"
        "from fmtkit.core.tables import Completion\n"
        "from fmtkit.formats.target_registry import WrittenColumns, target\n\n\n"
        "@target(reads='completion')\n"
        "def rows(table: Completion) -> WrittenColumns:\n"
        "    return {'ask': question(table.prompt), 'say': text_of_reply(table.completion)}\n"
    )
    out = tmp_path / "out.jsonl"
    for _ in range(2):
        fmtkit.convert(
            [{"instruction": "q", "output": "a"}],
            "alpaca",
            out,
            to="mine",
            plugins=[plugin],
            overwrite=True,
        )
    assert read_lines(out) == [{"ask": "q", "say": "a"}]
    plugin.write_text(plugin.read_text().replace("return {", "return {'x': 1 / 0, "))
    with pytest.raises(OptionError, match="--to mine: its target raised ZeroDivisionError"):
        fmtkit.convert(
            [{"instruction": "q", "output": "a"}],
            "alpaca",
            out,
            to="mine",
            plugins=[plugin],
            overwrite=True,
        )
    plugin.unlink()
    target_registry.forget(str(plugin))


def test_the_target_of_the_page_writes_rows_that_its_type_reads_back(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "targets.md").read_text(encoding="utf-8")
    plugin, out = tmp_path / "quiz.py", tmp_path / "quiz.jsonl"
    plugin.write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    rows = [
        {"instruction": "Tea?", "output": "Yes.", "system": "Be brief."},
        {"instruction": "Milk?", "output": "No.", "history": [["Sugar?", "No."]]},
        {"instruction": "Cup?", "output": "Yes."},
    ]
    report = fmtkit.convert(rows, "alpaca", out, to="quiz", plugins=[plugin])
    assert (report.rows_written, report.no_place) == (2, {"turns": 1})
    assert read_lines(out)[0] == {"ask": "Tea?", "say": "Yes.", "rules": "Be brief."}
    again = fmtkit.table(out, "quiz", plugins=[plugin])
    assert again.equals(fmtkit.table([rows[0], rows[2]], "alpaca"))
    target_registry.forget(str(plugin))


def test_consumers_find_the_rows_by_what_stands_beside_them(tmp_path: Path) -> None:
    pairs = [{"question": "q", "chosen": "a", "rejected": "b"}]
    fmtkit.convert(pairs, "intel", tmp_path / "out", to="llama-factory")
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_text())
    assert info["out"]["file_name"] == "data"
    assert info["out"]["ranking"] is True
    assert info["out"]["columns"]["messages"] == "conversations"
    fmtkit.convert(pairs, "intel", tmp_path / "out", to="axolotl", overwrite=True)
    config = yaml.safe_load((tmp_path / "out" / "datasets.yaml").read_text())
    (found,) = config["datasets"]
    assert fmtkit.table(str(tmp_path / "out"), found["type"], method=config["rl"]).num_rows == 1
    report = fmtkit.convert(pairs, "intel", tmp_path / "file.jsonl", to="axolotl")
    assert str(tmp_path / "file.jsonl") in report.beside["datasets.yaml"]


def test_shards_resume_and_workers_make_no_other_bytes(tmp_path: Path) -> None:
    rows = [{"instruction": f"q{n}", "output": "a" * 50, "system": "s"} for n in range(20000)]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for workers in (1, 3):
        fmtkit.convert(
            str(source), "alpaca", tmp_path / f"out{workers}", to="openai", workers=workers
        )
        fmtkit.convert(str(source), "alpaca", tmp_path / f"out{workers}", to="openai", resume=True)
    (one,) = (tmp_path / "out1" / "data").iterdir()
    (three,) = (tmp_path / "out3" / "data").iterdir()
    assert one.read_bytes() == three.read_bytes()
    assert one.read_bytes().count(b"\n") == 20000


def test_a_pair_that_is_equal_without_what_is_lost_is_not_written(tmp_path: Path) -> None:
    reply = {"role": "assistant", "content": "a"}
    row = {
        "prompt": [{"role": "user", "content": "q"}],
        "chosen": [reply | {"reasoning_content": "x"}],
        "rejected": [reply],
    }
    with pytest.raises(NothingWrittenError):
        fmtkit.convert(
            [row], "passthrough", tmp_path / "o.jsonl", to="alpaca", allow_loss="reasoning"
        )
    (bad,) = read_lines(tmp_path / "o.quarantine.jsonl")
    assert (bad["column"], bad["message"]) == (
        "content",
        "the layout has no place for a pair that is equal without what is lost",
    )


TRAINED = {
    "Conversation": ("SFTTrainer", "SFTConfig"),
    "Completion": ("SFTTrainer", "SFTConfig"),
    "Preference": ("DPOTrainer", "DPOConfig"),
    "Unpaired": ("KTOTrainer", "KTOConfig"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "table"),
    [(to, table) for to, table in [c.values for c in WRITTEN] if table in TRAINED],
)
def test_trl_trains_a_step_on_what_was_written(
    to: str, table: str, tmp_path: Path, tiny_model: str
) -> None:
    trl = pytest.importorskip("trl")
    from datasets import load_dataset

    rows = {
        "Conversation": tiny.conversation_rows,
        "Completion": tiny.completion_rows,
        "Preference": tiny.preference_rows,
        "Unpaired": tiny.unpaired_rows,
    }[table]()
    out = tmp_path / "out"
    fmtkit.convert(rows, "passthrough", out, to=to, method=METHODS[table])
    # Others' layouts become fmtkit's own again, which goes into TRL as it is, as its own layout does.
    if to != "trl":
        fmtkit.convert(str(out), read_by(to, table), tmp_path / "again", method=METHODS[table])
        loaded = load_dataset(
            "parquet" if to == "messages-parquet" else "json",
            data_dir=str(out / "data"),
            cache_dir=str(tmp_path / "cache"),
        )
        assert loaded["train"].num_rows == len(rows)
        out = tmp_path / "again"
    dataset = load_dataset(
        "parquet", data_dir=str(out / "data"), cache_dir=str(tmp_path / "cache")
    )["train"]
    trainer, config = (getattr(trl, name) for name in TRAINED[table])
    arguments = config(
        str(tmp_path / "run"),
        max_steps=1,
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        max_length=128,
    )
    done = trainer(tiny_model, args=arguments, train_dataset=dataset).train()
    assert done.training_loss > 0


def read_by(to: str, table: str) -> str:
    return target_registry.find(to, fmtkit_table(table), text=False).reads


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.mark.slow
def test_trl_renders_calls_of_tools_from_files_as_fmtkit_renders_the_rows(
    tmp_path: Path, tiny_model: str
) -> None:
    pytest.importorskip("trl")
    from datasets import load_dataset
    from transformers import AutoTokenizer

    chats = [
        {k: v for k, v in CHAT.items() if k != "source"},
        {"messages": CHAT["messages"][::3]},
    ]
    fmtkit.convert(chats, "openai", tmp_path / "out", to="trl")
    dataset = load_dataset(
        "parquet", data_dir=str(tmp_path / "out" / "data"), cache_dir=str(tmp_path / "cache")
    )["train"]
    name = "trl:qwen3"
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = find_model_template(name).source
    theirs = [
        tokenizer.apply_chat_template(row["messages"], tools=row["tools"], tokenize=False)
        for row in dataset
    ]
    assert theirs == fmtkit.render(fmtkit.table(chats, "openai"), name).column("text").to_pylist()
    assert '"zip": "02139"' in theirs[0]
    assert fmtkit.to_trl(tmp_path / "out")[0]["tools"] == CHAT["tools"]


@pytest.mark.parametrize("to", sorted({found.name for found in target_registry.targets()}))
def test_a_job_of_a_target_is_pickled_for_other_processes(to: str) -> None:
    found = next(f for f in target_registry.targets_named(to) if not f.text)
    table = found.takes.name()
    method = METHODS[table]
    rows = drawn_rows(table)
    stream = RowStream(rows, RowOptions(type="passthrough", method=method, to=to))
    made = [final_rows(piece.table) for piece in stream]
    again = pickle.loads(pickle.dumps(stream.job.text))
    assert again.schema(stream.job.canonical) == stream.job.schema == made[0].schema
