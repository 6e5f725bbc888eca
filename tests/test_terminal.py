"""Reports are plain where nobody looks, fit a narrow window, and never obey the data."""

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from fmtkit.catalogue import types
from fmtkit.commands import listings, run_listings
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.reports import console as terminal
from fmtkit.running.conversions import convert_to
from fmtkit.running.validation import validate_sources
from fmtkit.training.config.problems import NEEDED
from fmtkit.training.planning import plan as planning
from fmtkit.training.run.run import Outcome

HOSTILE = '{"question": "q", "chosen": "\\u001b[31mred", "rejected": {"[bold]": 1}}\n'


@pytest.fixture
def report(tmp_path):
    source = tmp_path / "[red]rows.jsonl"
    good = '{"question": "q", "chosen": "c", "rejected": "r"}\n'
    source.write_text(good + "\n" + HOSTILE, encoding="utf-8")
    return convert_to(source, tmp_path / "out.parquet", ConvertOptions(type="chatml.intel"))


def test_a_pipe_gets_plain_lines_without_spaces_at_their_ends(report, capsys):
    terminal.print_report(report, as_json=False, quiet=False)
    printed = capsys.readouterr()
    assert not printed.out
    assert "\x1b" not in printed.err
    assert all(line == line.rstrip() for line in printed.err.splitlines())


def test_the_report_shows_where_the_first_bad_row_stands(report, capsys):
    terminal.print_report(report, as_json=False, quiet=False)
    assert "[red]rows.jsonl:3: rejected holds an object, not text" in capsys.readouterr().err


def test_one_blank_line_is_not_called_lines(report, capsys):
    terminal.print_report(report, as_json=False, quiet=False)
    assert "and 1 blank line\n" in capsys.readouterr().err


def test_quiet_prints_nothing_and_json_goes_to_stdout(report, capsys):
    terminal.print_report(report, as_json=False, quiet=True)
    assert capsys.readouterr() == ("", "")
    terminal.print_report(report, as_json=True, quiet=False)
    assert capsys.readouterr().out.startswith('{\n  "type": "chatml.intel"')


def test_a_long_path_is_not_cut_in_a_pipe(tmp_path, capsys):
    rows = validate_sources(_file(tmp_path), ConvertOptions(type="intel"))
    terminal.print_findings(rows, as_json=False, quiet=False)
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    assert "2 rows, 1 sound" in printed.err


def _file(folder):
    path = folder / f"{'long' * 40}.jsonl"
    good = '{"question": "q", "chosen": "c", "rejected": "r"}\n'
    path.write_text(good + HOSTILE, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [80, 120])
def test_no_name_of_a_type_is_broken_in_a_narrow_window(width):
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, color_system=None)
    table = terminal.aligned("left", "left", "left")
    for entry in types():
        table.add_row(entry["name"], entry["table"], entry["columns"])
    terminal.show(console, table)
    lines = screen.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert {entry["name"] for entry in types()} <= {line.split(" ")[0] for line in lines}


@pytest.mark.parametrize("width", [80, 120])
def test_a_plan_fits_the_window_and_loses_nothing(width, monkeypatch):
    keys = {
        "base_model": "a/m",
        "rl": "grpo",
        "datasets": [{"path": "a/" + "pairs" * 20, "type": "gsm8k"}],
        "trl": {"reward_funcs": ["absent.right", "absent.short"], "use_vllm": True},
        "output_dir": "runs/" + "deep/" * 20,
    }
    plan = planning.plan(keys)
    plan = replace(plan, notes=(*plan.notes, f"{'no such module ' * 9}{NEEDED}"))
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(run_listings, "output", lambda: console)
    run_listings.print_outcome(Outcome(plan, 0), as_json=False, dry_run=True)
    shown = screen.getvalue()
    assert all(len(line) <= width for line in shown.splitlines())
    assert "".join(shown.split()) == "".join(str(plan).split())
    assert "\nneeded to train, and missing here\nlacking  " in shown


def test_a_type_takes_one_line_in_a_pipe(capsys):
    listings.print_types(types(), None, as_json=False)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == len(types())
    assert "T text" in printed.err


def test_stdout_is_found_when_it_is_used(monkeypatch):
    replaced = io.StringIO()
    monkeypatch.setattr(sys, "stdout", replaced)
    terminal.show(terminal.output(), terminal.aligned("left"))
    terminal.print_json({})
    assert replaced.getvalue().endswith("{}\n")
