"""How many tokens the images of rows become in a model's input, from their headers: nothing is decoded.

A template writes a placeholder for an image, which the processor replaces. So the tokens of a row are those
of its text, and for each image what the processor writes beyond the placeholder.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from fmtkit.core import buffers
from fmtkit.core.buffers import Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError
from fmtkit.images.headers import Header, read_file_header, read_header
from fmtkit.images.visual_tokens import Rule, rule_of
from fmtkit.tokenizers.tokens import Tokenizer

ASKED = ("messages", "text", "prompt")
"""Texts in which images are; `prompt` also where a reply follows it."""


@dataclass(frozen=True)
class VisualCounter:
    """How the tokens of images are counted for one model."""

    rule: Rule
    in_text: int = 1
    """Tokens of an image that its text has already: the placeholder, where a template writes one."""


def visual_counter(folder: str, tokenizer: Tokenizer, image: str | None) -> VisualCounter | str:
    """Return how the images of rows are counted, or why they are not, in words.

    Args:
        folder: The tokenizer as it was named: of a folder, its processor is read.
        tokenizer: The tokenizer.
        image: What the template writes for an image; None where there is no template.

    Raises:
        ImageError: The configuration of the processor cannot be read.
    """
    path = Path(folder)
    if not path.is_dir():
        return (
            f"{folder} is no folder, so there is no processor by which tokens of images are counted"
        )
    rule = rule_of(path, blank_line=len(tokenizer.encode("\n\n").ids))
    if rule is None:
        return f"{folder} has no processor whose tokens of images can be counted from their sizes"
    if image is not None and rule.placeholder not in image:
        return (
            f"the template does not write {rule.placeholder}, which the model's processor replaces"
        )
    return VisualCounter(rule, in_text=int(image is not None))


@dataclass(frozen=True)
class ImageCounts:
    """The images of the rows of a table."""

    per_row: Int64s
    visual: Int64s
    """Tokens of each row's images; 0 where they are not counted, or refused by the processor."""
    added: Int64s
    """Those of them that are not in the row's text."""
    headers: tuple[tuple[int, Header], ...]
    """Row and header of each image."""
    refused: Mapping[int, str]
    """Row -> why the processor refuses one of its images."""


def count_images(images: pa.Array, counter: VisualCounter | None) -> ImageCounts:
    """Read the headers of the images of rows (`core.image_columns`), and count their tokens.

    Raises:
        ImageError: A file of which the row has the path is there no longer.
    """
    size = len(images)
    per_row, visual, added = (np.zeros(size, np.int64) for _ in range(3))
    headers: list[tuple[int, Header]] = []
    refused: dict[int, str] = {}
    for row, data, path in images_of(images):
        header = read_header(data) if data is not None else read_file_header(Path(path or ""))
        headers.append((row, header))
        per_row[row] += 1
        if counter is None:
            continue
        try:
            total = counter.rule.count(header.width, header.height).total
        except ImageError as error:
            refused.setdefault(row, str(error))
            continue
        visual[row] += total
        added[row] += total - counter.in_text
    return ImageCounts(per_row, visual, added, tuple(headers), refused)


def images_of(images: pa.Array) -> Iterator[tuple[int, memoryview | None, str | None]]:
    """Yield the row, the bytes and the path of each image of rows, without a copy."""
    sizes = np.diff(buffers.offsets_of(images)) * buffers.validity(images)
    rows = np.repeat(np.arange(len(images)), sizes).tolist()
    flat = images.flatten()
    paths = flat.field("path").to_pylist()
    for row, stored, path in zip(rows, flat.field("bytes"), paths, strict=True):
        held = stored.as_buffer()
        yield row, None if held is None else memoryview(held), path


def with_images(columns: Mapping[str, Int64s], added: Int64s) -> dict[str, Int64s]:
    """Return lengths of texts by name with the tokens of their rows' images."""
    return {
        name: sizes + added if name in ASKED or name.startswith("prompt+") else sizes
        for name, sizes in columns.items()
    }
