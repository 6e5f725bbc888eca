"""User functions: `FILE.function`, axolotl's transforms, run row by row in worker processes.

A function takes the config (and optional keywords) and returns a row function, or the pair of a row function
and {"remove_columns": [...]}. A result has the columns of the row without the removed ones, updated with
what the row function returned; None or {} filters the row. Results are kept in a temporary file, so that the
function runs once even if the rows are read several times.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from fmtkit.core.carried_code import CarriedCode, carried
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.worker import Limits, Overrun, Worker
from fmtkit.rows.row_functions import FILTERED
from fmtkit.rows.rows_of_functions import MadeRows
from fmtkit.sources.blocks import Block, MadeBlock
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.made_source import MadeSource


@dataclass(frozen=True)
class UserFunction:
    """A function of a user's file, and the config with which it is called."""

    file: Path
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 30.0
    """Time limit for one row."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the file by value, with the neighbouring files that it imports."""
        return _function, (carried([str(self.file)]), self.name, self.config, self.seconds)

    @property
    def label(self) -> str:
        """Return the name as the user wrote it."""
        return f"{self.file.stem}.{self.name}"


def _function(
    code: CarriedCode, name: str, config: Mapping[str, Any], seconds: float
) -> UserFunction:
    [file] = code.files()
    return UserFunction(Path(file), name, config, seconds)


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
class TransformedSource(MadeSource):
    """A source whose rows are made by a user's function."""

    function: UserFunction
    workers: int = 1

    @property
    def what(self) -> str:
        """Return a description of the rows, for errors."""
        return f"the rows of {self.name} after {self.function.label}"

    def made(self) -> Iterator[Block]:
        """Run the function over every row."""
        setup = {
            "file": str(self.function.file),
            "name": self.function.name,
            "config": dict(self.function.config),
        }
        worker = Worker(
            "fmtkit.rows.row_functions:serve", setup, Limits(seconds=self.function.seconds)
        )
        try:
            for block in self.source.blocks():
                yield _transform(block, worker, self.function)
        finally:
            worker.close()


def _transform(block: Block, worker: Worker, function: UserFunction) -> MadeBlock:
    """Run the row function on the valid rows of a block."""
    made, filtered = MadeRows(block), 0
    sound: list[int] = []
    items: list[bytes] = []
    for record, value in made.sound():
        sound.append(record)
        items.append(canonical(value).encode("utf-8", "surrogatepass"))
    for record, answer in zip(sound, worker.answer(items), strict=True):
        row = _made(answer, function)
        if row is None:
            filtered += 1
        elif isinstance(row, str):
            made.refuse(record, "value_error", None, row)
        else:
            made.add(row, made.place(record), made.records.line(record))
    return made.block(filtered=filtered)


def _made(answer: bytes | Overrun, function: UserFunction) -> bytes | str | None:
    """Return the JSON of a result, the reason of an error as a string, or None for a filtered row."""
    if isinstance(answer, Overrun):
        return f"{function.label}: {answer.message}"
    if answer == FILTERED:
        return None
    return answer[1:].decode("utf-8", "replace") if answer.startswith(b"!") else answer
