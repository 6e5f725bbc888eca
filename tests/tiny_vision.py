"""Tiny vision-language models of four families with their processors, made without a hub, and rows with images."""

import io
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny_training import sentence

FAMILIES = ("idefics3", "llava", "gemma3", "qwen2_5_vl")
SIDE = 28
"""Pixels of a side of the tiny models' images."""
_TEMPLATES = {"llava": "llava_next"}
_IDEFICS = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "</s>")
_CELLS = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
_EXTRA: dict[str, dict[str, str]] = {
    "gemma3": {
        "image_token": "<image_soft_token>",
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
    },
}
_TOKENS: dict[str, tuple[str, ...]] = {
    "idefics3": (*_IDEFICS, *_CELLS),
    "llava": ("<image>", "</s>"),
    "gemma3": ("<end_of_turn>", "<start_of_turn>", "<end_of_image>"),
    "qwen2_5_vl": ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
}
_ENDS = {"idefics3": "<end_of_utterance>", "llava": "</s>", "gemma3": "<end_of_turn>"}


def make_vision_model(folder: Path, family: str, *, seed: int = 0) -> str:
    """Write a model of a family, its processor and its tokenizer, as AutoProcessor and AutoModel load them."""
    import torch

    tokenizer = tokenizer_of(family)
    torch.manual_seed(seed)
    model, processor = _MAKERS[family](tokenizer)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def template(family: str) -> str:
    """Return the chat template of a family as its models have it, by which TRL knows its training variant."""
    import trl

    name = f"{_TEMPLATES.get(family, family)}.jinja"
    return (Path(trl.__file__).parent / "chat_templates" / name).read_text(encoding="utf-8")


def tokenizer_of(family: str) -> Any:
    from fmtkit.training import demo

    texts = [
        sentence(400, random.Random(2)) + " good bad User Assistant user assistant system model"
    ]
    made = demo.tokenizer_of(texts, 400, bos=True)
    made.add_special_tokens({"additional_special_tokens": list(_TOKENS[family])})
    extra = _EXTRA.get(family, {})
    if extra:
        made.add_tokens(list(extra.values()), special_tokens=True)
    fast: Any = type(made)
    again = fast(
        tokenizer_object=made.backend_tokenizer,
        model_max_length=4096,
        pad_token=made.pad_token,
        bos_token=made.bos_token,
        eos_token=_ENDS.get(family, made.eos_token),
        **({"extra_special_tokens": extra} if extra else {}),
    )
    again.chat_template = template(family)
    return again


def _text(tokenizer: Any, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "tie_word_embeddings": False,
        **more,
    }


def _vision(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": SIDE,
        "patch_size": 7,
        **more,
    }


def _idefics3(tokenizer: Any) -> tuple[Any, Any]:
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
    )

    config = Idefics3Config(
        text_config={"model_type": "llama", **_text(tokenizer)},
        vision_config=_vision(),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE}
    )
    processor = Idefics3Processor(
        images, tokenizer, image_seq_len=4, chat_template=tokenizer.chat_template
    )
    return Idefics3ForConditionalGeneration(config), processor


def _llava(tokenizer: Any) -> tuple[Any, Any]:
    from transformers import (
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaImageProcessorPil,
        LlavaProcessor,
    )

    config = LlavaConfig(
        text_config={"model_type": "llama", **_text(tokenizer)},
        vision_config={"model_type": "clip_vision_model", **_vision(projection_dim=32)},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=16,
        tie_word_embeddings=False,
    )
    images = LlavaImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )
    processor = LlavaProcessor(
        images,
        tokenizer,
        patch_size=7,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )
    return LlavaForConditionalGeneration(config), processor


def _gemma3(tokenizer: Any) -> tuple[Any, Any]:
    import torch
    from transformers import (
        Gemma3Config,
        Gemma3ForConditionalGeneration,
        Gemma3ImageProcessorPil,
        Gemma3Processor,
    )

    config = Gemma3Config(
        text_config=_text(tokenizer, head_dim=8, sliding_window=64),
        vision_config=_vision(vision_use_head=False),
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<end_of_image>"),
        image_token_index=tokenizer.convert_tokens_to_ids("<image_soft_token>"),
        image_token_id=tokenizer.convert_tokens_to_ids("<image_soft_token>"),
        tie_word_embeddings=False,
    )
    images = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor = Gemma3Processor(
        images, tokenizer, image_seq_length=4, chat_template=tokenizer.chat_template
    )
    model = Gemma3ForConditionalGeneration(config)
    # Its projection starts at zero: before a step no image would change anything.
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight, std=0.2)
    return model, processor


def _qwen2_5_vl(tokenizer: Any) -> tuple[Any, Any]:
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessorPil,
    )

    from fmtkit.training.building.processors import no_videos

    ids = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config=_text(
            tokenizer, rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2]}
        ),
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 4,
            "patch_size": 7,
            "out_hidden_size": 32,
            "window_size": 28,
            "fullatt_block_indexes": [1],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    images = Qwen2VLImageProcessorPil(
        patch_size=7, size={"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    )
    processor = Qwen2_5_VLProcessor(
        images,
        tokenizer,
        no_videos(video_processor_type="Qwen2VLVideoProcessor"),
        chat_template=tokenizer.chat_template,
    )
    return Qwen2_5_VLForConditionalGeneration(config), processor


_MAKERS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "idefics3": _idefics3,
    "llava": _llava,
    "gemma3": _gemma3,
    "qwen2_5_vl": _qwen2_5_vl,
}


def picture(seed: int, *, width: int = SIDE, height: int = SIDE) -> bytes:
    """Return a PNG of noise that only the seed decides."""
    from PIL import Image

    pixels = random.Random(seed).randbytes(3 * width * height)
    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), pixels).save(out, "PNG")
    return out.getvalue()


def _user(text: str, images: int) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "image", "text": None}] * images
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def image_rows(table: str, images: Sequence[int]) -> list[dict[str, Any]]:
    """Return rows of a table, one for each number: as many images as that has the row."""
    generator = random.Random(3)
    rows: list[dict[str, Any]] = []
    for number, count in enumerate(images):
        files = [{"bytes": picture(100 * number + n), "path": None} for n in range(count)]
        asked = [_user(sentence(4, generator), count)]
        good, bad = (
            [_reply("good " + sentence(3, generator))],
            [_reply("bad " + sentence(3, generator))],
        )
        columns: dict[str, dict[str, Any]] = {
            "Conversation": {"messages": asked + good},
            "Completion": {"prompt": asked, "completion": good},
            "Preference": {"prompt": asked, "chosen": good, "rejected": bad},
            "Unpaired": {
                "prompt": asked,
                "completion": good if number % 2 else bad,
                "label": bool(number % 2),
            },
            "Prompt": {"prompt": asked},
        }
        rows.append({**columns[table], "images": files})
    return rows


def write_image_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows to Parquet as fmtkit converts them: images by the features that `datasets` reads."""
    from datasets import Dataset, Features, Image, List, Value

    message = {
        "role": Value("string"),
        "content": List({"type": Value("string"), "text": Value("string")}),
    }
    kinds = {"images": List(Image()), "label": Value("bool")}
    features = Features({name: kinds.get(name, List(message)) for name in rows[0]})
    made: Any = Dataset.from_list(rows, features=features)
    made.to_parquet(path)
    return path
