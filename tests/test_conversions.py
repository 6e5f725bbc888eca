"""Whole conversions: limits on errors, splits, outputs that exist, runs that stop and go on."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import INTEL, KTO, Line, convert, convert_file, lines

import fmtkit
from fmtkit.core.errors import (
    ColumnMismatchError,
    LimitError,
    NothingWrittenError,
    OptionError,
    OutputExistsError,
    ResumeError,
    SourceError,
)
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running import pipeline
from fmtkit.running.conversions import convert_to

BAD = INTEL | {"chosen": None}
TOKENIZER = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")


def contents(folder: Path) -> dict[str, str]:
    """Return path -> hash of the files of an output, the report's clock apart."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.name.endswith("report.json"):
                report = json.loads(data)
                data = json.dumps({**report, "seconds": 0, "tiers": {}}).encode()
            found[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return found


def source(folder: Path, rows: list[Line], name: str = "source.jsonl") -> str:
    path = folder / name
    path.write_bytes(lines(rows))
    return str(path)


def run(path: object, out: Path, type: str = "chatml.intel", **options: Any) -> Any:
    return convert_to(path, out, ConvertOptions(type=type, **options))


def test_columns_that_nobody_uses_are_a_warning_once_for_each_source(tmp_path):
    extra = source(tmp_path, [INTEL | {"id": 1, "note": None}] * 3, "a.jsonl")
    plain = source(tmp_path, [INTEL] * 2, "b.jsonl")
    paths = [extra, plain, extra]
    report = run(paths, tmp_path / "out.parquet")
    assert (report.warnings, report.ignored_columns) == ({"extra_columns": 2}, ["id", "note"])
    assert fmtkit.validate(paths, "intel").as_dict()["warnings"] == {"extra_columns": 2}
    kept = run(paths, tmp_path / "kept.parquet", keep=("all",))
    assert (kept.warnings, kept.ignored_columns) == ({}, [])


@pytest.mark.parametrize("limit", ["1", "0", "10%", "19.9%", "0%"])
def test_more_bad_rows_than_the_limit_leave_no_output_but_the_reasons(tmp_path, limit):
    outcome = convert(tmp_path, [INTEL] * 8 + [BAD] * 2, "intel", max_errors=limit)
    assert isinstance(outcome.error, LimitError)
    assert outcome.error.exit_code == 1
    assert "out.quarantine.jsonl" in str(outcome.error)
    assert not (tmp_path / "out.parquet").exists()
    assert [verdict[0] for verdict in outcome.verdicts] == [9, 10]
    assert outcome.report["quarantined"] == 2


@pytest.mark.parametrize("limit", ["2", "20%", "100%", "3"])
def test_bad_rows_within_the_limit_are_quarantined(tmp_path, limit):
    outcome = convert(tmp_path, [INTEL] * 8 + [BAD] * 2, "intel", max_errors=limit)
    assert outcome.error is None
    assert outcome.report["rows_written"] == 8


@pytest.mark.parametrize("limit", ["x", "-%", "1.5", "", "%"])
def test_a_limit_that_is_no_number_is_an_error(tmp_path, limit):
    outcome = convert(tmp_path, [INTEL], "intel", max_errors=limit)
    assert isinstance(outcome.error, OptionError)


def test_a_run_that_may_not_fail_stops_at_the_first_bad_row(tmp_path):
    outcome = convert(tmp_path, [INTEL, b"{", BAD], "intel", on_error="fail")
    assert isinstance(outcome.error, LimitError)
    assert f"{tmp_path / 'source.jsonl'}:2: json_syntax" in str(outcome.error)
    assert not (tmp_path / "out.parquet").exists()
    assert outcome.verdicts[0] == (2, "json_syntax", None)
    assert outcome.report["rows_read"] == 3


def test_skipped_rows_are_counted_and_not_kept(tmp_path):
    outcome = convert(tmp_path, [INTEL, BAD], "intel", on_error="skip")
    assert outcome.quarantine == []
    assert (outcome.report["skipped"], outcome.report["quarantined"]) == (1, 0)
    assert outcome.report["reasons"] == {"null_field": 1}


def test_skipped_rows_count_towards_the_limit(tmp_path):
    outcome = convert(tmp_path, [INTEL, BAD], "intel", on_error="skip", max_errors="0")
    assert isinstance(outcome.error, LimitError)


def test_a_clean_run_takes_away_the_quarantine_of_the_one_before(tmp_path):
    run(source(tmp_path, [INTEL, BAD]), tmp_path / "out.parquet")
    assert (tmp_path / "out.quarantine.jsonl").exists()
    run(source(tmp_path, [INTEL]), tmp_path / "out.parquet", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.parquet",
        "out.report.json",
        "source.jsonl",
    ]


def test_ties_make_no_pair_and_are_counted(tmp_path):
    tied = {"prompt": "p", "answers": [{"answer": a, "rank": 1} for a in "ab"]}
    ranked = {"prompt": "p", "answers": [{"answer": a, "rank": r} for r, a in enumerate("abc")]}
    outcome = convert(tmp_path, [tied, ranked], "nectar", options={"pairs": "all"})
    report = outcome.report
    assert (report["no_pair"], report["converted"], report["rows_written"]) == (1, 1, 3)
    assert report["warnings"]["rank_tie"] == 1
    nothing = convert(tmp_path, [tied], "nectar")
    assert isinstance(nothing.error, NothingWrittenError)
    assert "no pair 1" in str(nothing.error)


def test_pairs_are_the_same_in_however_many_parts_they_are_encoded(tmp_path, monkeypatch):
    rows: list[Line] = [
        {
            "prompt": f"\n\nHuman: what is {i}?\n\nAssistant:",
            "answers": [{"answer": f"{i} {k}" * k, "rank": float(k)} for k in range(1, 1 + i % 6)],
        }
        for i in range(1, 40)
    ]
    path = source(tmp_path, rows)
    made = fmtkit.table(path, "chatml.nectar", options={"pairs": "all"})
    assert made.num_rows == sum(k * (k - 1) // 2 for k in (i % 6 for i in range(1, 40)))
    for part_bytes, parts in ((1, 26), (10**9, 1)):
        monkeypatch.setattr(pipeline, "BLOCK_BYTES", part_bytes)
        out = tmp_path / f"{part_bytes}.parquet"
        report = run(path, out, "chatml.nectar", options={"pairs": "all"})
        assert pq.read_table(out).to_pylist() == made.to_pylist()
        assert report.rows_written == made.num_rows
        assert pq.ParquetFile(out).num_row_groups == parts


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_an_output_that_exists_is_refused_and_left_alone(tmp_path, name):
    path = source(tmp_path, [INTEL])
    run(path, tmp_path / name)
    before = contents(tmp_path)
    with pytest.raises(OutputExistsError, match="--overwrite"):
        run(source(tmp_path, [INTEL] * 2, "more.jsonl"), tmp_path / name)
    (tmp_path / "more.jsonl").unlink()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_an_output_is_replaced_when_asked_for(tmp_path, name):
    run(source(tmp_path, [INTEL]), tmp_path / name)
    report = run(source(tmp_path, [INTEL] * 2), tmp_path / name, overwrite=True)
    assert report.rows_written == 2


def test_a_folder_that_is_not_ours_is_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputExistsError):
        run(source(tmp_path, [INTEL]), tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "years of work"


def test_a_source_is_never_its_own_output(tmp_path):
    path = source(tmp_path, [INTEL, INTEL], "data.jsonl")
    before = Path(path).read_bytes()
    for out in (Path(path), tmp_path, tmp_path / "." / "data.jsonl"):
        with pytest.raises(OptionError, match="choose another"):
            run(path, out, overwrite=True)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize(
    ("suffix", "form"), [("parquet", "messages"), ("jsonl", "text"), ("arrow", "messages")]
)
def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path, suffix, form):
    rows = [INTEL | {"question": f"q{i}", "chosen": "x" * (i % 5)} for i in range(60)]
    paths = [source(tmp_path, rows[i::3], f"{i}.jsonl") for i in range(3)]
    made = []
    for workers in (1, 2, 4):
        out = tmp_path / f"out{workers}"
        out.mkdir()
        run(paths, out / f"x.{suffix}", workers=workers, as_=form)
        made.append(contents(out))
    assert made[0] == made[1] == made[2]
    assert len(made[0]) == 3


def test_a_folder_loads_as_a_dataset_and_lists_its_files(tmp_path):
    report = run(
        source(tmp_path, [INTEL | {"question": f"q{i}"} for i in range(30)] + [BAD]),
        tmp_path / "out",
        val_size=0.3,
    )
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["README.md", "data", "manifest.json", "quarantine.jsonl", "report.json"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {file["split"] for file in manifest["files"]} == {"train", "validation"}
    assert sum(file["rows"] for file in manifest["files"]) == report.rows_written == 30
    for file in manifest["files"]:
        data = (tmp_path / "out" / file["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == file["sha256"]


def split_rows(out: Path, split: str) -> list[dict[str, Any]]:
    return [
        row
        for path in sorted((out / "data").glob(f"{split}-*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


@settings(max_examples=8, deadline=None)
@given(
    prompts=st.lists(st.integers(0, 6), min_size=8, max_size=30),
    size=st.sampled_from([0.2, 0.5, 1, 3]),
    seed=st.integers(0, 5),
)
def test_no_prompt_is_in_two_splits(tmp_path_factory, prompts, size, seed):
    folder = tmp_path_factory.mktemp("split")
    rows = [KTO | {"question": f"q{n}", "completion": f"a{i}"} for i, n in enumerate(prompts)]
    if size >= 1 and len(rows) - max(map(prompts.count, prompts)) < size:
        # A group more would leave nothing to train on.
        return
    run(source(folder, rows), folder / "out", val_size=size, seed=seed)
    train = {row["prompt"] for row in split_rows(folder / "out", "train")}
    held = [row["prompt"] for row in split_rows(folder / "out", "validation")]
    assert not train & set(held)
    assert len(split_rows(folder / "out", "train")) + len(held) == len(rows)
    if size >= 1:
        largest = max(held.count(prompt) for prompt in held)
        assert size <= len(held) < size + largest


def test_pairs_of_one_prompt_stay_in_one_split(tmp_path):
    rows = [
        {"prompt": f"p{i}", "answers": [{"answer": a, "rank": r} for r, a in enumerate("abc")]}
        for i in range(20)
    ]
    run(
        source(tmp_path, rows),
        tmp_path / "out",
        "chatml.nectar",
        val_size=6,
        options={"pairs": "all"},
    )
    held = [row["prompt"] for row in split_rows(tmp_path / "out", "validation")]
    assert len(held) == 6
    assert len(set(held)) == 2


def test_a_split_of_one_file_is_refused(tmp_path):
    with pytest.raises(OptionError, match="folder"):
        run(source(tmp_path, [INTEL]), tmp_path / "out.parquet", val_size=0.5)
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("size", ["x", "0", "-1", "1.5", "nan", "inf"])
def test_a_split_size_that_is_none_is_an_error(tmp_path, size):
    with pytest.raises(OptionError, match="--val-size"):
        run(source(tmp_path, [INTEL]), tmp_path / "out", val_size=size)


LONG = [KTO | {"question": f"question {i}", "completion": "word " * i} for i in range(1, 41)]


@pytest.mark.parametrize("action", ["keep", "drop", "truncate-start", "truncate-end", "fail"])
def test_rows_of_too_many_tokens_are_dealt_with_as_asked(tmp_path, action):
    from tokenizers import Tokenizer

    counter = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    outcome = convert(
        tmp_path, LONG, "chatml.intel", tokenizer=TOKENIZER, max_length=45, on_overlong=action
    )
    plain = convert(tmp_path, LONG, "chatml.intel").rows
    sizes = [len(counter.encode(row["prompt"] + row["completion"])) for row in plain]
    too_long = sum(size > 45 for size in sizes)
    report = outcome.report
    assert 0 < too_long < 40
    if action == "keep":
        assert (report["rows_written"], report["warnings"]["overlong"]) == (40, too_long)
        return
    if action in ("drop", "fail"):
        term = "overlong_dropped" if action == "drop" else "quarantined"
        assert (report["rows_written"], report[term]) == (40 - too_long, too_long)
        assert outcome.rows == [row for row, size in zip(plain, sizes, strict=True) if size <= 45]
        return
    lost = report["reasons"].get("too_long", 0)
    assert report["warnings"]["truncated"] == too_long - lost
    assert report["rows_written"] == 40 - lost
    # Special tokens may part otherwise at a cut: one token of slack.
    assert all(len(counter.encode(r["prompt"] + r["completion"])) <= 46 for r in outcome.rows)
    short = [row for row, size in zip(plain, sizes, strict=True) if size <= 45]
    assert [row for row in outcome.rows if row in short] == short
    if action == "truncate-start":
        assert all(row["completion"].endswith("<|im_end|>") for row in outcome.rows)


def test_a_run_that_drops_every_row_says_that_they_are_too_long(tmp_path):
    with pytest.raises(NothingWrittenError, match=r"\(too long 2\)"):
        run(
            source(tmp_path, [INTEL] * 2),
            tmp_path / "out.parquet",
            tokenizer=TOKENIZER,
            max_length=1,
            on_overlong="drop",
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_length": 5}, "--tokenizer"),
        ({"on_overlong": "drop"}, "--max-length"),
        ({"on_overlong": "shorten"}, "truncate-end"),
        ({"on_error": "ignore"}, "quarantine"),
        ({"as_": "tex"}, "messages"),
        ({"overwrite": True, "resume": True}, "--resume"),
        ({"method": "dop"}, "dpo"),
        ({"method": "prm"}, "Stepwise"),
        ({"options": {"pears": "all"}}, "option"),
        ({"columns": {"qestion": "x"}}, "question"),
        ({"keep": ("sytem",)}, "system"),
        ({"keep": ("prompt",)}, "prompt"),
        ({"compression": "gzip"}, "snappy"),
        ({"chat_template": "chatlm"}, "chatml"),
        ({"tokenizer": "/nowhere", "max_length": 5}, "/nowhere"),
    ],
)
def test_what_is_asked_in_vain_is_said_before_anything_is_written(tmp_path, options, words):
    outcome = convert(tmp_path, [INTEL | {"system": "s", "prompt": "p"}], "chatml.intel", **options)
    assert outcome.error is not None
    assert outcome.error.exit_code == 2
    assert words in str(outcome.error)
    assert [path.name for path in tmp_path.iterdir()] == ["source.jsonl"]


@pytest.mark.parametrize(
    "name", ["chatml.intle", "chatlm.intel", "intel.chatml", "os.system", "x.jinja.intel"]
)
def test_an_unknown_type_is_an_error_that_loads_no_code(tmp_path, monkeypatch, name):
    (tmp_path / "os.py").write_text("raise SystemExit('loaded')")
    monkeypatch.chdir(tmp_path)
    outcome = convert(tmp_path, [INTEL], name)
    assert outcome.error is not None
    assert outcome.error.exit_code == 2


def test_a_source_that_cannot_be_read_is_an_error_of_its_own(tmp_path):
    broken = tmp_path / "broken.jsonl.gz"
    import gzip

    broken.write_bytes(gzip.compress(lines([INTEL] * 100))[:-20])
    outcome = convert_file(str(broken), tmp_path / "out.parquet", "intel")
    assert isinstance(outcome.error, SourceError)
    assert outcome.error.exit_code == 3
    assert not (tmp_path / "out.parquet").exists()


def test_columns_are_mapped_by_dotted_paths(tmp_path):
    rows = [
        {"meta": {"ask": {"q": "Q"}, "x": 1}, "good": "a", "rejected": "b"},
        {"meta": {"ask": None}, "good": "a", "rejected": "b"},
    ]
    columns = {"question": "meta.ask.q", "chosen": "good"}
    outcome = convert(tmp_path, rows, "intel", columns=columns)
    assert outcome.rows[0]["prompt"][0]["content"] == "Q"
    assert outcome.verdicts == [(2, "null_field", "meta.ask")]


def test_a_canonical_file_converts_to_itself(tmp_path):
    rows = [INTEL | {"system": "s", "extra": i} for i in range(5)]
    run(source(tmp_path, rows), tmp_path / "one.parquet", "intel", keep=("extra",))
    for name in ("two.parquet", "three.jsonl", "four.arrow"):
        outcome = convert_file(str(tmp_path / "one.parquet"), tmp_path / name, "passthrough")
        assert outcome.report["rows_written"] == 5
    again = convert_file(str(tmp_path / "three.jsonl"), tmp_path / "five.parquet", "passthrough")
    one, two = (pq.read_table(tmp_path / name) for name in ("one.parquet", "two.parquet"))
    assert two.schema.equals(one.schema)
    assert two.to_pylist() == one.to_pylist() == [without_nulls(row) for row in again.rows]


def without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


def big_source(folder: Path, count: int = 6000) -> str:
    """Write a source of several blocks, with bad rows in each."""
    rows = [
        INTEL | {"question": f"q{i}", "chosen": "" if i % 97 == 0 else "x" * 4000}
        for i in range(count)
    ]
    return source(folder, rows)


COMMAND = [
    sys.executable,
    "-m",
    "fmtkit",
    "convert",
    "--type",
    "chatml.intel",
    "--no-progress",
    "-q",
]


def start(path: str, out: Path, *flags: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([*COMMAND, path, "-o", str(out), *flags], stderr=subprocess.PIPE)


def wait_for_work(out: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a run has begun to write."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit and process.poll() is None:
        partial = [
            p
            for p in out.parent.rglob("*")
            if p.is_file() and ".partial" in str(p) and p.stat().st_size > 1000
        ]
        if partial:
            return
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("flags", [(), ("--val-size", "0.2")])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, stop, flags):
    path = big_source(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    subprocess.run([*COMMAND, path, "-o", str(tmp_path / "a" / "out"), *flags], check=True)
    process = start(path, tmp_path / "b" / "out", *flags)
    wait_for_work(tmp_path / "b" / "out", process)
    process.send_signal(stop)
    _, printed = process.communicate()
    assert process.returncode == (130 if stop is signal.SIGINT else -9)
    assert b"Traceback" not in printed
    assert not (tmp_path / "b" / "out").exists()
    subprocess.run(
        [*COMMAND, path, "-o", str(tmp_path / "b" / "out"), *flags, "--resume"], check=True
    )
    assert contents(tmp_path / "a" / "out") == contents(tmp_path / "b" / "out")
    assert list((tmp_path / "b").iterdir()) == [tmp_path / "b" / "out"]


@pytest.mark.slow
def test_a_run_into_one_file_that_is_killed_is_never_seen(tmp_path):
    path = big_source(tmp_path)
    out = tmp_path / "out.parquet"
    process = start(path, out)
    wait_for_work(out, process)
    process.kill()
    process.communicate()
    assert not out.exists()
    subprocess.run([*COMMAND, path, "-o", str(out), "--resume"], check=True)
    assert pq.ParquetFile(out).metadata.num_rows == 6000 - 62


def test_a_finished_run_has_nothing_to_resume_and_says_so_quietly(tmp_path):
    path = source(tmp_path, [INTEL, BAD])
    first = run(path, tmp_path / "out")
    again = run(path, tmp_path / "out", resume=True)
    assert again.as_dict() == first.as_dict() | {"seconds": again.seconds}


@pytest.mark.parametrize(
    "change", [{"type": "llama3.intel"}, {"as_": "messages"}, {"seed": 1}, {"keep": ("question",)}]
)
def test_a_changed_run_is_not_resumed(tmp_path, change):
    path = source(tmp_path, [INTEL])
    run(path, tmp_path / "out")
    with pytest.raises(ResumeError):
        run(path, tmp_path / "out", resume=True, **change)


def test_a_run_over_a_changed_source_is_not_resumed(tmp_path):
    run(source(tmp_path, [INTEL]), tmp_path / "out")
    with pytest.raises(ResumeError):
        run(source(tmp_path, [INTEL, INTEL]), tmp_path / "out", resume=True)


def test_metadata_of_a_file_says_what_it_was_made_of(tmp_path):
    path = source(tmp_path, [INTEL])
    run(path, tmp_path / "out.parquet")
    metadata = pq.read_metadata(tmp_path / "out.parquet").metadata
    assert metadata[b"fmtkit.type"] == b"chatml.intel"
    assert metadata[b"fmtkit.table"] == b"Preference"
    # Hashes of sources stand in the report: who writes a file of many may not know them all.
    assert b"fmtkit.sources" not in metadata
    report = json.loads((tmp_path / "out.report.json").read_text())
    assert report["sources"][0]["sha256"] == hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_columns_and_rows_are_counted_in_messages_that_end_a_conversion(tmp_path):
    rows = {"one": [{"a": 1}], "bad": [b"{"]}
    for name, found in rows.items():
        (tmp_path / name).write_bytes(lines(found))
    with pytest.raises(ColumnMismatchError, match="needs columns question, chosen, rejected; "):
        fmtkit.convert(tmp_path / "one", "intel", tmp_path / "o.parquet")
    with pytest.raises(NothingWrittenError, match=r"^the only row could not be converted \(json"):
        fmtkit.convert(tmp_path / "bad", "intel", tmp_path / "o.parquet")
