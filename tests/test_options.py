"""Options: one field is a flag, a keyword, a check and a schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from fmtkit import catalogue
from fmtkit.commands.flags import flags
from fmtkit.core.errors import OptionError
from fmtkit.core.options import CHOICE, COUNTS, PAIRS, SHARE, Options, keywords, option
from fmtkit.options.convert_options import ConvertOptions


@dataclass(frozen=True)
class Added(ConvertOptions):
    """The options of convert and some more, as a change of ours would add them."""

    mood: str = option(CHOICE, "How it sounds.", default="warm", choices=("warm", "cold"))
    sizes: tuple[int, ...] = option(COUNTS, "Sizes.", default=(), flags=("--size",))
    share: float = option(SHARE, "A share.", default=0.5, shown="50%")
    pairs: Mapping[str, Any] = option(PAIRS, "Pairs.", default={}, json_flag="--pairs-json")


def command() -> typer.Typer:
    app = typer.Typer()

    @flags(Added)
    def show(
        name: Annotated[str, typer.Argument()] = "", *, options: Added, loud: bool = False
    ) -> None:
        """Show what was given."""
        typer.echo(
            [name, loud, options.mood, options.sizes, options.share, options.pairs, options.limit]
        )

    app.command()(show)
    return app


def typed(*arguments: str):
    return CliRunner().invoke(command(), list(arguments))


@keywords(Added)
def kept(source: object, type: str | None = None, *, options: Added) -> Added:
    """Return the options.

    Args:
        source: Anything.

    Returns:
        What was given.
    """
    return options


def test_a_field_is_a_flag_and_a_keyword_of_the_same_meaning():
    done = typed(
        "x", "--mood", "cold", "--size", "2", "--size", "3", "--share", "5%", "--limit", "4"
    )
    assert done.output.strip() == "['x', False, 'cold', (2, 3), 0.05, {}, 4]"
    found = kept("x", mood="cold", sizes=[2, 3], share="5%", limit=4)
    assert (found.mood, found.sizes, found.share, found.limit) == ("cold", (2, 3), 0.05, 4)
    assert kept("x", sizes=2).sizes == (2,)
    assert kept("x", "intel").type == "intel"


def test_a_field_has_its_default_everywhere():
    assert typed().output.strip() == "['', False, 'warm', (), 0.5, {}, None]"
    assert kept("x") == Added()


def test_a_field_has_its_line_in_both_helps():
    shown = typed("--help").output
    assert "--mood" in shown
    assert "How it sounds." in shown
    assert "50%" in shown
    assert "    mood: How it sounds.\n" in kept.__doc__
    assert kept.__doc__.index("mood:") < kept.__doc__.index("Returns:")


def test_a_wrong_value_is_the_same_error_wherever_it_is_given():
    with pytest.raises(OptionError, match="--mood hot: choose one of warm, cold") as by_keyword:
        kept("x", mood="hot")
    assert str(typed("--mood", "hot").exception) == str(by_keyword.value)


def test_a_mapping_is_given_as_pairs_or_as_json():
    done = typed("--pairs", "a=1", "--pairs-json", '{"b": 2, "a": 3}')
    assert "{'b': 2, 'a': '1'}" in done.output
    for text in ("{", "[1]"):
        assert isinstance(typed("--pairs-json", text).exception, OptionError)
    assert isinstance(typed("--pairs", "a").exception, OptionError)


@pytest.mark.parametrize("name", sorted(catalogue.OPTIONS))
def test_the_schema_of_a_command_knows_its_options(name):
    schema = catalogue.schema(name)
    Draft202012Validator.check_schema(schema)
    options: type[Options] = catalogue.OPTIONS[name]
    assert set(schema["properties"]) == set(options.declared())
    assert not Draft202012Validator(schema).is_valid({"no_such_option": 1})


def test_the_schema_takes_what_the_options_take():
    valid = Draft202012Validator(catalogue.schema("convert")).is_valid
    for good in ({"on_error": "skip"}, {"max_errors": 3}, {"max_errors": "3%"}, {"keep": ["a"]}):
        assert valid(good)
        ConvertOptions(**good)
    for bad in ({"on_error": "bogus"}, {"limit": 0}, {"max_errors": "many"}, {"overwrite": 1}):
        assert not valid(bad)
        with pytest.raises(OptionError):
            ConvertOptions(**bad)
