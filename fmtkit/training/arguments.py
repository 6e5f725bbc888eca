"""Which arguments a TRL config class takes, read from the installed files without importing them.

Importing TRL costs seconds and loads torch; its config classes are plain dataclasses, so
their fields stand in the source: names, annotations and the names of their base classes.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from fmtkit.errors import DependencyError, OptionError, near_match

REMOVED: dict[str, str] = {
    "evaluation_strategy": "it is eval_strategy now",
    "group_by_length": "it is train_sampling_strategy='group_by_length' now",
    "include_tokens_per_second": "metrics.jsonl has tokens per second",
    "logging_dir": "set the environment variable TENSORBOARD_LOGGING_DIR",
    "max_prompt_length": "prompts are not cut any more; rows longer than sequence_len are dropped",
    "max_seq_length": "it is max_length now",
    "no_cuda": "it is use_cpu now",
    "overwrite_output_dir": "use --resume, or another output_dir",
    "rpo_alpha": "write loss_type: [sigmoid, sft] and loss_weights: [1.0, ALPHA]",
    "save_safetensors": "nothing else is written",
    "tokenizer": "it is processing_class now, and fmtkit passes it",
    "warmup_ratio": "it is warmup_steps below 1 now",
}
"""Arguments that older versions had, and what to write instead."""


@dataclass(frozen=True)
class Fields:
    """The arguments of a config class: name -> annotation, as it stands in the source."""

    class_name: str
    package: str
    annotations: Mapping[str, str]

    def check(self, name: str, origin: str) -> None:
        """Raise OptionError if the class has no such argument."""
        if name in self.annotations:
            return
        if name in REMOVED:
            advice = REMOVED[name]
        else:
            near = near_match(name, self.annotations)
            advice = f"did you mean {near!r}?" if near else "see docs/config.md"
        raise OptionError(
            f"{origin}: {self.class_name} of {self.package} has no argument {name!r}; {advice}"
        )

    def check_value(self, name: str, value: object, origin: str) -> None:
        """Raise OptionError if a value is plainly not of the argument's type."""
        annotation = self.annotations[name]
        if not _fits(annotation, value):
            raise OptionError(f"{origin}: {name} takes {annotation}, not {value!r}")


def installed(package: str) -> str | None:
    """Return the version of the distribution that a package is of, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        owners = packages_distributions().get(package)
        return version(owners[0]) if owners else None


@cache
def fields_of(config: str) -> Fields:
    """Return the arguments of a config class named as in a runner ("trl:DPOConfig")."""
    module, _, class_name = config.partition(":")
    package = module.partition(".")[0]
    found = installed(package)
    if found is None:
        raise DependencyError(
            f"{package} is not installed; install it with: pip install 'fmtkit[train]'"
        )
    annotations = _annotations(class_name, module)
    if not annotations:
        raise DependencyError(f"{package} {found} has no {module}.{class_name}")
    return Fields(class_name, f"{package} {found}", annotations)


def has_class(path: str) -> bool:
    """Tell whether the installed package defines the class that a runner names."""
    module, _, class_name = path.partition(":")
    return any(_class(file, class_name) is not None for file in _files(module, class_name))


def _annotations(class_name: str, module: str) -> dict[str, str]:
    """Return the fields of a dataclass and of its bases, bases first."""
    for file in _files(module, class_name):
        found = _class(file, class_name)
        if found is None:
            continue
        out: dict[str, str] = {}
        for base in found.bases:
            out |= _annotations(ast.unparse(base).rpartition(".")[2], module)
        for node in found.body:
            if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith(
                "ClassVar"
            ):
                out[ast.unparse(node.target)] = ast.unparse(node.annotation)
        return out
    return {}


def _files(module: str, class_name: str) -> Iterator[Path]:
    """Yield the files of a package in which a class of that name may stand."""
    inside = module.split(".")
    folders = ["/".join(inside[1:]), "/".join(inside[1:-1]) or "."] if len(inside) > 1 else []
    for folder in (*folders, "trainer", "tuners/lora", "."):
        yield from _defining(inside[0], folder, class_name)
    if inside[1:2] == ["experimental"]:
        # A class may inherit from one of another folder (Nash-MD from online DPO).
        yield from _defining(inside[0], "experimental/*", class_name)
    if inside[0] not in {"trl", "transformers", "peft"}:
        # Another package derives its classes from TRL's.
        for folder in ("trainer", "experimental/*"):
            yield from _defining("trl", folder, class_name)
    if inside[0] != "transformers":
        yield from _defining("transformers", ".", class_name)


def _defining(package: str, folder: str, class_name: str) -> Iterator[Path]:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return
    root = Path(spec.origin).parent
    # transformers has 4,000 files; what we name stands in these two.
    own = [root / "training_args.py", root / "trainer.py"]
    for file in own if package == "transformers" else sorted(root.glob(f"{folder}/*.py")):
        if file.is_file() and f"class {class_name}" in _text(file):
            yield file


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@cache
def _class(file: Path, name: str) -> ast.ClassDef | None:
    tree = ast.parse(_text(file))
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def _fits(annotation: str, value: object) -> bool:
    """Tell whether a value may be meant by an annotation; what is not understood fits."""
    parts = {part.strip() for part in annotation.split("|")}
    if value is None or not parts <= {
        "int",
        "float",
        "bool",
        "str",
        "None",
        "list[str]",
        "list[float]",
    }:
        return True
    kinds = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
        "list[str]": isinstance(value, (str, list)),
        "list[float]": isinstance(value, list),
    }
    return any(kinds.get(part, False) for part in parts)
