"""The image stage: the images of rows are looked at and put beside the messages that show them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.columns.flat_messages import flatten, keys_of
from fmtkit.columns.image_values import RowImages
from fmtkit.core import buffers
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError
from fmtkit.core.image_columns import IMAGES, IMAGES_FIELD, StoredImage, images_array
from fmtkit.core.message_keys import IMAGE, in_parts
from fmtkit.core.tables import CONVERSATION_COLUMNS, is_carried
from fmtkit.rendering.content_parts import Cuts
from fmtkit.stages.image_loading import ImageLoader
from fmtkit.stages.image_places import Places, Problem
from fmtkit.stages.text_stage import RowFailure

NONE = RowImages()


@dataclass(frozen=True)
class Shown:
    """Rows with a column of their images, their places in the table before, and what became of the others."""

    table: pa.Table
    kept: np.ndarray
    failures: tuple[RowFailure, ...] = ()

    def cuts(self, records: np.ndarray, cuts: Mapping[int, Cuts]) -> Mapping[int, Cuts]:
        """Return what `cuts` says by record, and the parts of each text of these rows that shows images."""
        found = dict(cuts)
        for name in self.table.schema.names:
            if name not in CONVERSATION_COLUMNS:
                continue
            flat = flatten(self.table.column(name))
            contents = keys_of(flat.messages)["content"]
            shown = buffers.truths(pc.match_substring(contents, IMAGE))
            places = np.flatnonzero(shown)
            texts = contents.take(buffers.int64s(places)).to_pylist()
            for place, text in zip(places.tolist(), texts, strict=True):
                record = int(records[self.kept[flat.rows[place]]])
                found[record] = {**found.get(record, {}), text: tuple(in_parts(text))}
        return found


@dataclass(frozen=True)
class ImageStage:
    """How the images of rows are read, for each source."""

    loaders: tuple[ImageLoader, ...]

    def apply(
        self, source: int, table: pa.Table, records: np.ndarray, images: Mapping[int, RowImages]
    ) -> Shown:
        """Find the images of rows and the places that show them.

        Args:
            source: The source of the rows, by number.
            table: Canonical rows without their images.
            records: The record of each row (int64).
            images: Record -> its images; other records have none.
        """
        places = Places(table)
        loaded: list[Sequence[StoredImage]] = []
        failures: list[RowFailure] = []
        # Rows of one record, such as its pairs, have the same images.
        known: dict[int, Sequence[StoredImage] | ImageError] = {}
        loader = self.loaders[source]
        held_here = (
            images[record] for record in dict.fromkeys(records.tolist()) if record in images
        )
        given = (image for one in held_here for image in (*one.listed, *one.of_parts))
        fetched = loader.fetched(given)
        for row, record in enumerate(records.tolist()):
            found = places.check(row, images.get(record))
            if isinstance(found, Problem):
                failures.append(RowFailure(row, "image_count", found.column, found.message))
                continue
            if record not in known:
                known[record] = loader.load_all(found, fetched)
            held = known[record]
            if isinstance(held, ImageError):
                failures.append(RowFailure(row, held.code, IMAGES, str(held)))
            else:
                loaded.append(held)
        lost = {failure.row for failure in failures}
        kept = np.array([row for row in range(table.num_rows) if row not in lost], np.int64)
        shown = places.shown(kept.tolist(), [len(one) for one in loaded])
        if lost:
            shown = shown.take(buffers.int64s(kept))
        own = sum(not is_carried(name) for name in shown.schema.names)
        shown = shown.add_column(own, IMAGES_FIELD, images_array(loaded))
        return Shown(shown, kept, tuple(failures))

    def parts(
        self, source: int, records: np.ndarray, images: Mapping[int, RowImages], most: int
    ) -> list[int]:
        """Return where to cut rows so that the images of each part, or of a single record, are at most that.

        Args:
            source: The source of the rows, by number.
            records: The record of each row (int64), ascending.
            images: Record -> its images.
            most: Bytes.

        Returns:
            The end of each part; the last is the number of rows.
        """
        loader, ends, held, last = self.loaders[source], list[int](), 0, None
        for row, record in enumerate(records.tolist()):
            if record == last:
                continue
            size = loader.size_of(images.get(record, NONE))
            if held and held + size > most:
                ends.append(row)
                held = 0
            held, last = held + size, record
        return [*ends, len(records)]
