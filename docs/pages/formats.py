"""docs/formats.md: names, tables, kinds, types and templates, from the registry and the fixtures."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fmtkit
from fmtkit import catalogue
from fmtkit.core import runner
from fmtkit.core.tables import TABLES, Table
from fmtkit.formats import registry, typenames
from fmtkit.formats.registry import Converter
from fmtkit.formats.type_options import LABEL_OPTION, MESSAGE_OPTIONS
from fmtkit.rendering import template_sources
from fmtkit.stages.pairing import POLICIES
from pages.markdown import NOTICE, code, sentence, table
from pages.prose import (
    FORMATS_HEAD,
    FORMATS_TOP,
    KINDS,
    OPTIONS,
    TEMPLATES,
    USER_FUNCTIONS,
    WHERE_WE_DIFFER,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LONGEST_SAMPLE = 700
"""Characters of a sample row; a longer one is left to the fixture."""
READINGS = (
    "intel",
    "chatml.intel",
    "llama3",
    "qwen3.ultra",
    "bradley_terry.llama3.icr",
    "chat_template.default",
    "ebft_opencode.transform",
    "./mine.jinja.argilla_chat",
)
CONVERSATION = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"},
)


def text() -> str:
    """Return the page."""
    parts = [NOTICE, FORMATS_TOP, _glance(), FORMATS_HEAD, _readings()]
    parts += ["## Tables\n", _tables() + KINDS, "## Types\n"]
    parts += [_overview(), *map(_type, _names()), OPTIONS, _options(), _policies(), USER_FUNCTIONS]
    return "\n".join([*parts, TEMPLATES, _templates(), _aliases() + WHERE_WE_DIFFER])


def _glance() -> str:
    """Return the types by the table that they make, except for what takes every table as it is."""
    types = {made: {c.name for c in registry.converters() if c.table == made} for made in TABLES}
    rows = []
    for made in TABLES:
        names = sorted(types[made] - set.intersection(*types.values()))
        rows.append([f"[{made}](#tables)", _methods(made), _families(names)])
    return table(["makes", "to train", "types"], rows)


def _families(names: list[str]) -> str:
    """Write names as links to their sections, the several of one family as one."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(name.partition(".")[0], []).append(name)
    return ", ".join(_family(family, found) for family, found in families.items())


def _family(family: str, names: list[str]) -> str:
    first, *others = names
    shown = f"{family}.*" if others else first
    return f"[{code(shown)}](#{_anchor(first)})"


def _readings() -> str:
    rows = ([code(name), typenames.read(name).reading] for name in READINGS)
    return table(["type", "is read as"], rows)


def _tables() -> str:
    return table(["table", "columns", "what a row is"], map(_table, TABLES.values()))


def _table(made: type[Table]) -> list[str]:
    marks = {name: "?" if name in made.optional else "" for name in made.column_names()}
    columns = ", ".join(f"`{name}`{mark}" for name, mark in marks.items())
    said = (made.__doc__ or "").strip().splitlines()[0]
    return [made.name(), columns, said]


def _methods(made: str) -> str:
    methods = ", ".join(one.method for one in runner.shipped() if made in one.tables)
    return methods or "`--option pairs=…` makes Preference of it"


def _names() -> list[str]:
    return sorted({converter.name for converter in registry.converters()})


def _overview() -> str:
    rows = []
    for name in _names():
        found = [c for c in registry.converters() if c.name == name]
        made = ", ".join(dict.fromkeys(c.table for c in found))
        rows.append([f"[{code(name)}](#{_anchor(name)})", made, sentence(found[0].summary)])
    return table(["type", "makes", "what it is"], rows)


def _anchor(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum() or c in "_-")


def _type(name: str) -> str:
    found = [c for c in registry.converters() if c.name == name]
    parts = [f"### {name}\n", sentence(found[0].summary) + _also(found) + "\n"]
    rows = ([c.table, catalogue.columns_in_words(c), _written_options(c)] for c in found)
    parts.append(table(["makes", "from the columns", "options"], rows))
    lines = dict.fromkeys(c.differs for c in found if c.differs)
    differs = [f"- **Differs from axolotl**: {line}." for line in lines]
    links = dict.fromkeys(c.source_url for c in found if c.source_url)
    parts += ["\n".join([*differs, *(f"- See <{url}>" for url in links)]), *_samples(name)]
    return "\n".join(part for part in parts if part) + "\n"


def _also(found: list[Converter]) -> str:
    aliases = [code(alias) for c in found for alias in c.aliases]
    kept = " Every other column of the source is kept." if any(c.keeps for c in found) else ""
    return (f" Also called {', '.join(aliases)}." if aliases else "") + kept


def _written_options(converter: Converter) -> str:
    return ", ".join(
        code(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
        for key, value in converter.options.items()
    )


def _samples(name: str) -> Iterator[str]:
    """Show the first row of each fixture with what it becomes."""
    for source in sorted((FIXTURES / name).glob("*source.jsonl")):
        case = source.name.removesuffix("source.jsonl")
        made = source.with_name(f"{case}canonical.jsonl")
        settings = source.with_name(f"{case}settings.json")
        if not made.is_file() or _first_is_bad(source.with_name(f"{case}quarantine.jsonl")):
            continue
        options = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
        given = _first(source)
        if max(len(given), len(_first(made))) <= LONGEST_SAMPLE:
            yield _sample(given, _without_nulls(_first(made)), options)


def _sample(given: str, made: str, settings: dict[str, Any]) -> str:
    said = f" ({code(json.dumps(settings, ensure_ascii=False))})" if settings else ""
    return f"\n```json\n{given}\n```\n\nbecomes{said}\n\n```json\n{made}\n```"


def _first(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next(lines).rstrip("\n")


def _first_is_bad(quarantine: Path) -> bool:
    return quarantine.is_file() and json.loads(_first(quarantine))["line"] == 1


def _without_nulls(line: str) -> str:
    row = {key: value for key, value in json.loads(line).items() if value is not None}
    return json.dumps(row, ensure_ascii=False)


def _options() -> str:
    spelled = ", ".join(code(name) for name in MESSAGE_OPTIONS)
    return f"Every type with messages has {spelled}; every type with a flag has {code(LABEL_OPTION)}.\n"


UNPAIRING = """
A method that takes single replies (`kto`, `bco`) takes every pair apart, those of a ranking too: a row with
the chosen reply and `label` true, then one with the rejected reply and false, the rows that TRL's
`unpair_preference_dataset` makes. The report counts such pairs as `unpaired`. Rows that have a label of their
own are taken as they are.
"""


def _policies() -> str:
    rows = ([code(name), said] for name, said in POLICIES.items())
    head = (
        "\n### Pair policies\n\nA Ranking becomes Preference rows by `--option pairs=POLICY`.\n\n"
    )
    return head + table(["policy", "pairs"], rows) + UNPAIRING


def _templates() -> str:
    rows = []
    for name in template_sources.SHIPPED:
        found = template_sources.find_family(name)
        first = found.source.removeprefix("{#-").partition("-#}")[0].strip()
        rows.append([code(name), sentence(" ".join(first.split())), _rendered(name)])
    return table(["template", "what it is", "a short conversation"], rows)


def _rendered(name: str) -> str:
    messages = CONVERSATION[1:] if name == "gemma" else CONVERSATION
    return code(str(fmtkit.render(messages, template_sources.find_family(name))))


def _aliases() -> str:
    rows = ([code(name), code(target)] for name, target in template_sources.ALIASES.items())
    return "### Names that others use\n\n" + table(["name", "template"], rows)
