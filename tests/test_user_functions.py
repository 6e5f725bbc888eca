"""Transforms of users: which rows they are handed, and what becomes of the others."""

from pathlib import Path

from runs import convert

PLUGIN = """
def transform(cfg, **keywords):
    return lambda row: {"prompt": row["question"], "n": row.get("n")}
"""


def test_a_row_that_python_would_read_otherwise_is_not_handed_to_a_function(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    tokens = ["1", "NaN", "[1e400]", "123456789012345678901", '{"a":1,"a":2}', '"\\ud800"', "2.50"]
    data = "".join(f'{{"question":"q","n":{token}}}\n' for token in tokens).encode()
    plugins = (str(tmp_path / "mine.py"),)
    outcome = convert(tmp_path, data, "mine.transform", plugins=plugins)
    assert [(row["prompt"], row["n"]) for row in outcome.rows] == [("q", 1.0), ("q", 2.5)]
    assert outcome.verdicts == [
        (2, "json_nonfinite", "n"),
        (3, "number_overflow", "n[0]"),
        (4, "number_overflow", "n"),
        (5, "duplicate_key", "n.a"),
        (6, "invalid_unicode", "n"),
    ]
