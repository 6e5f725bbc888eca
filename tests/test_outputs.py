"""Whatever is written: never over a source, never over what is not ours, never unasked."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fmtkit
from fmtkit.core.errors import (
    FmtkitError,
    LimitError,
    NothingWrittenError,
    OptionError,
    OutputExistsError,
    ResumeError,
    UnreadFilesWarning,
)
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversions import convert_to
from fmtkit.writing import outputs
from fmtkit.writing.outputs import destination

GOOD = {"system": "", "question": "q", "chosen": "a", "rejected": "b"}
BAD = GOOD | {"chosen": None}


def source(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(sources, out, **options):
    options = {"type": "chatml.intel", "workers": 1} | options
    sources = sources if isinstance(sources, list) else [sources]
    return convert_to([str(path) for path in sources], out, ConvertOptions(**options))


def contents(folder):
    """Return path -> bytes, links as what they lead to."""
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}"
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def refused(folder, sources, out, error=FmtkitError, match=".", **options):
    """Assert that a run is refused with exit 2 and changes nothing; return what it said."""
    before = contents(folder)
    said = ""
    for flags in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(error, match=match) as caught:
            run(sources, out, **(options | flags))
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)
        assert contents(folder) == before
        said = str(caught.value)
    return said


@pytest.mark.parametrize("name", ["u.quarantine.jsonl", "u.report.json", "u.parquet"])
def test_a_source_that_stands_where_a_file_of_the_output_goes_is_refused(tmp_path, name):
    path = source(tmp_path / name, GOOD, BAD)
    if name.endswith("parquet"):
        path.unlink()
        run(source(tmp_path / "s.jsonl", GOOD), path, as_="messages")
    refused(
        tmp_path, path, tmp_path / "u.parquet", OptionError, "is the source", type="passthrough"
    )


def test_a_quarantine_that_is_converted_again_stays(tmp_path):
    run(source(tmp_path / "s.jsonl", GOOD, BAD), tmp_path / "pairs.parquet")
    (tmp_path / "pairs.parquet").unlink()
    path = tmp_path / "pairs.quarantine.jsonl"
    refused(tmp_path, path, tmp_path / "pairs.parquet", OptionError, "is the source")


@pytest.mark.parametrize("spelling", ["link", "hard link", "relative", "glob", "dots"])
def test_no_spelling_hides_a_source(tmp_path, monkeypatch, spelling):
    path = source(tmp_path / "data" / "u.jsonl", GOOD)
    monkeypatch.chdir(tmp_path)
    given, out = str(path), path
    if spelling == "link":
        given = str(tmp_path / "l.jsonl")
        Path(given).symlink_to(path)
    elif spelling == "hard link":
        given = str(tmp_path / "h.jsonl")
        os.link(path, given)
    elif spelling == "relative":
        out = "data/u.jsonl"
    elif spelling == "glob":
        given = "dat?/*.jsonl"
    else:
        out = f"{tmp_path}/data/../data/./u.jsonl"
    refused(tmp_path, given, out, OptionError, "is the source")


def test_stdin_is_a_source_too(tmp_path):
    path = source(tmp_path / "u.jsonl", GOOD)
    before = contents(tmp_path)
    command = [sys.executable, "-m", "fmtkit", "convert", "-", "--type", "intel", "-o", str(path)]
    with path.open("rb") as stdin:
        done = subprocess.run(
            [*command, "--overwrite"], stdin=stdin, capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert "is the source -" in done.stderr
    assert contents(tmp_path) == before


@pytest.mark.parametrize("place", ["out", "out/data", ".out.partial/out", "out.failed"])
def test_a_folder_that_holds_a_source_is_refused(tmp_path, place):
    path = source(tmp_path / place / "s.jsonl", GOOD)
    refused(tmp_path, path, tmp_path / "out", OptionError, "holds, the source")


def test_a_folder_may_be_made_inside_the_folder_of_its_sources(tmp_path):
    source(tmp_path / "data" / "s.jsonl", GOOD)
    run(tmp_path / "data", tmp_path / "data" / "out")
    with pytest.warns(UnreadFilesWarning, match="made of its files"):
        again = run(tmp_path / "data", tmp_path / "data" / "out", overwrite=True)
    assert again.rows_written == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("u.quarantine.jsonl", "{}\n"),
        ("u.report.json", "{}"),
        ("u.report.json", "no JSON"),
        ("u.report.json", json.dumps({"files": [], "output": "u.parquet"})),
        ("u.report.json", json.dumps({"fmtkit": "9", "output": "u.parquet", "files": [1]})),
        ("u.report.json", "[" * 100_000),
        ("u.parquet", "PAR1"),
    ],
)
def test_a_file_that_fmtkit_did_not_write_is_never_replaced(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    path = source(tmp_path / "s.jsonl", GOOD, BAD)
    refused(tmp_path, path, tmp_path / "u.parquet", OutputExistsError, name)


@pytest.mark.parametrize("name", ["u.parquet", "u.quarantine.jsonl"])
def test_a_file_that_was_changed_since_is_never_replaced(tmp_path, name):
    path = source(tmp_path / "s.jsonl", GOOD, BAD)
    run(path, tmp_path / "u.parquet")
    data = (tmp_path / name).read_bytes()
    for changed in (data + b"\n", data[:-1] + b"?"):
        (tmp_path / name).write_bytes(changed)
        before = contents(tmp_path)
        with pytest.raises(OutputExistsError, match=f"{name} exists already and was changed"):
            run(path, tmp_path / "u.parquet", overwrite=True)
        assert contents(tmp_path) == before


def test_an_output_that_lies_still_is_read_once_before_it_is_replaced(tmp_path, monkeypatch):
    path, out = source(tmp_path / "s.jsonl", GOOD), tmp_path / "u.parquet"
    run(path, out)
    read = []
    monkeypatch.setattr(outputs, "SETTLED", 0)
    monkeypatch.setattr(
        hashlib, "file_digest", lambda *a, own=hashlib.file_digest: read.append(a) or own(*a)
    )
    run(path, out, overwrite=True)
    assert [file.name for file, _ in read] == [str(out)]


def test_an_output_that_changes_while_it_is_to_be_replaced_stays(tmp_path, monkeypatch):
    path, out = source(tmp_path / "s.jsonl", GOOD), tmp_path / "u.parquet"
    run(path, out)
    mine = out.read_bytes()[:-1] + b"?"
    monkeypatch.setattr(outputs, "SETTLED", 0)
    with pytest.raises(OutputExistsError, match="was changed since"):
        convert_to(
            [str(path)],
            out,
            ConvertOptions(type="chatml.intel", overwrite=True),
            watch=lambda *_: out.write_bytes(mine),
        )
    assert out.read_bytes() == mine


@pytest.mark.parametrize("name", ["u.report.json", "u.quarantine.jsonl"])
def test_a_link_or_a_folder_beside_out_is_not_ours(tmp_path, name):
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    path = source(tmp_path / "s.jsonl", GOOD, BAD)
    refused(tmp_path, path, tmp_path / "u.parquet", OutputExistsError, "a symbolic link")
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    refused(tmp_path, path, tmp_path / "u.parquet", OutputExistsError, "a folder")


def test_two_outputs_never_share_a_report(tmp_path):
    path = source(tmp_path / "s.jsonl", GOOD, BAD)
    run(path, tmp_path / "same.parquet")
    said = refused(tmp_path, path, tmp_path / "same.jsonl", OutputExistsError)
    assert "same.report.json is the report of same.parquet" in said
    run(path, tmp_path / "same.parquet", overwrite=True)


def test_an_output_of_an_earlier_fmtkit_is_for_the_user_to_remove(tmp_path):
    (tmp_path / "u.parquet").write_bytes(b"PAR1")
    (tmp_path / "u.report.json").write_text(json.dumps({"fmtkit": "0.1.0", "rows_read": 1}))
    path = source(tmp_path / "s.jsonl", GOOD)
    said = refused(tmp_path, path, tmp_path / "u.parquet", OutputExistsError)
    assert f"(rm -r {tmp_path}/u.parquet {tmp_path}/u.report.json)" in said


@pytest.mark.parametrize("out", ["u.parquet", "u.jsonl", "u.arrow", "u"])
@pytest.mark.parametrize("options", [{}, {"max_errors": "0"}, {"on_error": "fail"}])
def test_a_run_that_writes_no_rows_leaves_what_was_good(tmp_path, out, options):
    good = source(tmp_path / "s" / "good.jsonl", GOOD, BAD)
    bad = source(tmp_path / "s" / "bad.jsonl", BAD, BAD)
    run(good, tmp_path / out)
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises((NothingWrittenError, LimitError)) as caught:
            run(bad, tmp_path / out, overwrite=True, **options)
        after = contents(tmp_path)
        assert after.items() >= before.items()
        stem = out.partition(".")[0]
        mark = "/" if stem == out else "."
        reasons = {f"{stem}.failed{mark}{n}" for n in ("quarantine.jsonl", "report.json")}
        assert after.keys() - before.keys() == reasons
        assert options.get("on_error") or f"{stem}.failed{mark}quarantine.jsonl" in str(
            caught.value
        )
    # The next good run makes the reasons of the failed one moot.
    run(good, tmp_path / out, overwrite=True)
    assert contents(tmp_path).keys() == before.keys()


@pytest.mark.parametrize("out", ["u.parquet", "u"])
def test_what_a_run_without_rows_left_does_not_block_the_next(tmp_path, out):
    path = source(tmp_path / "s" / "s.jsonl", BAD)
    with pytest.raises(NothingWrittenError):
        run(path, tmp_path / out)
    with pytest.raises(NothingWrittenError):
        run(path, tmp_path / out)
    other = tmp_path / ("u.jsonl" if "." in out else "u")
    assert run(source(path, GOOD), other).rows_written == 1
    assert not [*tmp_path.rglob("*quarantine*")]


def test_a_file_that_is_finished_has_nothing_to_resume_and_says_so_quietly(tmp_path):
    path = source(tmp_path / "s.jsonl", GOOD, BAD)
    first = run(path, tmp_path / "u.parquet")
    before = contents(tmp_path)
    again = run(path, tmp_path / "u.parquet", resume=True)
    assert (again.as_dict(), again.outputs) == (first.as_dict(), first.outputs)
    assert contents(tmp_path) == before
    with pytest.raises(ResumeError, match="seed changed"):
        run(path, tmp_path / "u.parquet", resume=True, seed=1)
    with pytest.raises(ResumeError, match="sources"):
        run(source(path, GOOD), tmp_path / "u.parquet", resume=True)
    before.pop("s.jsonl")
    assert contents(tmp_path).items() >= before.items()


@pytest.mark.parametrize("out", ["u.parquet", "u"])
def test_a_link_is_written_through(tmp_path, out):
    path = source(tmp_path / "s.jsonl", GOOD)
    real, link = tmp_path / "disk" / out, tmp_path / out
    real.parent.mkdir()
    link.symlink_to(real)
    run(path, link)
    run(path, link, overwrite=True)
    assert link.is_symlink()
    assert fmtkit.table(str(link), "passthrough").num_rows == 1
    plain = sorted(p.name for p in tmp_path.iterdir())
    assert plain == ["disk", "s.jsonl", out]
    # What the link leads to is judged like any other OUT.
    shutil.rmtree(tmp_path / "disk")
    (tmp_path / "disk").mkdir()
    real.mkdir() if out == "u" else real.write_text("mine")
    if out == "u":
        (real / "mine").touch()
    refused(tmp_path, path, link, OutputExistsError)


@pytest.mark.parametrize("out", [".", "..", "./", "", ".parquet", ".jsonl"])
def test_a_name_that_is_none_is_one_line(tmp_path, monkeypatch, out):
    path = source(tmp_path / "s.jsonl", GOOD)
    (tmp_path / "empty" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty" / "here")
    refused(tmp_path, path, out, OptionError)


def test_a_decision_that_names_other_files_is_not_followed(tmp_path):
    decided = {"fmtkit": "0", "output": "u.parquet"}
    decided["files"] = [{"path": "../x", "bytes": 0, "sha256": ""}]
    (tmp_path / ".u.report.json.partial").write_text(json.dumps(decided))
    run(source(tmp_path / "s.jsonl", GOOD), tmp_path / "u.parquet")
    assert sorted(contents(tmp_path)) == ["s.jsonl", "u.parquet", "u.report.json"]


def test_a_link_to_itself_or_to_another_kind_of_file_is_one_line(tmp_path):
    path = source(tmp_path / "s.jsonl", GOOD)
    loop = tmp_path / "u.parquet"
    loop.symlink_to(loop)
    refused(tmp_path, path, loop, FmtkitError)
    (tmp_path / "v.parquet").symlink_to(tmp_path / "x.jsonl")
    refused(tmp_path, path, tmp_path / "v.parquet", OptionError, "does not end in .parquet")


@pytest.mark.parametrize(
    "out",
    [
        "hf:/datasets/a/b",
        "simplecache::s3://b/x.parquet",
        "https://a/b.jsonl",
    ],
)
def test_a_url_that_cannot_be_written_is_refused_by_name(tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    path = source(tmp_path / "s.jsonl", GOOD)
    refused(tmp_path, path, out, OptionError, "OUT .*fmtkit writes to local files")
    with pytest.raises(OptionError, match="local files"):
        fmtkit.convert(str(path), "chatml.intel", Path(out))


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("out.paruqet", "did you mean out.parquet?"),
        ("OUT.PARQUET", "did you mean OUT.parquet?"),
        ("out.json", "did you mean out.jsonl?"),
        ("out.csv", "only .parquet, .jsonl, .arrow"),
        ("out.jsonl.gz", "writes no .gz files"),
        ("run-1.5", "end it with /, as in run-1.5/"),
        ("v1.0", "v1.0/"),
        ("out.d", "out.d/"),
    ],
)
def test_a_suffix_of_no_format_is_refused_by_name(tmp_path, monkeypatch, out, words):
    monkeypatch.chdir(tmp_path)
    path = source(tmp_path / "s.jsonl", GOOD)
    assert words in refused(tmp_path, path, out, OptionError)


@pytest.mark.parametrize("out", ["run-1.5/", "out", ".hidden", "a.b/c", "out.parquet/"])
def test_what_ends_with_a_slash_or_has_no_suffix_is_a_folder(tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    path = source(tmp_path / "s.jsonl", GOOD)
    run(path, out)
    assert (tmp_path / out / "manifest.json").is_file()
    assert destination(out).format is None


def test_a_folder_that_is_there_may_have_a_dot_in_its_name(tmp_path):
    (tmp_path / "run-1.5").mkdir()
    run(source(tmp_path / "s.jsonl", GOOD), tmp_path / "run-1.5")
    assert (tmp_path / "run-1.5" / "manifest.json").is_file()


def test_a_file_url_is_a_path(tmp_path):
    run(source(tmp_path / "s.jsonl", GOOD), f"file://{tmp_path}/u.parquet")
    assert (tmp_path / "u.parquet").is_file()


def test_an_output_that_appears_meanwhile_is_left_alone(tmp_path):
    for name in ("u.parquet", "u.quarantine.jsonl", "u.report.json"):

        def appear(*_, name=name):
            (tmp_path / name).write_text("mine")

        with pytest.raises(OutputExistsError, match=name):
            convert_to(
                [str(source(tmp_path / "s.jsonl", GOOD, BAD))],
                tmp_path / "u.parquet",
                ConvertOptions(type="intel", workers=1),
                watch=appear,
            )
        assert sorted(contents(tmp_path)) == ["s.jsonl", name]
        (tmp_path / name).unlink()


def config(folder, *entries):
    path = folder / "c.yaml"
    listed = [{"path": str(p), "type": t, "ds_type": "json"} for p, t in entries]
    path.write_text(json.dumps({"rl": "dpo", "datasets": listed}))
    return path


def test_each_folder_of_a_config_is_looked_at_before_the_first_is_written(tmp_path):
    from fmtkit.training.data.convert_config import convert_config

    first = source(tmp_path / "a.jsonl", GOOD)
    second = source(tmp_path / "b.jsonl", GOOD)
    path = config(tmp_path, (first, "chatml.intel"), (second, "chatml.intel"))
    (tmp_path / "out" / "01").mkdir(parents=True)
    (tmp_path / "out" / "01" / "mine").touch()
    before = contents(tmp_path)
    with pytest.raises(OutputExistsError, match="01 exists already and holds mine"):
        convert_config(path, [], tmp_path / "out", ConvertOptions())
    assert contents(tmp_path) == before
    shutil.rmtree(tmp_path / "out")
    # The source of the second entry lies where the first would write.
    inside = source(tmp_path / "out" / "00" / "b.jsonl", GOOD)
    path = config(tmp_path, (first, "chatml.intel"), (inside, "chatml.intel"))
    before = contents(tmp_path)
    with pytest.raises(OptionError, match="holds, the source"):
        convert_config(path, [], tmp_path / "out", ConvertOptions(overwrite=True))
    assert contents(tmp_path) == before
