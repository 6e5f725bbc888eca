"""YAML blocks of documents that lost their indentation, set right by what each key may hold.

Which keys stand inside which is fmtkit's own schema of a configuration. A line belongs to the
innermost open section that knows its key, so a block is recovered from its own lines alone.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmtkit.training.config.schema import build

SCHEMA: dict[str, Any] = json.loads(json.dumps(build()))

# What the schema leaves open, as users of axolotl write it.
OPEN = {
    "message_property_mappings": {"role", "content"},
    "roles": {"user", "assistant", "system", "tool"},
    "gradient_checkpointing_kwargs": {"use_reentrant"},
    "fsdp_config": {"fsdp_transformer_layer_cls_to_wrap"},
    "nemo_gym_datasets": {"path", "server_name", "max_samples"},
}

ENTRY = re.compile(r"^(?P<item>- )?(?P<key>[a-z_]\w*):\s*(?P<value>.*)$")
LIST_ITEM = re.compile(r"^- \S")
SETTING = re.compile(r"`([a-z_]\w*): ([^`]+)`")


@dataclass(frozen=True)
class Found:
    """A block, and where its first line stands."""

    file: str
    line: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.file[:3]}:{self.line}"


@dataclass
class Section:
    """An open section of a block: the keys it knows, or the items it takes."""

    depth: int
    keys: frozenset[str]
    inside: dict[str, Any] = field(default_factory=dict)
    of_mappings: bool = False
    of_texts: bool = False


def fenced(path: Path, *languages: str) -> list[Found]:
    """Return the fenced blocks of a document, the lines of a page that was scraped left out."""
    out: list[Found] = []
    block: list[str] | None = None
    wanted, start = False, 0
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = raw.strip()
        if not line.startswith("```"):
            if block is not None and line not in ("", "|"):
                block.append(line)
            continue
        if block is not None and wanted:
            out.append(Found(path.name, start, "\n".join(block)))
        language = line[3:].strip()
        # A fence that names a language opens a block, also where the one before never ended.
        if block is None or language:
            block, wanted, start = [], language in languages, number
            continue
        block, wanted = None, False
    return out


def settings(path: Path) -> list[Found]:
    """Return every `key: value` in a sentence or a table, as a block of its own."""
    out = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        out += [
            Found(path.name, number, nested(key, value)) for key, value in SETTING.findall(line)
        ]
    return out


def nested(key: str, value: str) -> str:
    """Write a setting under the one section that knows it."""
    if key in SCHEMA["properties"]:
        return f"{key}: {value}"
    homes = [
        name
        for name, entry in SCHEMA["properties"].items()
        if entry.get("type") == ["object", "null"] and key in entry.get("properties", {})
    ]
    assert len(homes) == 1, f"{key} stands in {homes}"
    return f"{homes[0]}: {{{key}: {value}}}"


def indented(text: str) -> str:
    """Give the lines of a block their indentation back."""
    top = Section(0, frozenset(SCHEMA["properties"]), SCHEMA["properties"])
    stack, out = [top], []
    for raw in text.splitlines():
        # Some pages lost the space behind the colon, too.
        line = re.sub(r"^((?:- )?[a-z_]\w*):(?=[^\s:])", r"\1: ", raw.strip())
        entry = ENTRY.match(line)
        if line.startswith("#"):
            out.append(line)
            continue
        if entry and entry["item"]:
            _close(stack, lambda s, key=entry["key"]: s.of_mappings and key in s.keys)
            holder = stack[-1]
            out.append("  " * holder.depth + line)
            # The item's other keys stand below its first one.
            stack.append(Section(holder.depth + 1, holder.keys, holder.inside))
            _open(stack, entry["key"], entry["value"])
            continue
        if entry:
            _close(
                stack,
                lambda s, key=entry["key"]: key in s.keys and not (s.of_mappings or s.of_texts),
            )
            out.append("  " * stack[-1].depth + line)
            _open(stack, entry["key"], entry["value"])
            continue
        assert LIST_ITEM.match(line), f"no line of a block: {line!r}"
        _close(stack, lambda s: s.of_texts)
        out.append("  " * stack[-1].depth + line)
    return "\n".join(out) + "\n"


def _close(stack: list[Section], fits: Any) -> None:
    while not fits(stack[-1]):
        stack.pop()
        assert stack, "a line fits in no section"


def _open(stack: list[Section], key: str, value: str) -> None:
    """Open the section that a key without a value begins."""
    if value and not value.startswith("#"):
        return
    holder = stack[-1]
    shapes = [holder.inside.get(key, {})]
    shapes += shapes[0].get("anyOf", [])
    for shape in shapes:
        if "array" in shape.get("type", ()):
            inside = shape["items"].get("properties", {})
            keys = frozenset(inside or OPEN.get(key, ()))
            of_mappings = "object" in shape["items"].get("type", ())
            stack.append(Section(holder.depth + 1, keys, inside, of_mappings, not of_mappings))
            return
        if "object" in shape.get("type", ()):
            inside = shape.get("properties", {})
            keys = frozenset(inside or OPEN[key])
            stack.append(Section(holder.depth + 1, keys, inside))
            return
