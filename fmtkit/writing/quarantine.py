"""Quarantined rows as JSON lines: position, code, message and bytes of each."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from fmtkit.core.atomic import PartialFile, Written
from fmtkit.core.codes import Reject

# Control characters of terminals; many tools take some of them for line ends.
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def encode(file: str, rejects: Iterable[Reject]) -> bytes:
    """Return one line for each reject; its `row` and `line` must be those within the source."""
    return b"".join(_line(file, reject) for reject in rejects)


# Quotation marks within a name are escaped: the first one that is not ends it.
_NUMBERS = re.compile(rb'(\{"file": "(?:[^"\\]|\\.)*", "row": )(\d+)(, "line": )(\d+|null)(?=, )')


def shifted(lines: bytes, rows: int, first_lines: int) -> bytes:
    """Return lines made by `encode` with row and line numbers raised by these offsets."""
    if not rows and not first_lines:
        return lines

    def moved(found: re.Match[bytes]) -> bytes:
        line = found[4] if found[4] == b"null" else b"%d" % (int(found[4]) + first_lines)
        return b"%b%d%b%b" % (found[1], int(found[2]) + rows, found[3], line)

    return b"".join(_NUMBERS.sub(moved, line, count=1) for line in lines.splitlines(keepends=True))


def _line(file: str, reject: Reject) -> bytes:
    record: dict[str, str | int | None] = {
        "file": file,
        "row": reject.row,
        "line": reject.line,
        "code": reject.code,
        "column": reject.column,
        "message": reject.message,
    }
    raw, length = reject.raw, reject.raw_bytes or len(reject.raw)
    is_cut = length > len(raw)
    text = _decode(raw, is_cut=is_cut)
    if text is None:
        record["raw_base64"] = b64encode(raw).decode()
    else:
        record["raw"] = text
    if is_cut:
        record["raw_bytes"] = length
    # A file's name may hold bytes that are not UTF-8, which Python decodes to lone surrogates.
    line = json.dumps(record, ensure_ascii=False).translate(_ESCAPES)
    return line.encode(errors="backslashreplace") + b"\n"


def _decode(raw: bytes, *, is_cut: bool) -> str | None:
    """Return the text, less the part of a character at the cut; None for what is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data":
            return raw[: error.start].decode()
        return None


class QuarantineFile:
    """The quarantine of a run, created with its first line."""

    def __init__(self, path: Path, *, resume_at: int = 0) -> None:
        self.path = path
        self._file = PartialFile(path, hashed=True, resume_at=resume_at) if resume_at else None

    def write(self, lines: bytes) -> None:
        """Append lines."""
        if not lines:
            return
        if self._file is None:
            self._file = PartialFile(self.path, hashed=True)
        self._file.write(lines)

    @property
    def has_begun(self) -> bool:
        """Return whether there is a line."""
        return self._file is not None

    def sync(self) -> int:
        """Force the lines to the disk and return their size."""
        if self._file is None:
            return 0
        self._file.sync()
        return self._file.size

    def written(self) -> Written | None:
        """Force the lines to the disk and return its size and hash; None if nothing was written."""
        if self._file is None:
            return None
        self._file.sync()
        return self._file.written(0)

    def publish(self) -> None:
        """Give the file its final name, if there is a line."""
        if self._file is not None:
            self._file.publish()

    def leave(self) -> None:
        """Keep what is written under its hidden name."""
        if self._file is not None:
            self._file.leave()

    def discard(self) -> None:
        """Delete what is written."""
        if self._file is not None:
            self._file.discard()
