"""Local paths, globs and folders -> their data files, in order."""

import glob
import re
from pathlib import Path

from fmtkit.core.errors import SourceError, near_match
from fmtkit.sources.kinds import SUFFIXES, data_suffix
from fmtkit.sources.splits import check_file, of_split

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
    return found


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
