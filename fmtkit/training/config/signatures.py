"""What a user's class or function takes, read from its source: none of the user's code runs for a plan."""

import ast
from collections.abc import Collection, Sequence
from pathlib import Path

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import near_match
from fmtkit.training.config import user_objects
from fmtkit.training.config.trainer_source import Class, class_named


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, or of a class's constructor."""

    names: tuple[str, ...] = ()
    """Those that can be given by name, without `self`."""
    required: frozenset[str] = frozenset()
    takes_all: bool = False
    """Whether it takes any other name too."""
    bases: frozenset[str] | None = None
    """Names of the class and its bases; None for a function, and where a base is not found."""

    def problem(self, given: Collection[str], filled: Collection[str] = ()) -> str | None:
        """Return why a call with these names fails, or None; `filled` are given besides if they are taken."""
        for name in given:
            if name not in self.names and not self.takes_all:
                near = near_match(name, self.names)
                takes = ", ".join(self.names) or "no argument"
                advice = f"did you mean {near!r}?" if near else f"it takes {takes}"
                return f"takes no argument {name!r}; {advice}"
        lacking = sorted(self.required - {*given} - {*filled})
        return f"needs the argument {', '.join(lacking)}" if lacking else None


def signature_of(key: str, name: str, places: Sequence[Path]) -> Signature | None:
    """Return what the object of a configured name takes; None where only running its module tells.

    Raises OptionError where the module does not exist, or its source does not define the name.
    """
    user_objects.check(key, name, places)
    function = user_objects.definition(key, name, places)
    if function is not None:
        return _of_function(function)
    module = user_objects.source(key, name, places)
    named = None if module is None else class_named(module, name.rpartition(".")[2])
    return None if named is None else constructor(named)


def constructor(named: Class) -> Signature | None:
    """Return what the constructor of a class takes, as far as its source tells."""
    lineage = named.lineage()
    is_whole = all(_finds_bases(one) for one in lineage)
    bases = frozenset(one.name for one in lineage) if is_whole else None
    for one in lineage:
        if one.node.decorator_list:
            # A decorator may make the constructor, as dataclass does.
            return None
        method = one.method("__init__")
        if method is not None:
            return _of_function(method, skip=1, bases=bases)
        if not _finds_bases(one):
            return None
    return Signature(bases=bases)


def _finds_bases(one: Class) -> bool:
    wanted = [base for base in one.node.bases if ast.unparse(base) != "object"]
    return len([*one.bases()]) == len(wanted)


def _of_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    skip: int = 0,
    bases: frozenset[str] | None = None,
) -> Signature:
    given = node.args
    positional = [one.arg for one in (*given.posonlyargs, *given.args)]
    needed = positional[: len(positional) - len(given.defaults)][skip:]
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    needed += [one.arg for one, default in pairs if default is None]
    names = (*positional[skip:], *(one.arg for one in given.kwonlyargs))
    return Signature(names, frozenset(needed), given.kwarg is not None, bases)
