"""Asking on a terminal how the rows of sources without a type are read, with three of them to look at.

What is asked is in `fmtkit.detection.questions`. The answer is options of the conversion, the command
that has them, and a map file where columns have other names.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import typer

from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.escaping import one_line

if TYPE_CHECKING:
    from fmtkit.detection.questions import Choice, Question
    from fmtkit.options.convert_options import SourceOptions
    from fmtkit.reading.bound_column import Row

SHOWN = 3
"""Rows that are shown before the questions, and converted after them."""
OTHER, LEAVE = "none of these: I say which columns are what", "leave"


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    options: Mapping[str, Any]
    """Options of the conversion, without the map file: its columns are among them."""
    command: str
    map_file: str | None


def may_ask(wanted: bool | None, sources: Sequence[str]) -> bool:
    """Return whether a person can be asked: not with --no-ask, without a terminal, or with data on stdin."""
    if wanted is False or "-" in sources:
        return False
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(sources: Sequence[str], given: "SourceOptions") -> Answer | None:
    """Ask how rows are read; None if there are none, if sources differ, or if it is left to the command.

    Raises KeyboardInterrupt at Ctrl-C or the end of the input, and what opening sources raises.
    """
    from fmtkit.formats import registry
    from fmtkit.reading.ignoring import selected, without
    from fmtkit.running.conversions import open_named
    from fmtkit.running.preparation import sample_of

    for plugin in given.plugins:
        registry.load_plugin(plugin)
    opened = open_named(sources, given)
    samples = [sample_of(source) for source in opened]
    held = [(source, rows) for source, rows in zip(opened, samples, strict=True) if rows]
    if not held or len({tuple(_names(rows)) for _, rows in held}) > 1:
        return None
    source, whole = held[0]
    sample = without(whole, selected(given, [whole]).ignore)
    _print(f"The first rows of {source.name}:")
    for line in _rows(sample[:SHOWN]):
        _print(line, indent=2, cut=True)
    try:
        choice = _choice(sample, whole, given)
    except typer.Abort as stop:
        raise KeyboardInterrupt from stop
    if choice is None:
        return None
    made = choice.made(sample, given)
    return None if made is None else _answer([source.given for source in opened], made, given)


def _names(sample: Sequence["Row"]) -> list[str]:
    from fmtkit.detection.questions import columns_of

    return sorted(columns_of(sample))


def _choice(
    sample: Sequence["Row"], whole: Sequence["Row"], given: "SourceOptions"
) -> "Choice | None":
    """Ask until somebody says that the rows become what they should; `whole` has ignored columns too."""
    from fmtkit.detection.questions import column_question, first_question

    while True:
        question = first_question(sample, given)
        words = _answered(question, [OTHER, LEAVE])
        if words == LEAVE:
            return None
        choice = question.answers.get(words) or _by_columns(sample, given)
        while choice is not None and (left := choice.open(given)):
            about = column_question(left[0], choice, sample, given)
            choice = about.answers[_answered(about)]
        if choice is None or choice.made(sample, given) is None:
            _print("No type reads the rows so.")
        elif _is_right(choice.made(sample, given) or {}, whole, given):
            return choice


def _answered(question: "Question", others: Sequence[str] = ()) -> str:
    """Return the answer that was chosen, by its number; the likely one is taken by Enter."""
    return _picked(question.words, [*question.answers, *others], question.likely)


def _picked(words: str, answers: Sequence[str], likely: int = 0) -> str:
    _print(words)
    for number, answer in enumerate(answers, 1):
        _print(f"{number}  {answer}", indent=2)
    while True:
        said = typer.prompt("Number", default=str(likely + 1), err=True).strip()
        if said.isdecimal() and 0 < int(said) <= len(answers):
            return answers[int(said) - 1]
        _print(f"{said}: write a number from 1 to {len(answers)}")


def _by_columns(sample: Sequence["Row"], given: "SourceOptions") -> "Choice | None":
    from fmtkit.detection.questions import LAYOUTS, by_columns, columns_of

    names = columns_of(sample)
    words = _picked("What does a row hold?", [layout.words for layout in LAYOUTS])
    layout = next(one for one in LAYOUTS if one.words == words)
    columns: dict[str, str] = {}
    for place, name in enumerate(layout.columns):
        if name in given.columns:
            # --map says it.
            columns[name] = given.columns[name]
            continue
        likely = names.index(name) if name in names else min(place, len(names) - 1)
        columns[name] = _picked(f"Which column is the {name}?", names, likely)
    return by_columns(layout, columns, sample)


def _is_right(made: Mapping[str, Any], rows: Sequence["Row"], given: "SourceOptions") -> bool:
    """Show what the first rows become, and return whether that is right."""
    from fmtkit.core.errors import FmtkitError
    from fmtkit.core.tables import final_rows
    from fmtkit.options.convert_options import RowOptions
    from fmtkit.running.conversions import RowStream

    declared = RowOptions.declared()
    values = {**given.chosen(), **made}
    _print("They become:")
    try:
        stream = RowStream(
            [list(rows[:SHOWN])],
            RowOptions(**{name: value for name, value in values.items() if name in declared}),
        )
        for piece in stream:
            for line in _rows(final_rows(piece.table).to_pylist()):
                _print(line, indent=2, cut=True)
            for reject in piece.rejects:
                _print(f"row {reject.row}: {reject.code}: {reject.message}", indent=2)
    except FmtkitError as error:
        _print(str(error), indent=2)
        return False
    return typer.confirm("Is this right?", default=True, err=True)


def _answer(paths: Sequence[str], made: Mapping[str, Any], given: "SourceOptions") -> Answer:
    """Return the options and the command; columns with other names are written to a map file."""
    from fmtkit.core import atomic
    from fmtkit.detection.command_paths import output_for
    from fmtkit.detection.suggestions import as_command

    columns = made["columns"]
    if not columns:
        return Answer(made, as_command(paths, given, made), None)
    stem = output_for(paths).partition(".")[0]
    names = (f"{stem}{ending}.map.json" for ending in ("", *(f".{n}" for n in range(1, 100))))
    file = next((name for name in names if not Path(name).exists()), f"{stem}.new.map.json")
    text = json.dumps(columns, indent=1, ensure_ascii=False) + "\n"
    atomic.write_bytes(Path(file), text.encode(errors="backslashreplace"))
    in_file = {**made, "columns": {}, "map_file": file}
    return Answer(made, as_command(paths, given, in_file), file)


def tell(answer: Answer) -> None:
    """Print the command, and the map file that it reads."""
    if answer.map_file is not None:
        _print(f"The names of the columns are in {answer.map_file}.")
    _print(f"The same without questions: {answer.command}")


def _rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield "-"
        width = max((len(one_line(name)) for name in row), default=0)
        for name, value in row.items():
            for line in _values(value):
                yield f"{one_line(name):<{min(width, 30)}}  {line}"
                name = ""  # noqa: PLW2901 - the name stands on the first line alone


def _values(value: Any) -> Iterator[str]:
    """Yield what a value holds: each message on a line of its own."""
    if isinstance(value, list) and value and all(map(_is_message, value)):
        for message in value:
            calls = message.get("tool_calls")
            said = message.get("content")
            yield f"{message['role']}: {_text(said) if said or not calls else f'calls {_text(calls)}'}"
        return
    yield _text(value)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and {"role", "content"} <= value.keys()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _print(text: str, *, indent: int = 0, cut: bool = False) -> None:
    """Print one line; what is cut fits into the window."""
    width = max(get_terminal_size().columns - indent - 1, 20) if cut else 0
    sys.stderr.write(" " * indent + one_line(public(text), width).rstrip() + "\n")
