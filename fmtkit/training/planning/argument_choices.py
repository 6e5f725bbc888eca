"""The strings that an argument accepts, where the source of an installed package states them.

They are stated in four ways: a `Literal` annotation, an enumeration that the config class makes of the
value, a chain of `if self.loss_type == "a": … elif …: … else: raise` in the trainer (or `if x not in
(…): raise`), and the class's docstring ("Must be one of `"server"` or `"colocate"`").
"""

import ast
import re
from collections.abc import Iterator
from functools import cache

from fmtkit.training.planning.trainer_source import Class, class_named, statements

_ENTRY = re.compile(r"^ {4,8}(?P<name>\w+) \((?P<type>.+?)\):", re.MULTILINE)
_SAYS = re.compile(
    r"(?:[Mm]ust be (?:one of|either)|[Pp]ossible values(?: are)?|[Ss]upported values(?: are)?|"
    r"[Cc]an be(?: one of| either)?(?= `?[\"'])|[Oo]ptions are|[Cc]hoose between)"
)
_QUOTED = re.compile(r"`?[\"']([\w.+-]+)[\"']`?")


@cache
def from_annotations(annotation: str) -> tuple[str, ...] | None:
    """Return the strings of a `Literal`, () if others are allowed too, None if there is no `Literal`."""
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        match node:
            case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
                items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                values = [item.value for item in items if isinstance(item, ast.Constant)]
                texts = tuple(value for value in values if isinstance(value, str))
                # PEFT lists a pattern among the texts: pissa_niter_[number of iters].
                return () if any("[" in text for text in texts) else texts
    return None


@cache
def from_enumerations(config: Class) -> dict[str, tuple[str, ...]]:
    """Return argument -> members, for `self.optim = OptimizerNames(self.optim)` in __post_init__."""
    out: dict[str, tuple[str, ...]] = {}
    for owner in config.lineage():
        method = owner.method("__post_init__")
        for node in ast.walk(method) if method else ():
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                    value=ast.Call(func=ast.Name(id=made), args=[ast.Attribute(attr=other)]),
                ) if name == other:
                    found = class_named(owner.module, made)
                    if found is not None and found.is_enum:
                        out.setdefault(name, tuple(found.members().values()))
    return out


@cache
def from_chains(trainer: Class) -> dict[str, frozenset[str]]:
    """Return argument -> the values that its trainer accepts before it raises an error.

    Where several chains check one argument, only values that all of them accept are returned.
    """
    out: dict[str, frozenset[str]] = {}
    for owner in trainer.lineage():
        if owner.module.package == "transformers":
            continue
        names = _renamed(owner)
        inner: set[ast.If] = set()
        for node in statements(owner.node.body):
            if isinstance(node, ast.FunctionDef):
                # Inside another `if` such a check may hold for one loss only.
                whole = [_negative(n, names) for n in node.body if isinstance(n, ast.If)]
                for name, texts in filter(None, whole):
                    out[name] = out.get(name, texts) & texts
            if not isinstance(node, ast.If) or node in inner:
                continue
            found = _chain(node, names, inner)
            if found is not None:
                name, texts = found
                out[name] = out.get(name, texts) & texts
    return out


@cache
def from_docstring(config: Class) -> dict[str, tuple[str, ...]]:
    """Return argument -> strings, where the docstring says that it must be one of them."""
    out: dict[str, tuple[str, ...]] = {}
    for owner in config.lineage():
        doc = ast.get_docstring(owner.node, clean=False) or ""
        for name, kind, text in _entries(doc):
            said = _SAYS.search(text)
            if "str" not in kind or "bool" in kind or said is None:
                continue
            texts = tuple(dict.fromkeys(_QUOTED.findall(_first_list(text[said.end() :]))))
            if len(texts) > 1:
                out.setdefault(name, texts)
    return out


def docs_of(config: Class) -> dict[str, str]:
    """Return argument -> the first sentence about it in the docstrings."""
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
    """Return the argument and the texts of a chain that ends in an error; None for another one."""
    subject: str | None = None
    texts: set[str] = set()
    branch = node
    while True:
        found = _test(branch.test, names)
        if found is None or (subject is not None and found[0] != subject):
            return None
        subject = found[0]
        texts |= found[1]
        if len(branch.orelse) != 1 or not isinstance(branch.orelse[0], ast.If):
            break
        branch = branch.orelse[0]
        inner.add(branch)
    raises = bool(branch.orelse) and isinstance(branch.orelse[0], ast.Raise)
    return (subject, frozenset(texts)) if raises and len(texts) > 1 else None


def _negative(node: ast.If, names: dict[str, str]) -> tuple[str, frozenset[str]] | None:
    """Read `if args.loss_type not in ("nll", "dft"): raise`."""
    match node.test:
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[listed]):
            subject, texts = _subject(left, names), _texts(listed)
            if subject and texts and isinstance(node.body[0], ast.Raise):
                return subject, texts
    return None


def _test(test: ast.expr, names: dict[str, str]) -> tuple[str, frozenset[str]] | None:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.In()], comparators=[right]):
            subject, texts = _subject(left, names), _texts(right)
            return (subject, texts) if subject and texts else None
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


def _texts(node: ast.expr) -> frozenset[str] | None:
    items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    values = [item.value for item in items if isinstance(item, ast.Constant)]
    texts = [value for value in values if isinstance(value, str)]
    return frozenset(texts) if len(texts) == len(items) else None
