"""Rows with images as a trained vision model gets them: by its processor, and by TRL's collators."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.image_columns import IMAGES
from fmtkit.training.data.image_rows import ImageSize, without_nulls

if TYPE_CHECKING:
    from fmtkit.training.trained.trained_model import TrainedModel

_COLLATORS = {
    "pairs": ("trl.trainer.dpo_trainer", "DataCollatorForVisionPreference", ("chosen", "rejected")),
    "replies": (
        "trl.trainer.kto_trainer",
        "DataCollatorForVisionUnpairedPreference",
        ("completion",),
    ),
}
"""What is done with rows -> the collator of TRL that makes their batches, and their sides in its order."""


@dataclass(frozen=True)
class Inputs:
    """What a model gets of a row: tensors by name, of one sequence for each side."""

    tensors: Mapping[str, Any]
    """Among them `input_ids`, and `pixel_values` under the names of the model's family."""
    trained: Any = None
    """Which tokens the replies are (bool, sides x tokens); None where the model is asked."""
    sides: Sequence[str] = ()

    def on(self, device: Any) -> dict[str, Any]:
        """Return the tensors on a device."""
        return {name: tensor.to(device) for name, tensor in self.tensors.items()}


@dataclass
class Pictures:
    """Makes the inputs of rows with images."""

    trained: "TrainedModel"
    _processor: Any = field(init=False, default=None)

    @property
    def processor(self) -> Any:
        """Return the processor that was saved with the weights; the base model's where there is none.

        Raises OptionError for a model without one, DependencyError without Pillow.
        """
        if self._processor is None:
            from fmtkit.training.building import processors

            saved = self.trained.folder
            is_saved = any(saved.glob("*processor_config.json"))
            self._processor = processors.load(str(saved) if is_saved else self.trained.base)
        return self._processor

    def asked(self, messages: Sequence[Mapping[str, Any]], images: Sequence[Any]) -> Inputs:
        """Return the inputs of a prompt that the model is to continue."""
        from trl.data_utils import prepare_multimodal_messages

        shown = prepare_multimodal_messages(without_nulls([*messages]), images=self._opened(images))
        made = self.processor.apply_chat_template(
            shown, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
        )
        return Inputs(dict(made))

    def scored(self, row: Mapping[str, Any], kind: str) -> Inputs:
        """Return the inputs of a pair or a reply, as TRL's trainer of its method makes them.

        Raises OptionError for rows that no such trainer takes.
        """
        from importlib import import_module

        if kind not in _COLLATORS:
            raise OptionError(f"rows with images: {kind} cannot be tried; give --prompt TEXT")
        module, name, sides = _COLLATORS[kind]
        collator = getattr(import_module(module), name)(self.processor)
        parts: dict[str, Any] = {one: without_nulls(row[one]) for one in ("prompt", *sides)}
        parts |= {one: row[one] for one in ("label",) if one in row}
        made = dict(collator([parts | {IMAGES: self._opened(row[IMAGES])}]))
        reply = made.pop("completion_mask").bool()
        own = {n: tensor for n, tensor in made.items() if n != "label" and not n.startswith("KL_")}
        return Inputs(own, reply, sides)

    def _opened(self, images: Sequence[Any]) -> list[Any]:
        from datasets import Image

        assert self.trained.job is not None
        size, feature = ImageSize.of(self.trained.job), Image()
        return [size.apply(feature.decode_example(dict(one))) for one in images]
