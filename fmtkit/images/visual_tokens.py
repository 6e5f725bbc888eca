"""How many tokens of a prompt an image becomes, from its size and a processor's configuration, without torch.

The rules are read off the processors of transformers 5.23 (`image_processing_pil_*` and `processing_*` of
each family) and compared in tests with what these make of 200 sizes:

- Qwen2-VL, Qwen2.5-VL, Qwen3-VL: sides rounded to multiples of a patch's, the area within bounds.
- LLaVA: fixed by the side of the crop. LLaVA-NeXT: the best of its grids, without what is padding there.
- Idefics3, SmolVLM: one part for each tile, and one for the whole image.
- Gemma 3: fixed; the processor never pans and scans, even where the configuration of its images says so.
- InternVL: one part for each tile of the grid whose proportions are nearest, and one for the whole image.

Where there is no rule `rule_of` returns None, and `counted_by` asks a loaded processor.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VisualTokens:
    """The tokens that the placeholder of one image becomes."""

    image: int
    """Those that carry the image."""
    around: int = 0
    """Others that the processor writes with them: marks of rows, of beginning and end."""

    @property
    def total(self) -> int:
        """Return how many tokens stand in the prompt in place of the placeholder."""
        return self.image + self.around


class Rule(Protocol):
    """How a family of models counts."""

    placeholder: ClassVar[str]
    """The token that a chat template writes for an image, which the others replace."""

    def count(self, width: int, height: int) -> VisualTokens:
        """Return the tokens of an image of that size in pixels, as it is shown (`Header.width`).

        Raises:
            ImageError: The processor refuses the size.
        """
        ...


@dataclass(frozen=True)
class QwenRule:
    """Qwen2-VL and its successors: `smart_resize`, then patches that are merged."""

    placeholder: ClassVar[str] = "<|image_pad|>"
    patch: int
    merge: int
    least: int
    """Pixels of the resized image, at least."""
    most: int
    MOST_ASPECT: ClassVar[int] = 200

    def count(self, width: int, height: int) -> VisualTokens:
        aspect = max(width, height) / min(width, height)
        if aspect > self.MOST_ASPECT:
            raise ImageError(
                f"{width} x {height} pixels: one side is {aspect:.0f} times the other, and Qwen's processor "
                f"refuses more than {self.MOST_ASPECT}"
            )
        factor = self.patch * self.merge
        high, wide = round(height / factor) * factor, round(width / factor) * factor
        if high * wide > self.most:
            shrink = math.sqrt(height * width / self.most)
            high = max(factor, math.floor(height / shrink / factor) * factor)
            wide = max(factor, math.floor(width / shrink / factor) * factor)
        elif high * wide < self.least:
            grow = math.sqrt(self.least / (height * width))
            high = math.ceil(height * grow / factor) * factor
            wide = math.ceil(width * grow / factor) * factor
        return VisualTokens((high // self.patch) * (wide // self.patch) // self.merge**2)


@dataclass(frozen=True)
class FixedRule:
    """LLaVA: each image is cropped to the same size."""

    placeholder: ClassVar[str] = "<image>"
    tokens: int

    def count(self, width: int, height: int) -> VisualTokens:  # noqa: ARG002
        return VisualTokens(self.tokens)


@dataclass(frozen=True)
class Gemma3Rule:
    """Gemma 3: fixed, between blank lines."""

    placeholder: ClassVar[str] = "<start_of_image>"
    tokens: int
    blank_line: int

    def count(self, width: int, height: int) -> VisualTokens:  # noqa: ARG002
        return VisualTokens(self.tokens, 2 + 2 * self.blank_line)


@dataclass(frozen=True)
class LlavaNextRule:
    """LLaVA-NeXT: tiles of the best grid without its padding, a token for each line, and the whole image."""

    placeholder: ClassVar[str] = "<image>"
    high: int
    """Pixels of a tile."""
    wide: int
    patch: int
    grids: tuple[tuple[int, int], ...]
    """Height and width of each grid in pixels."""
    added: int
    """Tokens that the vision model adds to a tile, less one that is left out."""

    def count(self, width: int, height: int) -> VisualTokens:
        grid_high, grid_wide = best_grid(width, height, self.grids)
        lines, columns = self.high // self.patch, self.wide // self.patch
        rows, cells = lines * (grid_high // self.high), columns * (grid_wide // self.wide)
        if width / height > cells / rows:
            rows -= (rows - int(round(height * (cells / width), 7))) // 2 * 2
        else:
            cells -= (cells - int(round(width * (rows / height), 7))) // 2 * 2
        return VisualTokens(rows * cells + rows + lines * columns + self.added)


def best_grid(width: int, height: int, grids: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Return the grid (height, width in pixels) that keeps most of an image's pixels and wastes least."""

    def worth(grid: tuple[int, int]) -> tuple[int, int]:
        high, wide = grid
        scale = min(wide / width, high / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - high * wide

    return max(grids, key=worth)


@dataclass(frozen=True)
class TilesRule:
    """Idefics3 and SmolVLM: resized to the longest side, then tiles in rows, each with marks."""

    placeholder: ClassVar[str] = "<image>"
    tokens: int
    """Of each tile."""
    longest: int | None
    """Pixels of the longer side before it is divided; None where images are not resized."""
    tile: int
    splits: bool
    blank_line: int
    MOST: ClassVar[int] = 4096

    def count(self, width: int, height: int) -> VisualTokens:
        rows, columns = self.grid(width, height)
        if not rows:
            return VisualTokens(self.tokens, 3)
        around = 2 * rows * columns + (rows - 1) + self.blank_line + 3
        return VisualTokens(self.tokens * (rows * columns + 1), around)

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Return the rows and columns of tiles; (0, 0) for an image in one part."""
        if not self.splits:
            return 0, 0
        if self.longest is not None:
            width, height = _with_longer_side(width, height, self.longest)
            if max(width, height) > self.MOST:
                width, height = _cut_to(width, height, self.MOST)
        # Proportions as floats, at each step those of what the last one made, as the processor has them.
        aspect = width / height
        if width >= height:
            width = self._whole(width)
            height = self._whole(int(width / aspect))
        else:
            height = self._whole(height)
            width = self._whole(int(height * aspect))
        if max(width, height) <= self.tile:
            return 0, 0
        return height // self.tile, width // self.tile

    def _whole(self, side: int) -> int:
        return math.ceil(side / self.tile) * self.tile


def _cut_to(width: int, height: int, longest: int) -> tuple[int, int]:
    aspect = width / height
    if width >= height:
        return longest, max(int(longest / aspect), 1)
    return max(int(longest * aspect), 1), longest


def _with_longer_side(width: int, height: int, longest: int) -> tuple[int, int]:
    """Return a size of the same proportions, the shorter side rounded up to an even number."""
    aspect = width / height
    if width >= height:
        short = int(longest / aspect)
        return longest, max(short + short % 2, 1)
    short = int(longest * aspect)
    return max(short + short % 2, 1), longest


@dataclass(frozen=True)
class InternRule:
    """InternVL: tiles of the grid whose proportions are nearest, and the whole image where it is divided."""

    placeholder: ClassVar[str] = "<IMG_CONTEXT>"
    tokens: int
    """Of each tile."""
    high: int
    wide: int
    least: int
    """Tiles of a grid."""
    most: int

    def count(self, width: int, height: int) -> VisualTokens:
        columns, rows = self._grid(width, height) if self.most > 1 else (1, 1)
        tiles = columns * rows + 1 if columns * rows > 1 else 1
        return VisualTokens(self.tokens * tiles, 2)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        best, least = (1, 1), math.inf
        for columns, rows in _grids(self.least, self.most):
            distance = abs(width / height - columns / rows)
            # Of equal proportions more tiles, unless they are more than twice the image.
            is_filled = width * height > 0.5 * self.high * self.wide * columns * rows
            if distance < least or (distance == least and is_filled):
                best, least = (columns, rows), distance
        return best


@lru_cache(maxsize=16)
def _grids(least: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return columns and rows of all grids of so many tiles, the smaller ones first."""
    sides = range(1, most + 1)
    found = [(wide, high) for wide in sides for high in sides if least <= wide * high <= most]
    return tuple(sorted(found, key=lambda grid: grid[0] * grid[1]))


def rule_of(folder: Path, *, blank_line: int = 1) -> Rule | None:
    """Return how the model in a folder counts images; None where its processor has no rule here.

    Reads `processor_config.json`, `preprocessor_config.json` and `config.json`, where they are there.

    Args:
        folder: A folder of a model, with its processor.
        blank_line: Tokens that its tokenizer makes of two line breaks in a row, which Idefics3 and Gemma 3
            write around images.

    Raises:
        ImageError: One of the files cannot be read.
    """
    whole, own, model = (
        _read(folder / name)
        for name in ("processor_config.json", "preprocessor_config.json", "config.json")
    )
    # As transformers has it: the other file does not count beside the nested configuration.
    images = _mapping(whole.get("image_processor")) or own
    name = whole.get("processor_class") or own.get("processor_class")
    known = _OF_PROCESSOR if name else _OF_MODEL
    make = known.get(str(name or model.get("model_type")))
    kind = str(images.get("image_processor_type") or "").removesuffix("Fast").removesuffix("Pil")
    if make is None or (kind and kind not in _KINDS[make]):
        return None
    try:
        return make({**own, **whole, "blank_line": blank_line}, images)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        # Values that no release of a model has; its processor says what it makes of them.
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(_mapping(json.loads(path.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ImageError(f"{path} cannot be read: {error}") from error


def _mapping(value: object) -> Config:
    return value if isinstance(value, dict) else {}


def _number(config: Config, name: str, default: int | None = None) -> int:
    """Return a number above 0; raise ValueError for any other, KeyError where it is missing."""
    value = config.get(name)
    value = default if value is None else value
    if value is None:
        raise KeyError(name)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(name)
    return value


def _square(value: object) -> Config:
    """Return a size that a configuration may write as one number."""
    return {"height": value, "width": value} if isinstance(value, int) else _mapping(value)


def _qwen(_: Config, images: Config) -> Rule:
    size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
    size = dict(_mapping(images.get("size"))) or size
    least = images.get("min_pixels") or size.get("shortest_edge")
    most = images.get("max_pixels") or size.get("longest_edge")
    sides = {"least": least, "most": most}
    patch, merge = _number(images, "patch_size", 14), _number(images, "merge_size", 2)
    if images.get("do_resize") is False:
        raise ValueError("do_resize")
    return QwenRule(patch, merge, _number(sides, "least"), _number(sides, "most"))


def _added(processor: Config) -> int:
    """Return what LLaVA adds to the tokens of its patches."""
    added = processor.get("num_additional_image_tokens") or 0
    return int(added) - (processor.get("vision_feature_select_strategy") == "default")


def _tile(images: Config) -> tuple[int, int]:
    """Return height and width of what LLaVA's vision model gets."""
    is_siglip = str(images.get("image_processor_type")).startswith("Siglip")
    if images.get("do_center_crop", not is_siglip):
        size = _square(images.get("crop_size") or {"height": 224, "width": 224})
    else:
        size = _square(images.get("size"))
    return _number(size, "height"), _number(size, "width")


def _llava(processor: Config, images: Config) -> Rule:
    patch = _number(processor, "patch_size")
    high, wide = _tile(images)
    return FixedRule((high // patch) * (wide // patch) + _added(processor))


def _llava_next(processor: Config, images: Config) -> Rule:
    grids = images.get("image_grid_pinpoints") or [
        *([336, 672], [672, 336], [672, 672]),
        *([1008, 336], [336, 1008]),
    ]
    found = tuple((int(high), int(wide)) for high, wide in grids)
    return LlavaNextRule(*_tile(images), _number(processor, "patch_size"), found, _added(processor))


def _tiles(processor: Config, images: Config) -> Rule:
    size = _mapping(images.get("size") or {"longest_edge": 4 * 364})
    tile = _mapping(images.get("max_image_size") or {"longest_edge": 364})
    return TilesRule(
        _number(processor, "image_seq_len", 169),
        None if images.get("do_resize") is False else _number(size, "longest_edge"),
        _number(tile, "longest_edge"),
        images.get("do_image_splitting") is not False,
        _number(processor, "blank_line"),
    )


def _gemma3(processor: Config, _: Config) -> Rule:
    return Gemma3Rule(_number(processor, "image_seq_length", 256), _number(processor, "blank_line"))


def _intern(processor: Config, images: Config) -> Rule:
    size = _square(images.get("size") or {"height": 384, "width": 384})
    return InternRule(
        _number(processor, "image_seq_length", 256),
        _number(size, "height"),
        _number(size, "width"),
        _number(images, "min_patches", 1),
        _number(images, "max_patches", 12),
    )


_Maker = Callable[[Config, Config], Rule]
_OF_PROCESSOR: dict[str, _Maker] = {
    "Qwen2VLProcessor": _qwen,
    "Qwen2_5_VLProcessor": _qwen,
    "Qwen3VLProcessor": _qwen,
    "LlavaProcessor": _llava,
    "LlavaNextProcessor": _llava_next,
    "Idefics3Processor": _tiles,
    "SmolVLMProcessor": _tiles,
    "Gemma3Processor": _gemma3,
    "InternVLProcessor": _intern,
}
"""The class that a processor's configuration names -> what makes its rule."""
_OF_MODEL: dict[str, _Maker] = {
    "qwen2_vl": _qwen,
    "qwen2_5_vl": _qwen,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "llava": _llava,
    "llava_next": _llava_next,
    "idefics3": _tiles,
    "smolvlm": _tiles,
    "gemma3": _gemma3,
    "internvl": _intern,
}
"""The type of a model whose processor names no class."""
_KINDS: dict[_Maker, tuple[str, ...]] = {
    _qwen: ("Qwen2VLImageProcessor",),
    _llava: ("CLIPImageProcessor", "LlavaImageProcessor", "SiglipImageProcessor"),
    _llava_next: ("LlavaNextImageProcessor",),
    _tiles: ("Idefics3ImageProcessor", "SmolVLMImageProcessor"),
    _gemma3: ("Gemma3ImageProcessor",),
    _intern: ("GotOcr2ImageProcessor",),
}
"""The image processors, as they are named, for which each rule holds."""


def counted_by(processor: Any, sizes: Sequence[tuple[int, int]]) -> list[int]:
    """Return the tokens that a loaded processor puts in place of one image, for each width and height.

    It is given a black image of each size, so that this holds for any processor; needs Pillow, and takes as
    long as an image of a batch.

    Raises:
        ImageError: The processor refuses a size; the message has what it says.
    """
    from PIL import Image

    tokenizer = processor.tokenizer
    placeholder = getattr(processor, "boi_token", None) or getattr(processor, "image_token", None)
    if not isinstance(placeholder, str):
        raise ImageError(f"{type(processor).__name__} names no token for an image")
    # With the tokens that begin and end every text.
    bare = len(tokenizer(placeholder)["input_ids"]) - 1
    counted: dict[tuple[int, int], int] = {}
    for size in sizes:
        if size in counted:
            continue
        try:
            made = processor(text=[placeholder], images=[[Image.new("RGB", size)]])
        except (ValueError, TypeError, IndexError, ZeroDivisionError) as error:
            said = " ".join(str(error).split())
            raise ImageError(
                f"the processor refuses {size[0]} x {size[1]} pixels: {said}"
            ) from error
        counted[size] = len(made["input_ids"][0]) - bare
    return [counted[size] for size in sizes]
