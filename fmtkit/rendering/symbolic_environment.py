"""The Jinja environment in which templates run on symbols.

Python itself calls a symbol's methods nearly everywhere. Here are the places where it would not,
and where a symbol would silently become an ordinary string: joining, `%`, `in`, calls and filters.
Filters and tests that are not known to be right on symbols refuse them.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fmtkit.rendering.jinja_environment import (
    TemplateDict,
    TemplateNamespace,
    raise_exception,
    refuse_growth,
)
from fmtkit.rendering.json_symbols import UnknownJson, passes, unknown, write_json
from fmtkit.rendering.symbols import Length, Parts, SafeSymbol, Symbol, Untraceable, mark

FILTERS = frozenset(
    {
        "trim",
        "upper",
        "lower",
        "capitalize",
        "replace",
        "default",
        "d",
        "string",
        "join",
        "list",
        "first",
        "last",
        "reverse",
        "map",
        "select",
        "reject",
        "selectattr",
        "rejectattr",
        "items",
        "batch",
    }
)
"""Filters that ask a symbol only for methods that it has."""

TESTS = frozenset(
    {
        "string",
        "defined",
        "undefined",
        "none",
        "number",
        "integer",
        "float",
        "boolean",
        "true",
        "false",
        "mapping",
        "callable",
        "lower",
        "upper",
        "eq",
        "equalto",
        "==",
        "ne",
        "!=",
        "ge",
        "gt",
        "greaterthan",
        "le",
        "lt",
        "lessthan",
        ">=",
        ">",
        "<=",
        "<",
    }
)


JINJA_ARGUMENTS = frozenset({"_loop_vars", "_block_vars"})
"""Passed by compiled templates with every call inside a loop."""


class SymbolicCode(CodeGenerator):
    """Compile `~` and `in` to calls of the environment."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Write `a ~ b` as a joining that knows symbols."""
        self.write("environment.concat(map(str, (")
        for item in node.nodes:
            self.visit(item, frame)
            self.write(", ")
        self.write(")))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        """Write `a in b` as a question that knows symbols."""
        if not any(operand.op in {"in", "notin"} for operand in node.ops):
            super().visit_Compare(node, frame)
            return
        if len(node.ops) > 1:
            raise Untraceable("a chain of comparisons")
        self.write("(not " if node.ops[0].op == "notin" else "(")
        self.write("environment.contains(")
        self.visit(node.ops[0].expr, frame)
        self.write(", ")
        self.visit(node.expr, frame)
        self.write("))")


class SymbolicEnvironment(ImmutableSandboxedEnvironment):
    """An environment whose strings may be symbols."""

    code_generator_class = SymbolicCode
    intercepted_binops = frozenset({"%", "*", "**"})

    def guard(self) -> None:
        """Make every filter and test refuse the symbols that it does not understand."""
        for name, function in self.filters.items():
            self.filters[name] = _guarded_filter(name, function)
        for name, test in self.tests.items():
            self.tests[name] = _guarded_test(name, cast("Callable[..., Any]", test))

    @staticmethod
    def concat(texts: Iterable[str]) -> str:
        """Join texts; a symbol among them makes a symbol."""
        return mark("".join(texts))

    @staticmethod
    def contains(container: Any, item: Any) -> bool:
        """Answer `item in container`."""
        if isinstance(item, Symbol) and type(container) is str:
            raise Untraceable("a content looked for in a text")
        return item in container

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return `obj.attribute`, of an unknown value too."""
        if not isinstance(obj, UnknownJson):
            return super().getattr(obj, attribute)
        try:
            return obj.lookup(attribute)
        except LookupError:
            return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return `obj[argument]`, of an unknown value too."""
        if not isinstance(obj, UnknownJson):
            return super().getitem(obj, argument)
        try:
            return obj[argument]
        except LookupError:
            return self.undefined(obj=obj, name=argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculate with what is known; a list of contents may be repeated."""
        if isinstance(left, (Symbol, Length)) or isinstance(right, (Symbol, Length)):
            raise Untraceable(f"{operator} with a content")
        if operator == "%" and (unknown(left) or unknown(right)):
            raise Untraceable("% with a content")
        refuse_growth(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what is known to take symbols."""
        given = {name: value for name, value in kwargs.items() if name not in JINJA_ARGUMENTS}
        if unknown(args) or unknown(given):
            owner = getattr(function, "__self__", None)
            if type(owner) is str and function.__name__ == "join":
                return mark(owner.join(*args))
            if not _takes_symbols(function, owner):
                raise Untraceable("a call with a content")
        return super().call(context, function, *args, **kwargs)


def _takes_symbols(function: Any, owner: object) -> bool:
    if isinstance(owner, (Symbol, UnknownJson, Parts)):
        return True
    if isinstance(function, (Macro, TemplateDict)):
        return True
    return function is TemplateNamespace or function is raise_exception


def _skipped(function: Callable[..., Any]) -> int:
    """Count the arguments that Jinja itself passes before the value."""
    return 1 if hasattr(function, "jinja_pass_arg") else 0


def _like(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(function, "jinja_pass_arg"):
        wrapper.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
    return wrapper


def _guarded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    skipped = _skipped(function)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        value = args[skipped] if len(args) > skipped else None
        if name == "tojson" and unknown(value):
            return write_json(*args, **kwargs)
        if name in {"length", "count"}:
            return Length(value) if isinstance(value, Symbol) else function(*args)
        if isinstance(value, (Symbol, UnknownJson)) and len(args) == skipped + 1 and not kwargs:
            made = _filtered(name, value)
            if made is not None:
                return made
        if name not in FILTERS and (unknown(args[skipped:]) or unknown(kwargs)):
            raise Untraceable(f"the filter {name} on a content")
        result = function(*args, **kwargs)
        return mark(result) if type(result) is str else result

    return _like(function, guarded)


def _filtered(name: str, value: Symbol | UnknownJson) -> Any:
    """Return what a filter makes of something unknown where the filter itself cannot; or None."""
    if isinstance(value, Symbol):
        return SafeSymbol(value) if name == "safe" else None
    if name == "safe":
        return SafeSymbol(str(value))
    members = {"items": value.items, "dictsort": value.in_order}.get(name)
    return members() if members is not None else None


def _guarded_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    skipped = _skipped(function)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        value = args[skipped] if len(args) > skipped else None
        if name == "in":
            return SymbolicEnvironment.contains(args[1], args[0])
        if isinstance(value, (Symbol, list)) and name in {"iterable", "sequence"}:
            return True
        if isinstance(value, UnknownJson) and len(args) == skipped + 1:
            return passes(value, name)
        if name not in TESTS and (unknown(args[skipped:]) or unknown(kwargs)):
            raise Untraceable(f"the test {name} on a content")
        return function(*args, **kwargs)

    return _like(function, guarded)
