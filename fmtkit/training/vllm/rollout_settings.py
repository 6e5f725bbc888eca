"""Settings of prefetch, weight transfer and failures in `trl`, and a temporary limit on answers' length."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmtkit.core import section as sections
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError

REQUEST_SECONDS = 1800.0
"""A request may take so long unless `trl.vllm_request_timeout` says otherwise: the other training
processes wait for the main one as long (`ddp_timeout`)."""


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of prefetch, the transfer of weights, time limits and failures.

    `folder` is where versions of the adapter are written for the server to read, or of all weights where
    `vllm_sync` is `file`. With `lora_name` adapters all have that name, for clients other than the trainer;
    else each has its own name.
    """

    async_prefetch: bool = False
    prefetch_depth: int = 1
    vllm_sync_interval: int = 1
    vllm_lora_sync: bool = False
    vllm_sync: str = "nccl"
    vllm_request_timeout: float = REQUEST_SECONDS
    rollout_timeout: float = REQUEST_SECONDS
    environment_timeout: float = 600.0
    max_retries: int = 0
    max_failed_share: float = 0.0
    masked_share: float | None = None
    """Share of samples that may fail without ending the run, if it is not `max_failed_share`."""
    folder: Path = Path("vllm-adapters")
    lora_name: str = ""

    def __post_init__(self) -> None:
        for name in ("prefetch_depth", "vllm_sync_interval"):
            if getattr(self, name) < 1:
                raise OptionError(f"trl.{name}: {getattr(self, name)}: takes a number from 1")
        for name in ("vllm_request_timeout", "rollout_timeout", "environment_timeout"):
            if getattr(self, name) <= 0:
                raise OptionError(
                    f"trl.{name}: {getattr(self, name):g}: give a number of seconds above 0"
                )
        if self.max_retries < 0:
            raise OptionError(f"trl.max_retries: {self.max_retries}: takes a number from 0")
        if not 0 <= self.max_failed_share < 1:
            raise OptionError(
                f"trl.max_failed_share: {self.max_failed_share:g}: takes a share from 0 to below 1"
            )


def read_settings(section: Mapping[str, object] | None, *, run: str | Path) -> RolloutSettings:
    """Read the keys of the section `rl` that concern rollouts; other parts read the other keys."""
    what = "weights" if (section or {}).get("vllm_sync") == "file" else "adapters"
    return sections.read(RolloutSettings, section, folder=Path(run).resolve() / f"vllm-{what}")


@contextmanager
def capped(trainer: Any, cap: int) -> Iterator[None]:
    """Let a GRPO trainer generate at most `cap` tokens inside the context, with transformers or vLLM.

    `trainer.max_completion_length` does not change: the dr_grpo loss is divided by it.
    """
    if trainer.use_vllm:
        holder, name = trainer.vllm_generation, "max_completion_length"
    else:
        holder, name = trainer.generation_config, "max_new_tokens"
    before = getattr(holder, name)
    setattr(holder, name, cap)
    try:
        yield
    finally:
        setattr(holder, name, before)
