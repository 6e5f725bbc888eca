"""`make fixtures` prints what fixtures should hold, and writes it where it is told to."""

import json
import shutil

import expected_fixtures
import fixture_cases
import pytest


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Copy the fixtures of a format and of a target, to be changed."""
    for name in ("intel", "targets/hh-rlhf"):
        shutil.copytree(fixture_cases.FIXTURES / name, tmp_path / "fixtures" / name)
    for module in (fixture_cases, expected_fixtures):
        monkeypatch.setattr(module, "FIXTURES", tmp_path / "fixtures")
    return tmp_path / "fixtures"


def contents(folder):
    """Return the values of each file of expected rows."""
    files = sorted(folder.rglob("*.jsonl")) + sorted(folder.rglob("warnings.json"))
    held = {file.name: fixture_cases.read_lines(file) for file in files}
    return {name: [json.loads(line) for line in lines] for name, lines in held.items() if lines}


@pytest.mark.parametrize("name", ["intel", "targets/hh-rlhf"])
def test_files_that_are_missing_are_printed_and_written(tree, capsys, name):
    held = contents(tree / name)
    for path in (tree / name).iterdir():
        if path.is_file() and "source" not in path.name and "settings" not in path.name:
            path.unlink()
    expected_fixtures.main([name])
    assert all("source" in file for file in contents(tree / name))
    printed = capsys.readouterr().out
    assert f"fixtures/{name}/" in printed
    expected_fixtures.main([name, "--write"])
    assert contents(tree / name) == held
    capsys.readouterr()
    expected_fixtures.main([])
    assert capsys.readouterr().out == "all fixtures hold what fmtkit makes of their sources\n"


def test_a_line_that_differs_is_printed_and_a_stale_file_goes(tree, capsys):
    rows = tree / "intel" / "canonical.jsonl"
    lines = rows.read_bytes()
    rows.write_bytes(lines.replace(b"role", b"rule", 1))
    stale = tree / "intel" / "chatml.quarantine.jsonl"
    stale.write_text('{"line": 1}\n')
    expected_fixtures.main(["intel", "--write"])
    printed = capsys.readouterr().out.split("\n")
    assert f"+{lines.decode().partition(chr(10))[0]}" in printed
    assert '-{"line": 1}' in printed
    assert rows.read_bytes() == lines
    assert not stale.exists()


def test_a_format_without_a_source_is_told_what_to_write(tree):
    with pytest.raises(SystemExit, match=r"write fixtures/debate/source\.jsonl first"):
        expected_fixtures.main(["debate"])
