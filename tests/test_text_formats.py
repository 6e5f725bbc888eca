import polars as pl
import pytest

from fmtkit.columns.problems import Column
from fmtkit.columns.text_formats import formatted, mentions, parse_format
from fmtkit.core.errors import OptionError

KNOWN = {"prompt": Column(pl.col("prompt")), "system": Column(pl.col("system"))}
DATA = pl.DataFrame({"prompt": ["p", "{system}", None], "system": [None, "{0}", "s"]})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[{system}] {prompt}!", ["[] p!", "[{0}] {system}!", "[s] !"]),
        ("{{prompt}}", ["{prompt}"] * 3),
        ("{{{prompt}}}", ["{p}", "{{system}}", "{}"]),
        ("", [""] * 3),
        ("100%s", ["100%s"] * 3),
    ],
)
def test_a_format_is_filled(text: str, wanted: list[str]) -> None:
    column = formatted("prompt_format", text, KNOWN)
    made = DATA.with_columns(made=column.value)
    assert made["made"].to_list() == wanted


@pytest.mark.parametrize(
    "text",
    [
        "{prompt.__class__}",
        "{prompt[0]}",
        "{prompt:>9}",
        "{prompt!r}",
        "{0}",
        "{}",
        "{chosen}",
        "{",
        "}",
        "{prompt}}",
        "{'a':1}",
        "{{prompt}",
    ],
)
def test_anything_but_a_placeholder_is_refused_by_name(text: str) -> None:
    with pytest.raises(OptionError, match=r"format_placeholder: prompt_format"):
        parse_format("prompt_format", text, KNOWN)


def test_a_near_match_is_named() -> None:
    with pytest.raises(OptionError, match=r"did you mean \{prompt\}"):
        parse_format("prompt_format", "{promt}", KNOWN)


def test_a_literal_brace_is_no_mention() -> None:
    assert mentions("f", "{system}", "system", KNOWN)
    assert not mentions("f", "{{system}}", "system", KNOWN)
