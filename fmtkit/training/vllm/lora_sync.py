"""`vllm_lora_sync`: send only the adapter to an unmodified `vllm serve`, as files on a shared file system.

Each version of the adapter has a new name, since vLLM keys its prefix cache by the name. The new version
is loaded before the old one is unloaded, so that the server always has the weights of this step or of
the step before. TRL's AsyncGRPOTrainer does the same; its functions check and write the adapter.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.building.callbacks import TrainingError, asked_to_stop
from fmtkit.training.vllm.lifeline import Lifeline, ServerLostError
from fmtkit.training.vllm.server_state import ServerError, VllmServer

_UNLOAD_SECONDS = 10.0


@contextmanager
def without_weight_transfer() -> Iterator[None]:
    """Construct TRL's trainer without its NCCL group, which cannot be created on a CPU."""
    from trl.generation.vllm_client import VLLMClient

    client: Any = VLLMClient
    original = client.init_communicator
    client.init_communicator = _skip_communicator
    try:
        yield
    finally:
        client.init_communicator = original


def _skip_communicator(client: Any, device: Any = 0) -> None:
    """Replaces `init_communicator`: no weights are transferred by NCCL."""


class LoraSync:
    """Replaces TRL's `sync_weights`: all processes call it, and the main process sends the requests."""

    def __init__(self, trainer: Any, server: VllmServer, folder: Path) -> None:
        self.trainer = trainer
        self.server = server
        self.folder = folder
        self.adapter = trainer.model.active_adapters[0]
        # A server that is used by several runs keeps its prefix cache, so that names must not repeat.
        self.run = f"fmtkit-{uuid.uuid4().hex[:8]}"
        self.version = 0
        self.loaded: list[str] = []
        self.lifeline = Lifeline(
            server,
            trainer.args.vllm_server_timeout,
            self.restore,
            request_seconds=trainer.rollouts.vllm_request_timeout,
            is_stopped=partial(asked_to_stop, trainer),
        )

    def __call__(self) -> None:
        """Write the adapter and load it into the server; after a failure, all raise ServerLostError."""
        from trl.experimental.async_grpo.async_grpo_trainer import save_lora_adapter

        self.version += 1
        name = f"{self.run}-v{self.version}"
        accelerator = self.trainer.accelerator
        self.folder.mkdir(parents=True, exist_ok=True)
        save_lora_adapter(self.trainer.model, accelerator, self.adapter, str(self.folder / name))
        problem: list[str | None] = [None]
        if accelerator.is_main_process:
            problem = [_problem(partial(self._publish, name))]
        if accelerator.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            broadcast_object_list(problem, from_process=0)
        if problem[0] is not None:
            raise ServerLostError(problem[0])
        self.trainer._metrics["train"]["vllm/adapter_version"].append(self.version)

    def restore(self) -> None:
        """Load the current version of the adapter into a restarted server."""
        latest = self.loaded[-1:]
        for name in latest:
            self._load(name)
        self.loaded = latest

    def close(self) -> None:
        """Unload the last version, and delete the files.

        vLLM reads an adapter's files again once it was evicted: a request for one without files ends the
        server.
        """
        if not self.trainer.accelerator.is_main_process:
            return
        for name in self.served:
            with suppress(ServerError):  # It is gone, or was started again without the adapter.
                self.server.post("/v1/unload_lora_adapter", {"lora_name": name}, _UNLOAD_SECONDS)
        self.loaded = []
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def served(self) -> list[str]:
        """Return the names under which the server has versions loaded."""
        return self.loaded

    def _publish(self, name: str) -> None:
        self.lifeline.run(partial(self._load, name))
        self.trainer.vllm_generation.vllm_client.model = name
        previous, self.loaded = self.loaded, [name]
        for old in previous:
            body = {"lora_name": old}
            self.lifeline.run(partial(self.server.post, "/v1/unload_lora_adapter", body))
        self._delete(self.version - 2)

    def _load(self, name: str) -> None:
        path = str((self.folder / name).resolve())
        body = {"lora_name": name, "lora_path": path, "load_inplace": False}
        self.post_load(body, path)

    def post_load(self, body: dict[str, object], path: str) -> None:
        """Let the server load an adapter; with a 404, loading is not allowed or the files are not visible."""
        try:
            self.server.post("/v1/load_lora_adapter", body)
        except ServerError as error:
            if error.status != 404:
                raise
            raise ServerError(
                f"{error}: it needs VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, which fmtkit vllm-serve sets, and "
                f"must see {path}",
                error.status,
            ) from error

    def _delete(self, version: int) -> None:
        shutil.rmtree(self.folder / f"{self.run}-v{version}", ignore_errors=True)


def _problem(publish: Callable[[], None]) -> str | None:
    """Return the message of a failure, which the main process sends to the others."""
    try:
        publish()
    except TrainingError as error:
        return str(error)
    return None


def check_adapter(model: Any) -> None:
    """Raise OptionError for an adapter that vLLM cannot serve."""
    from peft import PeftModel
    from trl.experimental.async_grpo.async_grpo_trainer import validate_lora_for_vllm_sync

    if not isinstance(model, PeftModel):
        raise OptionError("trl.vllm_lora_sync: there is no adapter to send; set adapter: lora")
    try:
        validate_lora_for_vllm_sync(model)
    except ValueError as error:
        raise OptionError(f"trl.vllm_lora_sync: {error}") from error


class NamedLoraSync(LoraSync):
    """Sends every version of the adapter under the same name, which agents on other servers request.

    The agents call vLLM directly. Each version replaces the previous one. vLLM keys its prefix cache by
    the name of the adapter, so the cache is reset each time.
    """

    def __init__(self, trainer: Any, server: VllmServer, folder: Path, name: str) -> None:
        """Set the model name that the agents' requests use."""
        super().__init__(trainer, server, folder)
        self.name = name

    @property
    def served(self) -> list[str]:
        """Return the one name of all versions."""
        return [self.name] if self.loaded else []

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
