"""A row's verdict and value depend on that row alone, however its neighbours make it be parsed."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from fixture_cases import Case, cases, read_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_rows import damaged, mutated
from runs import INTEL, KTO, line, lines

from fmtkit.options.convert_options import RowOptions
from fmtkit.reading import native
from fmtkit.running.pipeline import process
from fmtkit.running.preparation import Job, prepare
from fmtkit.sources.blocks import JsonBlock
from fmtkit.sources.opening import open_sources

Result = tuple[Any, ...]
CASES = [case for case in cases() if case.source.exists()]


@cache
def sound_lines(case: Case) -> list[bytes]:
    """Return the lines of a fixture that are JSON."""
    bad = {reject["line"] for reject in case.lines("quarantine.jsonl") if "json" in reject["code"]}
    return [
        text for i, text in enumerate(read_lines(case.source), 1) if i not in bad and _is_json(text)
    ]


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@cache
def bound(case: Case, keep: str = "") -> Job:
    """Bind a case's type to its own rows."""
    sources = open_sources(str(case.source))
    request = RowOptions(type=case.name, keep=(keep,) if keep else (), **case.settings)
    return prepare(sources, request)


def strictly(read: Callable[[], list[Result]]) -> list[Result]:
    """Return what is read without the kernel."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(native.VARIABLE, native.OFF)
        return read()


def results(job: Job, data: bytes) -> list[Result]:
    """Return what becomes of each row of a block: its values, or its code and column."""
    made = next(process(job, 0, 0, JsonBlock(data, 1)))
    found: dict[int, list[Any]] = {}
    for record, row in zip(made.records.tolist(), made.table.to_pylist(), strict=True):
        found.setdefault(record, []).append(row)
    bad = {
        reject.row: (reject.line, reject.code, reject.column, reject.raw) for reject in made.rejects
    }
    assert not set(found) & set(bad)
    return [bad.get(record, found.get(record)) for record in range(made.counts.rows_read)]


def alone(job: Job, row: bytes) -> list[Result]:
    """Return the results of one line in a block of its own, judged strictly."""
    return strictly(lambda: results(job, row + b"\n"))


def numbered(result: Any, line: int) -> Any:
    return (line, *result[1:]) if isinstance(result, tuple) else result


def neighbours(case: Case) -> st.SearchStrategy[bytes]:
    sound = st.sampled_from(sound_lines(case))
    return sound | sound.flatmap(mutated) | sound.flatmap(damaged)


def check(case: Case, data: st.DataObject, keep: str = "") -> None:
    """Compare the rows of one block with each of them alone, before a strict judge."""
    rows = data.draw(st.lists(neighbours(case), min_size=1, max_size=3))
    job = bound(case, keep)
    expected = [
        numbered(result, number) for number, row in enumerate(rows, 1) for result in alone(job, row)
    ]
    assert results(job, lines(rows)) == expected


@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_both_parsers_come_to_the_same_verdicts_and_values(case: Case, data: st.DataObject) -> None:
    check(case, data)


@pytest.mark.parametrize("name", ["intel", "argilla_chat", "nectar", "stepwise_supervised"])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_kept_columns_are_judged_alike_by_both_parsers(name: str, data: st.DataObject) -> None:
    check(Case(name, ""), data, keep="all")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_both_parsers_agree_on_many_rows(case: Case, data: st.DataObject) -> None:
    check(case, data)


CHAT = {
    "messages": [{"role": "user", "content": "q"}],
    "chosen": {"role": "assistant", "content": "a", "mood": "glad"},
    "rejected": "b",
}


def faulty(row: dict[str, Any], **tokens: bytes) -> bytes:
    """Return a row with these keys added as they stand here."""
    added = b"".join(
        b"," + json.dumps(key).encode() + b":" + token for key, token in tokens.items()
    )
    return line(row)[:-1] + added + b"}"


FAULTS = {
    "a used column twice": (
        "intel",
        INTEL,
        faulty(INTEL, question=b'"z"'),
        "duplicate_key",
        "question",
    ),
    "a used column, spelled otherwise": (
        "intel",
        INTEL,
        line(INTEL)[:-1] + b',"quest\\u0069on":"z"}',
        "duplicate_key",
        "question",
    ),
    "an ignored column twice": (
        "intel",
        INTEL,
        faulty(INTEL, x=b"1")[:-1] + b',"x":2}',
        None,
        None,
    ),
    "twice inside an ignored column": (
        "intel",
        INTEL,
        faulty(INTEL, x=b'{"a":1,"a":2}'),
        None,
        None,
    ),
    "half a pair behind a duplicate key": (
        "intel",
        INTEL,
        faulty(INTEL, x=b'{"a":1,"a":"\\ud800"}'),
        "invalid_unicode",
        "x.a",
    ),
    "half a pair in an ignored key": (
        "intel",
        INTEL,
        faulty(INTEL, x=b'{"\\udc00":1}'),
        "invalid_unicode",
        "x",
    ),
    "NaN in an ignored column": ("intel", INTEL, faulty(INTEL, x=b"[NaN]"), None, None),
    "NaN in a label": (
        "intel",
        KTO,
        line(KTO | {"label": 1}).replace(b"1}", b"NaN}"),
        "type_error",
        "label",
    ),
    "1e400 in an ignored column": (
        "intel",
        INTEL,
        faulty(INTEL, x=b"[1e400]"),
        "number_overflow",
        "x",
    ),
    "an exponent of many digits": (
        "intel",
        INTEL,
        faulty(INTEL, x=b"1e" + b"9" * 5000),
        "number_overflow",
        "x",
    ),
    "a small exponent of many digits": (
        "intel",
        INTEL,
        faulty(INTEL, x=b"1e-" + b"9" * 5000),
        None,
        None,
    ),
    "what only rounds up to infinity": ("intel", INTEL, faulty(INTEL, x=b"1000e306"), None, None),
    "5000 digits in an ignored column": ("intel", INTEL, faulty(INTEL, x=b"9" * 5000), None, None),
    "not UTF-8 in an ignored column": (
        "intel",
        INTEL,
        faulty(INTEL, x=b'"\xff"'),
        "invalid_utf8",
        None,
    ),
    "too deep in an ignored column": (
        "intel",
        INTEL,
        faulty(INTEL, x=b"[" * 100 + b"]" * 100),
        "json_too_deep",
        None,
    ),
    "images": ("intel", INTEL, faulty(INTEL, images=b'["a.png"]'), "unsupported", "images"),
    "no images": ("intel", INTEL, faulty(INTEL, images=b"[]"), None, None),
    "a null image": ("intel", INTEL, faulty(INTEL, images=b"[null]"), None, None),
    "twice under an unknown key of a message": (
        "chat_template.default",
        CHAT,
        line(CHAT).replace(b'"glad"', b'{"a":1,"a":2}'),
        "duplicate_key",
        "chosen.mood.a",
    ),
    "NaN under an unknown key of a message": (
        "chat_template.default",
        CHAT,
        line(CHAT).replace(b'"glad"', b"[NaN]"),
        "json_nonfinite",
        "chosen.mood[0]",
    ),
    "beyond int64 under an unknown key": (
        "chat_template.default",
        CHAT,
        line(CHAT).replace(b'"glad"', b"9223372036854775808"),
        "number_overflow",
        "chosen.mood",
    ),
    "another legal shape": (
        "chat_template.default",
        CHAT,
        line(CHAT | {"chosen": "a", "messages": "q"}),
        None,
        None,
    ),
    "an extra column that starts late": (
        "intel",
        INTEL,
        faulty(INTEL, late=b'{"a":[1]}'),
        None,
        None,
    ),
    "an extra column of another kind": ("intel", INTEL, faulty(INTEL, late=b'"text"'), None, None),
}
BESIDE = {"alone": b"", "beside a bad row": b"{\n", "beside another legal row": None}


SIZES = [pytest.param(200, id="200"), pytest.param(10_000, marks=pytest.mark.slow, id="10000")]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gets_its_code_wherever_it_stands(fault: str, beside: str, size: int) -> None:
    kind, sound, bad, code, column = FAULTS[fault]
    company = BESIDE[beside]
    company = line(sound) + b"\n" if company is None else company
    good = line(sound) + b"\n"
    for before, after in ((0, 0), (0, size), (size // 2, size // 2), (size, 0)):
        job = prepare(open_sources([sound]), RowOptions(type=kind))
        found = results(job, good * before + company + bad + b"\n" + good * after)
        place = before + bool(company)
        expected = (place + 1, code, column, bad) if code else None
        assert (found[place] if code else None) == expected
        assert len(found) == before + after + 1 + bool(company)
        wrong = sum(isinstance(result, tuple) for result in found)
        assert wrong == bool(code) + (company == b"{\n")
