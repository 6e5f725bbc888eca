"""The registry of converters: finds those of a name.

A converter's signature is its format: its parameters are source columns with kinds, its result is the
canonical table, keyword parameters with plain defaults are the options of the type. Several converters
may share a name; the columns choose.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import cache, cached_property
from inspect import Parameter, getdoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fmtkit.columns.kinds import Kind, RowKind
from fmtkit.columns.problems import Column
from fmtkit.core import codes, plugins, runner, user_modules
from fmtkit.core.arguments import checked
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError, OptionError, UnknownNameError
from fmtkit.core.tables import IMAGE_TABLES, Table, table_for
from fmtkit.formats import returned, target_registry

JOINED_BY = "rows_by"
"""The option of a type that says by which column its rows are joined, where any may."""
F = TypeVar("F", bound=Callable[..., Table])


@dataclass(frozen=True)
class Converter:
    """A function from source columns to a canonical table, and the declarations in its signature."""

    name: str
    makes: type[Table]
    takes: Mapping[str, Kind]
    required: frozenset[str]
    any_of: tuple[tuple[str, ...], ...]
    options: Mapping[str, Any]
    """Option -> its default."""
    function: Callable[..., Table] = field(compare=False)
    wide: bool = False
    text: bool = False
    keeps: bool = False
    """Whether every other source column is kept (Prompt tables)."""
    aliases: tuple[str, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    """Parameter -> dotted path of its column, where it is not the parameter's own name."""
    rows_by: str = ""
    """Column by whose value consecutive rows are joined into one; empty if each row is read by itself."""
    whole_file: bool = False
    """Whether all rows of a file are joined, whatever they have in `rows_by`, which some of them have."""
    harmless: frozenset[str] = frozenset()
    """Columns of the format that nothing is trained on, such as the title of a chat."""
    summary: str = ""
    differs: str = ""
    """The deliberate difference from axolotl, in one line; empty where there is none."""
    source_url: str = ""
    option_types: Mapping[str, tuple[type, ...]] = field(default_factory=dict)
    order: int = 0

    @property
    def file(self) -> str:
        """Return the file that the function is in."""
        return self.function.__code__.co_filename

    @cached_property
    def is_ours(self) -> bool:
        """Return whether fmtkit ships it; errors of others are reported with their file and line."""
        return self.function.__module__.startswith("fmtkit.")

    def make(self, arguments: Mapping[str, Any]) -> Table:
        """Call the function; if it raises, raise OptionError with its file and line."""
        try:
            made = self.function(**arguments)
        except Exception as error:
            if self.is_ours or isinstance(error, FmtkitError):
                raise
            where = user_modules.describe(error, self.file)
            raise OptionError(f"type {self.name}: its converter raised {where}") from error
        if not self.is_ours:
            self._check(made)
        return made

    def _check(self, made: object) -> None:
        """Raise OptionError if the function of a plugin did not return the table that it declares."""
        who = f"type {self.name}: its converter {returned.place(self.function)}"
        if not isinstance(made, self.makes):
            kind = self.makes.__name__
            raise OptionError(
                f"{who} returned {returned.spoken(made)}; it must return a {kind}, whose columns are "
                f"{', '.join(self.makes.column_names())}"
            )
        returned.check(who, {name: getattr(made, name) for name in made.column_names()})

    @property
    def columns(self) -> Mapping[str, Kind]:
        """Return the parameters that are columns of the source, without one that is the complete row."""
        return {name: kind for name, kind in self.takes.items() if not isinstance(kind, RowKind)}

    @cached_property
    def table(self) -> str:
        """Return the name of the table that it makes."""
        return self.makes.name()

    @property
    def takes_rows(self) -> bool:
        """Return whether a parameter is the complete row."""
        return len(self.columns) < len(self.takes)

    @property
    def may_have_images(self) -> bool:
        """Return whether rows of it may have images: those of messages may."""
        return self.table in IMAGE_TABLES and not self.text and not self.takes_rows

    def joins_by(self, options: Mapping[str, Any]) -> str:
        """Return the column by which rows are joined, which an option may say; empty for none."""
        return str(options.get(JOINED_BY) or self.rows_by) if self.rows_by else ""

    def path(self, parameter: str) -> str:
        """Return the dotted path under which a parameter's column is looked up by default."""
        return self.paths.get(parameter, parameter)

    def table_columns(self) -> tuple[str, ...]:
        """Return the canonical columns that this converter makes."""
        return tuple(name for name in self.makes.column_names() if name not in self.absent)

    @property
    def absent(self) -> frozenset[str]:
        """Return the optional canonical columns that this converter does not make."""
        return self.makes.optional - self._made

    @property
    def _made(self) -> frozenset[str]:
        return frozenset(_made_columns(self))


_CONVERTERS: list[Converter] = []
_MADE: dict[Callable[..., Table], frozenset[str]] = {}


@checked
def converter(
    *,
    wide: bool = False,
    text: bool = False,
    keeps: bool = False,
    any_of: Iterable[Iterable[str]] = (),
    aliases: Iterable[str] = (),
    name: str | None = None,
    paths: Mapping[str, str] | None = None,
    rows_by: str = "",
    whole_file: bool = False,
    harmless: Iterable[str] = (),
    differs: str = "",
) -> Callable[[F], F]:
    """Register a converter; its module's name is the format's name unless `name` says otherwise.

    Args:
        wide: Whether its messages can have tool calls and reasoning.
        text: Whether its conversations are rendered text.
        keeps: Whether every other source column is kept.
        any_of: Groups of optional columns; a row needs at least one of each group.
        aliases: Other names of the type.
        name: The name of the type, where it is not the module's.
        paths: Parameter -> dotted path of its column.
        rows_by: A column; consecutive rows with the same value in it are joined into one, and the parameter
            `rows` is the list of them.
        whole_file: Whether all rows of a file are joined; `rows_by` is a column that some of them have.
        harmless: Other columns of the format, on which nothing is trained: they are not asked about, and
            named as not used.
        differs: The difference from axolotl, for docs/formats.md.

    Raises:
        OptionError: If the annotation of the function's result names no table.
    """

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        makes = hints.pop("return", None)
        if not (isinstance(makes, type) and issubclass(makes, Table)):
            raise OptionError(
                f"the converter {returned.place(function)} does not say which table it makes: annotate "
                "its result, as in `-> Preference` (fmtkit.core.tables)"
            )
        kinds = {p: _kind(hint) for p, hint in hints.items() if _kind(hint) is not None}
        parameters = signature(function).parameters
        doc = getdoc(function) or ""
        _CONVERTERS.append(
            Converter(
                name=name or function.__module__.rpartition(".")[2],
                makes=makes,
                takes=kinds,  # type: ignore[arg-type]
                required=frozenset(p for p in kinds if parameters[p].default is Parameter.empty),
                any_of=tuple(tuple(group) for group in any_of),
                options={p: parameters[p].default for p in parameters if p not in kinds},
                option_types={p: _types(hint) for p, hint in hints.items() if p not in kinds},
                function=function,
                wide=wide,
                text=text,
                keeps=keeps,
                aliases=tuple(aliases),
                paths=dict(paths or {}),
                rows_by=rows_by,
                whole_file=whole_file,
                harmless=frozenset(harmless),
                summary=_summary(function, doc),
                differs=differs,
                source_url=next(iter(re.findall(r"https?://\S+[\w/]", doc)), ""),
                order=len(_CONVERTERS),
            )
        )
        return function

    return register


def _kind(hint: Any) -> Kind | None:
    for entry in getattr(hint, "__metadata__", ()):
        if isinstance(entry, Kind):
            return entry
    return None


def _types(hint: Any) -> tuple[type, ...]:
    """Return the types of values that an option may have, besides None; empty where that is not known."""
    hints = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    found = [get_origin(one) or one for one in hints if one is not NoneType]
    return tuple(found) if all(isinstance(one, type) for one in found) else ()


def _summary(function: Callable[..., Table], doc: str) -> str:
    module = importlib.import_module(function.__module__)
    lines = (module.__doc__ or doc).strip().splitlines()
    return lines[0].rstrip(".") if lines else ""


def _made_columns(chosen: Converter) -> frozenset[str]:
    """Return the optional columns that the function fills, by calling it once on placeholder columns."""
    if chosen.function not in _MADE:
        import polars as pl

        columns = {p: Column(pl.col(p)) for p in chosen.takes}
        table = chosen.make({**columns, **chosen.options})
        made = (n for n in chosen.makes.optional if getattr(table, n) is not None)
        _MADE[chosen.function] = frozenset(made)
    return _MADE[chosen.function]


@cache
def converters() -> tuple[Converter, ...]:
    """Import every module of fmtkit.converters and every plugin's, and return what they register."""
    for module in _sources():
        importlib.import_module(module)
    _load_installed()
    return _registered()


def _registered() -> tuple[Converter, ...]:
    """Return the converters that are there so far, in an order that does not depend on what came first."""
    return tuple(
        sorted(
            _CONVERTERS,
            key=lambda c: (
                c.name,
                not c.is_ours,
                c.function.__module__ if c.is_ours else "",
                c.order,
            ),
        )
    )


def _load_installed() -> None:
    """Load the converters of installed packages, which may have any name."""
    for points in plugins.installed("fmtkit.converters").values():
        for point in points:
            plugins.load(point, "converter")


@cache
def _sources() -> Mapping[str, bytes | None]:
    """Return the modules of fmtkit.converters with their source, or None where there is no file of it."""
    package = importlib.import_module("fmtkit.converters")
    found: dict[str, bytes | None] = {}
    for module in pkgutil.iter_modules(package.__path__, "fmtkit.converters."):
        file = Path(
            getattr(module.module_finder, "path", ""), module.name.rpartition(".")[2] + ".py"
        )
        found[module.name] = file.read_bytes() if file.is_file() else None
    return found


def modules_of(name: str) -> list[str]:
    """Return the modules of fmtkit.converters that may register a name: it is theirs, or in quotes in them.

    Of 94 modules those of one type are imported in a tenth of the time, 20 ms of CPU less.
    """
    quoted = f'"{name}"'.encode(errors="surrogatepass")
    return [
        module
        for module, source in _sources().items()
        if source is None or module.rpartition(".")[2] == name or quoted in source
    ]


def load_plugin(path: str) -> None:
    """Run a plugin file and register its converters, instead of those of an earlier run of it."""
    import importlib.util

    file = Path(path)
    if not file.is_file():
        raise OptionError(f"--plugin {path}: no such file")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise OptionError(f"--plugin {path}: not a Python file")
    import sys

    module = importlib.util.module_from_spec(spec)
    # A plugin called polars.py must not replace the module of that name.
    if user_modules.installed(file.stem) is None:
        held = sys.modules.get(file.stem)
        if held is None or getattr(held, "__file__", None) == spec.origin:
            # Functions of a plugin that is run again are pickled by their names in the new module.
            sys.modules[file.stem] = module
    user_modules.serve([file.parent], module.__name__)
    _CONVERTERS[:] = [c for c in _CONVERTERS if c.function.__code__.co_filename != str(file)]
    target_registry.forget(str(file))
    codes.forget(module.__name__)
    count = len(_CONVERTERS)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        # An exception of a user's file is reported in one line, and none of its converters stays registered.
        del _CONVERTERS[count:]
        target_registry.forget(str(file))
        codes.forget(module.__name__)
        raise OptionError(f"--plugin {path}: {user_modules.describe(error, file)}") from error
    converters.cache_clear()


@contextmanager
def forgetting_plugins() -> Iterator[None]:
    """Forget at the end of the block the converters of plugins and packages that were registered in it."""
    count = len(_CONVERTERS)
    yield
    added = _CONVERTERS[count:]
    if any(not one.is_ours for one in added):
        _CONVERTERS[count:] = [one for one in added if one.is_ours]
        converters.cache_clear()


def is_known(name: str) -> bool:
    """Return whether a type has that name or alias."""
    return bool(_found(name))


def _found(name: str) -> tuple[Converter, ...]:
    for module in modules_of(name):
        importlib.import_module(module)
    _load_installed()
    return tuple(c for c in _registered() if name == c.name or name in c.aliases)


def converters_named(name: str, method: str | None = None) -> tuple[Converter, ...]:
    """Return the converters of that name or alias whose table the method takes or can be converted to.

    Raises UnknownNameError with a suggestion, and OptionError if the method takes none of their tables.
    """
    found = _found(name)
    if not found:
        raise UnknownNameError("type", name, names())
    if method is None:
        return found
    tables = tables_of(method)
    fitting = tuple(c for c in found if table_for(c.table, tables))
    if not fitting:
        made = ", ".join(sorted({c.table for c in found}))
        raise OptionError(
            f"--method {method} takes {' or '.join(tables)}, but type {name} makes {made}"
        )
    return fitting


def tables_of(method: str) -> tuple[str, ...]:
    """Return the tables that a training method takes."""
    return runner.find(method).tables


def names() -> list[str]:
    """Return every name and alias of a source, sorted."""
    return sorted({n for c in converters() for n in (c.name, *c.aliases)})
