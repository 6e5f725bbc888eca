"""The progress bar: which commands draw it, when, and what it is told."""

import re

import pytest
from runs import INTEL, fmtkit, lines

from fmtkit.core import progress_lines
from fmtkit.inspection import inspection
from fmtkit.options.convert_options import RowOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.running.validation import validate_sources

ROWS = [INTEL, INTEL | {"chosen": None}, INTEL | {"question": "another"}]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(lines(ROWS))
    return path


@pytest.mark.parametrize("command", ["convert", "validate", "inspect"])
def test_commands_that_read_every_row_draw_a_bar_on_a_terminal(
    capsys, monkeypatch, source, tmp_path, command
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    out = ["-o", tmp_path / "out.parquet", "--overwrite"] if command == "convert" else []
    shown = fmtkit(capsys, command, source, "--type", "chatml.intel", *out)
    assert re.search(r"3 rows, [\d,]+ rows/s.*1 bad", shown.err)
    assert "rows/s" not in shown.out
    for flag in ("--no-progress", "--quiet", "--json"):
        hidden = fmtkit(capsys, command, source, "--type", "chatml.intel", *out, flag)
        assert (hidden.code, "rows/s" in hidden.err + hidden.out) == (shown.code, False)


def test_short_work_shows_nothing_where_stderr_is_no_terminal(capsys, monkeypatch, source):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for command in ("validate", "inspect"):
        err = fmtkit(capsys, command, source, "--type", "chatml.intel").err
        assert "rows/s" not in err
        assert "progress:" not in err


@pytest.mark.parametrize(
    ("command", "what"),
    [("convert", "converting"), ("validate", "checking"), ("inspect", "inspecting")],
)
def test_long_work_writes_plain_lines_where_stderr_is_no_terminal(
    capsys, monkeypatch, source, tmp_path, command, what
):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    # As if ten seconds had passed since the last line.
    monkeypatch.setattr(progress_lines, "PAUSE", -1.0)
    monkeypatch.setattr(progress_lines, "SHARE", 0.0)
    out = ["-o", tmp_path / "out.parquet", "--overwrite"] if command == "convert" else []
    size = source.stat().st_size
    shown = fmtkit(capsys, command, source, "--type", "chatml.intel", *out)
    assert f"progress: {what}: {size} B of {size} B, 3 rows, 1 bad\n" in shown.err
    assert "\x1b" not in shown.err
    assert "progress:" not in shown.out
    for flag in ("--no-progress", "--quiet", "--json"):
        hidden = fmtkit(capsys, command, source, "--type", "chatml.intel", *out, flag)
        assert "progress:" not in hidden.err + hidden.out


@pytest.mark.parametrize("command", ["validate", "inspect"])
def test_the_bar_is_told_the_bytes_read_and_their_total(source, command):
    told = []

    def watch(done, size, ledger):
        told.append((done, size, ledger.rows_read, ledger.bad))

    if command == "validate":
        validate_sources(str(source), RowOptions(type="intel"), watch=watch)
    else:
        inspection.run(str(source), InspectOptions(type="intel"), watch=watch)
    size = source.stat().st_size
    assert told[-1] == (size, size, 3, 1)
