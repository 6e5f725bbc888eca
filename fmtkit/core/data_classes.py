"""`dataclass` as the standard library has it, but its methods are made when they are first called.

The standard library writes and compiles six methods for a frozen class as its module is imported: 0.5 ms a
class, a fifth of what a start of `fmtkit convert` took (benchmarks/README.md, "Where a start goes"). Here
`__init__` is compiled by the first call, and the other methods need no code of their own. A class with an
order is left to the standard library.
"""

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False, **options):
        """Make a dataclass of the class: `dataclasses.dataclass` names the options, and what is raised."""

        def made(cls):
            if options:
                return dataclasses.dataclass(cls, frozen=frozen, eq=eq, slots=slots, **options)
            return _made(cls, frozen, eq, slots)

        return made if cls is None else made(cls)


def _made(cls: Any, frozen: bool, eq: bool, slots: bool) -> Any:
    own = dict(cls.__dict__)
    # A class without a docstring would get its signature for one, which takes as long as all the rest.
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}(...)"
    said = [
        base.__dataclass_params__
        for base in cls.__mro__[1:]
        if "__dataclass_params__" in vars(base)
    ]
    if any(base.frozen != frozen for base in said):
        # Which it refuses, or not.
        return dataclasses.dataclass(cls, frozen=frozen, eq=eq, slots=slots)
    # It compiles methods of a frozen class alone, and a class is frozen where its bases are.
    for one in said:
        one.frozen = False
    try:
        # With slots it is another class that comes back.
        cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
    finally:
        for one in [*said, cls.__dataclass_params__]:
            one.frozen = frozen
    methods = {"__init__": _first_call(cls, frozen), "__repr__": _shown}
    if frozen:
        methods |= {
            "__setattr__": _frozen(cls, object.__setattr__),
            "__delattr__": _frozen(cls, object.__delattr__),
        }
    if frozen and slots:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    if eq:
        methods["__eq__"] = _equality(cls)
        # Of a class with an `__eq__` of its own Python says that its `__hash__` is None.
        if own.get("__hash__") is None:
            cls.__hash__ = _hash(cls) if frozen else None
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _first_call(cls: Any, frozen: bool) -> Any:
    """Return an `__init__` that puts the compiled one in its place."""

    def first_call(self: Any, *values: Any, **named: Any) -> None:
        cls.__init__ = _init(cls, frozen)
        cls.__init__(self, *values, **named)

    return first_call


def _init(cls: Any, frozen: bool) -> Any:
    """Compile an `__init__` with a parameter for each field, as the standard library's."""
    known: dict[str, Any] = {"__set__": object.__setattr__, "__not_given__": dataclasses.MISSING}
    first: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for index, field in enumerate(dataclasses.fields(cls)):
        name, value = field.name, field.name
        default = f"__default_{index}__"
        if field.default_factory is not dataclasses.MISSING:
            known[default] = field.default_factory
            value = (
                f"{default}() if {name} is __not_given__ else {name}"
                if field.init
                else f"{default}()"
            )
            parameter = f"{name}=__not_given__"
        elif field.default is not dataclasses.MISSING:
            known[default] = field.default
            parameter = f"{name}={default}"
        else:
            parameter = name
        if field.init:
            (by_name if field.kw_only else first).append(parameter)
        elif field.default_factory is dataclasses.MISSING:
            continue
        body.append(
            f"__set__(__self__, {name!r}, {value})" if frozen else f"__self__.{name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        body.append("__self__.__post_init__()")
    parameters = ["__self__", *first, *(["*", *by_name] if by_name else [])]
    code = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"])
    exec(code, known)  # noqa: S102 (names and defaults of a class's own fields)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]


@recursive_repr()
def _shown(self: Any) -> str:
    values = (
        f"{field.name}={getattr(self, field.name)!r}"
        for field in dataclasses.fields(self)
        if field.repr
    )
    return f"{type(self).__qualname__}({', '.join(values)})"


def _state(self: Any) -> list[Any]:
    """Return the values to pickle: slots of a frozen class cannot be set in the ordinary way afterwards."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _frozen(cls: Any, change: Any) -> Any:
    """Return a method that changes what a class derived from this one adds, and no field."""
    verb = "assign to" if change is object.__setattr__ else "delete"

    def changed(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
        change(self, name, *value)

    return changed


def _compared(names: list[str]) -> Any:
    """Return a function from an object to a tuple of the fields' values."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _equality(cls: Any) -> Any:
    values = _compared([field.name for field in dataclasses.fields(cls) if field.compare])

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    return equal


def _hash(cls: Any) -> Any:
    fields = dataclasses.fields(cls)
    values = _compared(
        [one.name for one in fields if (one.compare if one.hash is None else one.hash)]
    )

    def hashed(self: Any) -> int:
        return hash(values(self))

    return hashed
