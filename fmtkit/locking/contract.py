"""The state of a dataset that a lock records: sources, settings, counts and digests of an inspection."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from hashlib import file_digest, sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.options import PATH, PATHS, Options
from fmtkit.inspection.inspection import Inspection
from fmtkit.inspection.shown_rows import RowViewer
from fmtkit.locking.lock_file import lines_of
from fmtkit.locking.places import Places
from fmtkit.locking.row_digests import Digests, RowDigests, digest_of_all, groups_of, sum_of
from fmtkit.masks.masking import DEFAULT_RULES, USUAL
from fmtkit.options.convert_options import RowOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.tokenizers import tokens
from fmtkit.tokenizers.tokens import Tokenizer

NOT_OF_ROWS = frozenset({"type", "config", "sample", "show_mask", "rows", "loss_budget"})
"""Options of an inspection that a lock records under other keys, or that only affect what is shown."""
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
LENGTH = "max_length"
TEMPLATES = ("chat_template",)
"""Options, and keys of a tokenizer's files, that name or hold a template: ids do not depend on it."""


@dataclass(frozen=True)
class Contract:
    """The state of a dataset, and what is needed to find the place of a row."""

    state: dict[str, Any]
    digests: Digests
    inspection: Inspection


def contract_of(
    inspection: Inspection, given: Sequence[str], options: Options, places: Places
) -> Contract:
    """Return the contract of an inspection whose observer was a `RowDigester`.

    `given` are the sources as they were named, `options` the ones with which they were read.
    """
    statistics, fetch, viewer = inspection.statistics, inspection.fetch, inspection.viewer
    if statistics is None or fetch is None or viewer is None:
        # No row was read, and the last note says why.
        raise OptionError(inspection.survey.notes[-1])
    assert isinstance(statistics.observed, RowDigests)
    digests = statistics.observed.whole()
    survey, job = inspection.survey, fetch.job
    template = viewer.template.template if viewer.template is not None else None
    _refuse_dates(template, options)
    state: dict[str, Any] = {
        "counts": _counts(survey.ledger),
        "digests": _digests(digests, viewer),
        "within": _within(digests, viewer),
        "findings": _findings(inspection, options),
        "given": [places.told(one) for one in given],
        "masks": _masks(viewer),
        "options": _options(options, places) | _length(viewer),
        "sources": [
            {
                "path": places.told(source.name),
                "rows": survey.sources[i].rows,
                "sha256": source.sha256(),
            }
            for i, source in enumerate(job.sources)
        ],
        "table": survey.table,
        "template": _template(template),
        "tokenizer": _tokenizer(viewer.tokenizer, places, has_images=job.images is not None),
        "type": survey.type,
    }
    files = _files(options, places)
    return Contract({**state, **({"files": files} if files else {})}, digests, inspection)


def versions_of(contracts: Sequence[Contract]) -> dict[str, str]:
    """Return the versions of the packages that made the rows."""
    names = {"fmtkit", "polars", "pyarrow"}
    if any(one.state["template"] for one in contracts):
        names.add("jinja2")
    if any(one.state["tokenizer"] for one in contracts):
        names.add("tokenizers")
    return {name: version(name) for name in sorted(names)}


def _counts(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a ledger that are not zero."""
    return {name: value for name, value in ledger.items() if value}


def _digests(digests: Digests, viewer: RowViewer) -> dict[str, Any]:
    """Return the digests of all rows, and a description of what they cover."""
    found: dict[str, Any] = {
        "rows": digest_of_all(digests.rows),
        "sum": sum_of(digests.rows),
        "table_rows": digests.size,
        "texts": digest_of_all(digests.texts),
    }
    if viewer.tokenizer is None:
        return found | {"of": "canonical rows and their texts; there is no tokenizer"}
    of = f"canonical rows, their texts and ids; ids and labels of {len(digests.masks)} rows"
    return found | {"of": of, "tokens": digest_of_all(digests.tokens)}


def _within(digests: Digests, viewer: RowViewer) -> dict[str, Any]:
    """Return digests of groups of rows, and of some rows' ids and labels, to locate a change."""
    every = digests.every()
    found: dict[str, Any] = {
        "every": every,
        "rows": lines_of(groups_of(digests.rows, every)),
        "texts": lines_of(groups_of(digests.written, every)),
    }
    if viewer.tokenizer is None:
        return found
    masks = [f"{row}:{digest}" for row, digest in digests.masks.items()]
    return found | {"ids_and_labels": lines_of(masks, 6)}


def _findings(inspection: Inspection, options: Options) -> dict[str, int]:
    """Return the counts of findings, and of rows over the longest maximum length (`too_long`)."""
    survey = inspection.survey
    found = {one.code: one.count for one in survey.findings}
    assert inspection.viewer is not None
    lengths = getattr(options, LENGTH, None) or inspection.viewer.masking.max_length
    if survey.cutting is not None and lengths:
        longest = lengths if isinstance(lengths, int) else max(lengths)
        cuts = [c for c in survey.cutting.cuts if c.max_length == longest and c.way == "drop"]
        found |= {"too_long": sum(cut.rows_lost for cut in cuts)}
    return dict(sorted((code, count) for code, count in found.items() if count))


def _masks(viewer: RowViewer) -> dict[str, Any]:
    """Return the rule of the masks, and the settings that are not the usual ones."""
    masking = viewer.masking
    rule = masking.rule or DEFAULT_RULES.get(viewer.table, "")
    changed = {
        entry.name: _plain(getattr(masking, entry.name))
        for entry in fields(masking)
        if entry.name != LENGTH and getattr(masking, entry.name) != getattr(USUAL, entry.name)
    }
    return dict(sorted({**changed, **({"rule": rule} if rule else {})}.items()))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _options(options: Options, places: Places) -> dict[str, Any]:
    """Return the options that rows depend on, their paths relative to the lock."""
    declared = options.declared()
    out: dict[str, Any] = {}
    for name, value in sorted(options.chosen().items()):
        if name not in declared or name in NOT_OF_ROWS or name in options.with_same_rows():
            continue
        plain = _plain(value)
        if json.dumps(plain) != public(json.dumps(plain)):
            raise OptionError(
                f"{name}: looks like a secret, which a lock does not keep; leave it out"
            )
        if declared[name].reader is PATH and not _is_shipped(name, plain):
            plain = places.told(plain)
        elif declared[name].reader is PATHS:
            plain = [places.told(one) for one in plain]
        out[name] = plain
    return out


def _length(viewer: RowViewer) -> dict[str, int]:
    """Return the maximum length that a config sets, which a lock records as an option."""
    longest = viewer.masking.max_length
    return {} if longest is None else {LENGTH: longest}


def _is_shipped(name: str, value: str) -> bool:
    return name in TEMPLATES and not value.endswith(".jinja")


def _files(options: Options, places: Places) -> dict[str, str]:
    """Return the hashes of the map file and the plugins that options name."""
    named = [getattr(options, "map_file", None), *getattr(options, "plugins", ())]
    paths = [Path(name.partition("#")[0]) for name in named if name]
    return {places.told(str(path)): hash_of(path) for path in paths if path.is_file()}


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _template(template: ChatTemplate | None) -> dict[str, str] | None:
    """Return the name of a template and the hash of all that its texts depend on."""
    if template is None:
        return None
    parts = [template.source, template.training, template.special_tokens, template.kwargs]
    text = json.dumps(_plain(parts), sort_keys=True)
    name = Path(template.name).name if "/" in template.name else template.name
    return {"name": public(name), "sha256": sha256(text.encode()).hexdigest()}


def _refuse_dates(template: ChatTemplate | None, options: Options) -> None:
    if template is None or not template.writes_date or getattr(options, "date", None):
        return
    raise OptionError(
        f"the template {template.name} writes the date, and its texts would change every day; give one: "
        "--date 2026-07-26"
    )


def _tokenizer(
    tokenizer: Tokenizer | None, places: Places, *, has_images: bool
) -> dict[str, Any] | None:
    """Return where a tokenizer is, with the hashes of its files."""
    if tokenizer is None:
        return None
    folder = tokens.folder_of(tokenizer.name)
    names = (*FILES, *(PROCESSOR_FILES if has_images else ()))
    files = {name: _hash_without_template(folder / name) for name in names}
    return {
        "files": {name: digest for name, digest in files.items() if digest},
        "path": places.told(tokenizer.name),
    }


def _hash_without_template(path: Path) -> str | None:
    """Return the hash of a file, of settings without their template; None if there is no file."""
    if not path.is_file():
        return None
    if path.name == "tokenizer.json":
        return hash_of(path)
    settings = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(settings, dict):
        return hash_of(path)
    left = {name: value for name, value in settings.items() if name not in TEMPLATES}
    return sha256(json.dumps(left, sort_keys=True).encode()).hexdigest()


def options_of(state: Mapping[str, Any], places: Places) -> InspectOptions:
    """Return the options with which a lock's sources are read again."""
    declared = InspectOptions.declared()
    values: dict[str, Any] = {"type": state["type"]}
    for name, value in state["options"].items():
        if name not in declared:
            raise OptionError(f"options.{name}: is no option of this fmtkit; write the lock anew")
        found = value
        if declared[name].reader is PATH:
            found = places.found(value)
        elif declared[name].reader is PATHS:
            found = [places.found(one) for one in value]
        values[name] = found
    return InspectOptions(**values)


def options_as_read(inspection: Inspection, options: InspectOptions) -> InspectOptions:
    """Return options with the guessed type, and the method, columns and options with which it was read."""
    if options.type is not None or inspection.fetch is None:
        return options
    read: RowOptions = inspection.fetch.job.options
    return replace(
        options, type=read.type, method=read.method, columns=read.columns, options=read.options
    )
