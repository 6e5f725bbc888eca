"""Files of a few rows go through the pipeline together; what they become is what each would alone."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmtkit.core.errors import LimitError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running import pipeline
from fmtkit.running.conversions import convert_to

MESSAGES = [{"role": "user", "content": "q"}]


def dumps(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_parquet(path, good):
    table = pa.Table.from_pylist([good, good | {"rejected": "c"}, good | {"chosen": ""}])
    pq.write_table(table, path.with_suffix(".parquet"))


PAIRS = [
    lambda good: dumps(good, good | {"rejected": "c"}),
    lambda good: dumps(good) + "{\n",
    lambda good: "\n" + dumps(good) + "  \n" + dumps(good) + "\n\n",
    lambda good: dumps(good | {"chosen": None, "extra": 1}, good),
    lambda good: dumps(good | {"note": [1, "a", {}], "id": 7}),
    lambda good: json.dumps([good, good | {"chosen": 3}], indent=1),
    json.dumps,  # no line feed at the end
    lambda good: dumps(good)[:-2] + ', "chosen": "twice"}\n' + dumps(good),
    lambda good: dumps(good | {"question": MESSAGES}, good),
    lambda good: "\ufeff" + json.dumps(good, ensure_ascii=False) + "\r\n",
    lambda good: "\n \n",
]


def pair_files(folder, count=78):
    """Write files of pairs: sound, bad, without rows, of other columns and shapes, of every layout."""
    for i in range(count):
        good = {"question": f"q{i}", "chosen": "é" * (i + 1), "rejected": "b", "system": ""}
        path = folder / f"{i:03}.jsonl"
        kind = i % (len(PAIRS) + 2)
        if kind < len(PAIRS):
            path.write_text(PAIRS[kind](good))
        elif kind == len(PAIRS):
            as_parquet(path, good)
        else:
            path.with_suffix(".csv").write_text(f"question,chosen,rejected\nq{i},a,b\n\nq,a,a\n")
    return folder


def rank_files(folder, count=40):
    """Write files of rankings: some with ties, some with one reply only."""
    draw = random.Random(1)
    for i in range(count):
        answers = [{"answer": f"a{k}", "rank": draw.randint(1, 4)} for k in range(i % 5 + 1)]
        row = {"prompt": f"\n\nHuman: q{i}\n\nAssistant:", "answers": answers}
        (folder / f"{i:03}.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def run(folder, out, **options):
    convert_to([str(folder)], out, ConvertOptions(**options))


def read(out):
    """Return the rows, the quarantine and the report of a conversion."""
    stem = out.with_suffix("")
    bad = out.parent / f"{stem.name}.quarantine.jsonl"
    report = json.loads((out.parent / f"{stem.name}.report.json").read_text())
    for key in ("seconds", "output", "files", "bytes_written", "tiers", "fingerprint"):
        report.pop(key)
    return pq.read_table(out).to_pylist(), bad.read_text() if bad.exists() else "", report


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (pair_files, {"type": "chatml.intel"}),
        (pair_files, {"type": "intel", "keep": ("all",)}),
        (pair_files, {"type": "intel", "on_error": "skip"}),
        (pair_files, {"type": "chatml.intel", "limit": 33}),
        (rank_files, {"type": "chatml.nectar", "options": {"pairs": "all"}}),
        (rank_files, {"type": "nectar", "options": {"pairs": "best-random"}, "seed": 3}),
    ],
)
def test_files_together_become_what_each_becomes_alone(tmp_path, monkeypatch, make, options):
    (tmp_path / "files").mkdir()
    folder = make(tmp_path / "files")
    made = []
    for blocks in (1, 7, 256):
        monkeypatch.setattr(pipeline, "GROUP_BLOCKS", blocks)
        out = tmp_path / f"{blocks}.parquet"
        run(folder, out, **options)
        made.append(read(out))
    alone, few, many = made
    assert few == many == alone
    rows, bad, report = alone
    assert rows
    assert (report["rows_read"], report["rows_written"]) > (30, 20)
    lines = [json.loads(line) for line in bad.splitlines()]
    assert len(lines) == report["quarantined"]
    assert [source["rows"] for source in report["sources"]].count(0) < len(report["sources"])


def test_bytes_of_small_files_do_not_depend_on_the_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "GROUP_BLOCKS", 7)
    (tmp_path / "files").mkdir()
    folder = pair_files(tmp_path / "files")
    made = set()
    for workers in (1, 4):
        run(folder, tmp_path / f"{workers}.parquet", type="chatml.intel", workers=workers)
        made.add((tmp_path / f"{workers}.parquet").read_bytes())
    assert len(made) == 1


def test_a_limit_of_bad_rows_stops_among_small_files(tmp_path):
    (tmp_path / "files").mkdir()
    with pytest.raises(LimitError, match=r"001\.jsonl:2: json_syntax"):
        run(pair_files(tmp_path / "files"), tmp_path / "o.parquet", type="intel", on_error="fail")


def test_a_row_group_holds_the_rows_of_many_small_files(tmp_path):
    (tmp_path / "files").mkdir()
    row = {"question": "q", "chosen": "a", "rejected": "b"}
    for i in range(300):
        (tmp_path / "files" / f"{i:03}.jsonl").write_text(json.dumps(row))
    run(tmp_path / "files", tmp_path / "o.parquet", type="intel")
    assert pq.read_metadata(tmp_path / "o.parquet").num_row_groups == 2
