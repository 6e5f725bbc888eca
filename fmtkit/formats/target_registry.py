"""The registry of targets (`--to`), and which of them can write a table.

A target is the reverse of a converter: its one parameter is the canonical table that it takes, and it
returns the columns of the written rows. Several functions may share a name; the table decides which is
called. A target declares which fields of a conversation it can write; the others are dropped only if
`--allow-loss` names them, and are counted (`fmtkit.stages.target_stage`).
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cache
from inspect import getdoc, signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_type_hints

from fmtkit import former_names
from fmtkit.columns.problems import Column
from fmtkit.core import plugins, user_modules
from fmtkit.core.arguments import checked
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError, OptionError, UnknownNameError
from fmtkit.core.message_keys import MESSAGE_KEYS
from fmtkit.core.tables import Table
from fmtkit.formats import returned

WrittenColumns: TypeAlias = Mapping[str, Column | None]
"""The columns of the written rows, in order; a column that is None is not written."""
Beside: TypeAlias = Callable[[str, str, tuple[str, ...]], tuple[str, str]]
F = TypeVar("F", bound=Callable[..., WrittenColumns])
T = TypeVar("T")

LOSSES: dict[str, str] = {
    "system": "system turns",
    "turns": "all turns but the last exchange",
    "tools": "the definitions of tools",
    **{key.name: key.about for key in MESSAGE_KEYS},
    "arguments": "whether the arguments of a call are an object or JSON text",
    "content": "whether a message that only calls tools has no content or an empty one",
    "margin": "by how much the chosen reply is better",
    "images": "images",
}
"""Field that `--allow-loss` may name, besides kept columns -> what is dropped."""
_NAMES = {name: key.name for key in MESSAGE_KEYS for name in key.names}
_NAMES |= {"weights": "train", "developer": "system"}


ImageForm = Literal["stored", "texts", "paths", "parts"]


@dataclass(frozen=True)
class Target:
    """A function from a canonical table to the columns of a layout, with its declarations."""

    name: str
    takes: type[Table]
    reads: str
    """The type that reads the rows back."""
    holds: frozenset[str]
    """The fields of a conversation, by their names in LOSSES, that it can write."""
    system: Literal["turns", "first"]
    """Where system prompts may be: in any turn ("turns"), or only a non-empty one as the first turn."""
    json: frozenset[str]
    """Dotted paths of columns of JSON text, which are written as parsed values."""
    calls: Literal["any", "text", "bare"]
    """How tool calls are written: any way, with arguments as JSON text, or as a bare list of functions."""
    images: ImageForm
    """Where images are, if it holds them: in a column as `datasets` stores them, beside contents in parts; in
    one of texts (paths or data URIs) or of paths only, beside contents with `<image>`; in the contents."""
    image_part: Callable[[str], Mapping[str, Any]] | None = field(compare=False)
    """Makes such a part of a path or a data URI."""
    formats: tuple[str, ...]
    keeps: bool
    """Whether kept columns are written too."""
    text: bool
    """Whether it takes conversations that are rendered to text."""
    function: Callable[..., WrittenColumns] = field(compare=False)
    beside: Beside | None = field(default=None, compare=False)
    """Makes the file that describes the rows: (name of OUT, path of the rows, columns) -> (name, text)."""
    summary: str = ""
    url: str = ""
    order: int = 0

    @property
    def is_ours(self) -> bool:
        """Return whether it is part of fmtkit, not of a plugin."""
        return self.function.__module__.startswith("fmtkit.")

    @property
    def needs_width(self) -> bool:
        """Return whether the function has a parameter `wide`: messages with more than role and content."""
        return "wide" in signature(self.function).parameters

    def make(self, table: Table, *, wide: bool) -> WrittenColumns:
        """Call the function; if it raises, raise OptionError with its file and line."""
        arguments = {"wide": wide} if self.needs_width else {}
        try:
            made = self.function(table, **arguments)
        except Exception as error:
            if self.is_ours or isinstance(error, FmtkitError):
                raise
            where = user_modules.describe(error, self.function.__code__.co_filename)
            raise OptionError(f"--to {self.name}: its target raised {where}") from error
        if not self.is_ours:
            self._check(made)
        return made

    def _check(self, made: Any) -> None:
        """Raise OptionError if the function of a plugin did not return columns by their names."""
        who = f"--to {self.name}: its target {returned.place(self.function)}"
        is_named = isinstance(made, Mapping) and all(isinstance(name, str) for name in made)
        if not is_named or not any(column is not None for column in made.values()):
            raise OptionError(
                f"{who} returned {returned.spoken(made)}; it must return the columns of the written rows "
                'as a dict of Columns by name, such as {"ask": question(table.prompt)}'
            )
        returned.check(who, made)

    def computed(self, compute: Callable[[], T]) -> T:
        """Return what the target's expressions make; raise OptionError if a plugin's cannot be computed."""
        try:
            return compute()
        except Exception as error:
            if self.is_ours or isinstance(error, FmtkitError):
                raise
            where = user_modules.describe(error, self.function.__code__.co_filename)
            who = f"--to {self.name}: the columns of its target {returned.place(self.function)}"
            raise OptionError(f"{who} cannot be computed: {where}") from error


_TARGETS: list[Target] = []


@checked
def target(
    *,
    reads: str,
    holds: Iterable[str] = (),
    system: Literal["turns", "first"] = "turns",
    json: Iterable[str] = (),
    calls: Literal["any", "text", "bare"] = "any",
    images: ImageForm = "texts",
    image_part: Callable[[str], Mapping[str, Any]] | None = None,
    formats: Iterable[str] = ("jsonl",),
    keeps: bool = False,
    text: bool = False,
    beside: Beside | None = None,
    name: str | None = None,
) -> Callable[[F], F]:
    """Register a target, named as its module, with hyphens, unless `name` is given.

    The annotation of the function's first parameter is the table that it takes.

    Args:
        reads: The type that reads the rows back.
        holds: The fields of a conversation that it can write, of those in LOSSES, and `developer`.
        system: Where system prompts may be: in any turn, or only as the first turn and not empty.
        json: Dotted paths of columns of JSON text, which are written as parsed values.
        calls: How tool calls are written: any way, with arguments as JSON text, or as a bare list of
            functions.
        images: Where images are, if it holds them; see `Target.images`.
        image_part: Makes the part of a content that shows an image, of a path or a data URI.
        formats: The formats of files that it can be written in.
        keeps: Whether kept columns are written too.
        text: Whether it takes conversations that are rendered to text.
        beside: Makes the file that describes the rows: (name of OUT, path of the rows, columns) ->
            (name, text).
        name: The name of the target, where it is not the module's.

    Raises:
        OptionError: If the annotation of the function's first parameter names no table, or `holds` names a
            field that is none.
    """

    def register(function: F) -> F:
        hints = get_type_hints(function)
        module = function.__module__.rpartition(".")[2]
        doc = getdoc(function) or ""
        held = frozenset(holds)
        takes = next((hint for key, hint in hints.items() if key not in ("wide", "return")), None)
        if not (isinstance(takes, type) and issubclass(takes, Table)):
            raise OptionError(
                f"the target {returned.place(function)} does not say which table it takes: annotate its "
                "first parameter, as in `table: Completion` (fmtkit.core.tables)"
            )
        unknown = held - {*LOSSES, "developer"}
        if unknown:
            raise OptionError(f"target {module}: holds={sorted(unknown)} is none of {list(LOSSES)}")
        _TARGETS.append(
            Target(
                name=name or module.replace("_", "-"),
                takes=takes,
                reads=reads,
                holds=held,
                system=system,
                json=frozenset(json),
                calls=calls,
                images=images,
                image_part=image_part,
                formats=tuple(formats),
                keeps=keeps,
                text=text,
                function=function,
                beside=beside,
                summary=_summary(function),
                url=next((word.rstrip(".;,") for word in doc.split() if "://" in word), ""),
                order=len(_TARGETS),
            )
        )
        return function

    return register


def _summary(function: Callable[..., WrittenColumns]) -> str:
    doc = importlib.import_module(function.__module__).__doc__ or ""
    return doc.strip().partition("\n")[0].rstrip(".")


def targets() -> tuple[Target, ...]:
    """Import every module of fmtkit.targets and every plugin's, and return what they register."""
    _load()
    return tuple(sorted(_TARGETS, key=lambda t: (t.name, t.order)))


@cache
def _load() -> None:
    package = importlib.import_module("fmtkit.targets")
    for module in pkgutil.iter_modules(package.__path__, "fmtkit.targets."):
        importlib.import_module(module.name)
    for points in plugins.installed("fmtkit.targets").values():
        for point in points:
            plugins.load(point, "target")


def forget(file: str) -> None:
    """Unregister the targets of a plugin file, which is about to be loaded again."""
    _TARGETS[:] = [t for t in _TARGETS if t.function.__code__.co_filename != file]


def names() -> list[str]:
    """Return the name of every target, sorted."""
    return sorted({found.name for found in targets()})


def targets_named(name: str) -> tuple[Target, ...]:
    """Return the functions of a target; raise UnknownNameError if there is none of this name."""
    found = tuple(t for t in targets() if t.name == name)
    if not found:
        raise UnknownNameError("target", name, names())
    return found


CONVERTIBLE: dict[str, str] = {"Completion": "Conversation", "Conversation": "Completion"}
"""Table -> the other table whose layout can also hold its rows, without loss."""


def find(name: str, table: type[Table], *, text: bool) -> Target:
    """Return the function of a target that takes a table, or the table's `CONVERTIBLE`.

    Raises UnknownNameError if there is no such target, and OptionError if it cannot write the table; the
    message names the targets that can.
    """
    found = targets_named(name)
    chosen = _fitting(found, table, text=text)
    if chosen is not None:
        return chosen
    every = targets()
    fits = [n for n in names() if _fitting([t for t in every if t.name == n], table, text=text)]
    *most, last = dict.fromkeys(_in_words(t.takes, text=t.text) for t in found)
    able = f"{', '.join(most)} or {last}" if most else last
    advice = f"targets that can write them: {', '.join(fits)}" if fits else "no target can"
    raise OptionError(
        f"--to {name} can write {able} rows, but these are {_in_words(table, text=text)} rows; {advice}"
    )


def _in_words(table: type[Table], *, text: bool) -> str:
    return f"rendered {table.name()}" if text else table.name()


def _fitting(found: Iterable[Target], table: type[Table], *, text: bool) -> Target | None:
    taken = {t.takes.name(): t for t in found if t.text == text}
    exact = taken.get(table.name())
    return exact or (None if text else taken.get(CONVERTIBLE.get(table.name(), "")))


def loss_named(name: str) -> str:
    """Return the field of LOSSES that a name of sources means (`reasoning`, `weight`), else the name."""
    return name if name in LOSSES else _NAMES.get(name, name)


def entry(found: Target) -> dict[str, Any]:
    """Return a target as JSON-able data, for lists and pages."""
    return {
        "name": found.name,
        "table": found.takes.name(),
        "reads": found.reads,
        "holds": [name for name in LOSSES if name in found.holds],
        "formats": list(found.formats),
        "keeps": found.keeps,
        "summary": found.summary,
        "url": found.url,
    }


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
