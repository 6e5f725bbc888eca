"""Proof that images are seen: before the first step, inputs of rows with their images and with blank ones.

Nothing else shows that a template writes no image or that a collator leaves the pixels out: the loss falls
without them, too.
"""

import copy
from collections.abc import Mapping
from itertools import chain
from typing import Any

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.image_columns import IMAGES

_ROWS = 2
"""Rows of which inputs are made: some collators take a reply from another row."""
_SEARCHED = 4096
"""Rows among which some with images are looked for; images of a row are decoded for it."""
_SHADES = ((0, 0, 0), (255, 255, 255))
"""Colours of blank images: an image that is blank itself differs from one of them."""


def check(trainer: Any, rows: Any) -> None:
    """Raise OptionError where a trainer makes the same model inputs of rows whatever their images show."""
    sample = _with_images(rows)
    if not sample:
        return
    seen = model_inputs(trainer, sample)
    if _has_no_image_token(trainer.processing_class, seen):
        raise OptionError(
            "images are not seen: the chat template writes no image token for them; leave chat_template out, "
            "or name one that writes parts of type image"
        )
    if all(are_same(seen, model_inputs(trainer, blank(sample, shade))) for shade in _SHADES):
        raise OptionError(
            "images are not seen: blank images give the same model inputs; the processor of base_model makes "
            "no pixel values of them"
        )


def _with_images(rows: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for index in range(min(len(rows), _SEARCHED)):
        row = rows[index]
        if row.get(IMAGES):
            found.append(row)
        if len(found) == _ROWS:
            break
    return found


def blank(rows: list[dict[str, Any]], shade: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Return rows with images of one colour and of the same sizes."""
    from PIL import Image

    return [
        {**row, IMAGES: [Image.new("RGB", image.size, shade) for image in row[IMAGES]]}
        for row in rows
    ]


def model_inputs(trainer: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the model gets of rows: of the collator, or of prompts as the trainer reads them."""
    try:
        if hasattr(trainer, "_tokenize_prompts"):
            return prompt_inputs(trainer, rows)
        # Collators put rendered texts into the rows that they are given.
        return dict(trainer.data_collator(copy.deepcopy(rows)))
    except FmtkitError:
        raise
    except (ValueError, KeyError, TypeError, IndexError) as error:
        # What a length cuts, a template that takes no parts, and placeholders that images are missing for.
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OptionError(
            f"images: no batch can be made of the first rows with images: {first}; see sequence_len, the "
            "chat template and the placeholders of the rows"
        ) from error


def prompt_inputs(trainer: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the model inputs of prompts to sample from."""
    from trl.data_utils import prepare_multimodal_messages

    prompts = [prepare_multimodal_messages(row["prompt"], images=row[IMAGES]) for row in rows]
    ids, _, fields = trainer._tokenize_prompts(prompts)
    return {"input_ids": ids, **fields}


def _has_no_image_token(processor: Any, inputs: Mapping[str, Any]) -> bool:
    token = getattr(processor, "image_token_id", None)
    tokenizer = processor.tokenizer
    named = getattr(tokenizer, "image_token", None)
    tokens = {token, tokenizer.convert_tokens_to_ids(named) if isinstance(named, str) else None}
    known = tokens - {None}
    return bool(known) and known.isdisjoint(chain.from_iterable(_rows(inputs["input_ids"])))


def _rows(value: Any) -> list[list[int]]:
    rows: list[list[int]] = value.tolist() if hasattr(value, "tolist") else value
    return rows


def are_same(one: object, other: object) -> bool:
    """Return whether two inputs are equal, whatever they are made of."""
    import torch

    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(are_same(one[n], other[n]) for n in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(are_same, one, other))
    if hasattr(one, "tolist") and hasattr(other, "tolist"):
        return bool(one.tolist() == other.tolist())
    return one == other
