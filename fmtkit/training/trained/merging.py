"""Merging: an adapter becomes part of its base model, which then needs no peft.

The base model is loaded again, in full precision: merged into quantized weights, the adapter would be
rounded to four bits. Each layer is merged in float32, and rounded once.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fmtkit.core import atomic
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, OutputExistsError, WriteError
from fmtkit.training.building import processors
from fmtkit.training.trained import card, trained_model
from fmtkit.training.trained.trained_model import TrainedModel

MERGED = "merged"
"""Where in a run folder the merged model is."""
_OS_ERROR = re.compile(r"os error (\d+)")


@dataclass(frozen=True)
class Merged:
    """A model that was merged and written."""

    folder: str
    base: str
    adapter: str
    dtype: str
    """Data type of the weights: that of the base model unless another was asked for."""
    parameters: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self) | {"notes": list(self.notes)}


def merge(
    run: str | Path | None,
    out: str | Path | None = None,
    *,
    checkpoint: str | None = None,
    adapter: str | None = None,
    model: str | None = None,
    dtype: str | None = None,
) -> Merged:
    """Merge the adapter of a run, or one from elsewhere, into its base model; see `fmtkit.merge`."""
    trained = _found(run, checkpoint, adapter, model)
    if not trained.is_adapter:
        raise OptionError(
            f"{trained.folder}: no adapter to merge: all weights were trained, and this is the full model"
        )
    target = Path(out).expanduser() if out is not None else _place(trained)
    if os.path.lexists(target):
        raise OutputExistsError(f"{target} exists already; choose another folder by --out")
    return write(trained, target, dtype=dtype, card_text=_card(trained))


def _found(
    run: str | Path | None, checkpoint: str | None, adapter: str | None, model: str | None
) -> TrainedModel:
    if (run is None) == (adapter is None):
        raise OptionError("give either a RUN folder, or --adapter DIR")
    if run is not None:
        return trained_model.of_run(run, checkpoint=checkpoint, model=model)
    if checkpoint is not None:
        raise OptionError("--checkpoint needs a RUN; give the checkpoint's folder by --adapter")
    assert adapter is not None
    return trained_model.of_adapter(adapter, model)


def _place(trained: TrainedModel) -> Path:
    if trained.job is None:
        raise OptionError("--adapter: give the folder to write by --out")
    return Path(trained.job.run) / MERGED


def _card(trained: TrainedModel) -> str:
    if trained.job is None:
        return card.of_merge(trained.base, trained.folder)
    from fmtkit.core.records import read_json

    report = read_json(Path(trained.job.run) / "report.json")
    return card.text(trained.job, report, merged=True)


def write(
    trained: TrainedModel, folder: Path, *, dtype: str | None = None, card_text: str | None = None
) -> Merged:
    """Write an adapter's base model with the adapter in it, atomically: weights, tokenizer, card.

    Raises:
        OptionError: if the base model cannot be loaded, or the adapter does not fit it.
        WriteError: if the folder cannot be written; nothing is left of it.
    """
    tokenizer = trained_model.load_tokenizer(trained)
    base = trained_model.load_base(trained, tokenizer, dtype)
    # Counted before the merge, which replaces weights and adds none.
    size = sum(p.numel() * p.element_size() for p in base.parameters())
    try:
        model = merged(trained_model.with_adapter(trained, base))
    except ValueError as error:
        # What peft's safe_merge raises for an adapter with NaN or infinite weights.
        raise OptionError(
            f"{trained.folder}: the adapter has weights that are not finite: {error}"
        ) from error
    _align(model, tokenizer)
    with _whole_folder(folder, size) as partial, trained_model.quietly():
        # Shards of the library's own size, so that a large model is never one file.
        model.save_pretrained(partial, safe_serialization=True)
        tokenizer.save_pretrained(partial)
        for name in (str(trained.folder), trained.base):
            processors.copy_settings(name, partial)
        if card_text is not None:
            (partial / "README.md").write_text(card_text, encoding="utf-8")
    return Merged(
        str(folder),
        trained.base,
        str(trained.folder),
        str(model.dtype).removeprefix("torch."),
        sum(p.numel() for p in model.parameters()),
        trained.notes,
    )


def merged(model: Any) -> Any:
    """Return the base model of a PeftModel with the adapter merged in, layer by layer in float32."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, BaseTunerLayer) and not layer.merged:
                _merge_layer(layer)
    # What is merged stays; heads and embeddings that were trained in full take their places.
    return model.unload()


def _merge_layer(layer: Any) -> None:
    import torch

    base_layer = layer.get_base_layer()
    weights = {
        name: parameter.dtype
        for name, parameter in base_layer.named_parameters(recurse=False)
        if parameter.dtype in (torch.bfloat16, torch.float16)
    }
    for name in weights:
        parameter = getattr(base_layer, name)
        parameter.data = parameter.data.float()
    layer.merge(safe_merge=True)
    for name, before in weights.items():
        parameter = getattr(base_layer, name)
        parameter.data = parameter.data.to(before)


def _align(model: Any, tokenizer: Any) -> None:
    """Set the model's end and padding tokens to those that it was trained with, as a run's model has them."""
    model.config.pad_token_id = tokenizer.pad_token_id
    generation = getattr(model, "generation_config", None)
    if generation is None or tokenizer.eos_token_id is None:
        return
    known = generation.eos_token_id
    ends = known if isinstance(known, list) else [] if known is None else [known]
    generation.eos_token_id = list(dict.fromkeys([tokenizer.eos_token_id, *ends]))
    generation.pad_token_id = tokenizer.pad_token_id


@contextmanager
def _whole_folder(folder: Path, size: int) -> Iterator[Path]:
    """Give a hidden folder next to the final one, which is renamed to it once complete."""
    partial = atomic.partial_name(folder)
    with atomic.writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
        if size > free:
            raise WriteError(
                f"cannot write {folder}: the model takes {size:,} bytes, and {free:,} are free; free "
                "some space, or choose another disk by --out"
            )
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            with _as_os_error():
                yield partial
            for file in sorted(partial.iterdir()):
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        atomic.sync_folder(folder.parent)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise an OSError for an error of the operating system that safetensors reports only as text."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code)) from error
