"""A tiny model with random weights and a tokenizer for it, for demonstrations and tests.

`python -m fmtkit.training.demo FOLDER FILE...` trains a byte-level BPE tokenizer on the files, and writes it
and a small Llama into FOLDER. Nothing is downloaded, and training such a model takes seconds on a CPU.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fmtkit.core.errors import FmtkitError, SourceError

SPECIAL = ("<|pad|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>")
"""The padding token is not the end of turn: padding is masked, so the model would never learn to stop."""


def make(
    folder: Path,
    texts: Iterable[str],
    *,
    vocabulary: int = 512,
    hidden: int = 64,
    layers: int = 2,
    bos: bool = False,
    template: str | None = None,
    seed: int = 0,
) -> Path:
    """Write a tokenizer trained on the texts and a model of random weights into a folder."""
    tokenizer = tokenizer_of(list(texts), vocabulary, bos=bos)
    if template is not None:
        tokenizer.chat_template = template
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    _model(tokenizer, hidden, layers, seed).save_pretrained(folder)
    return folder


def tokenizer_of(texts: list[str], vocabulary: int, *, bos: bool) -> Any:
    """Train a byte-level tokenizer on texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    pad, begin, _, end = SPECIAL
    named = {"pad_token": pad, "eos_token": end} | ({"bos_token": begin} if bos else {})
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=backend, model_max_length=4096, **named)


def _model(tokenizer: Any, hidden: int, layers: int, seed: int) -> Any:
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    bars: Any = logging
    bars.disable_progress_bar()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    generation: Any = GenerationConfig
    model.generation_config = generation(
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id
    )
    return model


def _texts(files: Iterable[str]) -> Iterator[str]:
    for name in files:
        try:
            yield Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{name}: cannot be read: {error}") from error


def main() -> None:
    """Make a model from the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fmtkit.training.demo", description="Make a tiny model and its tokenizer."
    )
    parser.add_argument("folder", type=Path, help="where the model is written")
    parser.add_argument("files", nargs="+", help="text on which the tokenizer is trained")
    given = parser.parse_args()
    try:
        made = make(given.folder, _texts(given.files))
        sys.stdout.write(f"wrote  {made}\n")
    except FmtkitError as error:
        parser.exit(error.exit_code, f"error: {error}\n")


if __name__ == "__main__":
    main()
