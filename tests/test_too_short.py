"""A row with fewer tokens than asked for is a bad row; in a config the key is min_sample_len."""

import json
from pathlib import Path

import pytest
import runs

from fmtkit.training.config.slices import parse_slice
from fmtkit.training.data.datasets import options_of
from fmtkit.training.planning import plan as planning

TOKENIZER = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")


@pytest.fixture
def rows(tmp_path):
    texts = ["hi", "a longer answer of several words, so that it has tokens enough " * 3]
    file = tmp_path / "rows.jsonl"
    turns = [
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}] for text in texts
    ]
    lines = [json.dumps({"messages": messages}) for messages in turns]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def converted(capsys, rows, out, *flags):
    return runs.fmtkit(
        capsys, "convert", rows, "-o", out, "--type", "chatml.openai", "--as", "messages",
        "--tokenizer", TOKENIZER, *flags,
    )  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--max-length", "4096", "--on-overlong", "drop"]])
def test_a_row_of_too_few_tokens_is_quarantined_by_its_line(tmp_path, capsys, rows, more):
    out = tmp_path / "out"
    done = converted(capsys, rows, out, "--min-length", "30", *more)
    assert done.code == 0, done.err
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert (report["converted"], report["quarantined"]) == (1, 1)
    (bad,) = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    assert (bad["line"], bad["code"], bad["message"]) == (1, "too_short", "fewer than 30 tokens")


def test_rows_of_tokens_enough_are_as_without_the_option(tmp_path, capsys, rows):
    converted(capsys, rows, tmp_path / "with", "--min-length", "1")
    converted(capsys, rows, tmp_path / "without")
    one, other = (
        sorted(p.read_bytes() for p in (tmp_path / name / "data").iterdir())
        for name in ("with", "without")
    )
    assert one == other


def test_a_length_without_a_tokenizer_says_so(tmp_path, capsys, rows):
    done = runs.fmtkit(
        capsys, "convert", rows, "-o", tmp_path / "o", "--type", "openai", "--min-length", "3"
    )
    assert done.code == 2
    assert "--min-length counts tokens: give --tokenizer" in done.err


def test_the_key_of_a_config_is_the_option_of_its_conversion(rows):
    keys = {"base_model": TOKENIZER, "datasets": [{"path": str(rows), "type": "openai"}]}
    plan = planning.plan({**keys, "min_sample_len": 7})
    (entry,) = plan.datasets
    made = options_of(plan, entry, parse_slice("train"), local=True, split=False)
    assert (made.min_length, made.tokenizer) == (7, TOKENIZER)
    assert not [note for note in plan.notes if "min_sample_len" in note]
