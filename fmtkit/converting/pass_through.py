"""Passing through: canonical tables keep the columns and the width of messages that their schema says.

JSON says neither: there a converter makes whatever its table may have, since the rows that are looked
at first must not decide for the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fmtkit.columns.kinds import DialogKind, Kind, ListKind
from fmtkit.columns.typed_kinds import may_carry
from fmtkit.core.tables import Table
from fmtkit.formats.registry import Converter

NAME = "passthrough"


def as_they_are(
    converter: Converter, schemas: Sequence[pa.Schema | None], mapping: Mapping[str, str]
) -> Converter:
    """Return the converter that makes of such tables what they are; itself where one has no schema."""
    known = [schema for schema in schemas if schema is not None]
    if converter.name != NAME or len(known) < len(schemas):
        return converter
    tops = {p: mapping.get(p, converter.path(p)).partition(".")[0] for p in converter.takes}
    types = {
        parameter: [schema.field(top).type for schema in known if top in schema.names]
        for parameter, top in tops.items()
    }
    lacking = {p for p in converter.takes if p not in converter.required and not types[p]}
    takes = {p: kind for p, kind in converter.takes.items() if p not in lacking}
    wide = any(may_carry(dtype) for found in types.values() for dtype in found)
    if not wide:
        takes = {p: _narrow(kind) for p, kind in takes.items()}
    function = _without(converter.function, lacking)
    return replace(converter, takes=takes, function=function, wide=converter.wide and wide)


def _without(function: Callable[..., Table], lacking: Iterable[str]) -> Callable[..., Table]:
    def made(**arguments: Any) -> Table:
        return replace(function(**arguments), **dict.fromkeys(lacking))

    return made


def _narrow(kind: Kind) -> Kind:
    if isinstance(kind, ListKind):
        return replace(kind, item=_narrow(kind.item))
    return replace(kind, wide=False) if isinstance(kind, DialogKind) else kind
