"""The source of a config class and of its trainer, followed statement by statement with some values known.

What a statement needs and nobody knows (the data, the device) is unknown, and so is all that follows from it;
what raises an error whatever the unknown is, fails. The source is read, and neither imported nor run.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, cast

from fmtkit.core.data_classes import dataclass
from fmtkit.training.config.trainer_source import UNKNOWN, Class, class_named, find_class
from fmtkit.training.planning import device_checks

_DEEPEST = 12
_PASSED = frozenset(
    {
        "model",
        "args",
        "train_dataset",
        "eval_dataset",
        "processing_class",
        "callbacks",
        "peft_config",
        "quantization_config",
        "ref_model",
        "teacher_model",
        "reward_funcs",
        "reward_weights",
        "tools",
        "rollout_func",
        "environment_factory",
        "data_collator",
        "compute_loss_func",
        "model_init",
        "optimizers",
    }
)
"""Parameters of a trainer that fmtkit may pass; all others keep their default."""


_FACTS = ("_is_vlm", "_is_vision_dataset")
"""Attributes of trainers that say whether the rows have images, for which fmtkit gives them a processor."""


@dataclass(frozen=True)
class Known:
    """What of the model and of this machine is known, besides the arguments."""

    settings: frozenset[str] = frozenset()
    """Names that the config of the model may have; empty where they are not known."""
    packages: bool = False
    """Whether the packages of this machine are those of the training."""
    images: bool = False
    """Whether rows have images."""


NOTHING = Known()


@dataclass(frozen=True)
class _Model:
    """The model that the trainer is given; of its config only the possible names are known."""

    settings: frozenset[str]
    is_config: bool = False


class _UnknownError(Exception):
    """An expression needs a value that a plan does not have."""


class _ReturnError(Exception):
    """Leaves a method."""


class _RaisedError(Exception):
    """Leaves everything: the source raises an error here."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass
class State:
    """An object whose attributes are known one by one; all others are unknown."""

    lineage: tuple[Class, ...]
    values: dict[str, object] = field(default_factory=dict)
    given: Mapping[str, object] = field(default_factory=dict)
    """The values of these parameters in every `__init__`, however they are passed on."""
    failures: list[str] = field(default_factory=list)
    known: Known = NOTHING


def failures(
    config: Class, values: Mapping[str, object], trainer: Class | None, known: Known = NOTHING
) -> tuple[str, ...]:
    """Return the errors that config and trainer would raise for these arguments.

    `values` are the arguments that are known, defaults included; the rest is unknown.
    """
    state, trainer_state = construct(config, values, trainer, known)
    messages = (*state.failures, *(trainer_state.failures if trainer_state else ()))
    return tuple(dict.fromkeys(messages))


def construct(
    config: Class, values: Mapping[str, object], trainer: Class | None, known: Known = NOTHING
) -> tuple[State, State | None]:
    """Return what is known of the config and of the trainer once they are made."""
    state = State(config.lineage(), dict(values), known=known)
    _call(state, "__post_init__", (), {}, 0)
    if trainer is None:
        return state, None
    given: dict[str, object] = {"args": state}
    if known.settings:
        given["model"] = _Model(known.settings)
    trainer_state = State(trainer.lineage(), given=given, known=known)
    _call(trainer_state, "__init__", (), {}, 0)
    return state, trainer_state


_LOADER = "dataloader_"
"""How the arguments begin that transformers passes to torch's DataLoader."""


def loader_failures(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the errors that torch's DataLoader would raise for these arguments, by their names."""
    loader = find_class("torch.utils.data.dataloader:DataLoader")
    node = loader.method("__init__") if loader is not None else None
    if loader is None or node is None:
        return ()
    names = [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
    passed = {name: values.get(f"{_LOADER}{name}", UNKNOWN) for name in names[1:]}
    state = State(loader.lineage())
    _call(state, "__init__", (), passed, 0)
    ours = [name for name in passed if f"{_LOADER}{name}" in values]
    words = re.compile(rf"\b({'|'.join(ours)})\b")
    return tuple(words.sub(rf"{_LOADER}\1", message) for message in dict.fromkeys(state.failures))


@dataclass
class Frame:
    """A running method: its local names, the class that defines it, and how deep it was called."""

    names: dict[str, object]
    owner: Class
    state: State
    depth: int


def _call(
    state: State,
    method: str,
    positional: tuple[object, ...],
    named: Mapping[str, object],
    depth: int,
    above: Class | None = None,
) -> bool:
    """Run a method of an object, or that of a class above the given one; False if there is none."""
    owners = state.lineage
    if above is not None:
        index = next((i for i, c in enumerate(owners) if c.node is above.node), len(owners))
        owners = owners[index + 1 :]
    for owner in owners:
        node = owner.method(method)
        if node is not None and depth < _DEEPEST:
            frame = Frame(parameters_of(node, state, positional, named), owner, state, depth)
            try:
                _run(node.body, frame)
            except _ReturnError:
                return True
            return True
    return False


def parameters_of(
    node: ast.FunctionDef,
    state: State,
    positional: tuple[object, ...],
    named: Mapping[str, object],
) -> dict[str, object]:
    """Return the names of a method when it begins: its parameters, with the object itself first."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args]
    names: dict[str, object] = {a.arg: UNKNOWN for a in (*every, *arguments.kwonlyargs)}
    for argument, default in (
        *zip(reversed(every), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ):
        if isinstance(default, ast.Constant) and argument.arg not in _PASSED:
            names[argument.arg] = default.value
    for argument, value in zip(every[1:], positional, strict=False):
        names[argument.arg] = value
    names |= {name: value for name, value in named.items() if name in names}
    if node.name == "__init__":
        names |= {name: value for name, value in state.given.items() if name in names}
    if every:
        names[every[0].arg] = state
    return names


def _run(body: Iterable[ast.stmt], frame: Frame) -> None:
    """Run statements; an error is kept, and what follows its `if` is run as if it were not raised."""
    for statement in body:
        try:
            _step(statement, frame)
        except _RaisedError as error:
            frame.state.failures.append(error.message)
            if isinstance(statement, ast.Raise):
                return
            _forget(statement, frame)


def _step(statement: ast.stmt, frame: Frame) -> None:  # noqa: C901, PLR0912 - one case a statement
    match statement:
        case ast.Assign(targets=targets, value=value):
            result = value_of(value, frame)
            for target in targets:
                assign(target, result, frame)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            assign(target, value_of(value, frame), frame)
        case ast.AugAssign(target=target):
            assign(target, UNKNOWN, frame)
        case ast.If(test=test):
            _branch(statement, test, frame)
        case ast.Raise(exc=error):
            raise _RaisedError(_message(error, frame))
        case ast.Assert(test=test, msg=message):
            if value_of(test, frame) is not UNKNOWN and not value_of(test, frame):
                raise _RaisedError(_text(message, frame) if message else ast.unparse(test))
        case ast.Return():
            raise _ReturnError
        case ast.Expr(value=ast.Call() as call):
            _call_statement(call, frame)
        case ast.With(items=items, body=body):
            for item in items:
                if item.optional_vars is not None:
                    assign(item.optional_vars, UNKNOWN, frame)
            _run(body, frame)
        case ast.For() | ast.While() | ast.Try():
            _forget(statement, frame)
        case _:
            pass


def _branch(statement: ast.If, test: ast.expr, frame: Frame) -> None:
    known = value_of(test, frame)
    if known is UNKNOWN:
        _forget(statement, frame)
        # It is not known whether what follows is reached at all.
        if _may_return(statement):
            raise _ReturnError
        return
    _run(statement.body if known else statement.orelse, frame)


def _forget(statement: ast.stmt, frame: Frame) -> None:
    """Mark as unknown what a statement may set."""
    for inner in changing(statement):
        if isinstance(inner, ast.Call):
            _forget_called(inner, frame)
        else:
            assign(inner, UNKNOWN, frame)


# Each plan of a process follows the same sources: they are walked once.
@cache
def changing(statement: ast.stmt) -> tuple[ast.expr, ...]:
    """Return what a statement may set, and its calls, which may change more."""
    return tuple(
        inner
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Call)
        or (
            isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript))
            and isinstance(inner.ctx, (ast.Store, ast.Del))
        )
    )


@cache
def _may_return(statement: ast.AST) -> bool:
    # What a function that is only defined here returns is not a return of this method.
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
        return False
    return isinstance(statement, ast.Return) or any(
        map(_may_return, ast.iter_child_nodes(statement))
    )


@cache
def attributes_set(method: ast.FunctionDef) -> tuple[str, ...]:
    """Return the attributes that a method sets, of whatever object."""
    return tuple(
        inner.attr
        for inner in ast.walk(method)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
    )


def _forget_called(call: ast.Call, frame: Frame) -> None:
    """Mark as unknown what a call may change: the object whose method it is, and mutable arguments."""
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        inside = value_of(owner, frame)
        if isinstance(inside, (list, dict, set)):
            assign(owner, UNKNOWN, frame)
        elif isinstance(inside, State):
            _forget_method(inside, call.func.attr)


def _forget_method(state: State, name: str) -> None:
    for owner in state.lineage:
        node = owner.method(name)
        if node is not None:
            state.values |= dict.fromkeys(attributes_set(node), UNKNOWN)


def assign(target: ast.expr, value: object, frame: Frame) -> None:
    """Set a name or an attribute; what is set to UNKNOWN is forgotten."""
    match target:
        case ast.Name(id=name):
            # Whatever wraps the model (an adapter) keeps its config.
            if not (value is UNKNOWN and isinstance(frame.names.get(name), _Model)):
                frame.names[name] = value
        case ast.Attribute(value=owner, attr=name):
            inside = value_of(owner, frame)
            if isinstance(inside, State):
                inside.values[name] = inside.known.images if name in _FACTS else value
        case ast.Subscript(value=owner):
            assign(owner, UNKNOWN, frame)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for inner in targets:
                assign(inner, UNKNOWN, frame)
        case ast.Starred(value=inner):
            assign(inner, UNKNOWN, frame)


def _call_statement(call: ast.Call, frame: Frame) -> None:
    """Follow `super().method(...)` and `self.method(...)`; other calls change what they are given."""
    if not isinstance(call.func, ast.Attribute):
        return
    positional = tuple(value_of(argument, frame) for argument in call.args)
    named = {k.arg: value_of(k.value, frame) for k in call.keywords if k.arg}
    owner, name = call.func.value, call.func.attr
    if isinstance(owner, ast.Call) and ast.unparse(owner.func) == "super":
        _call(frame.state, name, positional, named, frame.depth + 1, above=frame.owner)
        return
    inside = value_of(owner, frame)
    if isinstance(inside, State):
        if not _call(inside, name, positional, named, frame.depth + 1):
            _forget_method(inside, name)
        return
    _forget_called(call, frame)


def _message(error: ast.expr | None, frame: Frame) -> str:
    if isinstance(error, ast.Call) and error.args:
        return _text(error.args[0], frame)
    return ast.unparse(error) if error is not None else "it is refused"


def _text(node: ast.expr, frame: Frame) -> str:
    """Return a message; what it would show of the unknown is an ellipsis."""
    match node:
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, frame) for part in parts)
        case ast.FormattedValue(value=inner):
            shown = value_of(inner, frame)
            return "…" if shown is UNKNOWN else str(shown)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, frame) + _text(right, frame)
    shown = value_of(node, frame)
    return "…" if shown is UNKNOWN else str(shown)


def value_of(node: ast.expr, frame: Frame) -> object:
    """Return what an expression is, or UNKNOWN."""
    try:
        return _known(node, frame)
    except _UnknownError:
        return UNKNOWN
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
        # The source itself would fail on this value: whether in a way that is meant is not known.
        return UNKNOWN


def _sure(node: ast.expr, frame: Frame) -> object:
    result = _known(node, frame)
    if result is UNKNOWN:
        raise _UnknownError
    return result


def _known(node: ast.expr, frame: Frame) -> object:  # noqa: C901, PLR0911, PLR0912 - one case a form
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _name(name, frame)
        case ast.Attribute(value=owner, attr=name):
            return _attribute(owner, name, frame)
        case ast.BoolOp(op=op, values=parts):
            return _logic(isinstance(op, ast.And), parts, frame)
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, _sure(operand, frame))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_sure(left, frame), _sure(right, frame))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compared(left, ops, others, frame)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _known(body if _sure(test, frame) else orelse, frame)
        case ast.Tuple(elts=items):
            return tuple(_sure(item, frame) for item in items)
        case ast.List(elts=items):
            return [_sure(item, frame) for item in items]
        case ast.Set(elts=items):
            return {_sure(item, frame) for item in items}
        case ast.Dict(keys=keys, values=values) if all(keys):
            pairs = zip(cast("list[ast.expr]", keys), values, strict=True)
            return {_sure(k, frame): _sure(v, frame) for k, v in pairs}
        case ast.Subscript(value=owner, slice=index):
            inside = _sure(owner, frame)
            if isinstance(inside, (list, tuple, dict, str)):
                return cast("Any", inside)[_sure(index, frame)]
        case ast.JoinedStr():
            text = _text(node, frame)
            if "…" not in text:
                return text
        case (
            ast.GeneratorExp(elt=element, generators=[loop])
            | ast.ListComp(elt=element, generators=[loop])
        ):
            return _comprehended(element, loop, frame)
        case ast.Call():
            return _called(node, frame)
    raise _UnknownError


def _name(name: str, frame: Frame) -> object:
    if name in frame.names:
        return frame.names[name]
    class_ = class_named(frame.owner.module, name) if name[0].isupper() else None
    if class_ is not None:
        return class_
    for node in frame.owner.module.tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in node.targets
        ):
            return _literal(node.value)
    raise _UnknownError


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise _UnknownError from error


def _attribute(owner: ast.expr, name: str, frame: Frame) -> object:
    inside = _sure(owner, frame)
    if isinstance(inside, State) and name in inside.values:
        return inside.values[name]
    if isinstance(inside, Class) and inside.is_enum and name in inside.members():
        return inside.members()[name]
    if isinstance(inside, str) and name == "value":
        return inside
    if isinstance(inside, _Model) and name == "__name__":
        return "base_model"
    if isinstance(inside, _Model) and name == "config" and not inside.is_config:
        return replace(inside, is_config=True)
    raise _UnknownError


def _logic(is_and: bool, parts: Iterable[ast.expr], frame: Frame) -> object:
    """Evaluate `and` or `or`; one part that decides is enough, whatever the others are."""
    values = []
    for part in parts:
        value = value_of(part, frame)
        values.append(value)
        if value is not UNKNOWN and bool(value) is not is_and:
            # An earlier unknown part might have been the result, of the same truth.
            return value if UNKNOWN not in values else (not is_and)
    return UNKNOWN if any(value is UNKNOWN for value in values) else values[-1]


def _unary(op: ast.unaryop, value: object) -> object:
    if isinstance(op, ast.Not):
        return not value
    if isinstance(op, ast.USub) and isinstance(value, (int, float)):
        return -value
    raise _UnknownError


def _compared(
    left: ast.expr, ops: Iterable[ast.cmpop], others: Iterable[ast.expr], frame: Frame
) -> object:
    first = _sure(left, frame)
    for op, other in zip(ops, others, strict=True):
        second = _sure(other, frame)
        is_object = any(isinstance(side, (State, Class, _Model)) for side in (first, second))
        if is_object and not isinstance(op, (ast.Is, ast.IsNot)):
            raise _UnknownError
        if not _COMPARE[type(op)](first, second):
            return False
        first = second
    return True


def _comprehended(element: ast.expr, loop: ast.comprehension, frame: Frame) -> list[object]:
    items = _sure(loop.iter, frame)
    if not isinstance(items, (list, tuple, set, dict, str)):
        raise _UnknownError
    out = []
    for item in items:
        inner = Frame(dict(frame.names), frame.owner, frame.state, frame.depth)
        if not isinstance(loop.target, ast.Name):
            raise _UnknownError
        inner.names[loop.target.id] = item
        if all(_sure(test, inner) for test in loop.ifs):
            out.append(_sure(element, inner))
    return out


def _called(call: ast.Call, frame: Frame) -> object:  # noqa: C901, PLR0911 - one case a form
    match call.func:
        case ast.Name(id="isinstance"):
            return _is_instance(call, frame)
        case ast.Name(id="type") if isinstance(value_of(call.args[0], frame), _Model):
            return _sure(call.args[0], frame)
        case ast.Name(id="hasattr" | "getattr"):
            return _looked_up(call, frame)
        case ast.Name(id=name) if frame.state.known.packages and name in _TRACKERS:
            return any(map(find_spec, _TRACKERS[name]))
        case ast.Name(id=name) if name in _BUILTINS and not call.keywords:
            return _BUILTINS[name](*(_sure(argument, frame) for argument in call.args))
        case ast.Name():
            return _member(_sure(call.func, frame), call, frame)
        case ast.Attribute(value=owner, attr=name):
            inside = _sure(owner, frame)
            if isinstance(inside, _Model) and name == "get_text_config":
                return inside
            if isinstance(inside, Class):
                return _member(_attribute(owner, name, frame), call, frame)
            if isinstance(inside, (str, dict)) and name in _METHODS and not call.keywords:
                arguments = [_sure(argument, frame) for argument in call.args]
                return getattr(inside, name)(*arguments)
    raise _UnknownError


def _looked_up(call: ast.Call, frame: Frame) -> object:
    """Return what `hasattr` or `getattr` says of a name that the model's config does not have."""
    owner, name = _sure(call.args[0], frame), _sure(call.args[1], frame)
    if not isinstance(owner, _Model) or not owner.is_config or name in owner.settings:
        raise _UnknownError
    if len(call.args) > 2:
        return _sure(call.args[2], frame)
    if ast.unparse(call.func) == "hasattr":
        return False
    raise _UnknownError


def _member(class_: object, call: ast.Call, frame: Frame) -> str:
    """Return the member of an enumeration that is made of a value, or raise as the enumeration does."""
    if not (isinstance(class_, Class) and class_.is_enum and len(call.args) == 1):
        raise _UnknownError
    value, known = _sure(call.args[0], frame), class_.members().values()
    if value not in known:
        raise _RaisedError(f"{value!r} is not one of {', '.join(known)}")
    return str(value)


def _is_instance(call: ast.Call, frame: Frame) -> bool:
    value = _sure(call.args[0], frame)
    named = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
    if isinstance(value, State):
        lineage = {owner.name for owner in value.lineage}
        return any(ast.unparse(kind).rpartition(".")[2] in lineage for kind in named)
    kinds = [_TYPES.get(ast.unparse(kind)) for kind in named]
    if None in kinds or isinstance(value, Class):
        raise _UnknownError
    return isinstance(value, tuple(kind for kind in kinds if kind is not None))


_TRACKERS: Mapping[str, tuple[str, ...]] = {
    f"is_{name.removesuffix('_ml')}_available": packages
    for name, packages in device_checks.TRACKERS.items()
    if packages
}
"""Function of transformers -> the packages of the tracker, of which it looks for one."""
_TYPES: dict[str, type] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "set": set,
}
_METHODS = frozenset(
    {"get", "keys", "values", "items", "lower", "upper", "startswith", "endswith", "strip"}
)
_BUILTINS: dict[str, Callable[..., object]] = {
    "abs": abs,
    "all": all,
    "any": any,
    "bool": bool,
    "dict": dict,
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "round": round,
    "set": set,
    "sorted": sorted,
    "str": str,
    "tuple": tuple,
}
_ARITHMETIC: dict[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[object, object], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: cast("Callable[[object, object], object]", operator.lt),
    ast.LtE: cast("Callable[[object, object], object]", operator.le),
    ast.Gt: cast("Callable[[object, object], object]", operator.gt),
    ast.GtE: cast("Callable[[object, object], object]", operator.ge),
    ast.In: lambda a, b: a in cast("list[object]", b),
    ast.NotIn: lambda a, b: a not in cast("list[object]", b),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
