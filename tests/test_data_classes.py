"""fmtkit's `dataclass` makes what the standard library's makes: both are asked the same things."""

import copy
import dataclasses
import inspect
import itertools
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fmtkit.core import data_classes
from fmtkit.core.data_classes import dataclass

Decorator = Callable[..., Any]
OPTIONS = [
    {"frozen": frozen, "eq": eq, **more}
    for frozen, eq, more in itertools.product(
        (False, True), (False, True), ({}, {"slots": True}, {"kw_only": True})
    )
] + [{"order": True}, {"frozen": True, "order": True}]


def classes(make: Decorator, options: dict[str, Any]) -> list[Any]:
    """Return classes of many kinds, made by a decorator."""

    @make(**options)
    class Empty:
        pass

    @make(**options)
    class Plain:
        """Has a docstring."""

        first: int
        second: str = "two"

    @make(**options)
    class Rich:
        kind: ClassVar[str] = "rich"
        first: int
        listed: list[int] = field(default_factory=list)
        hidden: str = field(default="x", repr=False, compare=False)
        made: str = field(init=False, default="made")
        grown: dict[str, int] = field(init=False, default_factory=dict)
        named: int = field(default=3, kw_only=True)
        hashed: int = field(default=4, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", f"after {self.first}")

    @make(**options)
    class Own:
        first: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @make(**options)
    class Base:
        first: int
        second: int = 2

    @make(**options)
    class Derived(Base):
        second: int = 20
        third: tuple[int, ...] = ()

    class Plainly(Base):
        pass

    @make(**options)
    class Odd:
        self: int
        _self: int = 0
        _set: int = 1
        None_: Any = None

    return [Empty, Plain, Rich, Own, Base, Derived, Plainly, Odd]


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, "b"), {}),
    ((1, [2]), {"named": 5}),
    ((1, 2, 3), {}),
    ((), {"first": 1}),
    ((), {"first": 1, "second": 3}),
    ((1,), {"first": 1}),
    ((), {"first": 1, "unknown": 2}),
    ((), {"self": 4}),
    ((1, 2, 3, 4, 5, 6, 7), {}),
]


def tried(function: Callable[[], Any]) -> Any:
    """Return what a function returns, or the kind of what it raises."""
    try:
        return function()
    except (TypeError, AttributeError, ValueError, LookupError) as error:
        return type(error)


def told(one: Any) -> list[Any]:
    """Return what can be asked of an object, or of the error that stood for it."""
    if isinstance(one, type):
        return [one]

    def change() -> str:
        one.first = 9
        return repr(one)

    def add() -> str:
        one.unheard = 9
        return str(one.unheard)

    def delete() -> str:
        del one.first
        return "deleted"

    is_class = dataclasses.is_dataclass
    return [
        repr(one),
        tried(lambda: isinstance(hash(one), int)),
        tried(lambda: one == copy.copy(one)),
        tried(lambda: one == copy.deepcopy(one)),
        tried(lambda: hash(one) == hash(copy.copy(one))),
        tried(lambda: one < one),
        one == 3,
        tried(lambda: dataclasses.asdict(one)),
        tried(lambda: repr(dataclasses.replace(one))),
        tried(lambda: repr(dataclasses.replace(one, first=8))),
        tried(lambda: one == dataclasses.replace(one, hidden="other")),
        tried(lambda: {one: 1}[copy.copy(one)]),
        type(one).__match_args__ if is_class(one) else None,
        tried(change),
        tried(add),
        tried(delete),
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_of_both_do_the_same(options: dict[str, Any]) -> None:
    ours, theirs = classes(dataclass, options), classes(dataclasses.dataclass, options)
    for own, standard in zip(ours, theirs, strict=True):
        names = [(f.name, f.default, f.init, f.kw_only) for f in dataclasses.fields(standard)]
        assert [(f.name, f.default, f.init, f.kw_only) for f in dataclasses.fields(own)] == names
        for values, named in CALLS:
            one = tried(lambda own=own, values=values, named=named: own(*values, **named))
            other = tried(lambda standard=standard, v=values, n=named: standard(*v, **n))
            answers, expected = told(one), told(other)
            if options.get("frozen") and options.get("slots"):
                # Over a name that is no field Python 3.11 fails: `super` of a class that the one with slots
                # has replaced. Ours does as without slots.
                pairs = zip(answers, expected, strict=True)
                answers = [e if e is TypeError else a for a, e in pairs]
            assert answers == expected, (own, values, named)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_standard_library_derives_from_ours(frozen: bool) -> None:
    @dataclass(frozen=frozen)
    class Ours:
        first: int

    @dataclasses.dataclass(frozen=frozen)
    class Theirs(Ours):
        second: int = 2

    assert repr(Theirs(1)).endswith("Theirs(first=1, second=2)")
    assert Theirs(1) != Ours(1)
    with pytest.raises(TypeError, match="frozen"):

        @dataclasses.dataclass(frozen=not frozen)
        class Other(Ours):
            second: int = 2

    with pytest.raises(TypeError, match="frozen"):

        @dataclass(frozen=not frozen)
        class Own(Ours):
            second: int = 2


def test_a_field_of_a_frozen_object_is_not_changed_nor_deleted() -> None:
    @dataclass(frozen=True)
    class Point:
        x: int

        @cached_property
        def doubled(self) -> int:
            return self.x * 2

    point = Point(1)
    assert point.doubled == 2
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point.x == 1


@dataclass(frozen=True)
class Node:
    """Holds another of its kind."""

    name: str
    others: "list[Node]" = field(default_factory=list)


def test_an_object_that_holds_itself_is_shown_and_pickled() -> None:
    node = Node("a")
    node.others.append(node)
    assert repr(node) == "Node(name='a', others=[...])"
    again = pickle.loads(pickle.dumps(node))
    assert again.others[0] is again


@dataclass(frozen=True, slots=True)
class Slotted:
    """Has slots, and no dictionary of attributes."""

    name: str
    values: tuple[int, ...] = ()


def test_an_object_with_slots_is_pickled_and_takes_no_other_attribute() -> None:
    one = Slotted("a", (1, 2))
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert hash(again) == hash(one)
    assert not hasattr(one, "__dict__")
    for name in ("name", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, 3)


def test_the_signature_is_known_after_the_first_object() -> None:
    Node("a")
    assert list(inspect.signature(Node).parameters) == ["name", "others"]


def test_a_mutable_default_is_refused() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @dataclass(frozen=True)
        class Wrong:
            listed: list[int] = []  # noqa: RUF012


def test_a_missing_default_after_one_that_is_given_is_refused_by_the_first_object() -> None:
    @dataclass
    class Wrong:
        first: int = 1
        second: str  # type: ignore[misc]

    with pytest.raises((TypeError, SyntaxError), match="default"):
        Wrong(1, "b")


def test_modules_of_fmtkit_take_ours() -> None:
    package = Path(data_classes.__file__).parents[1]
    theirs = re.compile(r"^from dataclasses import [^\n]*\bdataclass\b", re.MULTILINE)
    found = [file for file in package.rglob("*.py") if theirs.search(file.read_text("utf-8"))]
    assert not found
