"""User functions: `FILE.function`, the peer's transforms, run row by row in worker processes.

A function takes the config (and whatever keywords it likes) and returns a row function, or the pair of
a row function and {"remove_columns": [...]}. Rows come out as the row's own columns, less those removed,
overlaid with what the row function returned; None or {} filters the row. What came out is kept in a
temporary file, so that the function runs once however often its rows are read.
"""

import inspect
import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pyarrow as pa

from fmtkit.codes import Reject
from fmtkit.converting import reading
from fmtkit.errors import OptionError, near_match
from fmtkit.kinds import RowKind
from fmtkit.sources.blocks import Block, MadeBlock
from fmtkit.sources.opening import Source
from fmtkit.sources.spooling import BlockFile, kept_on_disk
from fmtkit.sources.strict import canonical
from fmtkit.worker import Limits, Overrun, Serve, Worker

ALL = "__all__"
_FILTERED = b"null"


@dataclass(frozen=True)
class UserFunction:
    """A function of a user's file; `config` is what it is called with."""

    file: Path
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 30.0
    """How long one row may take."""

    @property
    def label(self) -> str:
        """Return the name as the user wrote it."""
        return f"{self.file.stem}.{self.name}"


def find_function(name: str, places: Sequence[Path]) -> UserFunction:
    """Find FILE.function in plugin files and in the folders of configs.

    Raises OptionError if no such file is there; the function itself is looked up where it runs.
    """
    stem, _, function = name.rpartition(".")
    relative = Path(*stem.split(".")).with_suffix(".py")
    for place in places:
        if place.is_file() and place.stem == stem:
            return UserFunction(place.resolve(), function)
        if place.is_dir() and (place / relative).is_file():
            return UserFunction((place / relative).resolve(), function)
    looked = (
        ", ".join(str(place) for place in places) or "nowhere: give --plugin FILE.py or -c CONFIG"
    )
    known = [place.stem for place in places if place.is_file()]
    near = near_match(stem, known)
    hint = f"; did you mean {near!r}?" if near else ""
    raise OptionError(f"no type named {name!r}, and no {relative} in {looked}{hint}")


@dataclass(eq=False)
class TransformedSource:
    """A source whose rows went through a user's function; it is read like any other."""

    source: Source
    function: UserFunction
    workers: int = 1

    once = False
    kind = "json"

    @property
    def name(self) -> str:
        """Return the name of the source itself."""
        return self.source.name

    @property
    def size(self) -> int | None:
        """Return the size of the source itself."""
        return self.source.size

    @property
    def hashed(self) -> bool:
        """Tell whether the hash of the source itself is wanted."""
        return self.source.hashed

    @property
    def schema(self) -> pa.Schema | None:
        """Rows of a function have no schema before they are made."""
        return None

    def sha256(self) -> str:
        """Return the hash of the source itself."""
        return self.source.sha256()

    def keep(self) -> None:
        """Do nothing: made rows are kept anyway."""

    def first_block(self) -> Block | None:
        """Return the first block of made rows."""
        return next(self.blocks(), None)

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:  # noqa: ARG002
        """Yield the made rows, block for block of the source."""
        return self._made.blocks(start)

    @cached_property
    def _made(self) -> BlockFile:
        """Run the function over every row, once."""
        return kept_on_disk(self._run(), f"what {self.function.label} makes of {self.name}")

    def _run(self) -> Iterator[Block]:
        setup = {
            "file": str(self.function.file),
            "name": self.function.name,
            "config": dict(self.function.config),
        }
        worker = Worker(
            "fmtkit.converting.user_functions:serve", setup, Limits(seconds=self.function.seconds)
        )
        try:
            for block in self.source.blocks():
                yield _transform(block, worker, self.function)
        finally:
            worker.close()


def _transform(block: Block, worker: Worker, function: UserFunction) -> MadeBlock:
    """Run the row function over a block's sound rows."""
    records = reading.records_of(block)
    own = () if not hasattr(block, "rejects") else block.rejects
    places = reading.places(own, len(records))
    rejects: list[Reject] = list(own)
    sound: list[int] = []
    items: list[bytes] = []
    for record in range(len(records)):
        value, fault = records.value(record, written=True)
        # The function sees the whole row, and could be handed no NaN by way of JSON.
        fault = fault or next(iter(RowKind().faults(value, "")), None)
        if fault is not None:
            reject = records.reject(record, fault.code, fault.column, fault.message)
            rejects.append(replace(reject, row=int(places[record])))
            continue
        sound.append(record)
        items.append(canonical(value).encode("utf-8", "surrogatepass"))
    rows, lines, filtered = [], [], 0
    for record, answer in zip(sound, worker.answer(items), strict=True):
        made = _made(answer, function)
        if made is None:
            filtered += 1
        elif isinstance(made, str):
            reject = records.reject(record, "value_error", None, made)
            rejects.append(replace(reject, row=int(places[record])))
        else:
            rows.append((int(places[record]), made))
            lines.append(records.line(record))
    return MadeBlock(
        places=[place for place, _ in rows],
        rows=[row for _, row in rows],
        lines=lines,
        rejects=tuple(sorted(rejects, key=lambda reject: reject.row)),
        filtered=filtered,
        blank_lines=getattr(block, "blank_lines", 0) or reading.blank_lines(records),
        bytes_read=block.bytes_read,
    )


def _made(answer: bytes | Overrun, function: UserFunction) -> bytes | str | None:
    """Return a made row's JSON, why there is none, or None for a filtered row."""
    if isinstance(answer, Overrun):
        return f"{function.label}: {answer.message}"
    if answer == _FILTERED:
        return None
    return answer[1:].decode("utf-8", "replace") if answer.startswith(b"!") else answer


def serve(setup: Mapping[str, Any]) -> Serve:
    """Load a user's function in a worker; answers JSON rows, `null`, or `!` and what went wrong."""
    row_function, removed = load(setup["file"], setup["name"], setup["config"])

    def answer(item: bytes) -> bytes:
        row = json.loads(item)
        try:
            made = row_function(dict(row))
            return _encoded(made, row, removed)
        except Exception as error:  # noqa: BLE001
            # Whatever a user's function raises is that row's fault: it is quarantined with the reason.
            return b"!" + _told(error, setup).encode("utf-8", "replace")

    return answer


def load(
    file: str, name: str, config: Mapping[str, Any]
) -> tuple[Callable[[dict[str, Any]], Any], frozenset[str]]:
    """Run a user's file and its factory; return the row function and the columns it removes.

    Raises OptionError if there is no such function, or it does not return what it should.
    """
    import sys

    spec = spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(Path(file).parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OptionError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [key for key, value in vars(module).items() if callable(value)]
        near = near_match(name, known)
        raise OptionError(
            f"{file} has no function {name!r}" + (f"; did you mean {near!r}?" if near else "")
        )
    made = factory(dict(config))
    row_function, extra = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
    if not callable(row_function) or not isinstance(extra, Mapping):
        raise OptionError(
            f"{file}: {name} must return a function, or (function, {{'remove_columns': [...]}})"
        )
    return _with_keywords(row_function), frozenset(_columns(extra.get("remove_columns", ())))


def _columns(removed: Any) -> Sequence[str]:
    return [removed] if isinstance(removed, str) else list(removed or ())


def _with_keywords(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    """Fill `tokenizer` or `processing_class` with None where a row function demands one."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    needed = {
        p.name: None
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return lambda row: function(row, **needed)


def _encoded(made: Any, row: dict[str, Any], removed: frozenset[str]) -> bytes:
    if made is None or made == {}:
        return _FILTERED
    if not isinstance(made, Mapping):
        return f"!returned {type(made).__name__}, not a dict".encode()
    kept = (
        {} if ALL in removed else {key: value for key, value in row.items() if key not in removed}
    )
    return json.dumps({**kept, **made}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _told(error: Exception, setup: Mapping[str, Any]) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == setup["file"]]
    where = f" ({Path(setup['file']).name}:{frames[-1].lineno})" if frames else ""
    return f"{setup['name']} raised {type(error).__name__}: {error}{where}"
