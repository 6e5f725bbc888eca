"""Lists and objects as JSON text in a column of text mean the same as lists and objects, in every layout of files."""

import json

import polars as pl
import pytest

import fmtkit

SAID = [{"role": "user", "content": "Wax?"}, {"role": "assistant", "content": "Iron it."}]
OTHER = [SAID[0], {"role": "assistant", "content": "Burn it."}]
SHARED = [{"from": "human", "value": "Wax?"}, {"from": "gpt", "value": "Iron it."}]
LAYOUTS = {
    "messages": ("openai", {"messages": SAID}),
    "other name": ("openai", {"dialog": SAID}),
    "sharegpt": ("sharegpt", {"conversations": SHARED}),
    "pairs": ("ultra", {"chosen": SAID, "rejected": OTHER}),
    "exchanges": ("exchanges", {"conversation": [{"human": "Wax?", "assistant": "Iron it."}]}),
    "lists": ("scored_replies", {"prompt": "Wax?", "responses": ["a", "b"], "rewards": [1, 0.5]}),
}
KINDS = ("jsonl", "csv", "parquet")


def as_text(row):
    return {n: v if isinstance(v, str) else json.dumps(v) for n, v in row.items()}


def file_of(rows, path):
    frame = pl.DataFrame(rows)
    write = {".jsonl": frame.write_ndjson, ".csv": frame.write_csv, ".parquet": frame.write_parquet}
    write[path.suffix](path)
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("type", "row"), LAYOUTS.values(), ids=LAYOUTS)
def test_json_text_is_found_and_converted_as_what_it_holds(tmp_path, kind, type, row):
    plain = tmp_path / "plain.jsonl"
    plain.write_text((json.dumps(row) + "\n") * 3)
    path = file_of([as_text(row)] * 3, tmp_path / f"text.{kind}")
    best = fmtkit.inspect(path)
    wanted = fmtkit.inspect(str(plain))
    assert (best.best_guess, best.certainty) == (wanted.best_guess, wanted.certainty)
    assert best.best_guess == type or "chosen" in row
    mapping = {"messages": "dialog"} if "dialog" in row else {}
    made = [
        fmtkit.convert(p, best.best_guess, columns=mapping, out=tmp_path / f"{i}.jsonl")
        for i, p in enumerate((path, str(plain)))
    ]
    texts = [(tmp_path / f"{i}.jsonl").read_text() for i in (0, 1)]
    assert made[0].converted == 3
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{'role': 'user', 'content': 'Wax?'}]", "with single quotes it is Python's"),
        ('[{"role": "user", ', "begins as JSON and is none"),
        ("Wax?", "holds text, not a list of messages"),
    ],
)
def test_text_that_is_no_json_is_a_bad_row_and_never_run(tmp_path, kind, text, words):
    rows = [{"messages": json.dumps(SAID)}, {"messages": text}]
    path = file_of(rows, tmp_path / f"text.{kind}")
    report = fmtkit.convert(path, "openai", out=tmp_path / "out.jsonl")
    assert (report.converted, report.reasons) == (1, {"type_error": 1})
    [reject] = (tmp_path / "out.quarantine.jsonl").read_text().splitlines()
    assert words in json.loads(reject)["message"]


@pytest.mark.parametrize("name", ["messages", "conversations", "dialogue"])
def test_lists_that_python_wrote_are_no_guess(tmp_path, name):
    text = "[{'role': 'user', 'content': 'How do I get candle wax out of a rug?'}]"
    path = file_of([{"id": i, name: f"{text}{' ' * i}"} for i in range(3)], tmp_path / "x.csv")
    assert fmtkit.inspect(path).best_guess is None


def test_a_turn_of_the_user_that_begins_as_json_stays_text(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {
        "prompt": '[{"a": 1}] is what?',
        "ground_truth": "[1]",
        "chosen": "[2]",
        "rejected": "{}",
    }
    path.write_text(json.dumps(row) + "\n")
    fmtkit.convert(str(path), "prompt_pairs", out=tmp_path / "out.jsonl")
    made = json.loads((tmp_path / "out.jsonl").read_text())
    assert made["prompt"][0]["content"] == row["prompt"]
    assert made["chosen"][0]["content"] == "[2]"
