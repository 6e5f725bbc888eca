"""Public functions refuse arguments of the wrong kind in one line, whatever the function and the parameter."""

import warnings
from inspect import Parameter, isroutine, signature
from pathlib import Path
from typing import Any

import pytest

import fmtkit
from fmtkit.core import codes
from fmtkit.core.arguments import checked
from fmtkit.core.errors import FmtkitError, OptionError

ROWS = [{"question": "q", "chosen": "a", "rejected": "b"}]
SOUND: dict[str, dict[str, Any]] = {
    "check": {"lock": "none.lock"},
    "compare": {"config": {"base_model": "none"}, "against": "none"},
    "convert": {"source": "none.jsonl", "type": "intel"},
    "converter": {},
    "diff": {"config": {"base_model": "none"}, "against": "none"},
    "inspect": {"source": "none.jsonl"},
    "lock": {"source": "none.jsonl", "out": "none.lock"},
    "merge": {},
    "read": {"source": "none.jsonl", "type": "intel"},
    "register_code": {"name": "zq_code", "means": "it is wrong"},
    "render": {"batch": [{"role": "user", "content": "q"}], "template": "chatml"},
    "replay": {"quarantine": "none.quarantine.jsonl"},
    "table": {"source": ROWS, "type": "intel"},
    "target": {"reads": "intel"},
    "to_trl": {"rows": "none.parquet"},
    "train": {"config": {"base_model": "none"}, "dry_run": True},
    "try_run": {"run": "none"},
    "types": {},
    "validate": {"source": "none.jsonl"},
}
WRONG = (None, 3, object(), [], b"", Path(), {}, 1.5, [3], lambda: None)
FOREIGN = (
    Path,
    warnings,
    (n for n in "a"),
    [object()],
    {"a": object()},
    {object(): 1},
    (print, len),
)


def test_every_public_function_is_here():
    functions = {n for n in fmtkit.__all__ if isroutine(getattr(fmtkit, n))}
    assert functions == SOUND.keys()


@pytest.mark.parametrize("name", SOUND)
def test_a_wrong_argument_is_one_error_of_ours(name, tmp_path, monkeypatch, request):
    if name == "to_trl":
        pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    request.addfinalizer(lambda: codes.forget(__name__))
    function = getattr(fmtkit, name)
    for parameter in signature(function).parameters.values():
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        for value in (*WRONG, *FOREIGN):
            message = called(function, {**SOUND[name], parameter.name: value})
            assert "\n" not in message, (parameter.name, value)
            assert " at 0x" not in message, (parameter.name, value)


def called(function: Any, given: dict[str, Any]) -> str:
    """Call a function; return the message of its error, if that is one of fmtkit's."""
    try:
        with warnings.catch_warnings(action="ignore"):
            made = function(**given)
            list(made if function.__name__ == "read" else ())
    except FmtkitError as error:
        return str(error).partition("\n")[0]
    return ""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fmtkit.train(None), "train: config is None; give text or a path or a mapping"),
        (lambda: fmtkit.try_run(3), "try_run: run is an int, 3; give text or a path"),
        (lambda: fmtkit.types([]), "types: name is a list, []; give text"),
        (lambda: fmtkit.replay(object()), "replay: quarantine is an object; give text or a path"),
        (lambda: fmtkit.table(ROWS, "intel", rejects=()), "rejects is a tuple, (); give a list"),
        (lambda: fmtkit.converter(aliases="zq"), "converter: aliases is a str, 'zq'; give"),
        (lambda: fmtkit.render([], Path("a.jinja")), "give text or a ChatTemplate"),
    ],
)
def test_the_error_says_what_was_given_and_what_to_give(call, words):
    with pytest.raises(OptionError) as caught:
        call()
    assert words in str(caught.value)
    assert " at 0x" not in str(caught.value)


def test_a_missing_or_unknown_argument_is_pythons_own_error():
    for call in (fmtkit.render, fmtkit.replay, lambda: fmtkit.types(nme="gsm8k")):
        with pytest.raises(TypeError, match="argument"):
            call()


def test_None_leaves_an_option_out_also_one_that_is_a_mapping():
    assert fmtkit.table(ROWS, "intel", columns=None, options=None, limit=None).num_rows == 1


def test_what_fits_the_annotation_is_passed_on():
    @checked
    def function(
        path: str | Path, *, names: tuple[str, ...] | None = None, other: object = 1
    ) -> Any:
        return path, names, other

    assert function(Path("a"), names=("b",), other=[]) == (Path("a"), ("b",), [])
    assert function("a") == ("a", None, 1)
    with pytest.raises(OptionError, match="function: names is a str, 'b'; give a tuple"):
        function("a", names="b")


@pytest.mark.parametrize("value", [object(), lambda: None, [print, object()]])
def test_a_row_that_is_no_json_is_quarantined_without_an_address(value):
    rejects = []
    fmtkit.table([*ROWS, {"question": value}], "intel", rejects=rejects)
    assert [one.code for one in rejects] == ["type_error"]
    assert " at 0x" not in f"{rejects}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--x <object object at 0x7fa4cc2b1ab0>: give", "--x <object object>: give"),
        (
            "[<a.B object at 0x1f>, <function <lambda> at 0x2e>]",
            "[<a.B object>, <function <lambda>>]",
        ),
        ("<bound method B.c of <a.B object at 0x1f>> is", "<bound method B.c of <a.B object>> is"),
        ("<object object at 0x7fa is cut", "<object object> is cut"),
        ("it crashed at 0x7fa", "it crashed at 0x7fa"),
    ],
)
def test_addresses_of_objects_are_in_no_error(text, shown):
    assert str(OptionError(text)) == shown
