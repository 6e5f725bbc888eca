"""The key of `trl` that chooses the asynchronous trainer."""

from fmtkit.training.config.key import Key, inside

KEYS: tuple[Key, ...] = inside(
    "trl",
    Key(
        "backend",
        "enum:sync|async",
        "rl",
        "async: TRL's AsyncGRPOTrainer, on GPUs with a vLLM server; only grpo",
    ),
)
