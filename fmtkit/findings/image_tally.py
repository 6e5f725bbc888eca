"""The images of rows: how many there are, their tokens, and what is wrong with them, without decoding."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.core.escaping import counted
from fmtkit.core.image_columns import IMAGES
from fmtkit.counting.lengths import Lengths, Tally, summarize
from fmtkit.counting.visual_counts import ImageCounts, VisualCounter, count_images, images_of
from fmtkit.findings.box_columns import OUTSIDE, Objects, reasons_outside
from fmtkit.findings.findings import Finding, Findings
from fmtkit.images.findings import TRAPS, SameImages, Trap, traps
from fmtkit.images.headers import Header

Ints = npt.NDArray[np.int64]

REFUSED, LOSSES, SAME = "image_refused", "image_losses", "same_images"


@dataclass(frozen=True)
class ImageSummary:
    """The images of all rows."""

    images: int
    rows: int
    """Rows that have images."""
    formats: Mapping[str, int]
    """Format -> images."""
    per_row: Lengths
    """Images of each row."""
    visual_tokens: Lengths | None
    """Tokens that the images of each row become; None where they are not counted."""


@dataclass
class ImageTally:
    """The images of the rows so far."""

    per_row: Tally = field(default_factory=Tally)
    visual: Tally = field(default_factory=Tally)
    formats: Counter[str] = field(default_factory=Counter)
    losses: Counter[Trap] = field(default_factory=Counter)
    """What processors lose or risk -> images."""
    reasons: list[str] = field(default_factory=list)
    """Why a processor refuses an image: the first one."""
    outside: list[str] = field(default_factory=list)
    """Why a box is out of its image: the first one."""
    same: SameImages = field(default_factory=SameImages)

    def add(
        self, table: pa.Table, counter: VisualCounter | None, findings: Findings, records: Ints
    ) -> ImageCounts:
        """Look at the images of a batch; `records` are the rows that it was made of."""
        images = table[IMAGES].combine_chunks()
        counts = count_images(images, counter)
        self.per_row.add(counts.per_row)
        if counter is not None:
            self.visual.add(counts.visual)
        lossy: dict[int, None] = {}
        for row, header in counts.headers:
            self.formats[header.format] += 1
            for loss in traps(header):
                self.losses[loss] += 1
                lossy[row] = None
        for _, data, path in images_of(images):
            self.same.add(data if data is not None else (path or "").encode())
        self.reasons = self.reasons or [*counts.refused.values()][:1]
        for code, rows in ((REFUSED, sorted(counts.refused)), (LOSSES, sorted(lossy))):
            if rows:
                findings.note(code, records[rows])
        return counts

    def add_boxes(
        self, counts: ImageCounts, objects: Objects, findings: Findings, records: Ints
    ) -> None:
        """Look at the boxes of a batch, `objects` by record, in the images that were counted."""
        if not objects:
            return
        headers: dict[int, list[Header]] = {}
        for row, header in counts.headers:
            headers.setdefault(row, []).append(header)
        found = {
            row: reasons
            for row, record in enumerate(records.tolist())
            if (reasons := reasons_outside(objects.get(record, {}), headers.get(row, [])))
        }
        if found:
            self.outside = self.outside or next(iter(found.values()))[:1]
            findings.note(OUTSIDE, records[sorted(found)])

    def absorb(self, other: "ImageTally") -> None:
        """Add the images of more rows."""
        self.per_row.absorb(other.per_row)
        self.visual.absorb(other.visual)
        self.formats.update(other.formats)
        self.losses.update(other.losses)
        self.reasons = self.reasons or other.reasons
        self.outside = self.outside or other.outside
        self.same.absorb(other.same)

    @property
    def rows(self) -> int:
        """Count the rows that have images."""
        return sum(rows for images, rows in self.per_row.counts.items() if images)

    def summary(self) -> ImageSummary | None:
        """Return what a survey says of them; None where no row can have images."""
        per_row = summarize("images per row", self.per_row)
        if per_row is None:
            return None
        visual = summarize("visual tokens per row", self.visual)
        formats = dict(self.formats.most_common())
        return ImageSummary(per_row.tokens, self.rows, formats, per_row, visual)

    def detailed(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return findings with what is known of the images among them, and those of all images."""
        details: dict[str, dict[str, float | str]] = {
            REFUSED: dict(zip(["such as"], self.reasons, strict=False)),
            OUTSIDE: dict(zip(["such as"], self.outside, strict=False)),
            LOSSES: {
                code: f"in {counted(images, 'image')} ({TRAPS[code]})"
                for code, images in self.losses.most_common()
            },
        }
        found = [
            Finding(one.code, one.count, one.share, one.rows, details[one.code])
            if one.code in details
            else one
            for one in findings
        ]
        if self.same.are_equal:
            rows = sum(self.per_row.counts.values())
            more: dict[str, float | str] = {"images": self.same.count}
            found.append(Finding(SAME, self.rows, self.rows / max(rows, 1), (), more))
        return found
