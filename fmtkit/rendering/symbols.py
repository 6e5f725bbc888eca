"""Text that is not known yet: strings that stand for contents while a template is traced.

A `Symbol` is a string in which one private-use character stands for each unknown text. The template
runs on symbols as on any string; what it does to them is written down instead of done:

  an operation (`trim`, `split(...)[0]`) makes a new unknown text      Trace.derive
  a question (`if content`, `'x' in content`) is asked of one real row  Trace.ask
  anything else raises Untraceable, and such rows are rendered one by one

Every string that contains such a character is a Symbol: where that could be lost (joining,
formatting) `symbolic_environment` steps in. `Untraceable` is a BaseException, so that nothing
swallows it.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import field
from typing import Any, NoReturn, SupportsIndex

from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.unknowns import (
    ANY_SYMBOL,
    FIRST,
    STRING_OPERATIONS,
    STRING_PREDICATES,
    Derived,
    Question,
    Slot,
    Unknown,
    answer,
    symbolic,
)

MAX_DERIVED = 20_000
MAX_PARTS = 12


class Untraceable(BaseException):
    """The template does with a content what has no columnar form."""


@dataclass(slots=True)
class Trace:
    """What a template did with the unknown texts of one real row."""

    row: dict[Slot, str]
    unknowns: list[Unknown] = field(default_factory=list)
    answers: dict[Question, bool] = field(default_factory=dict)
    _numbers: dict[Unknown, int] = field(default_factory=dict)

    def derive(self, unknown: Unknown) -> "Symbol":
        """Return the symbol of an unknown: the same one for the same unknown."""
        number = self._numbers.setdefault(unknown, len(self.unknowns))
        if number == len(self.unknowns):
            if number >= MAX_DERIVED:
                raise Untraceable("too many operations")
            self.unknowns.append(unknown)
        return Symbol(chr(FIRST + number))

    def ask(self, predicate: str, text: str, *arguments: Any) -> bool:
        """Answer a question from the real row, and remember that it was asked."""
        question = Question(predicate, plain(text), tuple(map(_plain_argument, arguments)))
        if question not in self.answers:
            self.answers[question] = answer(question, self.unknowns, self.row)
        return self.answers[question]


ACTIVE: ContextVar[Trace] = ContextVar("ACTIVE")
"""The trace under way in this thread: templates are shared between threads, traces are not."""


def plain(text: str) -> str:
    """Return the characters of a symbol as an ordinary string."""
    return str.__str__(text) if isinstance(text, Symbol) else text


def _plain_argument(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, tuple):
        return tuple(_plain_argument(item) for item in value)
    return value


def mark(text: str) -> str:
    """Return the text as a Symbol if it holds symbols."""
    return Symbol(text) if symbolic(text) else text


class Symbol(str):  # noqa: PLW1641 - hashing is refused below
    """A string with unknown texts in it; it has the methods of str and no others."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Untraceable("an operation on a content that has no columnar form")

    def __add__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Symbol(plain(self) + plain(other))

    def __radd__(self, other: str) -> str:
        return Symbol(plain(other) + plain(self))

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        text = plain(self)
        return bool(ANY_SYMBOL.sub("", text)) or ACTIVE.get().ask("nonempty", text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return False
        one, two = plain(self), plain(other)
        return one == two or ACTIVE.get().ask("equals", one, two)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, other: object) -> bool:
        if not isinstance(other, str):
            raise TypeError("'in <string>' requires string as left operand")
        return ACTIVE.get().ask("contains", self, other)

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        if isinstance(index, slice):
            limits = (index.start, index.stop, index.step)
            if not all(limit is None or type(limit) is int for limit in limits):
                self._refuse()
            return ACTIVE.get().derive(Derived("slice", plain(self), limits))
        if not isinstance(index, int):
            raise TypeError("string indices must be integers")
        needed = index + 1 if index >= 0 else -index
        if not ACTIVE.get().ask("longer", self, needed):
            raise IndexError("string index out of range")
        return ACTIVE.get().derive(Derived("item", plain(self), (int(index),)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """Split at something known."""
        return _parts(self, "split", sep, maxsplit)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """Split at something known, from the right."""
        return _parts(self, "rsplit", sep, maxsplit)

    __hash__ = __len__ = __iter__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __repr__ = __format__ = _refuse
    format = format_map = join = encode = translate = _refuse
    center = ljust = rjust = zfill = splitlines = _refuse
    find = rfind = index = rindex = count = _refuse
    partition = rpartition = _refuse


def _operation(name: str) -> Callable[..., Symbol]:
    def method(self: Symbol, *arguments: Any) -> Symbol:
        given = tuple(_plain_argument(argument) for argument in arguments)
        return ACTIVE.get().derive(Derived(name, plain(self), given))

    return method


def _predicate(name: str) -> Callable[..., bool]:
    def method(self: Symbol, *arguments: Any) -> bool:
        return ACTIVE.get().ask(name, self, *arguments)

    return method


for _name in STRING_OPERATIONS:
    setattr(Symbol, _name, _operation(_name))
for _name in STRING_PREDICATES:
    setattr(Symbol, _name, _predicate(_name))


class SafeSymbol(Symbol):
    """An unknown text after the filter `safe`: only written out, since its other operations escape HTML."""

    __slots__ = ()

    __add__ = __radd__ = __getitem__ = split = rsplit = Symbol._refuse


for _name in STRING_OPERATIONS:
    setattr(SafeSymbol, _name, Symbol._refuse)


def _parts(text: Symbol, method: str, separator: str | None, limit: SupportsIndex) -> list[str]:
    if separator is None or isinstance(separator, Symbol) or type(limit) is not int:
        raise Untraceable(f"{method} at something unknown")
    if not separator:
        raise ValueError("empty separator")
    if not ACTIVE.get().ask("contains", text, separator):
        return [text]
    return Parts(plain(text), method, separator, limit)


class Parts(list[str]):
    """The parts of an unknown text that was split; how many there are is asked only when needed."""

    def __init__(self, text: str, method: str, separator: str, limit: int) -> None:
        super().__init__()
        self._split = (method, separator, limit)
        self._text = text

    def _part(self, index: int) -> str:
        return ACTIVE.get().derive(Derived("part", self._text, (*self._split, index)))

    def _at_least(self, count: int) -> bool:
        limit = self._split[2]
        # The separator is known to occur, so that there are two parts unless the limit forbids it.
        if count <= 1 or (count == 2 and limit != 0):
            return True
        if 0 <= limit < count - 1:
            return False
        return ACTIVE.get().ask("parts", self._text, *self._split, count)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._part(i) for i in range(len(self))][index]
        needed = index + 1 if index >= 0 else -index
        if not self._at_least(needed):
            raise IndexError("list index out of range")
        return self._part(index)

    def __len__(self) -> int:
        count = 1
        while self._at_least(count + 1):
            count += 1
            if count > MAX_PARTS:
                raise Untraceable("a content of many parts")
        return count

    def __iter__(self) -> Iterator[str]:
        return iter([self._part(i) for i in range(len(self))])

    def __bool__(self) -> bool:
        return True

    def _refuse(self, *_: Any) -> NoReturn:
        raise Untraceable("an operation on the parts of a content")

    # A list on the left would add the (empty) list that this is to C without __radd__.
    __add__ = __radd__ = __mul__ = __reversed__ = _refuse
    __contains__ = __eq__ = __ne__ = _refuse
    index = count = copy = __repr__ = __lt__ = __gt__ = _refuse


class Length:
    """The length of an unknown text, of which only comparisons with a number are known."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self._text = plain(text)

    def _at_least(self, number: object) -> bool:
        if type(number) is not int:
            raise Untraceable("a length compared with something unknown")
        return number <= 0 or ACTIVE.get().ask("longer", self._text, number)

    def __ge__(self, number: Any) -> bool:
        return self._at_least(number)

    def __gt__(self, number: Any) -> bool:
        return self._at_least(number + 1)

    def __lt__(self, number: Any) -> bool:
        return not self._at_least(number)

    def __le__(self, number: Any) -> bool:
        return not self._at_least(number + 1)

    def __eq__(self, number: object) -> bool:
        return self >= number and self <= number

    def __bool__(self) -> bool:
        return self > 0

    def _refuse(self, *_: Any) -> NoReturn:
        raise Untraceable("a length that is calculated with or written out")

    __str__ = __repr__ = __index__ = __int__ = __float__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _refuse
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __truediv__ = __pow__ = _refuse
