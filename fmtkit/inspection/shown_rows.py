"""Rows to look at: their text, where its tokens end, and which tokens are trained."""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import SAYING, SPOKEN
from fmtkit.core.secret_keys import beginning, hidden, secrets_in, spans_of
from fmtkit.core.tables import written_name
from fmtkit.inspection.shown_images import BARE, ShownImage, bare, labels_of, shown_in
from fmtkit.masks.masked import Masked
from fmtkit.masks.masking import USUAL, Masking
from fmtkit.masks.masks import mask_row
from fmtkit.masks.origins import KINDS
from fmtkit.masks.token_origins import with_origins
from fmtkit.rendering.content_parts import shown_in_parts
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.tokenizers.tokens import Tokenizer

HIDDEN_ID = -1
"""What is shown for a token of a secret."""
CONVERSATIONS = ("messages", "prompt", "chosen", "rejected", "completion")


@dataclass(frozen=True)
class Place:
    """Where a row is."""

    row: int
    """0-based, over all sources in their order; what --row takes."""
    source: str
    source_row: int
    """0-based within its source, as in quarantine.jsonl."""
    line: int | None
    """1-based physical line; None where the source has none, or where it was not looked up."""


@dataclass(frozen=True)
class ShownKind:
    """A stretch of tokens of one origin."""

    end: int
    """The token after the last; it begins where the stretch before it ends."""
    kind: str
    message: int | None
    """The message in whose turn it is, from 0; None outside of all turns."""
    by_template: bool


@dataclass(frozen=True)
class ShownSide:
    """One sequence that a row makes for the model, or its bare text."""

    side: str
    text: str
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    """Start and end of each token in `text`, in characters."""
    trained: tuple[tuple[int, int], ...]
    """Spans of trained tokens: first, and the one after the last."""
    prompt_length: int
    why: str
    labels: tuple[float, ...] | None
    windows: tuple[tuple[int, int], ...]
    """Spans of tokens that strided EBFT regenerates; each begins at its anchor."""
    notes: tuple[str, ...]
    images: tuple[ShownImage, ...] = ()
    """The images of the text, in order."""
    kinds: tuple[ShownKind, ...] = ()
    """The kinds of its tokens, in stretches of the same kind and message."""

    @property
    def generated_tokens(self) -> int:
        """Count the tokens that are in a window; windows may overlap."""
        return len({place for start, end in self.windows for place in range(start, end)})

    @property
    def trained_tokens(self) -> int:
        """Count the trained tokens."""
        return sum(end - start for start, end in self.trained)


@dataclass(frozen=True)
class ShownRow:
    """A row as it reaches the model."""

    place: Place
    sides: tuple[ShownSide, ...]
    problem: str | None
    """Why there are no tokens: no tokenizer, no template, or what the template said."""
    details: Mapping[str, Any]
    """Other values of the row: label, margin, labels, scores, answer."""
    images: tuple[str, ...] = ()
    """What each image of the row is."""


@dataclass(frozen=True)
class RowViewer:
    """How single rows are shown."""

    table: str
    tokenizer: Tokenizer | None
    template: RowTemplate | None
    masking: Masking = USUAL

    def show(self, row: Mapping[str, Any], place: Place) -> tuple[ShownRow, tuple[Masked, ...]]:
        """Show a row; the masks are returned as well, to be counted."""
        labels, details = labels_of(row), details_of(row)
        try:
            masked = self._mask(row)
        except FmtkitError as error:
            return ShownRow(place, bare_sides(row, labels), str(error), details, labels), ()
        if not masked:
            reason = "tokens need a tokenizer: --tokenizer DIR or ID"
            return ShownRow(place, bare_sides(row, labels), reason, details, labels), ()
        written = self.template.template.compiled.image if labels and self.template else ""
        sides = tuple(_side(one, written, labels) for one in masked)
        return ShownRow(place, sides, None, details, labels), masked

    def _mask(self, row: Mapping[str, Any]) -> tuple[Masked, ...]:
        if self.tokenizer is None:
            return ()
        if row.get(IMAGES) is not None:
            row = _in_parts(row)
        masked = mask_row(row, self.table, self.tokenizer, self.template, self.masking)
        if masked and masked[0].origins is not None:
            return masked
        return with_origins(masked, row, self.table, self.tokenizer, self.template)


def _in_parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with images, the contents that show them in parts."""
    conversations = ((name, row.get(name)) for name in CONVERSATIONS)
    shown = {
        name: [shown_in_parts(message) for message in conversation]
        for name, conversation in conversations
        if isinstance(conversation, list)
    }
    return {**row, **shown}


def without_secrets(row: ShownRow) -> ShownRow:
    """Return a row in which what looks like a secret is hidden, in its texts and in its tokens."""
    problem = None if row.problem is None else hidden(row.problem)
    sides = tuple(map(_without_secrets, row.sides))
    details = {
        name: hidden(value) if isinstance(value, str) else value
        for name, value in row.details.items()
    }
    return replace(row, sides=sides, problem=problem, details=details)


def _without_secrets(side: ShownSide) -> ShownSide:
    spans = spans_of(secrets_in(side.text))
    if not spans:
        return side
    starts = [start for start, _ in spans]

    def shows(start: int, end: int) -> bool:
        last = bisect_left(starts, end) - 1
        return last >= 0 and spans[last][1] > start

    places = zip(side.ids, side.offsets, strict=True)
    ids = tuple(HIDDEN_ID if shows(*place) else token for token, place in places)
    return replace(side, text=hidden(side.text), ids=ids, notes=tuple(map(hidden, side.notes)))


def _side(one: Masked, written: str, labels: Sequence[str]) -> ShownSide:
    spans = runs(one.trained)
    return ShownSide(
        one.side,
        one.text,
        tuple(one.ids.tolist()),
        one.offsets,
        spans,
        one.prompt_length,
        one.why,
        one.steps,
        one.windows,
        one.notes,
        shown_in(one.text, written, labels),
        _kinds(one),
    )


def _kinds(one: Masked) -> tuple[ShownKind, ...]:
    """Return the origins of a sequence in stretches."""
    origins = one.origins
    if origins is None or not len(origins):
        return ()
    columns = np.stack((origins.kinds, origins.messages, origins.by_template))
    ends = np.flatnonzero((columns[:, 1:] != columns[:, :-1]).any(axis=0)) + 1
    stretches = zip([*ends.tolist(), len(origins)], [0, *ends.tolist()], strict=True)
    return tuple(
        ShownKind(
            end,
            KINDS[origins.kinds[at]],
            int(origins.messages[at]) if origins.messages[at] >= 0 else None,
            bool(origins.by_template[at]),
        )
        for end, at in stretches
    )


def runs(flags: "np.ndarray[Any, np.dtype[np.bool_]]") -> tuple[tuple[int, int], ...]:
    """Return the spans of true values: first, and the one after the last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def bare_sides(row: Mapping[str, Any], images: Sequence[str] = ()) -> tuple[ShownSide, ...]:
    """Write a row's messages out with their roles, where no template does; `images` says what they are."""
    sides = _bare_sides(row)
    return tuple(replace(side, images=shown_in(side.text, BARE, images)) for side in sides)


def _bare_sides(row: Mapping[str, Any]) -> tuple[ShownSide, ...]:
    context = _plain(row.get("prompt"))
    names = [name for name in ("chosen", "rejected", "completion") if row.get(name) is not None]
    if names:
        return tuple(
            _bare(n if len(names) > 1 else "", f"{context}\n{_plain(row[n])}") for n in names
        )
    whole = [_plain(row[name]) for name in ("messages", "text") if row.get(name) is not None]
    steps = [str(step) for step in row.get("completions") or ()]
    truth = [str(row["ground_truth"])] if row.get("ground_truth") is not None else []
    replies = [_plain(reply) for reply in row.get("replies") or ()]
    return (_bare("", "\n".join(filter(None, [context, *whole, *steps, *truth, *replies]))),)


def _bare(side: str, text: str) -> ShownSide:
    return ShownSide(side, text, (), (), (), 0, "", None, (), ())


def _plain(conversation: Any) -> str:
    if conversation is None or isinstance(conversation, str):
        return conversation or ""
    return "\n".join(f"[{m['role']}]\n{_said(m)}" for m in conversation)


def _said(message: Mapping[str, Any]) -> str:
    keys = dict.fromkeys((*SPOKEN, *SAYING))
    return "\n".join(bare(message[key]) for key in keys if message.get(key))


NO_DETAILS = frozenset(
    {
        *CONVERSATIONS,
        "text",
        "input_ids",
        "attention_mask",
        "anchor_mask",
        "completions",
        "replies",
        "segments",
        "ends",
        IMAGES,
    }
)


def details_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is in a row besides its conversations, short enough to be shown."""
    found = {}
    of_tokens = "input_ids" in row
    for name, value in row.items():
        if value is None or name in NO_DETAILS or (name == "labels" and of_tokens):
            continue
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
        found[written_name(name)] = text if len(text) <= 500 else beginning(text, 500) + "…"
    return found
