"""Train the small tokenizer next to this file on the samples.

Run as `python docs/examples/tokenizer/make.py`.

A byte-level BPE of 4,096 tokens with ChatML's marks: enough to show lengths and masks without a download,
too small to train a real model with.
"""

import gzip
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main() -> None:
    """Write tokenizer.json."""
    samples = sorted(HERE.parent.glob("*.jsonl*"))
    raw = [(path.suffix, path.read_bytes()) for path in samples]
    texts = [gzip.decompress(found) if suffix == ".gz" else found for suffix, found in raw]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([text.decode() for text in texts], trainer)
    backend.save(str(HERE / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
