"""`fmtkit inspect` as users call it: exit codes, outputs, hostile content on a terminal."""

import io
import json
from pathlib import Path

import pytest
import runs
import sick_rows
import warm
from rich.console import Console
from test_survey import GOLDENS, tokenizer, write

import fmtkit
from fmtkit.findings.advice import SEVERITIES
from fmtkit.formats import resources
from fmtkit.inspection.survey_record import survey_schema
from fmtkit.reports.histograms import bars, sparkline
from fmtkit.reports.terminal import MARKS, print_survey

__all__ = ["tokenizer"]

ROOT = Path(__file__).parents[1]
SOUND = {"question": "q", "chosen": "a", "rejected": "b"}
BROKEN = {"question": "q", "chosen": None, "rejected": "b"}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows, _ = sick_rows.sick()
    return write(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", rows)


def test_the_survey_goes_to_stdout_and_nothing_to_stderr(pairs):
    environment = {"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
    done = warm.fmtkit("inspect", pairs.name, "--all", cwd=pairs.parent, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "best guess: argilla_chat -> Preference" in done.stdout
    assert "pairs.jsonl:60" in done.stdout
    assert "\x1b" not in done.stdout


def shown(survey, *, width, whole=False):
    out = io.StringIO()
    print_survey(
        survey, Console(file=out, force_terminal=True, color_system=None, width=width), whole=whole
    )
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("whole", [False, True])
def test_no_line_is_wider_than_the_window_and_no_name_of_a_figure_is_broken(pairs, width, whole):
    lines = shown(fmtkit.inspect(pairs, show_mask=1), width=width, whole=whole)
    command = next(i for i, line in enumerate(lines) if line == "convert it") + 1
    too_wide = [line for i, line in enumerate(lines) if len(line.rstrip()) > width and i != command]
    assert too_wide == []
    if width >= 80:
        assert any(line.startswith("prompt+rejected ") for line in lines)


@pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs ../shared/data/goldens")
@pytest.mark.parametrize("width", [80, 120])
def test_a_survey_is_a_screen_verdict_and_findings_first_and_all_of_it_on_request(
    pairs, tokenizer, width, monkeypatch
):
    monkeypatch.chdir(pairs.parent)
    (pairs.parent / "llama3").exists() or (pairs.parent / "llama3").symlink_to(tokenizer)
    survey = fmtkit.inspect(pairs.name, tokenizer="llama3")
    assert len(survey.findings) > 8
    lines = shown(survey, width=width)
    assert len(lines) <= 50, "\n".join(lines)
    heads = ("✖ ", "lengths in tokens", "trained: ", "columns", "convert it")
    places = [next(i for i, line in enumerate(lines) if line.startswith(head)) for head in heads]
    assert places == sorted(places)
    assert survey.verdict.text in lines[places[0]]
    whole = "\n".join(shown(survey, width=width, whole=True))
    for found in survey.findings:
        assert f"{found.code}, " in whole
    assert "--all shows more" in lines[-1]
    assert "--all" not in whole


def test_every_finding_is_named_on_the_screen_even_where_there_is_no_room_for_its_words(pairs):
    survey = fmtkit.inspect(pairs)
    text = " ".join(shown(survey, width=80))
    for code in [*survey.ledger["reasons"], *(found.code for found in survey.findings)]:
        assert code in text


@pytest.mark.parametrize(
    ("rows", "type", "severity", "text"),
    [
        ([SOUND], "intel", "fine", "the one row converts; nothing was found"),
        ([SOUND, {**SOUND, "question": "p"}], "intel", "fine", "all 2 rows convert; nothing was found"),
        ([SOUND, BROKEN], "intel", "error", "1 of 2 rows converts (1 bad)"),
        ([BROKEN, BROKEN], "intel", "error", "none of 2 rows convert (2 bad)"),
        ([SOUND, SOUND], "intel", "warning", "all 2 rows convert; 1 warning"),
        ([{"a": 1}], None, "error", "no type was chosen, so the only row was not converted"),
    ],
)  # fmt: skip
def test_the_verdict_counts_rows_and_severities(rows, type, severity, text):
    verdict = fmtkit.inspect(rows, type).verdict
    assert (verdict.severity, verdict.text) == (severity, text)


def test_severities_differ_by_word_and_mark_not_by_colour_alone():
    assert len({mark for mark, _ in MARKS.values()}) >= 4
    assert {*SEVERITIES} < {*MARKS}


def test_fail_on_exits_with_1_where_the_code_was_found(pairs, capsys):
    done = runs.fmtkit(capsys, "inspect", pairs, "--fail-on", "unclosed_think", "-q")
    assert (done.code, done.out) == (1, "")
    assert "unclosed_think" in done.err
    fine = runs.fmtkit(capsys, "inspect", pairs, "--fail-on", "length_bias", "-q")
    assert fine.code == 0
    wrong = runs.fmtkit(capsys, "inspect", pairs, "--fail-on", "unclosed_thinks")
    assert wrong.code == 2
    assert "did you mean 'unclosed_think'" in wrong.err


@pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs ../shared/data/goldens")
def test_files_are_written_and_json_is_printed(pairs, tokenizer, tmp_path, capsys):
    done = runs.fmtkit(
        capsys, "inspect",
        pairs, "--tokenizer", tokenizer, "--json", "--html", tmp_path / "p.html",
        "--plot", tmp_path / "p.svg", "--max-length", "64", "--loss-budget", "5%", "--row", "59",
    )  # fmt: skip
    assert done.code == 0, done.err
    survey = json.loads(done.out)
    assert survey["cutting"]["loss_budget"] == 0.05
    assert [row["place"]["line"] for row in survey["shown"]] == [60]
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_a_users_error_is_one_line(pairs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, code, words in (
        (["nowhere.jsonl"], 3, "nowhere.jsonl"),
        ([pairs, "--tokenizer", "./none"], 2, "no such folder"),
        ([pairs, "--plot", "x.gif"], 2, "--plot x.gif"),
        ([pairs, "--loss-budget", "much"], 2, "--loss-budget much"),
        ([pairs, "--html", "no/folder/p.html"], 3, "p.html"),
    ):
        done = runs.fmtkit(capsys, "inspect", *arguments)
        assert done.code == code, done.err
        assert words in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_control_bytes_and_markup_are_shown_and_not_obeyed(tmp_path):
    evil = "\x1b]0;owned\x07 [red]x[/red] [link=http://x]y[/link] \u202e"
    rows = [{"question": evil, "chosen": f"{evil} {i}", "rejected": evil} for i in range(3)]
    rows.append({"question": evil, "chosen": 5, "rejected": evil})  # type: ignore[dict-item]
    path = write(tmp_path / "[bold]evil\x1b.jsonl", [{**row, evil: 1} for row in rows])
    survey = fmtkit.inspect(path, show_mask=2)
    out = io.StringIO()
    print_survey(survey, Console(file=out, force_terminal=True, color_system=None, width=100))
    text = out.getvalue()
    assert "\x1b]" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[red]x[/red]" in text
    assert "[bold]evil" in text


def test_histograms_are_as_wide_as_the_room(tmp_path):
    rows = [{"question": "q" * (3 * i + 1), "chosen": "a", "rejected": "b"} for i in range(90)]
    survey = fmtkit.inspect(write(tmp_path / "x.jsonl", rows), type="intel")
    figures = next(f for f in survey.lengths if f.name == "prompt")
    for width in (40, 79, 120):
        for plain in (True, False):
            lines = bars(figures, width, plain=plain)
            assert max(map(len, lines)) <= width
            assert len(lines) <= 14
    assert len(sparkline(figures, 20)) <= 20
    assert all(c in "# 0123456789,-.%" for line in bars(figures, 60, plain=True) for c in line)


def test_the_shipped_schema_is_that_of_the_code():
    assert json.loads(resources.schema_text("survey")) == survey_schema()


@pytest.mark.parametrize(
    ("flag", "suffix"), [("--html", "html"), ("--plot", "svg"), ("--plot", "png")]
)
def test_a_page_or_picture_is_replaced_only_if_it_is_ours_and_when_asked(
    pairs, tmp_path, capsys, flag, suffix
):
    if flag == "--plot":
        pytest.importorskip("matplotlib")
    out = tmp_path / f"p.{suffix}"
    command = ["inspect", pairs, flag, out, "-q"]
    assert runs.fmtkit(capsys, *command).code == 0
    data = out.read_bytes()
    again = runs.fmtkit(capsys, *command)
    assert (again.code, out.read_bytes()) == (2, data)
    assert "--overwrite replaces it" in again.err
    assert runs.fmtkit(capsys, *command, "--overwrite").code == 0
    assert out.read_bytes() == data
    out.write_bytes(b"mine")
    foreign = runs.fmtkit(capsys, *command, "--overwrite")
    assert (foreign.code, out.read_bytes()) == (2, b"mine")
    assert "fmtkit did not write it" in foreign.err
    out.unlink()
    (tmp_path / f"real.{suffix}").write_bytes(data)
    out.symlink_to(tmp_path / f"real.{suffix}")
    assert runs.fmtkit(capsys, *command, "--overwrite").code == 0
    assert out.is_symlink()


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--html", "s3://b/page.html", "local files"),
        ("--plot", "https://a/p.png", "local files"),
        ("--html", "page.txt", "give FILE.html"),
        ("--html", "page", "give FILE.html"),
    ],
)
def test_a_page_goes_to_a_local_file_of_its_suffix(
    pairs, tmp_path, monkeypatch, capsys, flag, value, words
):
    monkeypatch.chdir(tmp_path)
    done = runs.fmtkit(capsys, "inspect", pairs, flag, value)
    assert done.code == 2
    assert words in done.err
    assert list(tmp_path.iterdir()) == []


def test_where_no_type_fits_the_verdict_is_followed_by_what_to_write(capsys, tmp_path):
    path = tmp_path / "odd.jsonl"
    path.write_text('{"foo": "Tea?", "bar": "Yes.", "qux": "No."}\n')
    printed = runs.fmtkit(capsys, "inspect", path).out
    verdict, command, columns = map(
        printed.index, ("the only row was not converted", "fmtkit convert", "\ncolumns\n")
    )
    assert verdict < command < columns
    assert printed.count("note:") == 1


def test_tokens_of_the_template_in_content_are_a_finding_without_a_tokenizer(tmp_path, capsys):
    row = {"question": "Hi", "chosen": "Yes.<|im_end|>", "rejected": "No."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    asked = ["inspect", str(tmp_path / "rows.jsonl"), "--fail-on", "control_tokens", "-t"]
    assert runs.fmtkit(capsys, *asked, "chatml.intel").code == 1
    assert runs.fmtkit(capsys, *asked, "intel").code == 0


def test_two_replies_of_which_none_won_are_not_said_to_be_equal(tmp_path):
    rows = [
        {"prompt": "p", "response_a": "a", "response_b": "b", "winner": winner}
        for winner in ("model_a", "tie", "model_b")
    ]
    rows.append({"prompt": "p", "response_a": "same", "response_b": "same", "winner": "model_a"})
    survey = fmtkit.inspect(write(tmp_path / "votes.jsonl", rows), type="judged_replies")
    assert {row.message: row.place.line for row in survey.bad_rows} == {
        "neither reply won": 2,
        "chosen equals rejected": 4,
    }
    (found,) = [one for one in survey.findings if one.code == "chosen_equals_rejected"]
    assert [place.line for place in found.places] == [4]


def test_the_files_that_were_asked_for_are_named(pairs, tmp_path):
    page = tmp_path / "page.html"
    done = warm.fmtkit("inspect", pairs.name, "--html", str(page), cwd=pairs.parent)
    assert (done.returncode, done.stderr) == (0, f"wrote  {page}\n")
    done = warm.fmtkit(
        "inspect", pairs.name, "--html", str(page), "--overwrite", "--quiet", cwd=pairs.parent
    )
    assert (done.returncode, done.stderr) == (0, "")
