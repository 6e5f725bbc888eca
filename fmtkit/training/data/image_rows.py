"""Rows with images, as trainers take them: stored bytes until a batch is drawn, then pictures of one size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.tables import CONVERSATION_COLUMNS
from fmtkit.training.data import tokenized_rows
from fmtkit.training.planning.image_facts import NO_TOOLS, ONE_MASK, has_column, mixed

if TYPE_CHECKING:
    from fmtkit.core.runner import Runner
    from fmtkit.training.planning.job import Job

ALGORITHMS = ("bilinear", "bicubic", "lanczos")
"""Values of `image_resize_algorithm`, which Pillow has too."""


def as_stored(rows: Any) -> Any:
    """Return rows whose images are bytes, which every step until the trainer passes on unchanged."""
    from datasets import Image, List

    if not has_column(rows.features.arrow_schema):
        return rows
    return rows.cast_column(IMAGES, List(Image(decode=False)))


def without_column(rows: Any) -> Any:
    """Return rows without the column, where no row of a run has an image."""
    if rows is None or IMAGES not in rows.column_names:
        return rows
    return rows.remove_columns(IMAGES)


def check(rows: Any, runner: Runner) -> None:
    """Raise OptionError for rows with images that TRL's trainers would read otherwise than they say."""
    columns = {*rows.column_names}
    marks = {tokenized_rows.COLUMN, tokenized_rows.RULE_COLUMN, "segments"}
    if marks & columns:
        raise OptionError(f"datasets: {ONE_MASK}")
    if {"messages", "prompt"} <= columns:
        raise OptionError(
            "datasets: rows with images are either messages or prompts with completions: TRL's collator "
            "takes one kind; give them to runs of their own"
        )
    if {"messages", "tools"} <= columns and _has_tools(rows):
        raise OptionError(
            "datasets: TRL's collator does not render the tools of messages with images; remove the "
            "column tools, or write rows of prompt and completion"
        )
    if not runner.mixes_images:
        without = _count_without(rows)
        if without:
            raise OptionError(mixed(runner.method, without, len(rows)))


def _has_tools(rows: Any) -> bool:
    return any(value not in NO_TOOLS for value in rows.select_columns(["tools"])["tools"])


def _count_without(rows: Any) -> int:
    import pyarrow.compute as pc

    if IMAGES not in rows.column_names:
        return len(rows)
    lengths = pc.fill_null(pc.list_value_length(rows.data.column(IMAGES)), 0)
    if rows._indices is not None:
        lengths = lengths.take(rows._indices.column(0))
    return int(pc.sum(pc.equal(lengths, 0)).as_py() or 0)


@dataclass(frozen=True)
class ImageSize:
    """To which size an image is brought before the model's processor sees it."""

    size: int | tuple[int, int] | None = None
    """A square that is filled up with black, or (width, height), as axolotl reads `image_size`."""
    algorithm: str = "bilinear"
    most: int | None = None
    """Pixels above which an image is made smaller, as LLaMA-Factory reads `image_max_pixels`."""
    least: int | None = None

    @classmethod
    def of(cls, job: Job) -> ImageSize:
        """Return the size that the keys of a run say."""
        size, most, least = (
            job.setting(f"image_{name}") for name in ("size", "max_pixels", "min_pixels")
        )
        if isinstance(size, list):
            size = (int(size[0]), int(size[1]))
        return cls(
            size if isinstance(size, int | tuple) else None,
            str(job.setting("image_resize_algorithm") or "bilinear"),
            most if isinstance(most, int) else None,
            least if isinstance(least, int) else None,
        )

    def apply(self, image: Any) -> Any:
        """Return an image of this size; the same one where it has it."""
        from PIL import Image, ImageOps

        method = Image.Resampling[self.algorithm.upper()]
        if isinstance(self.size, int):
            square = (self.size, self.size)
            image = ImageOps.pad(image.convert("RGB"), square, method=method, color=(0, 0, 0))
        elif self.size is not None and image.size != self.size:
            image = image.resize(self.size, method)
        wanted = self._bounded(*image.size)
        return image if image.size == wanted else image.resize(wanted, method)

    def result(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height to which an image of this size is brought."""
        if isinstance(self.size, int):
            width = height = self.size
        elif self.size is not None:
            width, height = self.size
        return self._bounded(width, height)

    def _bounded(self, width: int, height: int) -> tuple[int, int]:
        for limit, is_beyond in ((self.most, int.__gt__), (self.least, int.__lt__)):
            if limit is not None and is_beyond(width * height, limit):
                factor = math.sqrt(limit / (width * height))
                width, height = max(1, int(width * factor)), max(1, int(height * factor))
        return width, height


def for_trainer(rows: Any, size: ImageSize) -> Any:
    """Return rows whose images are decoded when a batch draws them; a row without any has an empty list."""
    from datasets import Image, List

    if rows is None:
        return None
    if IMAGES not in rows.column_names:
        rows = rows.add_column(IMAGES, [[]] * len(rows))
    return rows.cast_column(IMAGES, List(Image())).with_transform(partial(_drawn, size=size))


def _drawn(batch: Mapping[str, list[Any]], *, size: ImageSize) -> dict[str, list[Any]]:
    out = dict(batch)
    if IMAGES in out:
        out[IMAGES] = [[size.apply(image) for image in row or ()] for row in out[IMAGES]]
    for name in CONVERSATION_COLUMNS:
        if name in out:
            out[name] = [without_nulls(messages) for messages in out[name]]
    return out


def without_nulls(messages: Any) -> Any:
    """Return messages whose parts have no null: templates and TRL take a key that is there for a value."""
    if not isinstance(messages, list):
        return messages
    return [{**message, "content": _parts(message.get("content"))} for message in messages]


def _parts(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [{key: value for key, value in part.items() if value is not None} for part in content]
