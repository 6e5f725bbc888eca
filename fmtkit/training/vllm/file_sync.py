"""`vllm_sync: file`: send all weights to an unmodified `vllm serve`, as files on a shared file system.

NCCL needs a GPU for each side. This needs none: the weights are written as safetensors, and vLLM loads them
by its own `reload_weights`, on the CPU or on a GPU that the trainer uses too. A server that was restarted
loads the last files again.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.training.building.callbacks import TrainingError, asked_to_stop
from fmtkit.training.vllm.guarded_client import GuardedClient, guard
from fmtkit.training.vllm.lifeline import Lifeline
from fmtkit.training.vllm.lora_sync import without_weight_transfer
from fmtkit.training.vllm.request_limits import limited_requests
from fmtkit.training.vllm.rollout_settings import RolloutSettings
from fmtkit.training.vllm.server_state import ServerError, VllmServer, address

FILE = "file"
SHARD_BYTES = 2 << 30


class WeightFiles:
    """Versions of the weights, each in a folder of its own; a version is deleted once the next is loaded."""

    def __init__(self, server: VllmServer, folder: Path, seconds: float) -> None:
        self.server = server
        self.folder = folder
        self.seconds = seconds
        self.version = 0
        self.loaded: Path | None = None
        self._shard: dict[str, Any] = {}
        self._bytes = self._shards = 0

    @property
    def place(self) -> Path:
        """Return the folder of the version that is written."""
        return (self.folder / f"v{self.version}").resolve()

    def begin(self) -> None:
        """Begin a new version."""
        self.version += 1
        self._shard, self._bytes, self._shards = {}, 0, 0
        # What a killed run left there would be loaded too.
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)

    def add(self, name: str, weights: Any) -> None:
        """Write a parameter, once enough are there for a file; raises OSError where that fails."""
        # A copy: merged weights change before the file is written.
        kept = weights.detach().to("cpu", copy=True).contiguous()
        self._shard[name] = kept
        self._bytes += kept.numel() * kept.element_size()
        if self._bytes >= SHARD_BYTES:
            self._write()

    def end(self) -> None:
        """Write what is left of the version."""
        if self._shard:
            self._write()

    def publish(self) -> None:
        """Let the server load the version, and delete the one before."""
        self._load(self.place)
        if self.loaded is not None:
            shutil.rmtree(self.loaded, ignore_errors=True)
        self.loaded = self.place

    def restore(self) -> None:
        """Load the last version into a server that was restarted."""
        if self.loaded is not None:
            self._load(self.loaded)

    def close(self) -> None:
        """Delete the files; the server has its own copy of the weights."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        self._shards += 1
        try:
            save_file(self._shard, self.place / f"model-{self._shards:05}.safetensors")
        except SafetensorError as error:
            raise OSError(str(error)) from error
        self._shard, self._bytes = {}, 0

    def _load(self, place: Path) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(place)}}
        try:
            self.server.post("/collective_rpc", body, self.seconds)
        except ServerError as error:
            if error.status is None:
                raise
            raise ServerError(f"{error}: it must see {place}", error.status) from error


class FileClient(GuardedClient):
    """TRL's client of a server, which sends weights as files.

    All parameters are always iterated over, as the other processes take part in gathering them; what fails is
    reported by the next generation.
    """

    def __init__(self, client: Any, lifeline: Lifeline, files: WeightFiles) -> None:
        super().__init__(client, lifeline)
        self.files = files

    def update_named_params(self, metadata: Any, named_params: Iterable[Any]) -> None:
        """Send the weights."""
        del metadata
        with self.weight_update():
            for name, weights in named_params:
                self.update_named_param(name, weights)

    @contextmanager
    def weight_update(self) -> Iterator[None]:
        """Send the weights that are given inside."""
        self._guarded(partial(self._written, self.files.begin))
        yield
        self._guarded(partial(self._written, self.files.end))
        self._guarded(partial(self.lifeline.run, self.files.publish))

    def update_named_param(self, name: str, weights: Any) -> None:
        """Send one parameter; nothing once a transfer has failed."""
        self._guarded(partial(self._written, partial(self.files.add, name, weights)))

    def _written(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise TrainingError(
                f"trl.vllm_sync: file: the weights cannot be written to {self.files.place}: {error}"
            ) from error


@contextmanager
def connecting(rollouts: RolloutSettings, seconds: float) -> Iterator[None]:
    """Construct TRL's trainer: its requests have a time limit, and without NCCL no group is made."""
    with ExitStack() as stack:
        stack.enter_context(limited_requests(seconds))
        if rollouts.vllm_lora_sync or rollouts.vllm_sync == FILE:
            stack.enter_context(without_weight_transfer())
            stack.enter_context(_any_device())
        yield


@contextmanager
def _any_device() -> Iterator[None]:
    """Let TRL's online DPO trainer name the device of the group that is not made, where there is none."""
    import torch

    accelerator: Any = torch.accelerator
    before = accelerator.current_accelerator
    if before() is None:
        accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
    try:
        yield
    finally:
        accelerator.current_accelerator = before


def connect(
    trainer: Any, holder: Any, rollouts: RolloutSettings, lifeline: Lifeline | None = None
) -> None:
    """Guard the client of `holder` (its `vllm_client`, on the main process); let it send files if asked."""
    client = getattr(holder, "vllm_client", None)
    if rollouts.vllm_sync != FILE or client is None:
        guard(trainer, holder, rollouts.vllm_request_timeout, lifeline)
        return
    if isinstance(client, GuardedClient):
        return
    server = address(vars(trainer.args))
    files = WeightFiles(server, rollouts.folder, rollouts.vllm_request_timeout)
    # Requests of TRL's client have the limits that `guard` gives them.
    guard(
        trainer,
        holder,
        rollouts.vllm_request_timeout,
        Lifeline(
            server,
            trainer.args.vllm_server_timeout,
            files.restore,
            request_seconds=rollouts.vllm_request_timeout,
            is_stopped=partial(asked_to_stop, trainer),
        ),
    )
    guarded = holder.vllm_client
    holder.vllm_client = FileClient(guarded.client, guarded.lifeline, files)
    trainer.train = _closing(trainer.train, files)


def _closing(train: Callable[..., Any], files: WeightFiles) -> Callable[..., Any]:
    """Return `train` that deletes the files at its end."""

    def train_and_close(*args: Any, **kwargs: Any) -> Any:
        try:
            return train(*args, **kwargs)
        finally:
            files.close()

    return train_and_close
