"""The conformance samples of ../shared: axolotl's answer where it is right, else the right one.

Each case goes through the pipeline as a file of its own rows.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fmtkit.core.errors import ColumnMismatchError, FmtkitError
from fmtkit.core.tables import final_rows
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.conversions import open_named
from fmtkit.running.pipeline import stream
from fmtkit.running.preparation import prepare
from fmtkit.work.engines import Threads

GOLDENS = Path(__file__).parents[2] / "shared" / "data" / "goldens"
METHODS = {"dpo": "dpo", "kto": "kto", "orpo": "orpo", "bt": "reward", "prm": "prm"}
SHIPPED = {None, "chatml", "llama3", "gemma", "mistral_v1", "mistral_v3_tekken"}
"""Templates that render as axolotl's do; the cases of others are a guide to the cut."""
NOT_OPTIONS = {"rl", "type", "chat_template", "sequence_len", "reward_model", "train_on_inputs"}
TEXTS = ("prompt", "chosen", "rejected", "completion")

pytestmark = pytest.mark.skipif(
    not GOLDENS.is_dir(), reason="the conformance samples of ../shared are not here"
)


def cases() -> list[Any]:
    if not GOLDENS.is_dir():
        return []
    lines = (GOLDENS / "types.jsonl").read_bytes().strip().split(b"\n")
    loaded = [json.loads(line) for line in lines]
    return [pytest.param(c, id=c["id"]) for c in loaded if c["method"] in METHODS]


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make a folder with a tokenizer for each variant of special tokens."""
    folders = {}
    source = GOLDENS / "tokenizer"
    for name, tokens in json.loads((source / "variants.json").read_text()).items():
        folder = tmp_path_factory.mktemp(name)
        shutil.copy(source / "tokenizer.json", folder)
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        folders[name] = folder
    return folders


def request_of(case: dict[str, Any], tokenizers: dict[str, Path]) -> RowOptions:
    config = case["config"]
    options = {key: value for key, value in config.items() if key not in NOT_OPTIONS}
    template = config.get("chat_template")
    variant = (case.get("tokenizer") or {}).get("variant")
    settings: dict[str, Any] = {"type": case["type"], "method": METHODS[case["method"]]}
    if isinstance(config.get("type"), dict):
        options |= config["type"]
    if template:
        settings |= {
            "as_": "text",
            "chat_template": template,
            "tokenizer": str(tokenizers[variant]),
        }
    if case["type"] == "(pipeline)":
        settings |= {"type": "passthrough", "tokenizer": str(tokenizers["chatml"])}
    if "sequence_len" in config and case["method"] != "prm":
        settings |= {"max_length": config["sequence_len"], "on_overlong": "drop"}
    return RowOptions(options=options, **settings)


def converted(case: dict[str, Any], request: RowOptions, folder: Path) -> list[dict[str, Any]]:
    """Return what became of each row: {"row": ...} or {"code": ...}, with the run's warnings."""
    rows = case.get("rows") or case["row"]
    rows = rows if isinstance(rows, list) else [rows]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    outcome: list[dict[str, Any]] = [{"dropped": True} for _ in rows]
    for piece in stream(prepare(open_named(str(path)), request), engine=Threads(1)):
        for record, row in zip(
            piece.records.tolist(), final_rows(piece.table).to_pylist(), strict=True
        ):
            outcome[record] = {"row": row, "warnings": set(piece.counts.warnings)}
        for reject in piece.rejects:
            outcome[reject.row] = {"code": reject.code, "column": reject.column}
    return outcome


def ending(text: str) -> str:
    """Leave out the newline after the final end token, which is optional."""
    return text.removesuffix("\n")


def whole(case: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as axolotl's columns have it: reward models get prompt and reply in one."""
    if case["method"] != "bt" and "expected_text" not in case:
        return row
    return {name: row["prompt"] + row[name] for name in ("chosen", "rejected")}


def check_row(case: dict[str, Any], wanted: dict[str, Any], row: dict[str, Any]) -> None:
    if case["config"].get("chat_template") not in SHIPPED:
        return
    if case["method"] == "prm":
        source = case["row"]
        assert row == {name: source[name] for name in ("prompt", "completions", "labels")}
        return
    texts = wanted.get("text") or case.get("expected_text") or wanted.get("output") or wanted
    made = whole(case, row)
    for name in TEXTS:
        if name in texts and f"{name}_any_of" not in wanted:
            assert ending(made[name]) in (ending(texts[name]), f"{texts[name]}</s>"), name
        if f"{name}_any_of" in wanted:
            assert made[name].removesuffix("</s>") in wanted[f"{name}_any_of"]
    if "label" in texts:
        assert made["label"] == texts["label"]


def check_reject(wanted: dict[str, Any], outcome: dict[str, Any]) -> None:
    code = wanted["reason_class"].partition(":")[0]
    if code == "too_long":
        assert outcome.get("dropped") or outcome.get("code") == code
    else:
        assert outcome.get("code") == code, outcome


def agrees(case: dict[str, Any], wanted: dict[str, Any], outcome: dict[str, Any]) -> None:
    """Fail unless the outcome is what is wanted, or the other answer that is fine too."""
    action = wanted["action"]
    if action == "reject" and ("row" not in outcome or "alternative" not in wanted):
        check_reject(wanted, outcome)
    elif action == "convert_with_warning" and "code" in outcome and "alternative" in wanted:
        check_reject(wanted["alternative"], outcome)
    else:
        assert "row" in outcome, outcome
        check_row(case, wanted, outcome["row"])
        if case["config"].get("chat_template") in SHIPPED and "warn" in wanted:
            assert wanted["warn"] in outcome["warnings"]


@pytest.mark.parametrize("case", cases())
def test_a_row_becomes_what_the_samples_say(
    case: dict[str, Any], tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    right = case.get("right", {})
    request = request_of(case, tokenizers)
    if right.get("action") == "config_error":
        with pytest.raises(FmtkitError, match=right["reason_class"]):
            converted(case, request, tmp_path)
        return
    try:
        outcomes = converted(case, request, tmp_path)
    except ColumnMismatchError:
        assert right.get("reason_class", "").startswith("missing_field")
        return
    if right.get("action") == "per_row":
        for wanted, outcome in zip(right["rows"], outcomes, strict=True):
            code = wanted.removeprefix("reject ").partition(":")[0]
            assert ("row" in outcome) if wanted == "convert" else outcome["code"] == code
    elif "severity" in case:
        agrees(case, right, outcomes[0])
    elif "keep" in case["expected"]:
        assert ("row" in outcomes[0]) == case["expected"]["keep"]
    else:
        assert "row" in outcomes[0], outcomes[0]
        check_row(case, case["expected"], outcomes[0]["row"])
