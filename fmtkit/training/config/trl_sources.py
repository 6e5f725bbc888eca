"""The datasets of TRL's config files: one by its name, or a mixture, as entries of `datasets`."""

from collections.abc import Mapping

from fmtkit.core.errors import OptionError
from fmtkit.training.config.problems import Problems

_OF_ENTRY = {"dataset_config": "name", "dataset_train_split": "split"}
KEYS = frozenset({"dataset_name", "dataset_text_field", "dataset_test_split", *_OF_ENTRY})
_IDLE = {"dataset_train_split": "train", "dataset_test_split": "test"}
"""Splits of a mixture, which TRL names itself: another one ends in its KeyError."""
MIXTURE = {"columns": "select", "fraction": "mixture_share"}
"""What an entry of `datasets` says in TRL's files -> the key that says it here."""


def write_dataset_name(out: dict[str, object], lines: dict[str, int]) -> None:
    """Write `dataset_name` and its config and splits as entries; TRL evaluates on a split of the same."""
    name, text = out.get("dataset_name"), out.get("dataset_text_field")
    if text == "text" or (name is not None and not out.get("datasets")):
        out.pop("dataset_text_field", None)
    is_renamed = text not in (None, "text")
    written = {key for key in (*_OF_ENTRY, "dataset_test_split") if key in out}
    evaluates = out.get("eval_strategy") not in (None, "no", False)
    if name is None or out.get("datasets") or not (written or evaluates or is_renamed):
        return
    entry: dict[str, object] = {"path": name}
    if is_renamed:
        entry["columns"] = {"text": text}
    for key, part in _OF_ENTRY.items():
        value = out.pop(key, None)
        if value is not None:
            entry[part] = value
    test = out.pop("dataset_test_split", None) or "test"
    held_out = any(out.get(k) for k in ("test_split_size", "val_set_size", "val_size"))
    if evaluates and not held_out and not {"test_datasets", "eval_datasets"} & out.keys():
        _put(out, lines, "test_datasets", [{**entry, "split": test}])
    del out["dataset_name"]
    _put(out, lines, "datasets", [entry])


def refuse_alone(out: dict[str, object], problems: Problems) -> None:
    """Refuse keys of a dataset without the `dataset_name` that they belong to."""
    for name in (*_OF_ENTRY, "dataset_test_split"):
        value = out.pop(name, None)
        if value is None:
            continue
        place = {"dataset_test_split": "split of an entry of test_datasets"}.get(
            name, f"{_OF_ENTRY.get(name)} of an entry of datasets"
        )
        with problems.collecting("unknown_key", name):
            raise OptionError(
                f"{name}: {value!r} belongs to dataset_name, which is not read here; write it as {place}"
            )


def mixture(out: dict[str, object], problems: Problems, notes: list[str]) -> None:
    """Read `datasets` as TRL's mixture, beside which its scripts read no `dataset_name`."""
    sources = out.get("datasets")
    if not isinstance(sources, list) or not sources:
        return
    for name in ("dataset_name", "dataset_config"):
        value = out.pop(name, None)
        if value is not None:
            notes.append(f"{name}: {value} is not read: the file has datasets, as in TRL's scripts")
    for name, only in _IDLE.items():
        if out.get(name) == only:
            del out[name]
    text = out.get("dataset_text_field")
    if text is not None:
        del out["dataset_text_field"]
    entries = [
        _source(entry, f"datasets.{number}", problems) if isinstance(entry, Mapping) else entry
        for number, entry in enumerate(sources)
    ]
    if text not in (None, "text"):
        entries = [_with_text(one, text) if isinstance(one, dict) else one for one in entries]
    out["datasets"] = entries
    if any(isinstance(one, Mapping) and MIXTURE["fraction"] in one for one in entries):
        notes.append(
            "mixture_share: as many rows of each dataset as TRL takes, drawn by the seed; TRL takes the first"
        )


def _with_text(entry: dict[str, object], text: object) -> dict[str, object]:
    """Return an entry whose column of text has the name that `dataset_text_field` gives it."""
    return {**entry, "columns": {"text": text}} if entry.get("columns") is None else entry


def _source(entry: Mapping[str, object], place: str, problems: Problems) -> dict[str, object]:
    """Return an entry with what TRL says in it under the names that it has here."""
    inside = dict(entry)
    with problems.collecting("value", f"{place}.data_files"):
        _files_of_split(inside, place)
    for name, own in MIXTURE.items():
        value = inside.get(name)
        # A mapping gives columns other names, which TRL cannot say.
        if value is None or isinstance(value, Mapping):
            continue
        with problems.collecting("two_spellings", f"{place}.{name}"):
            del inside[name]
            if inside.get(own) not in (None, value):
                raise OptionError(f"{place}: {name} and {own} differ; keep one")
            inside[own] = value
    return inside


def _files_of_split(inside: dict[str, object], place: str) -> None:
    """Read a mapping of splits to their files: those of the entry's split, which are its `train` here."""
    files, split = inside.get("data_files"), str(inside.get("split") or "train")
    if not isinstance(files, Mapping):
        return
    name, bracket, rows = split.partition("[")
    if name.strip() not in files:
        del inside["data_files"]
        raise OptionError(
            f"{place}.data_files: it has no files of split {split!r}; it has those of "
            f"{', '.join(map(str, files))}"
        )
    inside |= {"data_files": files[name.strip()], "split": f"train{bracket}{rows}"}


def _put(out: dict[str, object], lines: dict[str, int], name: str, value: object) -> None:
    out[name] = value
    if "dataset_name" in lines:
        lines[name] = lines["dataset_name"]
