"""`--where`: which rows of a source are read, by a condition on their columns."""

import gzip
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fmtkit
from fmtkit.commands.application import application
from fmtkit.core.errors import NothingWrittenError, OptionError, ResumeError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.reading.where_expression import Condition
from fmtkit.reading.where_filter import Where, keep_where
from fmtkit.running.conversions import convert_to
from fmtkit.running.ledger import Ledger
from fmtkit.sources.opening import open_sources

PAIR = {"chosen": "good", "rejected": "bad"}


def rows(*columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return pairs with these columns, each with its number as the question."""
    return [{"question": f"q{n}", **PAIR, **more} for n, more in enumerate(columns)]


def lines(path: Path, made: Sequence[Mapping[str, Any] | str]) -> str:
    """Write rows as JSON lines; a text is a line as it is."""
    texts = (row if isinstance(row, str) else json.dumps(row) for row in made)
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8", newline="")
    return str(path)


def kept(source: object, where: str, **options: Any) -> list[int]:
    """Return the numbers of the rows that are kept."""
    table = fmtkit.table(source, "intel", where=where, on_error="fail", **options)
    prompts = (row["prompt"][-1]["content"] for row in table.to_pylist())
    return [int(text.removeprefix("q")) for text in prompts]


def report(source: object, where: str, **options: Any) -> Any:
    """Return the report of a conversion in which every row is in one term."""
    made = fmtkit.convert(source, "intel", where=where, **options)
    terms = (made.converted, made.quarantined, made.filtered)
    assert made.rows_read == sum(terms)
    return made


SCORED = rows(
    {"score": 5, "lang": "en"},
    {"score": 2.5, "lang": "en"},
    {"score": 4, "lang": "de"},
    {"score": None, "lang": "en"},
    {"lang": "en"},
    {"score": 3.5, "lang": None},
)


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("score > 3 and lang = 'en'", [0]),
        ("score > 3", [0, 2, 5]),
        ("not (score > 3)", [1]),
        ("score is null", [3, 4]),
        ("lang in ('en', 'de') and score is not null", [0, 1, 2]),
        ("score between 2.5 and 4", [1, 2, 5]),
        ("lang like 'e%'", [0, 1, 3, 4]),
        ("length(lang) = 2", [0, 1, 2, 3, 4]),
        ("upper(lang) = 'DE'", [2]),
        ("coalesce(score, 0) < 3", [1, 3, 4]),
        ("greatest(score, 4) = 4", [1, 2, 3, 4, 5]),
        ("case when lang = 'en' then score > 3 else true end", [0, 2, 5]),
        ("regexp_like(lang, '^d')", [2]),
        ("cast(score as varchar) = '5'", [0]),
        ("score / 2 > 2", [0]),
        ("score > 3 -- a comment", [0, 2, 5]),
        ("question = 'q1' or rejected <> 'bad'", [1]),
        ('"score" >= 4 and `lang` is not null', [0, 2]),
    ],
)
def test_rows_of_which_the_expression_is_true_are_kept(
    where: str, numbers: list[int], tmp_path: Path
) -> None:
    assert kept(SCORED, where) == numbers
    assert kept(lines(tmp_path / "rows.jsonl", SCORED), where) == numbers
    table = pa.Table.from_pylist([{"score": None, **row} for row in SCORED])
    if "varchar" not in where:
        # In a column of floats 5 is 5.0.
        assert kept(table, where) == numbers
        pq.write_table(table, tmp_path / "rows.parquet")
        assert kept(tmp_path / "rows.parquet", where) == numbers


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("meta.score > 3", [0]),
        ("meta.by.name = 'ann'", [1]),
        ("meta is not null", [0, 1, 2]),
        ("array_length(tags) > 1", [0]),
        ("array_contains(tags, 'b')", [0, 2]),
        ("'b' = any(tags)", [0, 2]),
        ("tags[1] = 'a'", [0]),
        ('"meta.score" = 1', [3]),
        ('"meta.score" = 1 or meta.score = 1', [1, 3]),
    ],
)
def test_values_inside_of_objects_and_lists_can_be_tested(
    where: str, numbers: list[int], tmp_path: Path
) -> None:
    made = rows(
        {"meta": {"score": 5}, "tags": ["a", "b"]},
        {"meta": {"score": 1, "by": {"name": "ann"}}, "tags": []},
        {"meta": {"by": None}, "tags": ["b"]},
        {"meta.score": 1, "tags": None},
    )
    assert kept(lines(tmp_path / "rows.jsonl", made), where) == numbers
    table = pl.from_dicts(made, infer_schema_length=None).to_arrow()
    assert kept(table, where) == numbers


def test_a_name_with_blanks_quotes_or_letters_of_any_alphabet_is_quoted(tmp_path: Path) -> None:
    made = rows({"my score": 1, "größe": 2, 'a"b': 3, "名": "一", "^a.*": 1})
    source = lines(tmp_path / "rows.jsonl", made)
    for where in ('"my score" = 1', "größe = 2", '"a""b" = 3', "名 = '一'", "`my score` < 2"):
        assert kept(source, where) == [0]
    with pytest.raises(OptionError, match=r"no column my_score in .*; did you mean my score\?"):
        kept(source, "my_score = 1")


def test_a_value_is_judged_as_its_row_has_it_and_a_row_whose_value_does_not_fit_is_bad(
    tmp_path: Path,
) -> None:
    source = lines(
        tmp_path / "rows.jsonl",
        [
            *rows({"score": 5}, {"score": "4"}, {"score": [4]}, {"score": {"a": 1}}),
            *rows({"score": True}, {"score": None}, {"score": 1}),
        ],
    )
    found: list[Any] = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        table = fmtkit.table(source, "intel", where="score > 3", rejects=found)
    assert table.num_rows == 1
    assert [(one.line, one.code, one.column) for one in found] == [
        (line, "type_error", "score") for line in (2, 3, 4)
    ]
    assert found[0].message == (
        "where: score is text here: cannot compare string with numeric type (i32); "
        "TRY_CAST(score AS DOUBLE) is its number"
    )
    texts = rows({"score": 5}, {"score": "4"}, {"score": "many"}, {"score": 1})
    assert kept(texts, "try_cast(score as double) > 3") == [0, 1]
    made = report(texts, "cast(score as double) > 3")
    assert (made.converted, made.quarantined, made.filtered) == (2, 1, 1)


def test_rows_that_are_left_out_are_not_bad_and_lines_that_are_no_rows_are(tmp_path: Path) -> None:
    source = lines(
        tmp_path / "rows.jsonl",
        [
            {"question": "q0", **PAIR, "lang": "en"},
            {"question": "", "chosen": 3, "lang": "xx"},
            {"question": "", **PAIR, "lang": "en"},
            "",
            "no row",
            '{"question":"q","lang":"en","lang":"xx"}',
            '{"question":"q","lang":"\\ud800"}',
            '{"question":"q9","chosen":"a","rejected":"b","lang":"en","score":NaN}',
        ],
    )
    found: list[Any] = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        fmtkit.table(source, "intel", where="lang = 'en'", rejects=found)
    assert [(one.line, one.code) for one in found] == [
        (3, "empty_field"),
        (5, "json_syntax"),
        (6, "duplicate_key"),
        (7, "invalid_unicode"),
    ]
    made = report(source, "lang = 'en'")
    assert (made.rows_read, made.converted, made.filtered, made.blank_lines) == (7, 2, 1, 1)


def test_cells_of_csv_are_texts(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        'question,chosen,rejected,score,my lang\nq0,a,b,5,en\n,,,1,en\nq2,"a\nb",c,,en\nq3,a,b,10,de\n'
    )
    source = tmp_path / "rows.csv"
    assert kept(source, "cast(score as double) > 3") == [0, 3]
    assert kept(source, "score is null") == [2]
    assert kept(source, "\"my lang\" = 'en' and score <> '1'") == [0]
    with pytest.raises(OptionError) as error:
        kept(source, "score > 3")
    assert str(error.value) == (
        f'--where "score > 3": {source}: score is text here: cannot compare string with numeric type (i32); '
        "TRY_CAST(score AS DOUBLE) is its number"
    )
    assert report(source, "score > '3'").filtered == 3


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("scor > 3", "no column scor in <memory>; did you mean score?"),
        ("zzz > 3", "no column zzz in <memory>; the columns are question, chosen, rejected, score"),
        (
            "lang.code = 'en'",
            "no key code in column lang in <memory>; no row has an object in lang",
        ),
        ("score >", "unable to parse 'score >' as Expr"),
        ("order > 3", "a name that SQL takes in double quotes"),
        ("score > 3; score < 2", "unexpected token ';'"),
        ("  ", "it is empty"),
        ("-- nothing", "write an SQL expression"),
        ("true", "it names no column"),
        ("lenght(lang) > 3", "unsupported function 'lenght'"),
        ("score", "score is a number here: the expression is a number, not true or false"),
        ("length(lang)", "the expression is a number, not true or false"),
        ("lower(lang)", "the expression is text, not true or false"),
        ("lang > 3", "lang is text here: cannot compare string with numeric type"),
        ("regexp_like(lang, '[')", "regex parse error"),
        ("cast(lang as int) > 3", "TRY_CAST makes it NULL"),
        ("max(score) > 3", "it asks for other rows"),
        ("sum(score) > 3", "it asks for other rows"),
        ("count(*) > 3", "it asks for other rows"),
        ("score > avg(score)", "it asks for other rows"),
        ("first(score) > 3", "it asks for other rows"),
        ("row_number() over (order by score) < 3", "it asks for other rows"),
        ("sum(score) over (partition by lang) > 3", "it asks for other rows"),
        ("rank() over (order by score) = 1", "it asks for other rows"),
        ("lag(score, 1) over (order by score) > 3", "it asks for other rows"),
        ("quantile_cont(score, 0.5) > 3", "it asks for other rows"),
        ("unnest(lang) = 'e'", "it asks for other rows"),
        ("score in (select score from self)", "it has a subquery"),
        ("exists (select 1)", "it has a subquery"),
        ("score > (SELECT max(score) FROM self)", "it has a subquery"),
        ("exists (from read_csv('/etc/passwd'))", "it has a subquery"),
        ("read_csv('/etc/passwd') is null", "it has a subquery"),
        ("columns('^s') > 3", "name each of them"),
        ("now() > lang", "now is another time in every run"),
        ("lang < current_date", "current_date is another time in every run"),
        ("date(lang) > date '2020-01-01'", "give it: date(day, '%Y-%m-%d')"),
        ("random() > 0.5", "unsupported function 'random'"),
    ],
)
def test_what_is_no_condition_on_a_row_is_refused_in_one_line(where: str, said: str) -> None:
    with pytest.raises(OptionError) as error:
        kept(SCORED, where)
    assert said in str(error.value)
    assert str(error.value).startswith(f'--where "{where}": ')
    assert "\n" not in str(error.value)


def test_an_expression_may_have_many_parts_and_lines_and_not_too_many_levels() -> None:
    assert kept(SCORED, " or ".join(f"score = {n}" for n in range(4, 300))) == [0, 2]
    assert kept(SCORED, "score > 3\n  and lang = 'en'\n") == [0]
    assert kept(SCORED, f"score in ({', '.join(map(str, range(4, 9000)))})") == [0, 2]
    sums = " + ".join(["score"] * 200)
    for where in (
        " or ".join(["score = 1"] * 3000),
        f"{sums} > 3",
        f"{'(' * 9000}score = 1{')' * 9000}",
    ):
        with pytest.raises(OptionError) as error:
            kept(SCORED, where)
        assert len(str(error.value)) < 900
        assert "\n" not in str(error.value)


def test_names_of_functions_in_quotes_are_texts() -> None:
    made = rows({"select": "now()"}, {"select": "read_csv("})
    assert kept(made, "\"select\" = 'now()'") == [0]
    assert kept(made, "\"select\" <> 'it''s select' /* select */") == [0, 1]


def test_an_empty_expression_is_refused_as_it_comes_from_a_variable() -> None:
    with pytest.raises(OptionError, match="where is empty"):
        kept(SCORED, "")


def test_a_column_may_begin_late_or_be_in_one_of_the_files(tmp_path: Path) -> None:
    padding = rows(*[{"text": "x" * 4000}] * 2000)
    late = lines(tmp_path / "late.jsonl", [*padding, *rows({"score": 4, "meta": {"a": {"b": 1}}})])
    assert report(late, "score > 3").converted == 1
    assert report(late, "meta.a.b = 1").converted == 1
    with pytest.raises(OptionError, match=r"no column scor in .*late.jsonl; did you mean score"):
        report(late, "scor > 3")
    with pytest.raises(
        OptionError, match=r"no key c in column meta.a in .*; did you mean b|the keys are b"
    ):
        report(late, "meta.a.c = 1")
    other = lines(tmp_path / "other.jsonl", rows({}, {}))
    made = report([other, late], "score > 3")
    assert (made.converted, made.filtered) == (1, 2002)
    with pytest.raises(OptionError, match=r"other\.jsonl and 1 more"):
        report([other, late], "zzz > 3")


def test_rows_that_begin_after_many_blocks_decide_how_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmtkit.running.preparation._SAMPLE_BLOCKS", 1)
    other = {"messages": [{"role": "user", "content": "x" * 9000}], "kind": "chat"}
    made = [*[other] * 3000, *rows(*[{"kind": "pair", "system": "Be kind."}] * 3)]
    source = lines(tmp_path / "rows.jsonl", made)
    table = fmtkit.table(source, "intel", where="kind = 'pair'", on_error="fail")
    assert table.num_rows == 3
    assert table.to_pylist()[0]["prompt"][0] == {"role": "system", "content": "Be kind."}
    survey = fmtkit.inspect(source, where="kind = 'pair'")
    assert survey.best_guess == "intel"
    assert (survey.ledger["converted"], survey.ledger["filtered"]) == (3, 3000)


def test_a_run_of_which_every_row_is_left_out_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with pytest.raises(
        NothingWrittenError, match="is not true of any of 6 rows; nothing was written"
    ):
        fmtkit.convert(SCORED, "intel", out, where="lang = 'zz'")
    assert not out.exists()
    assert fmtkit.table(SCORED, "intel", where="lang = 'zz'").num_rows == 0


def test_limit_counts_the_rows_that_are_read(tmp_path: Path) -> None:
    made = report(lines(tmp_path / "rows.jsonl", SCORED), "lang = 'de'", limit=3)
    assert (made.rows_read, made.converted, made.filtered) == (3, 1, 2)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.sampled_from(["1", "2024-01-02", "\\", '"', "é\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip
ROWS = st.lists(st.fixed_dictionaries({"a": VALUES}, optional={"b": VALUES}), min_size=1, max_size=8)  # fmt: skip
EXPRESSIONS = (
    "a > 1 or b is null",
    "a is not null",
    "length(a) > 1",
    "a in (1, 2, 3) and b in ('1', 'x')",
    "try_cast(a as double) >= 1",
    "cast(a as bigint) > 0",
    "array_length(a) > 0 or length(b) > 0",
    "array_contains(a, 1)",
    "a[1] = b[1]",
    "a.a = b.b",
    "a.a.a is null and b.a > 0",
    "a || b = '11'",
    "coalesce(a, b) = 1",
    "greatest(a, b) > 1",
    "a",
    "not a",
    "case when a > 1 then b else true end",
    "date(a, '%Y-%m-%d') > date '2020-01-01'",
    "left(a, 1) = '1' and concat(a, b) like '1%'",
    "abs(a) > 1 and round(b, 1) > 0 and a % 2 = 1",
    "strpos(a, '1') = 1",
    "split_part(a, '-', 1) = '2024'",
)


def outcomes(made: Sequence[Mapping[str, Any]], where: str) -> list[str]:
    """Return what became of each row: kept, filtered or bad."""
    found: list[Any] = []
    source = [{"question": f"q{n}", **PAIR, **row} for n, row in enumerate(made)]
    # The filter without the trial on the first rows, which depends on all of them.
    [opened] = open_sources(source)
    judge = Where(Condition(where))
    for block in opened.blocks():
        taken = judge(block)
        bad = {reject.row for reject in taken.rejects}
        found += [
            "bad" if n in bad else "kept" if is_kept else "filtered"
            for n, is_kept in enumerate(taken.mask.tolist())
        ]
    return found


@given(made=ROWS, where=st.sampled_from(EXPRESSIONS))
def test_what_becomes_of_a_row_depends_on_it_alone(made: list[dict[str, Any]], where: str) -> None:
    together = outcomes(made, where)
    assert together == [one for row in made for one in outcomes([row], where)]
    assert outcomes(made[::-1], where) == together[::-1]


@given(made=ROWS, where=st.sampled_from(EXPRESSIONS))
def test_the_kernel_and_the_strict_parser_agree(made: list[dict[str, Any]], where: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        with_kernel = outcomes(made, where)
        patched.setattr("fmtkit.reading.clean_lines.kernel", lambda: None)
        assert outcomes(made, where) == with_kernel


@given(made=ROWS, where=st.sampled_from(EXPRESSIONS))
def test_every_row_is_in_one_term_of_the_ledger(made: list[dict[str, Any]], where: str) -> None:
    source = rows(*made, {"a": 1, "b": 1}, {"a": "1", "b": "1"})
    try:
        found = report(source, where)
    except OptionError:
        # The expression fits none of the rows.
        return
    assert found.rows_read == len(source)
    assert found.filtered == outcomes([*made, {"a": 1, "b": 1}, {"a": "1", "b": "1"}], where).count("filtered")  # fmt: skip


def convert(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `fmtkit convert`."""
    command = [sys.executable, "-m", "fmtkit", "convert", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def mixed(path: Path) -> str:
    """Write rows of several blocks, with rows that are bad and rows that are left out."""
    made: list[Mapping[str, Any] | str] = []
    for n in range(6000):
        score: Any = [n % 7, n % 7 + 0.5, str(n % 7), None][n % 4]
        made.append({"question": f"q{n}", **PAIR, "score": score, "pad": "x" * (n % 1500) * 3})
        made += ["", "no row"] if n % 500 == 0 else []
    return lines(path, made)


def test_the_bytes_are_the_same_for_any_workers_and_without_the_kernel(tmp_path: Path) -> None:
    source = mixed(tmp_path / "rows.jsonl")
    found = set()
    for name, workers, kernel in (("a", 1, "require"), ("b", 2, "require"), ("c", 2, "0")):
        out = tmp_path / name
        done = convert(
            source, "-t", "chatml.intel", "-o", out, "--where", "score > 3", "--workers", workers,
            FMTKIT_KERNEL=kernel,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        files = sorted(
            path for path in out.rglob("*") if path.is_file() and "report" not in path.name
        )
        shown = [path for path in files if path.name != "manifest.json"]
        found.add(tuple((str(p.relative_to(out)), p.read_bytes()) for p in shown))
    assert len(found) == 1


def interrupted(source: str, out: Path, where: str) -> None:
    """Convert some blocks and stop, so that the run can be resumed."""
    calls = count()

    def stop(done: int, size: int | None, ledger: Ledger) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_to(source, out, ConvertOptions(type="intel", where=where), watch=stop)


def test_resuming_continues_only_the_same_condition(tmp_path: Path) -> None:
    source = mixed(tmp_path / "rows.jsonl")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = fmtkit.convert(source, "intel", whole, where="score > 3")
    interrupted(source, cut, "score > 3")
    with pytest.raises(ResumeError):
        fmtkit.convert(source, "intel", cut, where="score > 4", resume=True)
    resumed = fmtkit.convert(source, "intel", cut, where="score > 3", resume=True)
    assert (resumed.rows_read, resumed.filtered) == (expected.rows_read, expected.filtered)
    for path in whole.rglob("*.parquet"):
        assert (cut / path.relative_to(whole)).read_bytes() == path.read_bytes()
    for other in ("score > 4", None):
        with pytest.raises(ResumeError):
            fmtkit.convert(source, "intel", whole, where=other, resume=True)


def test_the_command_line_counts_what_is_left_out_and_does_not_call_the_columns_unused(
    tmp_path: Path,
) -> None:
    source = lines(tmp_path / "rows.jsonl", SCORED)
    out = tmp_path / "out.jsonl"
    done = CliRunner().invoke(
        application(), ["convert", source, "-t", "intel", "-o", str(out), "--where", "score > 3"]
    )
    assert done.exit_code == 0
    assert "filtered      3  50.0%" in done.output
    assert "not used: lang" in done.output
    assert len(out.read_text().splitlines()) == 3


def test_an_inspection_sees_the_rows_that_are_read_and_suggests_the_same_command(
    tmp_path: Path,
) -> None:
    made: list[dict[str, Any]] = [*rows({"lang": "en"}), {"text": "other", "lang": "xx"}]
    source = lines(tmp_path / "rows.jsonl", made)
    survey = fmtkit.inspect(source, where="lang = 'en'")
    assert survey.ledger["filtered"] == 1
    assert survey.ledger["quarantined"] == 0
    assert "--where 'lang = '\"'\"'en'\"'\"''" in str(survey.command)
    with pytest.raises(OptionError, match="no column lan in"):
        fmtkit.inspect(source, where="lan = 'en'")


def test_a_function_of_the_user_gets_the_rows_that_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def load(cfg):\n"
        "    def row(row):\n"
        "        assert row['lang'] == 'en'\n"
        "        return None if row['n'] == 1 else {'prompt': row['question'], 'completion': 'a'}\n"
        "    return row, {'remove_columns': '__all__'}\n"
    )
    made = rows({"lang": "en", "n": 0}, {"lang": "xx", "n": 0}, {"lang": "en", "n": 1})
    found = fmtkit.convert(
        made, "mine.load", where="lang = 'en'", plugins=[str(tmp_path / "mine.py")]
    )
    assert (found.rows_read, found.converted, found.filtered) == (3, 1, 2)


def test_rows_are_filtered_before_they_are_joined(tmp_path: Path) -> None:
    made: list[dict[str, Any]] = [
        {"message_id": "a", "parent_id": None, "message_tree_id": "a", "role": "prompter", "text": "q", "lang": "en"},
        {"message_id": "b", "parent_id": "a", "message_tree_id": "a", "role": "assistant", "text": "r", "lang": "en"},
        {"message_id": "c", "parent_id": "a", "message_tree_id": "a", "role": "assistant", "text": "s", "lang": "xx"},
    ]  # fmt: skip
    found = fmtkit.convert(lines(tmp_path / "rows.jsonl", made), "oasst.rows", where="lang = 'en'")
    assert (found.rows_read, found.filtered, found.joined) == (3, 1, 1)


def test_a_score_that_chooses_rows_is_used_and_text_that_does_is_still_not_read(
    recwarn: pytest.WarningsRecorder,
) -> None:
    assert kept(SCORED, "score > 3") == [0, 2, 5]
    assert not recwarn
    answers = rows({"answer": "This is a long answer."}, {"answer": None})
    with pytest.warns(fmtkit.UnreadTurnsWarning, match="answer 1"):
        kept(answers, "length(answer) > 3")


def test_kept_columns_and_the_condition_are_independent(tmp_path: Path) -> None:
    source = lines(tmp_path / "rows.jsonl", rows({"score": 1, "id": 7}, {"score": "x", "id": 8}))
    table = fmtkit.table(source, "intel", where="id = 7", keep=("score",))
    # What is left out does not decide how a column is kept.
    assert table.column("score").type == pa.int64()
    assert table.column("score").to_pylist() == [1]


def test_frames_of_polars_and_texts_that_are_not_utf8_can_be_filtered(tmp_path: Path) -> None:
    frame = pl.DataFrame(SCORED)
    assert kept(frame, "score > 3") == [0, 2, 5]
    bad = pa.array([b"en", b"\xff"], pa.binary()).cast(pa.binary()).view(pa.string())
    table = pa.table(
        {"question": ["q0", "q1"], "chosen": ["a", "a"], "rejected": ["b", "b"], "lang": bad}
    )
    made = report(table, "lang = 'en'")
    assert (made.converted, made.quarantined) == (1, 1)


def test_numbers_that_json_does_not_have_make_a_bad_row() -> None:
    table = pa.table(
        {
            "question": ["q0", "q1", "q2"],
            "chosen": ["a"] * 3,
            "rejected": ["b"] * 3,
            "score": [5.0, float("nan"), None],
            "big": pa.array([1, 2, 2**63], pa.uint64()),
        }
    )
    made = report(table, "score > 3")
    assert (made.converted, made.quarantined, made.filtered) == (1, 1, 1)
    assert report(table, "big > 1").reasons == {"json_nonfinite": 1}


SEVERAL = [
    {"question": f"q{n}", **PAIR, "n": n, "lang": "en" if n % 3 else "de"} for n in range(40)
]


@pytest.mark.parametrize("name", ["array.json", "spread.json", "rows.csv", "rows.jsonl.gz", "crlf.jsonl"])  # fmt: skip
def test_lines_and_rows_of_bad_rows_are_those_of_the_source_in_every_layout(
    name: str, tmp_path: Path
) -> None:
    made: list[dict[str, Any]] = [dict(row) for row in SEVERAL]
    made[7]["chosen"] = made[30]["chosen"] = ""
    texts = [json.dumps(row) for row in made]
    path = tmp_path / name
    if name.startswith("array"):
        path.write_text("[" + ",\n\n".join(texts) + "]")
    elif name.startswith("spread"):
        path.write_text("".join(json.dumps(row, indent=1) + "\n" for row in made))
    elif name.endswith("csv"):
        head = "question,chosen,rejected,n,lang\n"
        body = [",".join(str(value) for value in row.values()) for row in made]
        path.write_text(head + "\n".join([*body[:20], "a,b,c,1,en,more", *body[20:]]) + "\n")
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress("\n".join(["{", "", *texts]).encode()))
    else:
        path.write_bytes("\r\n".join(["", *texts[:20], "\r\n  \r\n{", *texts[20:]]).encode())
    plain: list[Any] = []
    chosen: list[Any] = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        fmtkit.table(str(path), "intel", rejects=plain)
    with pytest.warns(fmtkit.RejectedRowsWarning):
        table = fmtkit.table(str(path), "intel", where="lang = 'en'", rejects=chosen)
    prompts = [row["prompt"][-1]["content"] for row in table.to_pylist()]
    assert prompts == [f"q{n}" for n in range(40) if n % 3 and n != 7]
    # The thirtieth is left out.
    left = [one for one in plain if one.column == "chosen"][1]
    assert chosen == [one for one in plain if one is not left]


def test_a_source_that_is_read_once_can_be_filtered(tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in SEVERAL)
    command = [sys.executable, "-m", "fmtkit", "convert", "-", "-t", "intel", "-o", "out.jsonl"]
    for where, count_of in (
        ("lang = 'de'", 14),
        ("lang = 'de' and n >= 0 and question like 'q%'", 14),
    ):
        done = subprocess.run(
            [*command, "--overwrite", "--keep", "n", "--where", where],
            input=text, capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == count_of
    assert kept(iter(SEVERAL), "n > 37") == [38, 39]


def test_parts_of_a_file_and_other_processes_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = mixed(tmp_path / "rows.jsonl")
    expected = fmtkit.convert(source, "intel", tmp_path / "one", where="score > 3")
    monkeypatch.setattr("fmtkit.sources.parts.PART_BYTES", 1 << 20)
    found = fmtkit.convert(source, "intel", tmp_path / "parts", where="score > 3")
    for name in ("rows_read", "converted", "quarantined", "filtered", "blank_lines"):
        assert getattr(found, name) == getattr(expected, name)
    bad = [(tmp_path / name / "quarantine.jsonl").read_text() for name in ("one", "parts")]
    assert bad[0] == bad[1]
    [opened] = open_sources(source)
    chosen = keep_where([opened], "score > 3")[0]
    again = pickle.loads(pickle.dumps(chosen))
    for one, other in zip(chosen.blocks(), again.blocks(), strict=True):
        sent = pickle.loads(pickle.dumps(one))
        assert sent.filtered == other.filtered == one.filtered
        assert sent.places(len(sent.records())).tolist() == one.places(len(one.records())).tolist()


def test_a_limit_within_a_block_of_joined_rows_keeps_the_ledger_whole(tmp_path: Path) -> None:
    made = [
        {"message_id": f"{n}", "parent_id": str(n - 1) if n % 4 else None, "message_tree_id": str(n // 4),
         "role": ("prompter", "assistant")[n % 2], "text": f"t{n}", "lang": "xx" if n % 4 == 3 else "en"}
        for n in range(20)
    ]  # fmt: skip
    source = lines(tmp_path / "rows.jsonl", made)
    for limit in range(1, 21):
        found = fmtkit.convert(source, "oasst.rows", where="lang = 'en'", limit=limit)
        terms = (found.converted, found.quarantined, found.filtered, found.joined)
        assert found.rows_read == sum(terms) == limit
        assert found.filtered == limit // 4


def test_validating_and_rows_of_an_inspection_keep_their_numbers(tmp_path: Path) -> None:
    made = [dict(row) for row in SEVERAL]
    made[7]["chosen"] = ""
    source = lines(tmp_path / "rows.jsonl", made)
    found = fmtkit.validate(source, "intel", where="lang = 'en'")
    assert [(one.row, one.line, one.code) for one in found.items] == [(7, 8, "empty_field")]
    done = CliRunner().invoke(
        application(), ["inspect", source, "-t", "intel", "--where", "lang = 'en'", "--row", "4"]
    )
    assert done.exit_code == 0
    assert "q4" in done.output


MIXED = [{"question": f"q{n}", **PAIR, "score": str(n) if n % 2 else n} for n in range(4, 14)]


@pytest.mark.parametrize("where", ["score > 4.5", "score between 4.5 and 99.5", "score <> 5.0"])
def test_a_text_is_not_compared_with_a_decimal(where: str, tmp_path: Path) -> None:
    """Polars compares both as texts: 10 was less than 4.5."""
    rejects: list[Any] = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        made = fmtkit.table(MIXED, "intel", where=where, rejects=rejects)
    assert made.num_rows == sum(not isinstance(row["score"], str) for row in MIXED) - (
        where != "score <> 5.0"
    )
    assert {one.code for one in rejects} == {"type_error"}
    path = tmp_path / "a.csv"
    pl.DataFrame([{**row, "score": str(row["score"])} for row in MIXED]).write_csv(path)
    with pytest.raises(OptionError, match="score is text here"):
        fmtkit.table(str(path), "intel", where=where)


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.UInt8, pl.Int32, pl.Int64])
def test_small_integers_do_not_overflow_sooner_than_those_of_json(dtype: Any) -> None:
    frame = pl.DataFrame(rows(*({"n": n} for n in range(40)))).with_columns(pl.col("n").cast(dtype))
    for where, count_of in (("n * 100 > 0", 39), ("n * n > 100", 29), ("n - 50 < 0", 40)):
        assert fmtkit.table(frame, "intel", where=where).num_rows == count_of


def test_what_fills_the_memory_by_a_value_of_a_row_is_refused() -> None:
    with pytest.raises(OptionError, match="lpad"):
        fmtkit.table(rows({"n": 1}), "intel", where="lpad(question, n, 'x') = 'x'")


def test_columns_are_kept_of_no_rows(tmp_path: Path) -> None:
    source = lines(tmp_path / "a.jsonl", rows({"n": 1}, {"n": 2}))
    with pytest.raises(NothingWrittenError, match="not true of any of 2 rows"):
        fmtkit.convert(source, "intel", tmp_path / "b.jsonl", where="n > 5", keep="n")


def test_a_validation_tells_the_rows_that_are_left_out(tmp_path: Path, capsys: Any) -> None:
    source = lines(tmp_path / "a.jsonl", rows({"n": 1}, {"n": 2}))
    done = CliRunner().invoke(
        application(), ["validate", source, "-t", "intel", "--where", "n > 1"]
    )
    assert "2 rows, 1 filtered, 1 sound" in done.stderr + capsys.readouterr().err
