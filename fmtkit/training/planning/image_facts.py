"""Whether converted rows have images, and what is said of those that a trainer cannot take.

Plans and training processes ask this; the latter load nothing that converts or renders.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.image_columns import IMAGES
from fmtkit.core.runner import Runner, methods
from fmtkit.training.planning.job import Source

if TYPE_CHECKING:
    import pyarrow.parquet as pq

NO_TOOLS: tuple[object, ...] = (None, "", "[]", [])
"""Values of the column tools in rows that have none."""
ONE_MASK = (
    "which turns of rows with images are trained on cannot be chosen: TRL's collator trains on every reply; "
    "leave roles_to_train, train_on_eos and the messages' own flags out"
)
"""What is said of rows with images and a choice of turns."""


def has_column(schema: pa.Schema) -> bool:
    """Return whether rows have the images that fmtkit converts, not a column of that name carried through."""
    index = schema.get_field_index(IMAGES)
    if index < 0 or not pa.types.is_list(schema.field(index).type):
        return False
    inside = schema.field(index).type.value_type
    return pa.types.is_struct(inside) and {field.name for field in inside} == {"bytes", "path"}


def are_in(sources: Sequence[Source]) -> bool:
    """Return whether a row of these converted files has an image, in a column that the trainer gets."""
    import pyarrow.parquet as pq

    files = [
        file
        for source in sources
        for file in source.files
        if not source.columns or IMAGES in source.columns
    ]
    return any(_has_image(pq.ParquetFile(file)) for file in files)


def _has_image(parquet: "pq.ParquetFile") -> bool:
    if not has_column(parquet.schema_arrow):
        return False
    names = (parquet.schema.column(i).path for i in range(len(parquet.schema)))
    # The paths are small: no image is read to count them.
    paths = [n for n in names if n.startswith(f"{IMAGES}.") and n.endswith(".path")]
    batches = parquet.iter_batches(columns=paths or [IMAGES])
    return any(pc.sum(pc.list_value_length(batch.column(IMAGES))).as_py() for batch in batches)


def no_path(runner: Runner) -> str:
    """Return the refusal of rows with images for a method whose trainer ignores them."""
    able = methods(lambda one: one.takes_images)
    return f"{runner.method}: the rows have images, and its trainer trains without them; use {able}"


def mixed(method: str, without: int, rows: int) -> str:
    """Return the refusal of rows without images for a method whose trainer cannot mix both."""
    return (
        f"{method}: {without:,} of {rows:,} rows have no image, and TRL's trainer cannot mix them with rows "
        "that have: leave them out, or use rl: rloo"
    )


def rows_with_images(table: pa.Table) -> int:
    """Return how many rows of a table have an image."""
    if not has_column(table.schema):
        return 0
    lengths = pc.fill_null(pc.list_value_length(table.column(IMAGES)), 0)
    return int(pc.sum(pc.greater(lengths, 0)).as_py() or 0)
