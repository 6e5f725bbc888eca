"""A trained model: the model of a run, or an adapter with its base model, and how either is loaded."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core import hub_access
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, ResumeError, UnknownNameError
from fmtkit.core.options import refuse_empty
from fmtkit.training.planning import job, weight_files
from fmtkit.training.trained import checkpoints

if TYPE_CHECKING:
    from fmtkit.core.runner import Head
    from fmtkit.training.planning.job import Job

ADAPTER = "adapter_config.json"
_HEADS: Mapping[str, "Head"] = {"SEQ_CLS": "score", "TOKEN_CLS": "steps"}
"""Task of an adapter -> the head that it was trained with; all others are causal."""


@dataclass(frozen=True)
class TrainedModel:
    """Weights in a folder: a full model, or an adapter for `base`."""

    folder: Path
    base: str
    """Folder or hub id of the model that the training began with."""
    head: "Head"
    job: "Job | None" = None
    """The run that made it; None for an adapter from elsewhere."""
    notes: tuple[str, ...] = ()

    @property
    def is_adapter(self) -> bool:
        """Return whether the weights are an adapter's."""
        return (self.folder / ADAPTER).is_file()

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor of an adapter; nothing is loaded."""
        from safetensors import safe_open

        file = self.folder / "adapter_model.safetensors"
        if not file.is_file():
            return {}
        with safe_open(file, framework="np") as opened:
            return {
                name: tuple(opened.get_slice(name).get_shape())
                for name in opened.keys()  # noqa: SIM118 - no mapping
            }


def of_run(
    folder: str | Path, *, checkpoint: str | None = None, model: str | None = None
) -> TrainedModel:
    """Find what a run has trained: its model, or the newest complete checkpoint of an unfinished run.

    Args:
        folder: The run folder.
        checkpoint: A name in its `checkpoints`, such as checkpoint-200, or only the step.
        model: Where the base model is now, if not where the run found it.

    Raises:
        OptionError: if there is no such folder, or no weights in it yet.
        ResumeError: if no run of this fmtkit prepared it.
        UnknownNameError: for a checkpoint that does not exist.
    """
    from fmtkit.core import runner

    refuse_empty(folder, "RUN")
    run = Path(folder).expanduser()
    if not run.is_dir():
        raise OptionError(f"{run}: no such folder; give a run folder, the output_dir of a config")
    try:
        # What is read of it to load a model has not changed since the first version.
        work = job.read(run, oldest=1)
    except ResumeError as error:
        raise ResumeError(f"{run} is not a readable run folder: {error}") from error
    # The folder may have been moved since.
    work = replace(work, run=str(run), model=model or work.model)
    weights, notes = _weights(run, checkpoint)
    chosen = runner.find(work.method)
    head = (chosen.variant(work.variant) if work.variant else chosen).head
    return TrainedModel(weights, work.model, head, work, notes)


def _weights(run: Path, checkpoint: str | None) -> tuple[Path, tuple[str, ...]]:
    """Return the folder of the weights, and a note on the choice."""
    folder, expected = run / "checkpoints", checkpoints.Expected(optimizer=False)
    if checkpoint is not None:
        return _named(folder, checkpoint, expected), ()
    final = run / "model"
    if final.is_dir() and _fault(final) is None:
        return final, ()
    newest, incomplete = checkpoints.latest(folder, expected)
    if newest is None:
        reason = f" ({incomplete[0]})" if incomplete else ""
        raise OptionError(
            f"{run}: nothing was trained yet: it has no model and no complete checkpoint{reason}"
        )
    why = f": {_fault(final)}" if final.is_dir() else ""
    notes = [
        f"the run has saved no complete model yet{why}; its newest checkpoint is {newest.name}"
    ]
    return newest, (*notes, *(f"{one}; an older one is used" for one in incomplete))


def _named(folder: Path, name: str, expected: checkpoints.Expected) -> Path:
    known = sorted((p.name for p in folder.glob("checkpoint-*")), key=lambda n: (len(n), n))
    wanted = f"checkpoint-{name}" if name.isdigit() else name
    if wanted not in known:
        raise UnknownNameError("checkpoint", name, known)
    fault = checkpoints.fault_of(folder / wanted, expected)
    if fault is not None:
        raise OptionError(f"{folder / wanted} is incomplete: {fault}; known: {', '.join(known)}")
    return folder / wanted


def _fault(folder: Path) -> str | None:
    """Return what is wrong with the files of weights in a folder; None if they are complete."""
    files = [p for p in sorted(folder.iterdir()) if p.suffix in {".safetensors", ".bin"}]
    faults = (weight_files.fault_of_file(file) for file in files)
    indices = (weight_files.missing_shard(index) for index in folder.glob("*.index.json"))
    return next(filter(None, (*faults, *indices)), None if files else "it holds no weights")


def of_adapter(folder: str | Path, model: str | None) -> TrainedModel:
    """Return an adapter that is in a folder; its base is `model`, or the one that it names.

    Raises OptionError where there is no adapter, or its base is not known.
    """
    path = Path(folder).expanduser()
    try:
        config = json.loads((path / ADAPTER).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OptionError(f"--adapter {path}: holds no adapter: {ADAPTER} is not there") from error
    except (OSError, ValueError) as error:
        raise OptionError(f"--adapter {path}: {ADAPTER} cannot be read: {error}") from error
    base = model or (config.get("base_model_name_or_path") if isinstance(config, dict) else None)
    if not base:
        raise OptionError(f"--adapter {path}: does not name its base model; give it by --model")
    fault = _fault(path)
    if fault is not None:
        raise OptionError(f"--adapter {path}: {fault}")
    return TrainedModel(path, str(base), _HEADS.get(str(config.get("task_type")), "causal"))


def load_tokenizer(trained: TrainedModel) -> Any:
    """Load the tokenizer that was saved with the weights; the base model's where there is none."""
    from transformers import AutoTokenizer

    is_saved = (trained.folder / "tokenizer_config.json").is_file()
    if not is_saved and trained.job is not None:
        from fmtkit.training.building import build

        return build.load_tokenizer(trained.job)
    with loading(str(trained.folder) if is_saved else trained.base, "tokenizer"):
        return AutoTokenizer.from_pretrained(
            trained.folder if is_saved else trained.base, trust_remote_code=_trusts(trained)
        )


def load_base(trained: TrainedModel, tokenizer: Any, dtype: str | None = None) -> Any:
    """Load the base model in full precision, as large as the adapter's embeddings are.

    Args:
        trained: The model and its run.
        tokenizer: Its tokenizer: the embeddings grow with the tokens that a run has added.
        dtype: Such as float32; that of the base model's own weights where it is None.

    Raises:
        OptionError: if the base model cannot be found or loaded.
    """
    if _is_path(trained.base) and not Path(trained.base).expanduser().is_dir():
        raise OptionError(f"base model {trained.base}: no such folder; give its path with --model")
    with loading(trained.base, "base model"):
        model = _pretrained(trained, Path(trained.base).expanduser(), dtype)
    sizes = [s[0] for n, s in trained.shapes.items() if n.endswith("embed_tokens.weight") and s]
    if trained.job is not None and trained.job.setting("tokens"):
        sizes.append(len(tokenizer))
    wanted = max(sizes, default=0)
    if wanted > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(wanted, mean_resizing=False)
    return model


def with_adapter(trained: TrainedModel, base: Any) -> Any:
    """Put the adapter on its base model; raise OptionError where the two do not fit."""
    from peft import PeftModel

    try:
        with quietly():
            return PeftModel.from_pretrained(base, str(trained.folder))
    except (RuntimeError, ValueError) as error:
        first = next(line.strip() for line in str(error).splitlines() if line.strip())
        raise OptionError(
            f"{trained.folder}: the adapter does not fit base model {trained.base}: {first}"
        ) from error


def load_whole(trained: TrainedModel, dtype: str | None = None) -> Any:
    """Load a model whose weights were all trained."""
    with loading(str(trained.folder), "model"):
        return _pretrained(trained, trained.folder, dtype)


def _pretrained(trained: TrainedModel, place: Path | str, dtype: str | None) -> Any:
    import torch

    from fmtkit.training.building import build

    where = str(place) if Path(place).is_dir() else trained.base
    revision = trained.job.model_arguments.get("revision") if trained.job is not None else None
    more = {"revision": revision} if revision and where == trained.base else {}
    heads = [s[0] for n, s in trained.shapes.items() if n.endswith("score.weight") and len(s) == 2]
    return build.pretrained(
        where,
        trained.head,
        trusted=_trusts(trained),
        labels=heads[0] if heads else None,
        dtype="auto" if dtype is None else getattr(torch, dtype),
        **more,
    )


@contextmanager
def loading(name: str, what: str) -> Iterator[None]:
    """Turn what keeps transformers from loading into an OptionError; do not wait for an unreachable hub."""
    with hub_access.bounded() as trouble, quietly():
        try:
            yield
        except (OSError, ValueError) as error:
            first = next((line for line in str(error).splitlines() if line.strip()), "")
            cut_off = f"; the hub cannot be reached ({trouble})" if trouble else ""
            raise OptionError(
                f"{what} {name}: cannot be loaded: {first}{cut_off}; --model names a different place"
            ) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers from drawing progress bars and from warning about its own deprecated names."""
    from transformers.utils import logging

    speak: Any = logging
    was_enabled = speak.is_progress_bar_enabled()
    speak.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", FutureWarning)
            yield
    finally:
        if was_enabled:
            speak.enable_progress_bar()


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def _trusts(trained: TrainedModel) -> bool:
    return trained.job is not None and trained.job.trusts_code
