"""The parts of a vision-language model: its vision tower, its projector, its language model.

Which of them train: all of the weights that no key freezes, but adapters only in the language model unless a
key says that another part is not frozen.
"""

import re
from collections.abc import Iterator
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.training.planning.job import Job

_INSIDE = ("merger", "deepstack_merger_list", "merger_list")
"""Projectors that are inside of the tower, as Qwen's."""


def is_vision_config(config: Any) -> bool:
    """Return whether the model of a config takes images, and its weights are saved as such a model's."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    named = getattr(config, "architectures", None) or ("",)
    return (
        not named[0].endswith("ForCausalLM")
        and type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    )


@dataclass(frozen=True)
class _Frozen:
    """Which parts the keys of a run freeze; None where no key says."""

    tower: bool | None
    projector: bool | None
    language: bool | None


def _frozen(job: Job) -> _Frozen:
    both = True if job.setting("freeze_mm_modules") is True else None
    values = (
        job.setting(f"freeze_{part}")
        for part in ("vision_tower", "multi_modal_projector", "language_model")
    )
    tower, projector, language = (v if isinstance(v, bool) else None for v in values)
    return _Frozen(
        both if tower is None else tower, both if projector is None else projector, language
    )


def are_frozen(job: Job) -> bool:
    """Return whether a key freezes a part."""
    frozen = _frozen(job)
    return True in (frozen.tower, frozen.projector, frozen.language)


def freeze(model: Any, job: Job) -> None:
    """Freeze the parts that a key names; raise OptionError for a model that has no such part."""
    if not are_frozen(job):
        return
    names = _frozen_names(model, job, adapter=False)
    trained = 0
    for name, weight in model.named_parameters():
        if any(name == one or name.startswith(f"{one}.") for one in names):
            weight.requires_grad = False
        trained += bool(weight.requires_grad)
    if not trained:
        raise OptionError(
            "freeze_language_model: no weight is left that trains; leave one of the keys out"
        )


def exclusion(model: Any, job: Job) -> dict[str, str]:
    """Return LoraConfig's `exclude_modules` for the parts that get no adapter; {} for none."""
    names = _frozen_names(model, job, adapter=True)
    return {"exclude_modules": rf"(?:{'|'.join(map(re.escape, names))})(?:\..*)?"} if names else {}


def _frozen_names(model: Any, job: Job, *, adapter: bool) -> list[str]:
    """Return the names of the frozen modules; a part of which no key says anything has no adapter."""
    frozen, parts = _frozen(job), parts_of(model)
    if parts is None:
        if are_frozen(job):
            raise OptionError(
                f"freeze_vision_tower: which parts {type(model).__name__} has is not known; name the "
                "weights that train by unfrozen_parameters"
            )
        return []
    tower = adapter if frozen.tower is None else frozen.tower
    projector = adapter if frozen.projector is None else frozen.projector
    names = [*(parts.tower if tower else ()), *(parts.projector if projector else ())]
    return [*names, *(parts.language if frozen.language else ())]


@dataclass(frozen=True)
class VisionParts:
    """Names of the modules of each part, as `named_modules` has them."""

    tower: tuple[str, ...]
    projector: tuple[str, ...]
    language: tuple[str, ...]


def parts_of(model: Any) -> VisionParts | None:
    """Return the parts of a vision-language model; None where transformers does not tell them apart."""
    names = {id(module): name for name, module in model.named_modules()}
    tower, decoder = model.get_encoder(modality="image"), model.get_decoder()
    where, language = names.get(id(tower)), names.get(id(decoder))
    if not where or not language or where == language:
        return None
    above = language.rpartition(".")[0]
    inside = [f"{where}.{name}" for name, _ in tower.named_children() if name in _INSIDE]
    rest = [
        f"{where}.{name}" for name, _ in tower.named_children() if f"{where}.{name}" not in inside
    ]
    head = [n for n in ("lm_head",) if hasattr(model, n)]
    return VisionParts(
        tuple(rest) if inside else (where,),
        (*inside, *_beside(model, above, {where, language})),
        (language, *head),
    )


def _beside(model: Any, above: str, known: set[str]) -> Iterator[str]:
    """Yield the modules beside the language model that are neither it nor the tower."""
    owner = model.get_submodule(above)
    for name, module in owner.named_children():
        path = f"{above}.{name}".lstrip(".")
        has_weights = next(module.parameters(), None) is not None
        if path not in known and path != "lm_head" and has_weights:
            yield path
