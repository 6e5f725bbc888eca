"""Every converter over its fixtures: the rows, the rendered rows, the rejects and the warnings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fixture_cases import Case, cases, read_lines, renders, run

from fmtkit.formats import registry

EVERY = [pytest.param(case, id=str(case)) for case in cases()]
RENDERED = [
    pytest.param(case, id=str(case)) for case in cases() if case.path("chatml.jsonl").exists()
]


@pytest.mark.parametrize("case", EVERY)
def test_a_source_becomes_its_canonical_rows(case: Case) -> None:
    outcome = run(case)
    assert outcome.rows == case.lines("canonical.jsonl")
    assert outcome.rejects == case.lines("quarantine.jsonl")
    warnings = case.path("warnings.json")
    assert outcome.warnings == (json.loads(warnings.read_text()) if warnings.exists() else {})


@pytest.mark.parametrize("case", RENDERED)
def test_a_source_becomes_its_rendered_rows(case: Case) -> None:
    outcome = run(case, template="chatml")
    assert outcome.rows == case.lines("chatml.jsonl")
    changed = case.lines("chatml.quarantine.jsonl") or case.lines("quarantine.jsonl")
    assert outcome.rejects == changed


@pytest.mark.parametrize("case", EVERY)
def test_a_bad_row_gets_its_code_beside_one_sound_row_only(case: Case, tmp_path: Path) -> None:
    lines = read_lines(case.source)
    rejects = case.lines("quarantine.jsonl")
    bad = {reject["line"] for reject in rejects}
    sound = next(line for number, line in enumerate(lines, 1) if number not in bad)
    source = tmp_path / "source.jsonl"
    for reject in rejects:
        source.write_bytes(sound + b"\n" + lines[reject["line"] - 1] + b"\n")
        assert run(case, source).rejects == [{**reject, "line": 2}]


@pytest.mark.parametrize("case", EVERY)
def test_a_row_with_half_a_surrogate_pair_in_a_name_is_a_bad_one(
    case: Case, tmp_path: Path
) -> None:
    """Also for types that take whole rows, to which a run ended in polars' error."""
    bad = {reject["line"] for reject in case.lines("quarantine.jsonl")}
    lines = enumerate(read_lines(case.source), 1)
    sound = next(line for number, line in lines if number not in bad and line.startswith(b"{"))
    source = tmp_path / "source.jsonl"
    source.write_bytes(sound + b"\n" + sound.replace(b"{", b'{"\\ud800": null, ', 1) + b"\n")
    (reject,) = run(case, source).rejects
    assert (reject["code"], reject["column"]) == ("invalid_unicode", None)


def test_every_case_with_conversations_has_rendered_rows() -> None:
    files = ("chatml.jsonl", "chatml.quarantine.jsonl")
    missing = [
        str(case)
        for case in cases()
        if renders(case) and not any(case.path(file).exists() for file in files)
    ]
    assert missing == []


def test_every_converter_has_fixtures() -> None:
    named = {case.name for case in cases()}
    names = {converter.name for converter in registry.converters()}
    assert sorted(name for name in names if name not in named and "ebft" not in name) == []


def test_every_converter_says_where_its_format_comes_from() -> None:
    silent = [
        converter.name
        for converter in registry.converters()
        if not converter.source_url and converter.name != "passthrough"
    ]
    assert silent == []


BY_NAME = """
from fmtkit.formats import registry

def told(found):
    return [(c.function.__module__, c.function.__qualname__, c.table) for c in found]

names = {names}
alone = {{name: told(registry.converters_named(name)) for name in names}}
every = registry.converters()
assert sorted(set(names)) == registry.names(), set(names) ^ set(registry.names())
for name in names:
    assert alone[name] == told(c for c in every if name == c.name or name in c.aliases), name
"""


@pytest.mark.parametrize("backwards", [False, True])
def test_a_name_finds_its_converters_without_importing_all(backwards: bool) -> None:
    """What is imported first changes neither which converters a name has nor their order."""
    names = sorted(registry.names(), reverse=backwards)
    program = BY_NAME.format(names=names)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_the_modules_of_a_name_are_few() -> None:
    counts = {name: len(registry.modules_of(name)) for name in registry.names()}
    assert sum(counts.values()) < 2 * len(counts)
    assert registry.modules_of("\ud800") == []
