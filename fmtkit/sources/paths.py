"""Local paths, globs and folders -> their data files, in order."""

import glob
import hashlib
import re
import warnings
from pathlib import Path

from fmtkit.core.errors import SourceError, UnreadFilesWarning, near_match
from fmtkit.core.records import entries_of, read_json, sources_of
from fmtkit.sources.kinds import SUFFIXES, data_suffix
from fmtkit.sources.splits import FEW, check_file, of_split

OUTPUT_NAMES = re.compile(
    r"(.*\.)?(quarantine\.jsonl|report\.json)|manifest\.json"
    r"|dataset_infos?\.json|dataset_dict\.json|state\.json"
)
"""Names of files that hold no rows: fmtkit's own and those of `datasets`."""


def local_files(argument: str, split: str | None = None) -> list[Path]:
    """Return the files of a path, a glob or a folder, sorted within each.

    Of a folder, those of the split; `fmtkit.sources.splits` says which these are.

    Raises SourceError where there is no file, OptionError where there is no such split.
    """
    path = Path(argument).expanduser()
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in files_in(path)]
        return [path / name for name in of_split(names, str(path), split)]
    if path.exists() or not glob.has_magic(argument):
        if not path.exists():
            raise SourceError(_missing(argument, path))
        check_file(argument, split)
        return [path]
    check_file(argument, split)
    matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 - paths may be absolute
    files = [file for match in matches for file in (files_in(match) if match.is_dir() else [match])]
    if not files:
        raise SourceError(f"no file matches {argument}")
    return files


def files_in(folder: Path) -> list[Path]:
    """Return the data files of a folder and of those below it, sorted by path.

    A folder that fmtkit wrote has its rows in data/. Hidden files, quarantines, reports and
    manifests are not data.
    """
    root = folder / "data" if (folder / "manifest.json").is_file() else folder
    try:
        next(root.iterdir(), None)
    except OSError as error:
        raise SourceError(f"{root} cannot be listed: {error.strerror}") from error
    found = sorted(
        path for path in root.rglob("*") if is_data(path.relative_to(root)) and path.is_file()
    )
    if not found:
        raise SourceError(f"{folder} holds no data files ({', '.join(SUFFIXES)})")
    return _without_own(folder, found) if root == folder else found


def _without_own(folder: Path, found: list[Path]) -> list[Path]:
    """Leave out what fmtkit made of other files of the folder, as the reports beside it say.

    An UnreadFilesWarning names them: a second run would read the first one's rows as more of its own.
    """
    own: set[Path] = set()
    for report in sorted(folder.rglob("*report.json")):
        try:
            record = read_json(report)
        except OSError as error:
            raise SourceError(f"{report} cannot be read: {error.strerror}") from error
        made = {report.parent / name for name in entries_of(record) or {}}
        if made and any(_is_held(*source, folder, made) for source in sources_of(record)):
            own |= made
    left = [path for path in found if path in own]
    rest = [path for path in found if path not in own]
    if not left or not rest:
        return found
    names = [path.relative_to(folder).as_posix() for path in left[:FEW]]
    more = f" and {len(left) - FEW:,} more" if len(left) > FEW else ""
    warnings.warn(
        f"{folder}: {', '.join(names)}{more}, which fmtkit made of its files, "
        f"{'is' if len(left) == 1 else 'are'} not read; name files to read others",
        UnreadFilesWarning,
        stacklevel=2,
    )
    return rest


def _is_held(source: str, sha256: str | None, folder: Path, made: set[Path]) -> bool:
    """Return whether a folder holds a source of a report, named from here or from where the run was."""
    path = Path(source)
    if path.exists():
        return folder.resolve() in path.resolve().parents
    below = (folder.joinpath(*path.parts[place:]) for place in range(1, len(path.parts)))
    return any(
        one.is_file() and one not in made and (sha256 is None or _digest(one) == sha256)
        for one in below
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_data(path: Path) -> bool:
    """Return whether a path below a folder is data by its name."""
    if any(part.startswith((".", "__")) for part in path.parts):
        return False
    return data_suffix(path.name) in SUFFIXES and not OUTPUT_NAMES.fullmatch(path.name)


def _missing(argument: str, path: Path) -> str:
    if path.is_symlink():
        return f"{argument} is a link to {path.readlink()}, which does not exist"
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        if re.fullmatch(r"[\w.-]+/[\w.-]+", argument):
            return (
                f"{argument} does not exist here; a dataset of the Hugging Face hub is written "
                f"hf://datasets/{argument}"
            )
        return f"{argument} does not exist, nor does the folder {path.parent}"
    near = near_match(path.name, siblings)
    return f"{argument} does not exist" + (f"; did you mean {path.parent / near}?" if near else "")
