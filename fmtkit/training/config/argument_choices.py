"""The strings that an argument accepts, read from the source of the installed package.

The source states them in four ways: a `Literal` annotation; an enumeration to which the config class converts
the value; a chain of `if self.loss_type == "a": … elif …: … else: raise` in the trainer (or `if x not in
(…): raise`); and the docstring of the class ("Must be one of `"server"` or `"colocate"`").
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import TypeGuard

from fmtkit.training.config.trainer_source import Class, class_named, statements

_ENTRY = re.compile(r"^ {4,8}(?P<name>\w+) \((?P<type>.+?)\):", re.MULTILINE)
_LISTS = re.compile(
    r"(?:[Mm]ust be (?:one of|either)|[Pp]ossible values(?: are)?|[Ss]upported values(?: are)?|"
    r"[Cc]an be(?: one of| either)?(?= `?[\"'])|[Oo]ptions are|[Cc]hoose between)"
)
_QUOTED = re.compile(r"`?[\"']([\w.+-]+)[\"']`?")


@cache
def from_annotations(annotation: str) -> tuple[str, ...] | None:
    """Return the strings of a `Literal`, () if any string is allowed, None if there is no `Literal`."""
    node = ast.parse(annotation, mode="eval").body
    literals = [n for n in ast.walk(node) if _is_literal(n)]
    if not literals:
        return None
    strings = [
        item.value
        for literal in literals
        for item in ast.walk(literal.slice)
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    ]
    # PEFT lists a pattern among the strings: pissa_niter_[number of iters].
    is_open = any("[" in string for string in strings) or any(map(_is_str, _members(node)))
    return () if is_open else tuple(dict.fromkeys(strings))


def _is_literal(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and _name(node.value) == "Literal"


def _is_str(node: ast.expr) -> bool:
    return _name(node) == "str"


def _name(node: ast.expr) -> str:
    """Return the last part of a name: `Literal` for `typing.Literal`."""
    return (
        ast.unparse(node).rpartition(".")[2] if isinstance(node, (ast.Name, ast.Attribute)) else ""
    )


def _members(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the types of a union, or the one type."""
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _members(left)
            yield from _members(right)
        case ast.Subscript(value=value, slice=inner) if _name(value) in {"Optional", "Union"}:
            for item in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                yield from _members(item)
        case _:
            yield node


@cache
def from_enumerations(config: Class) -> dict[str, tuple[str, ...]]:
    """Return argument -> members of its enumeration, from `self.optim = OptimizerNames(self.optim)`."""
    out: dict[str, tuple[str, ...]] = {}
    for owner in config.lineage():
        method = owner.method("__post_init__")
        for node in ast.walk(method) if method else ():
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                    value=ast.Call(func=ast.Name(id=enumeration), args=[ast.Attribute(attr=other)]),
                ) if name == other:
                    members = class_named(owner.module, enumeration)
                    if members is not None and members.is_enum:
                        out.setdefault(name, tuple(members.members().values()))
    return out


@cache
def from_chains(trainer: Class) -> dict[str, frozenset[str]]:
    """Return argument -> the values for which the trainer does not raise an error.

    If several chains check one argument, these are the values that all of them accept.
    """
    out: dict[str, frozenset[str]] = {}
    for owner in trainer.lineage():
        if owner.module.package == "transformers":
            continue
        names = _renamed(owner)
        inner: set[ast.If] = set()
        for node in statements(owner.node.body):
            if isinstance(node, ast.FunctionDef):
                # Only at the top level of a method: a nested check may apply to one loss only.
                checks = [_negative(n, names) for n in node.body if isinstance(n, ast.If)]
                for name, strings in filter(None, checks):
                    out[name] = out.get(name, strings) & strings
            if not isinstance(node, ast.If) or node in inner:
                continue
            chain = _chain(node, names, inner)
            if chain is not None:
                name, strings = chain
                out[name] = out.get(name, strings) & strings
    return out


@cache
def from_docstring(config: Class) -> dict[str, tuple[str, ...]]:
    """Return argument -> strings, for arguments of which the docstring lists the allowed strings."""
    out: dict[str, tuple[str, ...]] = {}
    for owner in config.lineage():
        doc = ast.get_docstring(owner.node, clean=False) or ""
        for name, kind, text in _entries(doc):
            phrase = _LISTS.search(text)
            if "str" not in kind or "bool" in kind or phrase is None:
                continue
            strings = tuple(dict.fromkeys(_QUOTED.findall(_first_list(text[phrase.end() :]))))
            if len(strings) > 1:
                out.setdefault(name, strings)
    return out


def docs_of(config: Class) -> dict[str, str]:
    """Return argument -> the first sentence of its description in the docstrings."""
    out: dict[str, str] = {}
    for owner in config.lineage():
        for name, _, text in _entries(ast.get_docstring(owner.node, clean=False) or ""):
            sentence = re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]
            out.setdefault(name, sentence)
    return out


def _entries(doc: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the type and the text of every parameter of a docstring."""
    matches = list(_ENTRY.finditer(doc))
    for match, after in zip(matches, [*matches[1:], None], strict=False):
        end = after.start() if after else len(doc)
        yield match["name"], match["type"], re.split(r"\n\s*>", doc[match.end() : end])[0]


def _first_list(text: str) -> str:
    """Return the sentence that lists the values, or the bullets below it."""
    head, _, rest = text.partition(":")
    if not _QUOTED.search(head) and rest.lstrip().startswith(("-", "*")):
        bullets = re.findall(r"^\s*[-*]\s+(`[^`]+`)", rest, re.MULTILINE)
        return " ".join(bullets)
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]


def _renamed(owner: Class) -> dict[str, str]:
    """Return attribute of the trainer -> argument, for `self.loss_types = args.loss_type`."""
    out = {}
    for node in statements(owner.node.body):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                value=ast.Attribute(value=ast.Name(id="args"), attr=argument),
            ):
                out[name] = argument
            # `for loss_type, weight in zip(self.loss_types, self.loss_weights)`
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=local), *_]),
                iter=ast.Call(args=[ast.Attribute(value=ast.Name(id="self"), attr=name), *_]),
            ):
                out[f"local {local}"] = name
    return out


def _chain(
    node: ast.If, names: dict[str, str], inner: set[ast.If]
) -> tuple[str, frozenset[str]] | None:
    """Return the argument and the strings of a chain that ends in `raise`; None for other chains."""
    subject: str | None = None
    strings: set[str] = set()
    branch = node
    while True:
        found = _test(branch.test, names)
        if found is None or (subject is not None and found[0] != subject):
            return None
        subject = found[0]
        strings |= found[1]
        if len(branch.orelse) != 1 or not isinstance(branch.orelse[0], ast.If):
            break
        branch = branch.orelse[0]
        inner.add(branch)
    raises = bool(branch.orelse) and isinstance(branch.orelse[0], ast.Raise)
    return (subject, frozenset(strings)) if raises and len(strings) > 1 else None


def _negative(node: ast.If, names: dict[str, str]) -> tuple[str, frozenset[str]] | None:
    """Return the argument and the strings of `if args.loss_type not in ("nll", "dft"): raise`."""
    match node.test:
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[listed]):
            subject, strings = _subject(left, names), _strings(listed)
            if subject and strings and isinstance(node.body[0], ast.Raise):
                return subject, strings
    return None


def _test(test: ast.expr, names: dict[str, str]) -> tuple[str, frozenset[str]] | None:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.In()], comparators=[right]):
            subject, strings = _subject(left, names), _strings(right)
            return (subject, strings) if subject and strings else None
    return None


def _subject(node: ast.expr, names: dict[str, str]) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return names.get(name, name)
        case ast.Attribute(value=ast.Name(id="args"), attr=name):
            return name
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr="args"), attr=name):
            return name
        case ast.Name(id=local) if f"local {local}" in names:
            return names.get(names[f"local {local}"])
    return None


def _strings(node: ast.expr) -> frozenset[str] | None:
    items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    values = [item.value for item in items if isinstance(item, ast.Constant)]
    strings = [value for value in values if isinstance(value, str)]
    return frozenset(strings) if len(strings) == len(items) else None
