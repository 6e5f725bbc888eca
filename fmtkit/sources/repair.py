"""The rest of a damaged JSON text: the readable records, and rejects for the others.

Brackets or quotes do not match up, so only a parser can find where a record ends. Where one
fails, reading continues at the next line that begins as elements do; the parser has shown that the
record before it is not JSON, whatever follows, so nothing valid is cut in two. Where there is no
such line, all that is left is one reject.
"""

import json
import re
from collections.abc import Iterator

from fmtkit.core.codes import RAW_BYTES
from fmtkit.core.data_classes import dataclass
from fmtkit.sources.blocks import JsonBlock
from fmtkit.sources.kinds import may_be_cut
from fmtkit.sources.lookahead import Records, Text
from fmtkit.sources.raw import PEEK_BYTES
from fmtkit.sources.strict import MAX_DEPTH, TOKEN
from fmtkit.sources.wrapped import fault_of_rest

BLANKS = re.compile(rb"[ \t\r\n]*")
WINDOW_BYTES = 16 << 10
"""Bytes that the parser gets at first: for an error it counts lines from the very beginning."""
MOST_RECORDS = 1 << 16
"""Most records of a block: a reject takes more memory than the few bytes that it may consist of."""
LENIENT_BYTES = 256 << 10
"""Most bytes that a record may have after a raw control character; with more, a quote is missing."""

# Numbers stay text: they may have more digits than Python turns into an int.
DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
LENIENT = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)


@dataclass(frozen=True)
class Damage:
    """Where and why a record is not JSON."""

    at: int
    code: str
    message: str


def is_damaged(text: Text) -> bool:
    """Return whether the first megabyte held cannot be the beginning of a JSON value."""
    return isinstance(_read(text.held[:PEEK_BYTES], 0, ended=False), Damage)


def text_after_the_end(text: Text) -> Iterator[JsonBlock]:
    """Reject what follows an array's closing bracket, but the end of the object that it stands in."""
    there = text.skip_blanks(PEEK_BYTES)
    fault = "text after the end of the array" if there else None
    if text.within_object:
        fault = fault_of_rest(text.held)
    if fault is None:
        return
    records = Records(text.line)
    _reject_to(text, records, None, Damage(0, "json_syntax", fault))
    yield records.block(text.raw.count)


def not_closed(text: Text) -> JsonBlock:
    """Reject the end of a text at which its array is still open."""
    records = Records(text.line)
    message = "the array has no closing bracket: the file may have been cut short"
    records.reject("json_syntax", message, b"", text.line)
    return records.block(text.raw.count)


def blocks_with_care(
    text: Text, hold_bytes: int, max_line_bytes: int, *, array: bool
) -> Iterator[JsonBlock]:
    """Read record by record to the end of the text."""
    size, after_value, is_open = hold_bytes, False, array
    while text.skip_blanks(size):
        care = Care(text, Records(text.line), array, max_line_bytes, after_value)
        care.read_held()
        if care.at == 0 and care.fault is None and not care.closed:
            if len(text.held) <= max_line_bytes:
                size = 2 * len(text.held)
                continue
            message = f"the record is longer than the limit of {max_line_bytes} bytes"
            care.fault = Damage(0, "line_too_long", message)
        care.leave_behind()
        yield care.records.block(text.raw.count)
        if care.closed:
            yield from text_after_the_end(text)
            return
        # A reject up to the end of the text may hold the closing bracket.
        size, after_value, is_open = hold_bytes, care.after_value, array and care.fault is None
    if is_open:
        yield not_closed(text)


@dataclass
class Care:
    """One pass over the text held, record by record."""

    text: Text
    records: Records
    array: bool
    limit: int
    """The longest record, in bytes."""
    after_value: bool
    """Whether a comma comes next."""
    at: int = 0
    """The position of the reader."""
    closed: bool = False
    fault: Damage | None = None
    """What stopped reading: a record that is not JSON, after which no other begins in the text held."""

    def __post_init__(self) -> None:
        self._line, self._counted = self.text.line, 0

    def read_held(self) -> None:
        """Read until what is held ends, the array closes, or reading fails."""
        while self._read_next():
            pass

    def leave_behind(self) -> None:
        """Drop what was read, and reject what stopped reading, up to where it can resume."""
        self.text.drop(self.at + self.closed)
        if self.fault is not None:
            fault = Damage(self.fault.at - self.at, self.fault.code, self.fault.message)
            mark = None if self.text.nests_alike else self.text.next_element
            _reject_to(self.text, self.records, mark, fault)
            self.after_value = False

    def _read_next(self) -> bool:
        held = self.text.held
        self.at = BLANKS.match(held, self.at).end()  # type: ignore[union-attr]
        if self.at == len(held) or len(self.records) >= MOST_RECORDS:
            return False
        if self.array and held.startswith(b"]", self.at):
            self.closed = True
            return False
        if self.array and held.startswith(b",", self.at):
            self._take_comma()
            return True
        end = _read(held, self.at, ended=self.text.ended)
        if isinstance(end, Damage):
            return self._begin_anew(end)
        if end is None:
            return False
        self._take_value(end)
        return True

    def _take_value(self, end: int) -> None:
        if end - self.at > self.limit:
            message = f"the record has {end - self.at} bytes, the limit is {self.limit}"
            self._reject("line_too_long", message, end)
        else:
            self.records.add(self.text.held[self.at : end], self._line_here())
        self.at, self.after_value = end, True

    def _take_comma(self) -> None:
        if not self.after_value:
            message = "a comma without an element"
            self.records.reject("json_syntax", message, b",", self._line_here())
        self.at, self.after_value = self.at + 1, False

    def _begin_anew(self, fault: Damage) -> bool:
        held, mark = self.text.held, self.text.next_element
        end = _end_with_line_feeds(held, self.at, fault)
        if end is not None:
            message = "a raw control character inside a string"
            self._reject("json_control_char", message, end)
            self.after_value = True
            return True
        if held.find(mark, self.at, fault.at) >= 0:
            self.text.nests_alike = True
        found = held.find(mark, max(fault.at - len(mark) + 1, self.at))
        if found < 0 or self.text.nests_alike:
            self.fault = fault
            return False
        self._reject(fault.code, fault.message, found)
        self.after_value = False
        return True

    def _reject(self, code: str, message: str, end: int) -> None:
        record = self.text.held[self.at : end].rstrip().removesuffix(b",")
        self.records.reject(code, message, record, self._line_here())
        self.at = end

    def _line_here(self) -> int:
        self._line += self.text.held.count(b"\n", self._counted, self.at)
        self._counted = self.at
        return self._line


def _read(held: bytes, at: int, *, ended: bool) -> int | Damage | None:
    """Return where the value that begins at `at` ends, why it is not valid, or None if it is cut off."""
    size = WINDOW_BYTES
    while True:
        is_last = at + size >= len(held)
        found = _read_window(held[at : at + size], DECODER, is_whole=is_last and ended)
        if found is not None or is_last:
            break
        size *= 2
    if isinstance(found, Damage):
        return Damage(at + found.at, found.code, found.message)
    return None if found is None else at + found


def _read_window(
    window: bytes, decoder: json.JSONDecoder, *, is_whole: bool
) -> int | Damage | None:
    try:
        # One character for each byte, so that positions are the same; the parser decodes again.
        _, end = decoder.raw_decode(window.decode("latin-1"))
    except json.JSONDecodeError as error:
        if not is_whole and may_be_cut(error, len(window)):
            return None
        return Damage(error.pos, "json_syntax", f"not JSON: {error.msg}")
    except RecursionError:
        return Damage(_too_deep_at(window), "json_too_deep", "brackets are nested too deep")
    return end if is_whole or end < len(window) else None


def _too_deep_at(window: bytes) -> int:
    """Return where the nesting exceeds the limit; the text before need not be read again."""
    level = 0
    for token in TOKEN.finditer(window):
        level += (token[0] in b"[{") - (token[0] in b"]}")
        if level > MAX_DEPTH:
            return token.start()
    return 1


def _end_with_line_feeds(held: bytes, at: int, fault: Damage) -> int | None:
    """Return where a value ends if raw control characters may be in strings, else None."""
    if "control character" not in fault.message:
        return None
    most = fault.at + LENIENT_BYTES - at
    size = fault.at - at + WINDOW_BYTES
    while True:
        found = _read_window(held[at : at + min(size, most)], LENIENT, is_whole=size >= most)
        if found is not None:
            return at + found if isinstance(found, int) else None
        size *= 2


def _reject_to(text: Text, records: Records, mark: bytes | None, fault: Damage) -> None:
    """Reject what is held and what follows, up to a mark after the fault or to the end."""
    first, line, size = text.held[:RAW_BYTES], text.line, 0
    start = fault.at - len(mark or b"") + 1
    while (found := text.held.find(mark, max(start, 0)) if mark else -1) < 0 and text.held:
        # A mark may begin in what is held and end in what is not.
        passed = len(text.held) if text.ended or not mark else len(text.held) - len(mark) + 1
        text.drop(max(passed, 0))
        size, start = size + max(passed, 0), start - max(passed, 0)
        text.hold(PEEK_BYTES)
    text.drop(max(found, 0))
    size += max(found, 0)
    records.reject(fault.code, fault.message, first[:size].rstrip(), line, size)
