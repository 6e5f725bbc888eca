"""A JSON array, alone or in an object, or objects spread over lines, -> blocks with one record per line.

The text is cut at the commas between the elements (of objects: after each), found without parsing
and with only a block of it in memory. A raw line feed inside a string, which would be invisible once the
element is on one line, is rejected here. Where brackets or quotes do not match up, the rest of the text is
read with more care (`fmtkit.sources.repair`).
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from fmtkit.core.codes import RAW_BYTES
from fmtkit.core.data_classes import dataclass
from fmtkit.sources.blocks import BLOCK_BYTES, MAX_LINE_BYTES, JsonBlock
from fmtkit.sources.jsonl import BLANK, BOM, line_feeds, long_line
from fmtkit.sources.lookahead import Records, Text, on_one_line
from fmtkit.sources.raw import PEEK_BYTES, RawBytes, Readable, read_fully
from fmtkit.sources.repair import blocks_with_care, is_damaged, not_closed, text_after_the_end
from fmtkit.sources.structure import Structure, in_strings, structure_of
from fmtkit.sources.wrapped import wrapping_of

LINE_START = re.compile(rb"[ \t\r]*\n[ \t\r\n]*")
LF, CR = b"\n\r"
IS_BLANK = np.isin(np.arange(256), list(BLANK))
MOST_BLANKS = 32
"""Blanks around an element that are stripped from all elements at once."""
CLOSING = ord("]")
MOST_ELEMENTS = 1 << 18
"""Element limit of a block: more elements of so few bytes would weigh more as rejects."""


@dataclass(frozen=True)
class Cutting:
    """What is cut, and how long blocks and records may be."""

    array: bool
    """Whether it is an array; else objects one after the other."""
    block_bytes: int = BLOCK_BYTES
    max_line_bytes: int = MAX_LINE_BYTES
    wrapped: bool = False
    """Whether the array stands in an object."""

    @property
    def hold_bytes(self) -> int:
        """Bytes held: no more than the limit, so that an overlong record is always alone in a block."""
        return min(self.block_bytes, self.max_line_bytes + 1)


@dataclass(frozen=True)
class Elements:
    """Offsets (int64) of the complete elements held, blanks around them included."""

    starts: np.ndarray
    """One more than there are elements: the last is where what follows them begins."""
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    def before(self, index: int) -> "Elements":
        """Return the elements before an index."""
        return Elements(self.starts[: index + 1], self.ends[:index])


def blocks_of_elements(file: Readable, raw: RawBytes, cutting: Cutting) -> Iterator[JsonBlock]:
    """Cut an array's elements, or objects one after the other, into blocks."""
    text = _begin(file, raw, cutting)
    after_comma = False
    while text.skip_blanks(cutting.hold_bytes):
        found = _structure_with_a_record(text, cutting)
        elements, closed = _elements(text.held, found, cutting, after_comma=after_comma)
        sound = _until_damaged(text, elements, found)
        if len(sound):
            yield _block(text, sound, found)
        if closed and len(sound) == len(elements):
            text.drop(cast("int", found.end) + 1)
            yield from text_after_the_end(text)
            return
        lost = not len(elements) and (text.ended or is_damaged(text))
        if lost or found.end is not None or len(sound) < len(elements):
            text.drop(int(sound.starts[-1]))
            yield from blocks_with_care(
                text, cutting.hold_bytes, cutting.max_line_bytes, array=cutting.array
            )
            return
        if not len(elements):
            yield _skip_long(text, found, cutting)
            after_comma = text.held.startswith(b",")
            text.drop(int(after_comma))
            continue
        text.drop(int(sound.starts[-1]))
        after_comma = True
    if cutting.array:
        yield not_closed(text)


def _begin(file: Readable, raw: RawBytes, cutting: Cutting) -> Text:
    text = Text(file, raw)
    text.hold(len(BOM))
    text.held = text.held.removeprefix(BOM)
    text.skip_blanks(1)
    if cutting.wrapped:
        text.hold(PEEK_BYTES)
        text.within_object = True
        found = wrapping_of(text.held, is_cut=len(text.held) >= PEEK_BYTES)
        text.drop(found.at if found is not None else 0)
    elif cutting.array:
        text.drop(1)
    return text


def _structure_with_a_record(text: Text, cutting: Cutting) -> Structure:
    """Find the structure of what is held; read on while no record ends in it, up to the limit."""
    while True:
        found = structure_of(text.held)
        cuts = found.commas if cutting.array else found.closes
        if len(cuts) > MOST_ELEMENTS:
            most = slice(MOST_ELEMENTS)
            return replace(found, commas=found.commas[most], closes=found.closes[most], end=None)
        if len(cuts) or found.end is not None or text.ended:
            return found
        if len(text.held) > cutting.max_line_bytes:
            return found
        text.hold(min(2 * len(text.held), cutting.max_line_bytes + 1))


def _elements(
    held: bytes, found: Structure, cutting: Cutting, *, after_comma: bool
) -> tuple[Elements, bool]:
    """Return the complete elements held, and whether the array closes after them."""
    if not cutting.array:
        ends = found.closes + 1
        return Elements(np.concatenate(([0], ends)), ends), False
    ends = found.commas
    closed = found.end is not None and held[found.end] == CLOSING
    if closed:
        last = int(ends[-1]) + 1 if len(ends) else 0
        if len(ends) or after_comma or held[last : found.end].strip():
            ends = np.append(ends, cast("int", found.end))
    return Elements(np.concatenate(([0], ends + 1)), ends), closed


def _until_damaged(text: Text, elements: Elements, found: Structure) -> Elements:
    """Return the elements before the first one that seems to contain the next one.

    That is a line that begins as elements do, after a line feed inside a string: a quote is missing there.
    """
    if len(elements) > 1 and (blanks := LINE_START.match(text.held, int(elements.starts[1]))):
        text.note_indent(blanks[0])
    sound = elements
    for index in _with_line_feeds_in_strings(text.held, elements, found):
        if text.next_element in text.held[elements.starts[index] : elements.ends[index]]:
            sound = elements.before(index)
            break
    # The first element has no mark left: it went with the blanks before it.
    marks = text.held.count(text.next_element, 0, int(sound.starts[-1]))
    text.nests_alike |= marks >= max(len(sound), 1)
    return sound


def _with_line_feeds_in_strings(held: bytes, elements: Elements, found: Structure) -> list[int]:
    """Return the indices of the elements that have a raw line feed or CR inside a string."""
    if not len(elements) or (b"\n" not in held and b"\r" not in held):
        return []
    data = np.frombuffer(held, np.uint8)[: elements.ends[-1]]
    line_ends = np.flatnonzero((data == LF) | (data == CR))
    raw = line_ends[in_strings(line_ends, found.quotes)]
    return [int(index) for index in np.unique(np.searchsorted(elements.ends, raw))]


def _block(text: Text, elements: Elements, found: Structure) -> JsonBlock:
    held, end = text.held, int(elements.ends[-1])
    data = np.frombuffer(held, np.uint8)
    flat = on_one_line(held[:end])
    starts, ends = _without_blanks(data, elements)
    pieces = [flat[start:stop] for start, stop in zip(starts.tolist(), ends.tolist(), strict=True)]
    lines = text.line + np.searchsorted(np.flatnonzero(data[:end] == LF), starts)
    broken = set(_with_line_feeds_in_strings(held, elements, found))
    broken.update(np.flatnonzero(starts == ends).tolist())
    if not broken:
        return JsonBlock(b"\n".join([*pieces, b""]), text.line, lines, (), text.raw.count)
    records = Records(text.line)
    for index, (piece, line) in enumerate(zip(pieces, lines.tolist(), strict=True)):
        if index not in broken:
            records.add(piece, line)
        elif not piece:
            records.reject("json_syntax", "a comma without an element", b",", line)
        else:
            original = held[starts[index] : ends[index]]
            message = (
                "a raw line feed or carriage return inside a string; JSON writes it \\n or \\r"
            )
            records.reject("json_control_char", message, original, line)
    return records.block(text.raw.count)


def _without_blanks(data: np.ndarray, elements: Elements) -> tuple[np.ndarray, np.ndarray]:
    """Return where elements begin and end without surrounding blanks."""
    starts, ends = elements.starts[:-1].copy(), elements.ends.copy()
    for _ in range(MOST_BLANKS):
        before = IS_BLANK[data[starts]] & (starts < ends)
        starts += before
        after = IS_BLANK[data[ends - 1]] & (starts < ends)
        ends -= after
        if not before.any() and not after.any():
            return starts, ends
    for index in np.flatnonzero(before | after).tolist():
        piece = data[starts[index] : ends[index]].tobytes()
        starts[index] += len(piece) - len(piece.lstrip(BLANK))
        ends[index] = max(ends[index] - len(piece) + len(piece.rstrip(BLANK)), starts[index])
    return starts, ends


def _skip_long(text: Text, found: Structure, cutting: Cutting) -> JsonBlock:
    """Skip a record that is longer than the limit, keeping only a piece of it."""
    first, line, size = text.held[:RAW_BYTES], text.line, len(text.held)
    depth, inside, last = found.depth, found.inside, text.held
    text.drop(size)
    while last:
        # A backslash at the end of a piece belongs to the quote that may follow.
        slash = b"\\" if (len(last) - len(last.rstrip(b"\\"))) & 1 else b""
        last = read_fully(text.file, min(RAW_BYTES, cutting.hold_bytes))
        piece = slash + last
        part = structure_of(piece, depth=depth, inside=inside)
        cuts = part.commas if cutting.array else part.closes + 1
        stop = int(cuts[0]) if len(cuts) else part.end
        if stop is not None:
            size += stop - len(slash)
            text.line += line_feeds(piece[:stop])
            text.held = piece[stop:]
            break
        size += len(last)
        text.line += line_feeds(last)
        depth, inside = part.depth, part.inside
    reject = long_line(first, size, line, cutting.max_line_bytes)
    return JsonBlock(b"", line, np.zeros(0, np.int64), (reject,), text.raw.count)
