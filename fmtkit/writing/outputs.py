"""The rule for every output of fmtkit: where it may be, and what may be replaced.

fmtkit never replaces a source, or a file that it did not write or that was changed since, and replaces its
own only if asked to. It wrote a file if the report next to it names it with its size and hash.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from fmtkit.core.atomic import Written, partial_name, writing
from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, OutputExistsError, near_match
from fmtkit.core.options import refuse_empty
from fmtkit.core.storage import WRITABLE, refuse_credentials
from fmtkit.core.urls import ObjectPath
from fmtkit.writing import formats

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(:/|::)")
_FILE = "file://"
_BUCKETS = frozenset(WRITABLE) - {"memory"}
"""Schemes whose URLs name a bucket first."""


HUB = "hf://datasets/"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class HubFolder:
    """A dataset repository of the Hugging Face hub, or a folder in it."""

    repository: str
    """OWNER/NAME."""
    path: str = ""

    def __str__(self) -> str:
        return f"{HUB}{self.repository}{'/' if self.path else ''}{self.path}"


@dataclass(frozen=True, slots=True)
class Destination:
    """OUT as it was given, with links resolved: one file of a format, or a folder of shards."""

    path: Path | ObjectPath
    format: str | None
    """The file's format; None for a folder."""


def hub_folder(out: object) -> HubFolder | None:
    """Return the place on the hub that OUT names; None for one that is elsewhere.

    Raises OptionError for a hub URL that is not a folder of a dataset repository.
    """
    text = str(out)
    if not text.startswith("hf://"):
        return None
    refuse_credentials(text)
    owner, _, rest = text.removeprefix(HUB).strip("/").partition("/")
    name, _, path = rest.partition("/")
    is_sound = ".." not in path.split("/") and _REPOSITORY.fullmatch(f"{owner}/{name}") is not None
    if not text.startswith(HUB) or not is_sound:
        raise OptionError(
            f"OUT {text}: give {HUB}OWNER/NAME, or a folder in it; to other places of the hub, and to "
            "other revisions than main, fmtkit does not write"
        )
    if PurePosixPath(path).suffix.removeprefix(".") in formats.names():
        raise OptionError(f"OUT {text}: a dataset of the hub is written as a folder of shards")
    return HubFolder(f"{owner}/{name}", path)


def destination(out: str | Path | ObjectPath) -> Destination:
    """Read OUT: a file by its suffix, else a folder; on this machine or at a URL that can be written.

    A link is followed, as by `cp`: its target is replaced, never the link.

    Raises:
        OptionError: if OUT is a URL that cannot be written, or its suffix is not that of a format. A
            folder whose name has a dot in it exists already, or is given with a / at its end.
        WriteError: if the system cannot look at the path.
    """
    if isinstance(out, ObjectPath):
        return Destination(out, None)
    scheme = str(out).partition("://")[0]
    if scheme in WRITABLE and "://" in str(out):
        return _remote(str(out), scheme)
    given = local_path(out, "OUT")
    if given.name.removeprefix(".") in formats.names() and not given.suffix:
        raise OptionError(f"{given}: the name has only a suffix; give FILE{given.name}")
    with writing(given):
        _refuse_streams(given)
        here = Path.cwd()
        if _resolved(given) in (here, *here.parents):
            raise OptionError(
                f"{given} is the current folder or holds it; give the name of a new one"
            )
        is_named_folder = str(out).endswith(("/", os.sep)) or not given.suffix
        made = None if is_named_folder else _format(given, str(given))
        path = _followed(given)
    if made is not None and path.suffix != given.suffix:
        raise OptionError(f"{given} is a link to {path}, which does not end in {given.suffix}")
    return Destination(path, made)


def _refuse_streams(path: Path) -> None:
    """Raise OptionError for a pipe, a device or the standard output."""
    is_other = path.exists() and not (path.is_file() or path.is_dir())
    # `> FILE` makes a file of /dev/stdout, which would be replaced by a folder.
    if path == Path("-"):
        raise OptionError(
            "OUT -: rows are not written to the standard output; give FILE.jsonl, FILE.parquet, FILE.arrow "
            "or a folder"
        )
    if is_other or path.parent in (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")):
        raise OptionError(
            f"OUT {path}: a pipe or a device cannot be replaced as a whole; give FILE.jsonl, FILE.parquet, "
            "FILE.arrow or a folder"
        )


def _remote(out: str, scheme: str) -> Destination:
    """Read an OUT on an object store."""
    path = ObjectPath(out.rstrip("/"))
    place = out.partition("://")[2].strip("/")
    if "/" not in place and (not place or scheme in _BUCKETS):
        raise OptionError(
            f"OUT {path}: name a file or a folder in the bucket, {scheme}://BUCKET/NAME"
        )
    name = PurePosixPath(place)
    if out.endswith("/") or not name.suffix:
        return Destination(path, None)
    return Destination(path, _format(name, str(path)))


def local_path(address: str | Path, option: str) -> Path:
    """Return a path of this machine; OptionError, naming the option, for a URL."""
    refuse_empty(address, option)
    text = str(address)
    if text.startswith(_FILE):
        text = text.removeprefix(_FILE)
    found = _URL.match(text)
    if found is not None:
        scheme = found[0].rstrip(":/")
        if option == "OUT" and scheme in WRITABLE and found[0].endswith(":/"):
            meant = f"{scheme}://{text.removeprefix(found[0]).lstrip('/')}"
            raise OptionError(f"{option} {text}: a URL has two slashes, {meant}")
        others = ", and to s3://, gs://, az:// and hf://datasets/ URLs" if option == "OUT" else ""
        raise OptionError(
            f"{option} {public(text)}: fmtkit writes to local files and folders{others}, not to "
            f"{scheme}:// URLs; write locally and copy the result"
        )
    return Path(text).expanduser()


def _format(path: PurePath, shown: str) -> str | None:
    """Return the format of a name with a suffix; None for an existing folder."""
    suffix = path.suffix.removeprefix(".")
    if suffix in formats.names():
        return suffix
    if isinstance(path, Path) and path.is_dir():
        return None
    near = near_match(suffix.lower(), formats.names())
    known = ", ".join(f".{name}" for name in formats.names())
    meant = f"; did you mean {shown.removesuffix(suffix)}{near}?" if near else ""
    raise OptionError(
        f"{shown}: fmtkit writes no .{suffix} files, only {known}{meant} "
        f"(a folder of that name: end it with /, as in {shown}/)"
    )


def _followed(path: Path) -> Path:
    return _resolved(path) if path.is_symlink() else path


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # a loop, by Python 3.12
        raise OptionError(f"{path} is a link that leads to itself") from error


def refuse_sources(
    names: Iterable[str],
    *,
    files: Sequence[Path] = (),
    folders: Sequence[Path] = (),
    option: str = "OUT",
) -> None:
    """Raise OptionError if one of the files to be written is a source, or a folder holds one.

    Sources are compared by device and inode: links and other spellings do not hide
    them. A source that is not a local file (a URL, a table) is not an output.
    """
    targets = {found: path for path in files if (found := _identity(path)) is not None}
    roots = [folder.resolve() for folder in folders]
    for name in names:
        found = _identity(name)
        if found is None:
            continue
        if found in targets:
            raise OptionError(f"{targets[found]} is the source {name}; choose another {option}")
        real = Path(name).resolve()
        for root, folder in zip(roots, folders, strict=True):
            if root in (real, *real.parents):
                raise OptionError(
                    f"{folder} is, or holds, the source {name}; choose another {option}"
                )


def _identity(name: str | Path) -> tuple[int, int] | None:
    try:
        found = os.fstat(sys.stdin.fileno()) if name == "-" else os.stat(name)  # noqa: PTH116
    except (OSError, ValueError, AttributeError):  # tests and services have other stdins
        return None
    return found.st_dev, found.st_ino


def page_path(
    address: str, option: str, *, suffixes: Sequence[str], mark: bytes, overwrite: bool
) -> Path:
    """Return where a page or picture may be written; a `mark` near its beginning shows that fmtkit wrote it.

    Raises:
        OptionError: if it is a URL or has a different suffix.
        OutputExistsError: if there is a file that fmtkit did not write, or may not overwrite.
        WriteError: if the system cannot look at the path.
    """
    path = local_path(address, option)
    if path.suffix.lower() not in suffixes:
        raise OptionError(f"{option} {address}: give {' or '.join('FILE' + s for s in suffixes)}")
    with writing(path):
        path = _followed(path)
        if not os.path.lexists(path):
            return path
        if not path.is_file() or mark not in _head(path):
            raise OutputExistsError(
                f"{option} {address} exists already, and fmtkit did not write it; choose another name"
            )
    if not overwrite:
        raise OutputExistsError(f"{option} {address} exists already; --overwrite replaces it")
    return path


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def entry(written: Written, base: Path) -> dict[str, Any]:
    """Return a file as the report in the folder `base` names it."""
    assert written.sha256 is not None
    assert isinstance(written.path, Path)
    path = written.path.relative_to(base).as_posix()
    return {"path": path, "bytes": written.bytes, "sha256": written.sha256}


def is_old(report: Mapping[str, Any]) -> bool:
    """Return whether a report is from a version of fmtkit that did not list its files."""
    return {"fmtkit", "rows_read"} <= report.keys() and "files" not in report


def refuse_unless_as_written(
    path: Path, entry: Mapping[str, Any] | None, report: Path, *, hashed: bool = True
) -> None:
    """Raise OutputExistsError unless a file is what the report says; without `hashed` by its size."""
    if entry is None:
        raise OutputExistsError(
            f"{path} exists already, and no {report.name} next to it names it: fmtkit did not write "
            "it; choose another OUT or move it away"
        )
    if not is_as_written(path, entry, hashed=hashed):
        raise OutputExistsError(
            f"{path} exists already and was changed since fmtkit wrote it; choose another OUT or move "
            "it away"
        )


def is_as_written(path: Path, entry: Mapping[str, Any], *, hashed: bool = True) -> bool:
    """Return whether a file has the size and the hash of its entry; a link never has."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != entry["bytes"]:
        return False
    return not hashed or bool(_digest(path) == entry["sha256"])


SETTLED = 2 * 10**9
"""Nanoseconds after a change from which a further one shows in a file's times, however coarse they are."""


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file; a run looks three times, and reads an unchanged file once."""
    found = path.stat()
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < SETTLED:
        return _digest_of.__wrapped__(path)
    return _digest_of(
        path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    )


@lru_cache(maxsize=8)
def _digest_of(path: Path, *state: int) -> str:  # noqa: ARG001
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def old_report(report: Path, output: Sequence[Path]) -> OutputExistsError:
    """Return the error for an output of a version whose reports did not list the files."""
    names = " ".join(map(str, output))
    return OutputExistsError(
        f"{report} exists already and is of an earlier fmtkit, which did not note what it wrote: "
        f"it is unknown whether it has changed since; if you no longer need it, remove it yourself "
        f"(rm -r {names}), or choose another OUT"
    )


def hidden_names(paths: Iterable[Path]) -> list[Path]:
    """Return paths with the hidden names under which they are written."""
    return [name for path in paths for name in (path, partial_name(path))]
