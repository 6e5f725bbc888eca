"""An option with a key means the same on the command line, in a config for `convert -c`, and in a run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from image_samples import data_uri, png
from runs import fmtkit, lines

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.errors import FmtkitError, UnknownNameError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.options.train_options import TrainOptions
from fmtkit.training.config import config, keys, schema
from fmtkit.training.config.key import words
from fmtkit.training.config.keys import OF_DATASET
from fmtkit.training.data import datasets
from fmtkit.training.data.convert_config import convert_config
from fmtkit.training.planning import plan as planning

OPTIONS = ConvertOptions.declared()
KEYED = {name: option.keys for name, option in OPTIONS.items() if option.keys}
SAID = [(name, key) for name, found in KEYED.items() for key in found]
PLUGIN = """from fmtkit.columns import Text
from fmtkit.columns.conversations import pair
from fmtkit.formats.registry import converter
from fmtkit.core.tables import Preference


@converter()
def preference(question: Text, pro: Text, con: Text) -> Preference:
    \"\"\"https://example.org/debates.\"\"\"
    return pair(question, pro, con)
"""
ROWS = [{"question": f"q{i}", "chosen": "a", "rejected": "b", "id": i} for i in range(8)]
ROWS += [{"question": "", "chosen": "a", "rejected": "b", "id": 8}]
ROWS += [{"question": " ".join(["why"] * 200), "chosen": "a", "rejected": "b", "id": 9}]
RENAMED = [{"q": r["question"], "pro": r["chosen"], "con": r["rejected"]} for r in ROWS]
FRAME = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
RENDERED = [{**row, "question": FRAME.format(row["question"])} for row in ROWS[:8]]
OTHER = {"instruction": "i", "chosen_response": "c", "rejected_response": "r"}
ASKED = [{"role": role, "content": "x"} for role in ("system", "user")]
CONVERSATION = {
    "messages": ASKED,
    "chosen": {"role": "assistant", "content": "a"},
    "rejected": {"role": "assistant", "content": "b"},
    "better": {"role": "assistant", "content": "c"},
}
PNG = png(32, 24)
SPLIT = {"val_set_size": 4}
SHOWN = {"chat_template": "tokenizer_default"}
"""Of rows with images: the template of a model that sees them."""
"""What makes an option's effect visible, where that needs another one."""


@dataclass(frozen=True)
class Case:
    """A value of an option that changes what becomes of the rows, and what else must hold for it."""

    value: object
    beside: Mapping[str, object] | None = None
    rows: tuple[dict[str, Any], ...] = tuple(ROWS)
    changes: bool = True
    """Whether anything is to be seen of it in what is written."""


CASES: dict[str, Case] = {
    "type": Case("argilla", rows=tuple({**r, **OTHER} for r in ROWS)),
    "method": Case("kto"),
    "chat_template": Case("chatml", changes=False),
    "tokenizer": Case("MODEL", changes=False),
    "date": Case("2026-07-26", changes=False),
    "columns": Case({"question": "id2"}, rows=tuple({**r, "id2": "other"} for r in ROWS)),
    "options": Case(
        {"field_chosen": "better"}, {"datasets.type": "chat_template"}, (CONVERSATION,)
    ),
    "where": Case("id <> 2"),
    "limit": Case(3),
    "workers": Case(2, changes=False),
    "plugins": Case(["debate.py"], {"type": "debate"}, tuple(RENAMED)),
    "keep": Case(["id"]),
    "images": Case("embed", SHOWN, tuple({**r, "image": "pics/a.png"} for r in ROWS)),
    "image_folder": Case("PICS", SHOWN, tuple({**r, "image": "a.png"} for r in ROWS)),
    "verify_images": Case(
        True,
        SHOWN,
        tuple({**r, "image": data_uri(PNG[: -40 if r["id"] % 2 else None])} for r in ROWS),
    ),
    "fetch_images": Case(
        True, SHOWN, tuple({**r, "image": data_uri(png(8, 6))} for r in ROWS), changes=False
    ),
    "ignore": Case(["id"]),
    "select": Case(["question", "chosen", "rejected"]),
    "allow_rendered": Case(True, rows=tuple(RENDERED)),
    "on_error": Case("skip"),
    "max_errors": Case("1%"),
    "max_length": Case(40),
    "min_length": Case(40),
    "on_overlong": Case("fail", {"sequence_len": 40}),
    # Messages are refused: their template ends them.
    "eos": Case("</s>"),
    "seed": Case(7, SPLIT),
    "val_size": Case(3),
    "split_by": Case("rows", SPLIT),
    "hash": Case("never"),
}


def write(folder: Path, model: str, keys_of: Mapping[str, object], case: Case) -> Path:
    """Write a config over the rows of a case, in a folder of its own."""
    folder.mkdir()
    (folder / "rows.jsonl").write_bytes(lines(case.rows))
    (folder / "debate.py").write_text(PLUGIN)
    (folder / "pics").mkdir()
    (folder / "pics" / "a.png").write_bytes(PNG)
    entry: dict[str, object] = {"path": str(folder / "rows.jsonl"), "type": "intel"}
    whole: dict[str, object] = {"base_model": model, "rl": "dpo", "datasets": [entry]}
    whole["chat_template"] = "chatml"
    for key, value in {**(case.beside or {}), **keys_of}.items():
        own = key.removeprefix(OF_DATASET)
        place = entry if own != key or own == "type" else whole
        place[own] = placed(value, folder, model)
    whole["output_dir"] = str(folder / "run")
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(whole))
    return file


def placed(value: object, folder: Path, model: str) -> object:
    """Return a value with the paths that it means."""
    if value == "MODEL":
        return model
    if value == "PICS":
        return str(folder / "pics")
    return [str(folder / "debate.py")] if value == ["debate.py"] else value


def told(folder: Path) -> dict[str, Any]:
    """Return all that a conversion left in a folder, but for what it was told."""
    report = json.loads((folder / "report.json").read_text())
    terms = ("rows_read", "converted", "quarantined", "skipped", "overlong_dropped", "seed")
    return {
        "rows": [
            pq.read_table(file).to_pylist() for file in sorted((folder / "data").glob("*.parquet"))
        ],
        "names": sorted(file.name for file in (folder / "data").glob("*.parquet")),
        "terms": {name: report.get(name) for name in terms},
        "not used": report.get("ignored_columns"),
        "hashed": [bool(source.get("sha256")) for source in report["sources"]],
        "quarantine": (folder / "quarantine.jsonl").exists(),
    }


def outcome(act: Any, folder: Path) -> dict[str, Any]:
    try:
        act()
    except FmtkitError as error:
        return {"error": type(error).__name__}
    return told(folder)


def converted(file: Path, **typed: object) -> dict[str, Any]:
    out = file.parent / "out"
    options = ConvertOptions(**{"as_": "messages", **typed}, typed=frozenset(typed))
    return outcome(lambda: convert_config(file, [], out, options), out)


def trained(file: Path) -> dict[str, Any]:
    def act() -> None:
        made = planning.plan(str(file))
        datasets.prepare(made, made.template_text())

    return outcome(act, file.parent / "run" / "data" / "00")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(("name", "key"), SAID)
def test_a_key_of_an_option_is_honoured_by_convert_and_by_a_run_alike(
    name, key, model, vision_model, tmp_path
):
    case = CASES[name]
    if case.beside is SHOWN:
        model = vision_model("llava")
    file = write(tmp_path / "said", model, {key: case.value}, case)
    by_key = converted(file)
    assert by_key == trained(file)
    value = placed(case.value, file.parent, model)
    plain = write(tmp_path / "plain", model, {}, case)
    if name not in ("method", "type"):
        # A flag decides what is done with the rows; which table they make, the config.
        flags = {"overwrite": True, name: value}
        if name == "plugins":
            plain = file
        assert converted(plain, **flags) == by_key
    if case.changes and name != "type":
        assert trained(plain) != by_key or name == "plugins"


@pytest.mark.parametrize(("name", "key"), SAID)
def test_a_key_of_an_option_is_in_the_table_and_the_schema(name, key):
    own = key.removeprefix(OF_DATASET)
    row = (keys.dataset_table() if own != key else keys.table())[own]
    whole = schema.build()["properties"]
    place = whole["datasets"]["items"]["properties"] if own != key else whole
    assert row.about
    assert own in place
    if row.kind == f"option:{name}":
        assert words(row.kind) == OPTIONS[name].words


@pytest.mark.parametrize(
    ("key", "value"),
    [("limit", 0), ("on_error", "bogus"), ("max_errors", "many"), ("hash", True), ("keep", 3)],
)
def test_a_wrong_value_of_such_a_key_is_refused_by_name(key, value):
    with pytest.raises(FmtkitError, match=f"{key}: {value!r} is not"):
        config.load({key: value})
    if f"datasets.{key}" in dict.fromkeys(k for _, k in SAID):
        with pytest.raises(FmtkitError, match=f"datasets.0.{key}: {value!r} is not"):
            config.load({"datasets": [{"path": "x", key: value}]})


@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in KEYED])
def test_an_option_without_a_key_is_no_key(name):
    with pytest.raises(UnknownNameError):
        config.load({name: "x"})


def test_an_entry_wins_over_the_run(model, tmp_path):
    case = Case(None)
    file = write(tmp_path / "a", model, {"limit": 5, "datasets.limit": 2}, case)
    assert trained(file)["terms"]["rows_read"] == 2


def test_a_limit_and_a_slice_both_hold(model, tmp_path):
    for number, (limit, slice_) in enumerate([(5, "train[:2]"), (2, "train[:5]")]):
        keys_of = {"limit": limit, "datasets.split": slice_}
        file = write(tmp_path / str(number), model, keys_of, Case(None))
        assert trained(file)["terms"]["rows_read"] == 2
        assert trained(file) == converted(file)


def test_a_typed_flag_wins_though_it_is_the_default(model, tmp_path, capsys):
    file = write(tmp_path / "a", model, {"on_error": "skip"}, Case(None))
    out = tmp_path / "out"
    done = fmtkit(capsys, "convert", "-c", file, "-o", out, "--on-error", "quarantine")
    assert done.code == 0
    assert (out / "quarantine.jsonl").exists()


def test_options_of_train_are_keys_too(model, tmp_path):
    said = {name: option.keys for name, option in TrainOptions.declared().items() if option.keys}
    assert said
    assert all(key in keys.table() for found in said.values() for key in found)


@pytest.mark.slow
def test_columns_that_are_carried_through_reach_no_trainer_that_would_misread_them(model, tmp_path):
    rows = [{**row, "images": [], "input_ids": [1]} for row in ROWS[:8]]
    case = Case(None, {"keep": "all", "chat_template": "chatml", **tiny.STEP}, tuple(rows))
    file = write(tmp_path / "a", model, {}, case)
    from fmtkit import training

    assert training.train(str(file)).exit_code == 0
    [kept] = (tmp_path / "a" / "run" / "data" / "00" / "data").glob("*.parquet")
    assert {"images", "input_ids", "id"} <= set(pq.read_schema(kept).names)
