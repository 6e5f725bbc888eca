"""Places of images: where the messages of rows show an image, and whether there is one for each place.

Sources mark a place by a part of a content, by `<image>` in the text of a user (LLaVA, LLaMA-Factory,
ms-swift, verl), or not at all: then the images come first in the first user turn, where TRL puts them. In a
canonical text each place is an IMAGE. Replies have no images: TRL's trainers take none there.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.columns.flat_messages import FlatMessages, flatten, keys_of, lists_of
from fmtkit.columns.image_values import PLACEHOLDER, RowImages
from fmtkit.core import buffers
from fmtkit.core.buffers import Bools, Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import IMAGE
from fmtkit.sources.marks import Media

REPLIES = ("completion", "chosen", "rejected", "replies")


@dataclass(frozen=True)
class Problem:
    """Why the images of a row do not match the places where it shows one; `column` is where to look."""

    column: str
    message: str


class Places:
    """The places of images in canonical rows."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.column = "prompt" if "prompt" in table.schema.names else "messages"

    @cached_property
    def _flat(self) -> FlatMessages[pa.StructArray]:
        return flatten(self._table.column(self.column))

    @cached_property
    def _contents(self) -> pa.StringArray:
        contents: pa.StringArray = keys_of(self._flat.messages)["content"]
        return contents

    @cached_property
    def _asking(self) -> Bools:
        """Return which messages are a user's."""
        return self._by("user")

    def _by(self, speaker: str) -> Bools:
        roles = keys_of(self._flat.messages)["role"].to_pylist()
        return np.fromiter((role == speaker for role in roles), np.bool_, len(roles))

    @cached_property
    def marked(self) -> Int64s:
        """Count the places that parts mark in each row."""
        return self._by_row(_occurrences(self._contents, IMAGE))

    @cached_property
    def written(self) -> Int64s:
        """Count the places that the texts of users mark in each row."""
        return self._by_row(_occurrences(self._contents, PLACEHOLDER) * self._asking)

    @cached_property
    def asked(self) -> Int64s:
        """Count the turns of users of each row."""
        return self._by_row(self._asking.astype(np.int64))

    def _by_row(self, counts: Int64s) -> Int64s:
        found: Int64s = np.bincount(
            self._flat.rows, weights=counts, minlength=self._table.num_rows
        ).astype(np.int64)
        return found

    @cached_property
    def in_replies(self) -> dict[str, Int64s]:
        """Count the places in what the assistant says in each row, by column."""
        names = [name for name in REPLIES if name in self._table.schema.names]
        found = {name: _in_column(self._table.column(name)) for name in names}
        said = _occurrences(self._contents, IMAGE) * self._by("assistant")
        return {self.column: self._by_row(said), **found}

    def check(self, row: int, given: RowImages | None) -> Sequence[Media] | Problem:
        """Return the images of a row in the order of their places, or the problem."""
        given = given or RowImages()
        if given.is_marked or (self.marked[row] and not given.are_shown):
            return Problem(
                self.column, "a text has the character U+FDD0, by which images are marked"
            )
        for name, counts in self.in_replies.items():
            if counts[row]:
                return Problem(
                    name, f"{name} has an image in a reply: trainers take them in what is asked"
                )
        marked, written = int(self.marked[row]), int(self.written[row])
        listed, of_parts = given.listed, given.of_parts
        if listed and of_parts and listed != of_parts:
            return Problem(
                IMAGES, f"{_images(len(listed))} listed, and other ones are parts of messages"
            )
        found = of_parts or listed
        if marked or written:
            shown = marked or written
            how = "" if marked else f" by {PLACEHOLDER}"
            if shown != len(found):
                return Problem(
                    IMAGES, f"messages show {_images(shown)}{how}; the row has {len(found)}"
                )
        elif found and not self.asked[row]:
            return Problem(
                self.column, "the row has images, and no turn of a user that could show them"
            )
        return found

    def shown(self, rows: Sequence[int], counts: Sequence[int]) -> pa.Table:
        """Return the table with the places marked in each of these rows, `counts` of them."""
        left = {row: n for row, n in zip(rows, counts, strict=True) if n and not self.marked[row]}
        if not left:
            return self._table
        contents = self._contents.to_pylist()
        starts = self._flat.starts
        for row, count in left.items():
            places = range(starts[row], starts[row] + self._flat.sizes[row])
            asking = [place for place in places if self._asking[place]]
            if self.written[row]:
                for place in asking:
                    contents[place] = contents[place] and contents[place].replace(
                        PLACEHOLDER, IMAGE
                    )
            else:
                contents[asking[0]] = IMAGE * count + (contents[asking[0]] or "")
        messages = self._flat.messages
        index = messages.type.get_field_index("content")
        children = messages.flatten()
        children[index] = buffers.texts(contents)
        made = pa.StructArray.from_arrays(children, fields=list(messages.type))
        lists = lists_of(made, self._flat.sizes, self._flat.valid)
        place = self._table.schema.get_field_index(self.column)
        field = self._table.schema.field(place)
        return self._table.set_column(place, field, lists.cast(field.type))


def _images(count: int) -> str:
    return "one image" if count == 1 else f"{count} images"


def _occurrences(texts: pa.StringArray, mark: str) -> Int64s:
    """Count how often a mark occurs in each text."""
    counts = pc.count_substring(texts, mark).cast(pa.int64())
    return np.where(buffers.validity(counts), buffers.integers(counts), 0)


def _in_column(column: pa.ChunkedArray) -> Int64s:
    """Count the marks of images in each row of a column of conversations, or of lists of those."""
    array = buffers.whole(column)
    if pa.types.is_string(array.type):
        return _occurrences(array, IMAGE)
    if pa.types.is_struct(array.type):
        return _occurrences(keys_of(array)["content"], IMAGE)
    flat = flatten(array) if pa.types.is_struct(array.type.value_type) else None
    inner = flat.messages if flat is not None else array.flatten()
    sizes = np.diff(buffers.offsets_of(array)) * buffers.validity(array)
    rows = np.repeat(np.arange(len(array)), sizes)
    return np.bincount(rows, weights=_in_column(inner), minlength=len(array)).astype(np.int64)
