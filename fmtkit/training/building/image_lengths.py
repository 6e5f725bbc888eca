"""Rows with images are left out if they are longer than `max_length`: a trainer would cut an image in half.

A row's length is that of the rendered text, with each placeholder as the tokens of its image
(`images.visual_tokens`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fmtkit.core.errors import ImageError, OptionError
from fmtkit.core.image_columns import IMAGES
from fmtkit.images import headers, visual_tokens
from fmtkit.training.data.image_rows import ImageSize, without_nulls
from fmtkit.training.planning.job import Job

_SIDES = ("prompt", "completion", "chosen", "rejected")
_ADVICE = "raise sequence_len, or make images smaller by image_max_pixels"


def within(rows: Any, job: Job, processor: Any, note: Callable[[str], None]) -> Any:
    """Return the rows that have at most `max_length` tokens; `note` gets a sentence about the others.

    Images are still stored bytes here.

    Raises OptionError where none is left.
    """
    limit = job.max_length
    if rows is None or limit is None:
        return rows
    measure = Measure(job, processor)
    kept: list[int] = []
    refused = ""
    for index, row in enumerate(rows):
        try:
            if measure.length(row) <= limit:
                kept.append(index)
        except ImageError as error:
            refused = refused or f"; of row {index} an image is refused: {error}"
    if len(kept) == len(rows):
        return rows
    if not kept:
        raise OptionError(
            f"sequence_len: no row has at most {limit:,} tokens with its images{refused}; {_ADVICE}"
        )
    left_out = len(rows) - len(kept)
    note(
        f"{left_out:,} of {len(rows):,} rows have more than {limit:,} tokens with their images, and are left "
        f"out{refused}; {_ADVICE}"
    )
    return rows.select(kept)


class Measure:
    """Counts the tokens of rows with images, as the processor of a run will make them."""

    def __init__(self, job: Job, processor: Any) -> None:
        """Take the run and its processor."""
        self._job, self._processor = job, processor
        self._size = ImageSize.of(job)
        self._counted: dict[tuple[int, int], int] = {}

    def length(self, row: Mapping[str, Any]) -> int:
        """Return the number of tokens of a row; raise ImageError for an image that the processor refuses."""
        images = row[IMAGES] or ()
        visual = sum(self._image_length(self._size.result(*_size_of(image))) for image in images)
        return self._text_length(row, len(images)) - len(images) + visual

    def _image_length(self, size: tuple[int, int]) -> int:
        if size not in self._counted:
            if self.rule is not None:
                self._counted[size] = self.rule.count(*size).total
            else:
                (self._counted[size],) = visual_tokens.counted_by(self._processor, [size])
        return self._counted[size]

    @cached_property
    def rule(self) -> visual_tokens.Rule | None:
        """Return the rule of the model's processor; None without one, or if `processor_kwargs` are set."""
        folder = Path(self._job.model).expanduser()
        if self._job.setting("processor_kwargs") or not folder.is_dir():
            return None
        return visual_tokens.rule_of(folder, blank_line=len(self._ids("\n\n")))

    def _ids(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self._processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _text_length(self, row: Mapping[str, Any], images: int) -> int:
        """Count the tokens of the text, one for each placeholder; of two replies the longer one counts."""
        from trl.data_utils import apply_chat_template, prepare_multimodal_messages

        stand_ins = [None] * images
        if row.get("messages") is not None:
            messages = prepare_multimodal_messages(without_nulls(row["messages"]), images=stand_ins)
            text = self._processor.apply_chat_template(messages, tokenize=False)
            return len(self._ids(text))
        sides = {name: without_nulls(row[name]) for name in _SIDES if row.get(name) is not None}
        given = {
            name: prepare_multimodal_messages(side, images=stand_ins if name == "prompt" else None)
            for name, side in sides.items()
        }
        texts = apply_chat_template(given, self._processor)
        prompt, *replies = (len(self._ids(texts[name])) for name in given)
        return prompt + max(replies, default=0)


def _size_of(image: Mapping[str, Any]) -> tuple[int, int]:
    """Return the width and height of a stored image, `{bytes, path}`, from its header alone."""
    data = image["bytes"]
    header = (
        headers.read_file_header(Path(image["path"])) if data is None else headers.read_header(data)
    )
    return header.width, header.height
