"""Splits of sources by the names of their files, as `datasets` finds them.

A folder has the splits that its files or folders are named after; files named after no split are `train` if
no other file is. A source that is a single file is `train`.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Sequence

from fmtkit.core.errors import OptionError, UnreadFilesWarning

TRAIN = "train"
_WORDS = {
    TRAIN: ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARDED = re.compile(r"data/(?P<split>\w+(?:\.\w+)*)-[0-9]{5}-of-[0-9]{5}.*\..*")
FEW = 5
"""How many files a message names."""


def _named(words: Iterable[str]) -> re.Pattern[str]:
    """Return what matches the name of a file or folder that holds one of the words."""
    return re.compile(rf"(?:.*[-._ 0-9])?(?:{'|'.join(words)})(?:[-._ 0-9].*)?")


_PATTERNS = {split: _named(words) for split, words in _WORDS.items()}


def splits_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the files of each split of a folder, train first; names are relative to the folder.

    >>> splits_of(["test.jsonl", "training-2.jsonl"])
    {'train': ['training-2.jsonl'], 'test': ['test.jsonl']}
    """
    found = _sharded(names) or _by_word(names, lambda name: name.split("/")[:-1])
    found = found or _by_word(names, lambda name: name.split("/")[-1:])
    if TRAIN in found:
        return found
    named = {name for files in found.values() for name in files}
    rest = [name for name in names if name not in named]
    return ({TRAIN: rest} if rest else {}) | found


def _sharded(names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        if match := _SHARDED.fullmatch(name):
            found.setdefault(match["split"], []).append(name)
    return found


def _by_word(names: Sequence[str], parts: Callable[[str], list[str]]) -> dict[str, list[str]]:
    found = {
        split: [name for name in names if any(map(pattern.fullmatch, parts(name)))]
        for split, pattern in _PATTERNS.items()
    }
    return {split: files for split, files in found.items() if files}


def of_split(names: Sequence[str], folder: str, split: str | None = None) -> list[str]:
    """Return the files of one split of a folder: by default of `train`, or of the only one.

    If no split is requested, an UnreadFilesWarning names the files of the others. Raises OptionError if the
    split does not exist, or if there are several without `train`.
    """
    splits = splits_of(names)
    wanted = split or (TRAIN if TRAIN in splits or len(splits) > 1 else next(iter(splits)))
    if wanted not in splits:
        raise OptionError(f"{folder} has no split {wanted!r}; it has {_listed(splits)}")
    chosen = splits[wanted]
    left = [name for name in names if name not in set(chosen)]
    if split is None and (left or wanted != TRAIN):
        more = f" and {len(left) - FEW:,} more" if len(left) > FEW else ""
        others = f", not {', '.join(left[:FEW])}{more}; name files to read others" if left else ""
        warnings.warn(
            f"{folder}: the split {wanted} is read ({_counted(chosen)}){others}",
            UnreadFilesWarning,
            stacklevel=2,
        )
    return chosen


def check_file(file: str, split: str | None) -> None:
    """Raise OptionError for a split of a source that is a single file, unless it is `train`."""
    if split not in (None, TRAIN):
        raise OptionError(
            f"{file} has no split {split!r}: a file that is named by itself is the split train; leave "
            "split out, or name the folder"
        )


def _listed(splits: dict[str, list[str]]) -> str:
    return ", ".join(f"{split} ({_counted(files)})" for split, files in splits.items())


def _counted(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{len(files):,} files"
