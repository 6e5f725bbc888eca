"""The tokens of an image, counted from its size, are those that transformers' processors make of it."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from fmtkit.core.errors import ImageError
from fmtkit.images.visual_tokens import VisualTokens, counted_by, rule_of

CELLS = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
SPECIAL = {
    "image_token": "<image>",
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}


def tokenizer(*extra: str, bos: bool = False, merges_lines: bool = True, **special: str) -> Any:
    """Return a tokenizer that knows line breaks and the tokens around images."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "\n", *(["\n\n"] if merges_lines else [])]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    pattern = Regex(r"\n\n|\n|[^\n]" if merges_lines else r"\n|[^\n]")
    made.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
    if bos:
        made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", extra_special_tokens=special
    )
    fast.add_tokens([*extra, *special.values()], special_tokens=True)
    return fast


def without_videos(name: str, images: Any, words: Any, **options: Any) -> Any:
    """Return a processor with a stand-in for its video processor, which would need torchvision."""
    import transformers

    class NoVideos(dict):
        model_input_names = ()
        _auto_class = None

        def to_dict(self) -> dict[str, Any]:
            return {}

    made = getattr(transformers, name)
    body = {"check_argument_for_proper_class": lambda *_: None}
    return type(name, (made,), body)(images, words, NoVideos(), **options)


def qwen(name: str, **options: Any) -> Any:
    from transformers import Qwen2VLImageProcessorPil

    words = tokenizer("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    return without_videos(name, Qwen2VLImageProcessorPil(**options), words)


def llava(*, patch: int = 14, strategy: str = "default", added: int = 1, **options: Any) -> Any:
    from transformers import LlavaImageProcessorPil, LlavaProcessor

    return LlavaProcessor(
        LlavaImageProcessorPil(**options),
        tokenizer("<image>", bos=True),
        patch_size=patch,
        vision_feature_select_strategy=strategy,
        num_additional_image_tokens=added,
    )


def llava_siglip(**options: Any) -> Any:
    from transformers import LlavaProcessor, SiglipImageProcessorPil

    words = tokenizer("<image>")
    return LlavaProcessor(SiglipImageProcessorPil(**options), words, patch_size=14)


def llava_next(*, patch: int = 14, **options: Any) -> Any:
    from transformers import LlavaNextImageProcessorPil, LlavaNextProcessor

    return LlavaNextProcessor(
        LlavaNextImageProcessorPil(**options),
        tokenizer("<image>"),
        patch_size=patch,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def idefics3(*, merges_lines: bool = True, **options: Any) -> Any:
    from transformers import Idefics3ImageProcessorPil, Idefics3Processor

    names = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *CELLS)
    return Idefics3Processor(
        Idefics3ImageProcessorPil(**options),
        tokenizer(*names, merges_lines=merges_lines),
        image_seq_len=4,
    )


def gemma3(*, merges_lines: bool = True, **options: Any) -> Any:
    from transformers import Gemma3ImageProcessorPil, Gemma3Processor

    names = ("image_token", "boi_token", "eoi_token")
    words = tokenizer(
        bos=True, merges_lines=merges_lines, **{name: SPECIAL[name] for name in names}
    )
    return Gemma3Processor(Gemma3ImageProcessorPil(**options), words, image_seq_length=9)


def internvl(**options: Any) -> Any:
    from transformers import GotOcr2ImageProcessorPil

    names = ("start_image_token", "end_image_token", "context_image_token", "video_token")
    words = tokenizer(**{name: SPECIAL[name] for name in names})
    images = GotOcr2ImageProcessorPil(**options)
    return without_videos("InternVLProcessor", images, words, image_seq_length=5)


GRIDS = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]
PROCESSORS: dict[str, Callable[[], Any]] = {
    "qwen2": lambda: qwen("Qwen2VLProcessor", min_pixels=28 * 28, max_pixels=60 * 28 * 28),
    "qwen2.5": lambda: qwen(
        "Qwen2_5_VLProcessor", size={"shortest_edge": 3136, "longest_edge": 50_000}
    ),
    "qwen3": lambda: qwen(
        "Qwen3VLProcessor", patch_size=16, size={"shortest_edge": 4096, "longest_edge": 65_536}
    ),
    "llava": lambda: llava(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 70}),
    "llava full": lambda: llava(
        strategy="full", added=0, do_center_crop=False, size={"height": 42, "width": 28}
    ),
    "llava siglip": lambda: llava_siglip(size={"height": 56, "width": 28}),
    "llava next": lambda: llava_next(
        patch=7,
        size={"shortest_edge": 28},
        crop_size={"height": 28, "width": 28},
        image_grid_pinpoints=GRIDS,
    ),
    "idefics3": lambda: idefics3(size={"longest_edge": 112}, max_image_size={"longest_edge": 28}),
    "idefics3 of uneven tiles": lambda: idefics3(
        size={"longest_edge": 100}, max_image_size={"longest_edge": 28}, merges_lines=False
    ),
    "idefics3 in one part": lambda: idefics3(do_image_splitting=False),
    "gemma3": lambda: gemma3(size={"height": 28, "width": 28}),
    "gemma3 by lines": lambda: gemma3(size={"height": 28, "width": 28}, merges_lines=False),
    "internvl": lambda: internvl(size={"height": 28, "width": 28}, min_patches=1, max_patches=6),
    # The processor's own defaults count, not the image processor's.
    "gemma3 that would pan and scan": lambda: gemma3(
        size={"height": 28, "width": 28}, do_pan_and_scan=True, pan_and_scan_min_crop_size=8
    ),
    "internvl that would not divide": lambda: internvl(
        size={"height": 28, "width": 28}, crop_to_patches=False, max_patches=4
    ),
    "internvl of two": lambda: internvl(size={"height": 28, "width": 14}, min_patches=2),
}


def sizes(count: int) -> list[tuple[int, int]]:
    """Return sizes of all proportions, those of squares and of round numbers among them."""
    draw = random.Random(33)
    fixed = [(28, 28), (29, 28), (28, 29), (56, 56), (112, 28), (28, 112), (100, 100), (1, 190)]
    drawn = [(draw.randint(5, 400), draw.randint(5, 400)) for _ in range(count - len(fixed) - 40)]
    drawn += [(draw.randint(1, 9) * 28, draw.randint(1, 9) * 28) for _ in range(40)]
    return [*fixed, *drawn]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_tokens_are_those_of_the_processor(name, tmp_path):
    processor = PROCESSORS[name]()
    processor.save_pretrained(tmp_path)
    two_lines = len(processor.tokenizer("\n\n", add_special_tokens=False)["input_ids"])
    rule = rule_of(tmp_path, blank_line=two_lines)
    wanted = sizes(200)
    told = [rule.count(*size) for size in wanted]
    assert [one.total for one in told] == counted_by(processor, wanted)
    assert rule.placeholder in (processor.image_token, getattr(processor, "boi_token", None))
    # Those that carry the image are what the processor marks so, too.
    token = processor.tokenizer.convert_tokens_to_ids(
        SPECIAL["image_token"] if "gemma3" in name else processor.image_token
    )
    from PIL import Image

    text = processor.boi_token if "gemma3" in name else processor.image_token
    made = processor(text=[text], images=[[Image.new("RGB", wanted[10])]])["input_ids"][0]
    assert list(made).count(token) == told[10].image


KNOWN = {
    "Qwen2-VL": (
        {
            "preprocessor_config.json": {
                "image_processor_type": "Qwen2VLImageProcessor",
                "processor_class": "Qwen2VLProcessor",
                "min_pixels": 3136,
                "max_pixels": 12_845_056,
                "patch_size": 14,
                "merge_size": 2,
                "size": {"max_pixels": 12_845_056, "min_pixels": 3136},
            }
        },
        {(224, 224): 64, (1, 1): 4, (4096, 4096): 16_384},
    ),
    "Qwen3-VL": (
        {
            "preprocessor_config.json": {
                "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536},
                "patch_size": 16,
                "merge_size": 2,
                "processor_class": "Qwen3VLProcessor",
            }
        },
        {(256, 256): 64, (1024, 512): 512},
    ),
    "LLaVA 1.5": (
        {
            "processor_config.json": {
                "processor_class": "LlavaProcessor",
                "patch_size": 14,
                "num_additional_image_tokens": 1,
                "vision_feature_select_strategy": "default",
            },
            "preprocessor_config.json": {
                "crop_size": {"height": 336, "width": 336},
                "size": {"shortest_edge": 336},
            },
        },
        {(10, 1000): 576, (336, 336): 576},
    ),
    "LLaVA with SigLIP": (
        {
            "processor_config.json": {
                "processor_class": "LlavaProcessor",
                "patch_size": 14,
                "vision_feature_select_strategy": "full",
                "image_processor": {
                    "image_processor_type": "SiglipImageProcessor",
                    "size": {"height": 384, "width": 384},
                },
            },
            "preprocessor_config.json": {"crop_size": 14, "size": {"shortest_edge": 14}},
        },
        {(10, 1000): 27 * 27},
    ),
    "LLaVA 1.6": (
        {
            "processor_config.json": {
                "processor_class": "LlavaNextProcessor",
                "patch_size": 14,
                "num_additional_image_tokens": 1,
                "vision_feature_select_strategy": "default",
            },
            "preprocessor_config.json": {"crop_size": 336, "size": {"shortest_edge": 336}},
        },
        {(672, 672): 576 + 48 * 48 + 48, (336, 1008): 576 + 24 * 72 + 72},
    ),
    "SmolVLM2": (
        {
            "processor_config.json": {"image_seq_len": 64, "processor_class": "SmolVLMProcessor"},
            "preprocessor_config.json": {
                "size": {"longest_edge": 2048},
                "max_image_size": {"longest_edge": 512},
                "do_image_splitting": True,
            },
        },
        {(2048, 1024): 64 * 9 + 2 * 8 + 2 + 3, (10, 10): 64 * 17 + 2 * 16 + 4 + 3},
    ),
    "Gemma 3": (
        {"processor_config.json": {"image_seq_length": 256, "processor_class": "Gemma3Processor"}},
        {(10, 1000): 260, (896, 896): 260},
    ),
    "InternVL": (
        {
            "config.json": {"model_type": "internvl"},
            "preprocessor_config.json": {
                "size": {"height": 448, "width": 448},
                "min_patches": 1,
                "max_patches": 12,
            },
        },
        {(448, 448): 258, (896, 448): 256 * 3 + 2, (448, 448 * 12): 256 * 13 + 2},
    ),
}
"""Configurations as they are on the hub, and tokens that follow from what is said of the models."""


def folder(tmp_path, files: dict[str, Any]):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", KNOWN)
def test_configurations_of_the_hub_give_known_numbers(name, tmp_path):
    files, wanted = KNOWN[name]
    rule = rule_of(folder(tmp_path, files))
    assert {size: rule.count(*size).total for size in wanted} == wanted


def test_what_has_no_rule_is_left_to_the_processor(tmp_path):
    assert rule_of(tmp_path) is None
    assert rule_of(folder(tmp_path, {"config.json": {"model_type": "mllama"}})) is None
    files = {"processor_config.json": {"processor_class": "LlavaProcessor"}}
    assert rule_of(folder(tmp_path, files)) is None  # no patch_size
    odd = {"processor_class": "Qwen2VLProcessor", "image_processor": {"patch_size": "14"}}
    assert rule_of(folder(tmp_path, {"processor_config.json": odd})) is None
    # Pixtral's models are of LLaVA's type, and have a processor of their own.
    pixtral = {"processor_class": "PixtralProcessor", "patch_size": 14}
    of_llava = {"model_type": "llava"}
    assert (
        rule_of(folder(tmp_path, {"processor_config.json": pixtral, "config.json": of_llava}))
        is None
    )
    images = {"image_processor_type": "PixtralImageProcessorFast", "size": {"longest_edge": 1024}}
    other = {"processor_class": "LlavaProcessor", "patch_size": 14, "image_processor": images}
    assert rule_of(folder(tmp_path, {"processor_config.json": other})) is None
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ImageError, match=r"config\.json cannot be read"):
        rule_of(tmp_path)


def test_a_size_that_qwen_refuses_is_named(tmp_path):
    rule = rule_of(folder(tmp_path, KNOWN["Qwen2-VL"][0]))
    # 56 x 56 pixels at least: 200 x (56 / 200**0.5) is 792 pixels, of 28 each.
    assert rule.count(200, 1) == VisualTokens(29)
    with pytest.raises(ImageError, match="201 x 1 pixels: one side is 201 times the other"):
        rule.count(201, 1)


@pytest.mark.slow
def test_tiles_are_those_of_the_processor_beyond_its_own_bound_too(tmp_path):
    processor = idefics3(size={"longest_edge": 5000}, max_image_size={"longest_edge": 1400})
    processor.save_pretrained(tmp_path)
    rule = rule_of(tmp_path)
    wanted = [(100, 100), (999, 333), (20, 800)]
    assert [rule.count(*size).total for size in wanted] == counted_by(processor, wanted)


@pytest.mark.slow
def test_the_processor_refuses_what_the_rule_refuses():
    processor = PROCESSORS["qwen2"]()
    assert counted_by(processor, [(200, 1), (1, 200)])
    for size in ((201, 1), (1, 201)):
        with pytest.raises(ImageError, match="refuses"):
            counted_by(processor, [size])
