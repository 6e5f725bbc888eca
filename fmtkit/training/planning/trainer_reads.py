"""Which arguments a trainer reads when it has these values, followed in the installed source.

An argument that is read only below `if self.loss_type == "sapo"` changes nothing beside another loss. The
methods of the trainer are walked with the values that a plan knows: a branch that is known not to be taken
is left out, every other one is read, and so is every function and class of TRL and fmtkit that is
mentioned on the way. What is only compared to be refused or warned about is not read.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache

from fmtkit.core.data_classes import dataclass
from fmtkit.training.config.trainer_source import UNKNOWN, Class, Module, imported_modules
from fmtkit.training.planning.interpreter import (
    Frame,
    State,
    assign,
    attributes_set,
    changing,
    construct,
    parameters_of,
    value_of,
)

_FOLLOWED = ("trl", "fmtkit")
"""Packages whose functions are followed; no other one knows the arguments that TRL adds."""
_SAYING = ("warnings.", "logger.", "logging.", "print(")

Test = tuple[ast.expr, bool]
"""A condition, and whether it holds."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class _Walk:
    """What was read so far: names of attributes and texts, and what the values of attributes are made of."""

    config: State
    trainer: State
    read: set[str] = field(default_factory=set)
    parts: dict[str, set[str]] = field(default_factory=dict)
    """Attribute that is set -> the names that its value is made of."""
    methods: set[str] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    left_out: dict[str, list[Test]] = field(default_factory=dict)
    """Name that is mentioned in a branch which is not taken -> the test that decides so."""


@dataclass(frozen=True)
class Reads:
    """What a trainer reads for some arguments, alone or as part of another, and why not others."""

    names: frozenset[str]
    made_of: Mapping[str, set[str]]
    left_out: Mapping[str, list[Test]]
    inside: Mapping[str, frozenset[str]]
    """Method or class -> what is mentioned in it."""

    def tests_of(self, name: str) -> list[Test]:
        """Return the tests that decide that an argument is not read."""
        known = {name, *(whole for whole, parts in self.made_of.items() if name in parts)}
        direct = [test for one in sorted(known) for test in self.left_out.get(one, ())]
        outer = [one for one, inner in self.inside.items() if known & inner and one not in known]
        return direct or [test for one in outer for test in self.left_out.get(one, ())]

    def argument_of(self, test: ast.expr, fields: Collection[str]) -> str:
        """Return the argument that a name or attribute stands for, or an empty string."""
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
        parts = self.made_of.get(name, set()) & set(fields)
        return name if name in fields else next(iter(parts)) if len(parts) == 1 else ""


def reads(config: Class, values: Mapping[str, object], trainer: Class) -> Reads | None:
    """Return what the trainer reads for these arguments; None if it is not known how it is made."""
    config_state, trainer_state = construct(config, values, trainer)
    if trainer_state is None:
        return None
    own = [c for c in trainer_state.lineage if c.module.package in _FOLLOWED]
    # What a later method sets is not known in the others.
    for owner in own:
        for node in _methods(owner):
            if node.name != "__init__":
                trainer_state.values |= dict.fromkeys(attributes_set(node), UNKNOWN)
    # A list that the trainer made itself may be filled anywhere; one of an argument stays what it is.
    given = [id(value) for value in config_state.values.values()]
    for name, value in trainer_state.values.items():
        if isinstance(value, list | dict | set) and id(value) not in given:
            trainer_state.values[name] = UNKNOWN
    trainer_state.values["args"] = config_state
    walk = _Walk(config_state, trainer_state)
    for owner in config_state.lineage:
        for node in _methods(owner) if owner.module.package in _FOLLOWED else ():
            _enter(node, owner, config_state, walk)
    everywhere = _mentioned(trainer_state.lineage)
    _walk_methods(own, everywhere, walk)
    return Reads(
        frozenset(_resolved(walk, everywhere)), walk.parts, walk.left_out, _inside(tuple(own))
    )


@cache
def _inside(own: tuple[Class, ...]) -> Mapping[str, frozenset[str]]:
    """Return what is mentioned in the methods of a trainer, and in what it imports from TRL."""
    methods = {node.name: _contents(node)[0] for owner in own for node in _methods(owner)}
    imported = {
        name: _contents(node)[0]
        for owner in own
        for name in _contents(owner.node)[1]
        for _, node in _defined(owner.module, name)
    }
    return imported | methods


def _walk_methods(own: Iterable[Class], everywhere: frozenset[str], walk: _Walk) -> None:
    """Walk the methods that are called from outside, and those that these call, until there is none left."""
    methods = [(owner, node) for owner in own for node in _methods(owner)]
    theirs = {
        node.name
        for owner in walk.trainer.lineage
        if owner.module.package not in _FOLLOWED
        for node in _methods(owner)
    }
    walk.methods |= {node.name for _, node in methods if node.name not in everywhere}
    walk.methods |= theirs
    done: set[int] = set()
    while todo := [(o, n) for o, n in methods if n.name in walk.methods and id(n) not in done]:
        for owner, node in todo:
            done.add(id(node))
            _enter(node, owner, walk.trainer, walk)


def _resolved(walk: _Walk, everywhere: frozenset[str]) -> set[str]:
    """Return what is read, and what the values are made of that are read, or that others may read."""
    found = set(walk.read)
    todo = [*found, *(name for name in walk.parts if name not in everywhere)]
    while todo:
        for part in walk.parts.get(todo.pop(), ()):
            if part not in found:
                found.add(part)
                todo.append(part)
    return found


@cache
def _mentioned(lineage: tuple[Class, ...]) -> frozenset[str]:
    """Return every attribute that the trainer's own classes read anywhere."""
    return frozenset(
        node.attr
        for owner in lineage
        if owner.module.package in _FOLLOWED
        for node in ast.walk(owner.node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


def _methods(owner: Class) -> Iterator[ast.FunctionDef]:
    return (node for node in owner.node.body if isinstance(node, ast.FunctionDef))


def _enter(node: ast.FunctionDef, owner: Class, state: State, walk: _Walk) -> None:
    names = parameters_of(node, state, (), {})
    # A method of the trainer that takes `args` is given its own.
    names |= {"args": walk.config} if "args" in names else {}
    _visit(node.body, Frame(names, owner, state, 0), walk)


def _visit(body: Iterable[ast.stmt], frame: Frame, walk: _Walk) -> None:
    for statement in body:
        _step(statement, frame, walk)


def _step(statement: ast.stmt, frame: Frame, walk: _Walk) -> None:  # noqa: C901 - one case a statement
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            _branch(test, body, orelse, frame, walk)
        case ast.Assign(targets=[ast.Attribute() as target], value=value) if _is_self(
            target, frame
        ):
            walk.parts.setdefault(target.attr, set()).update(_names(value, frame, walk))
        case ast.Assign(targets=targets, value=value):
            walk.read |= _names(value, frame, walk)
            for target in targets:
                walk.read |= _names(target, frame, walk)
                _set_local(target, _kept(value, frame), frame)
        case ast.For(target=target, iter=items, body=body, orelse=orelse):
            walk.read |= _names(items, frame, walk)
            _forget(statement, frame)
            for item in _items(items, frame):
                _set_local(target, item, frame)
                _visit(body, frame, walk)
            _forget(statement, frame)
            _visit(orelse, frame, walk)
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            own = {a.arg: UNKNOWN for a in (*statement.args.args, *statement.args.kwonlyargs)}
            inner = Frame(frame.names | own, frame.owner, frame.state, frame.depth)
            _visit(body, inner, walk)
        case ast.While() | ast.With() | ast.Try() | ast.AsyncWith() | ast.AsyncFor():
            _forget(statement, frame)
            _parts(statement, frame, walk)
        case ast.Raise() | ast.Assert():
            pass
        case _ if not _only_says([statement]):
            walk.read |= _names(statement, frame, walk)
            _forget(statement, frame)


def _parts(statement: ast.stmt, frame: Frame, walk: _Walk) -> None:
    """Visit what a compound statement holds, whether it is run or not."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            _step(child, frame, walk)
        elif isinstance(child, ast.ExceptHandler):
            _visit(child.body, frame, walk)
        else:
            walk.read |= _names(child, frame, walk)


def _branch(
    test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt], frame: Frame, walk: _Walk
) -> None:
    known = value_of(test, frame)
    if not _only_says([*body, *orelse]):
        named = _names(test, frame, walk)
        targets = _attributes_only([*body, *orelse], frame)
        # A default that is filled in acts where the attribute is read.
        for target in targets or ():
            walk.parts.setdefault(target, set()).update(named)
        walk.read |= named if targets is None else set()
    if known is not UNKNOWN:
        _leave_out(orelse if known else body, (test, bool(known)), frame, walk)
        _visit(body if known else orelse, frame, walk)
        return
    for taken in (body, orelse):
        _visit(taken, Frame(dict(frame.names), frame.owner, frame.state, frame.depth), walk)
    for one in (*body, *orelse):
        _forget(one, frame)


def _leave_out(parts: Sequence[ast.AST], test: Test, frame: Frame, walk: _Walk) -> None:
    """Note which test keeps the names in a branch from being read: the innermost one that is known."""
    for part in parts:
        if isinstance(part, ast.stmt) and _only_says([part]):
            continue
        if isinstance(part, ast.If) and _is_false(part.test, frame):
            _leave_out(part.body, (part.test, False), frame, walk)
            _leave_out(part.orelse, test, frame, walk)
            continue
        for name in _mentions(part):
            walk.left_out.setdefault(name, []).append(test)


def _is_false(test: ast.expr, frame: Frame) -> bool:
    known = value_of(test, frame)
    return known is not UNKNOWN and not known


@cache
def _mentions(part: ast.AST) -> frozenset[str]:
    nodes = list(ast.walk(part))
    names = (node.id for node in nodes if isinstance(node, ast.Name))
    return frozenset([*names, *(node.attr for node in nodes if isinstance(node, ast.Attribute))])


def _only_says(body: list[ast.stmt]) -> bool:
    """Return whether statements raise an error or warn, and do nothing else."""
    return all(
        isinstance(one, ast.Raise | ast.Pass | ast.Assert)
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        or (isinstance(one, ast.Expr) and ast.unparse(one.value).startswith(_SAYING))
        or (isinstance(one, ast.If) and _only_says([*one.body, *one.orelse]))
        for one in body
    )


def _attributes_only(body: list[ast.stmt], frame: Frame) -> set[str] | None:
    """Return the attributes that statements set, if they do nothing else besides saying so."""
    out: set[str] = set()
    for one in body:
        match one:
            case ast.Assign(targets=[ast.Attribute() as target]) if _is_self(target, frame):
                out.add(target.attr)
            case ast.If(body=inner, orelse=orelse):
                found = _attributes_only([*inner, *orelse], frame)
                if found is None:
                    return None
                out |= found
            case _ if not _only_says([one]):
                return None
    return out


def _is_self(target: ast.Attribute, frame: Frame) -> bool:
    return value_of(target.value, frame) is frame.state


def _items(items: ast.expr, frame: Frame) -> list[object]:
    """Return the values that a loop takes, or one that is not known."""
    match items:
        case ast.Call(func=ast.Name(id="zip"), args=[ast.expr(), *_] as lists):
            known = [value_of(one, frame) for one in lists]
            first = known[0]
            return [(one,) for one in first] if isinstance(first, list | tuple) else [UNKNOWN]
        case ast.Call(func=ast.Name(id="enumerate"), args=[ast.expr() as inner, *_]):
            return [(UNKNOWN, one) for one in _items(inner, frame)]
    known_items = value_of(items, frame)
    return list(known_items) if isinstance(known_items, list | tuple) else [UNKNOWN]


def _set_local(target: ast.expr, value: object, frame: Frame) -> None:
    match target:
        case ast.Name():
            assign(target, value, frame)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            values = value if isinstance(value, tuple) else ()
            for number, one in enumerate(targets):
                _set_local(one, values[number] if number < len(values) else UNKNOWN, frame)


def _kept(node: ast.expr, frame: Frame) -> object:
    """Return what a local name is set to, unless it is a new list or mapping, which calls may fill."""
    value = value_of(node, frame)
    is_new = isinstance(value, list | dict | set) and not isinstance(node, ast.Attribute)
    return UNKNOWN if is_new else value


def _forget(statement: ast.stmt, frame: Frame) -> None:
    for inner in changing(statement):
        if isinstance(inner, ast.Name):
            frame.names[inner.id] = UNKNOWN


def _names(node: ast.AST, frame: Frame, walk: _Walk) -> set[str]:
    """Return the attributes and texts that an expression reads; parts that are not reached do not count."""
    match node:
        case ast.BoolOp(op=op, values=parts):
            return _of_logic(isinstance(op, ast.And), parts, frame, walk)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            known = value_of(test, frame)
            reached = [test, *([body, orelse] if known is UNKNOWN else [body if known else orelse])]
            if known is not UNKNOWN:
                _leave_out([orelse if known else body], (test, bool(known)), frame, walk)
            return set().union(*(_names(one, frame, walk) for one in reached))
        case ast.Constant(value=str() as text):
            return {text}
        case ast.Name(id=name):
            _follow(frame.owner.module, name, walk)
            return set()
    out: set[str] = set()
    if isinstance(node, ast.Attribute):
        out.add(node.attr)
        walk.methods.add(node.attr)
    return out.union(*(_names(child, frame, walk) for child in ast.iter_child_nodes(node)))


def _of_logic(is_and: bool, parts: list[ast.expr], frame: Frame, walk: _Walk) -> set[str]:
    out: set[str] = set()
    for number, part in enumerate(parts, 1):
        out |= _names(part, frame, walk)
        known = value_of(part, frame)
        if known is not UNKNOWN and bool(known) is not is_and:
            _leave_out(parts[number:], (part, bool(known)), frame, walk)
            break
    return out


def _follow(module: Module, name: str, walk: _Walk) -> None:
    """Read the whole of a function or class of TRL or fmtkit that is mentioned."""
    for where, node in _defined(module, name):
        lineage = (*walk.config.lineage, *walk.trainer.lineage)
        if id(node) in walk.seen or any(node is one.node for one in lineage):
            continue
        walk.seen.add(id(node))
        attributes, names = _contents(node)
        walk.read |= attributes
        walk.methods |= attributes
        for one in names:
            _follow(where, one, walk)


@cache
def _contents(node: Definition) -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes and texts of a definition, and the names that it mentions."""
    attributes, names = set(), set()
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(attr=name) | ast.Constant(value=str() as name):
                attributes.add(name)
            case ast.Name(id=name):
                names.add(name)
    return frozenset(attributes), frozenset(names)


@cache
def _defined(module: Module, name: str) -> tuple[tuple[Module, Definition], ...]:
    """Return what a name means in a module of TRL or fmtkit: a function or class, there or imported."""
    if module.package not in _FOLLOWED:
        return ()
    for node in module.tree.body:
        if isinstance(node, Definition) and node.name == name:
            return ((module, node),)
    return tuple(
        found
        for where, original in imported_modules(module, name)
        if where.package in _FOLLOWED and where.file != module.file
        for found in _defined(where, original)
    )
