"""`vllm_lora_sync` under a fixed adapter name: the agents of a NeMo Gym ask vLLM by themselves.

Each version is loaded in the place of the one before. vLLM keys its prefix cache by the name of the
adapter, so what it computed with the version before is dropped.
"""

from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.training.rl.rollouts.lora_sync import LoraSync
from fmtkit.training.rl.rollouts.server import Server


class NamedLoraSync(LoraSync):
    """Sends every version of the adapter under the same name."""

    def __init__(self, trainer: Any, server: Server, folder: Path, name: str) -> None:
        """Take the name that requests will ask for."""
        super().__init__(trainer, server, folder)
        self.name = name

    def _publish(self, name: str) -> None:
        self.lifeline.run(partial(self._load, name))
        self.lifeline.run(partial(self.server.post, "/reset_prefix_cache", {}))
        self.trainer.vllm_generation.vllm_client.model = self.name
        self.loaded = [name]
        self._delete(self.version - 2)

    def _load(self, name: str) -> None:
        path = str((self.folder / name).resolve())
        body = {"lora_name": self.name, "lora_path": path, "load_inplace": True}
        self.post_load(body, path)
