"""TRL's GRPO trainer with prefetch, rollout functions and adapter sync; without them it is TRL's."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from trl.trainer.grpo_trainer import GRPOTrainer

from fmtkit.training.online.rollouts.contract import RolloutFunction
from fmtkit.training.online.rollouts.conversations_ahead import ConversationGeneration
from fmtkit.training.online.rollouts.generation import (
    FunctionGeneration,
    ServerGeneration,
    prompts_of,
)
from fmtkit.training.online.rollouts.producer import Generation, Producer
from fmtkit.training.online.rollouts.sync_interval import SyncInterval
from fmtkit.training.vllm.file_sync import connect, connecting
from fmtkit.training.vllm.lora_sync import (
    LoraSync,
    NamedLoraSync,
    check_adapter,
)
from fmtkit.training.vllm.rollout_settings import RolloutSettings
from fmtkit.training.vllm.server_state import address

PromptRows = Sequence[dict[str, Any]]


class RolloutTrainer(GRPOTrainer):
    """A GRPOTrainer that can prefetch answers, and that saves a checkpoint if its server is lost."""

    # TRL and transformers annotate these as unions of many types.
    args: Any
    model: Any
    rollout_func: Any
    vllm_generation: Any
    tools: Any
    environment_factories: Any

    def __init__(self, *, rollouts: RolloutSettings | None = None, **kwargs: Any) -> None:
        """Take TRL's arguments by name, and the settings of rollouts."""
        self.rollouts = rollouts or RolloutSettings()
        self.rows: PromptRows = ()
        self.interval: SyncInterval | None = None
        self.producer: Producer | None = None
        self.lora_sync: LoraSync | None = None
        function = kwargs.get("rollout_func")
        if function is not None:
            is_checked = isinstance(function, RolloutFunction)
            kwargs["rollout_func"] = (
                function if is_checked else RolloutFunction("rollout_func", function)
            )
        with connecting(self.rollouts, kwargs["args"].vllm_server_timeout):
            super().__init__(**kwargs)
        self.connect_rollouts()

    def connect_rollouts(self) -> None:
        """Set up weight sync and the server; call it again if TRL creates the server's client afterwards."""
        if not self.use_vllm:
            return
        self.interval = SyncInterval(self.rollouts.vllm_sync_interval)
        if self.vllm_mode == "server":
            self._connect_server()

    def _connect_server(self) -> None:
        server = address(vars(self.args))
        if self.rollouts.vllm_lora_sync:
            check_adapter(self.accelerator.unwrap_model(self.model))
            name, folder = self.rollouts.lora_name, self.rollouts.folder
            self.lora_sync = (
                NamedLoraSync(self, server, folder, name)
                if name
                else LoraSync(self, server, folder)
            )
            self.vllm_generation.sync_weights = self.lora_sync
        lifeline = None if self.lora_sync is None else self.lora_sync.lifeline
        connect(self, self.vllm_generation, self.rollouts, lifeline)

    def start_prefetch(self) -> None:
        """Start the prefetch, if it is enabled."""
        if self.rollouts.async_prefetch:
            self.producer = Producer(self, self._made_ahead(), self.rollouts.prefetch_depth)
            if self.use_vllm:
                self.producer.hold_sync(self.vllm_generation)

    def _made_ahead(self) -> Generation:
        """Return the kind of generation that is prefetched.

        With several processes only one has a client of the server, so that only the first turn of a
        conversation with tools is prefetched.
        """
        if self.rollout_func is not None:
            return FunctionGeneration(self.rollout_func)
        has_environment = bool(self.tools) or self.environment_factories is not None
        if has_environment and self.accelerator.num_processes == 1:
            return ConversationGeneration(self)
        return ServerGeneration()

    def rows_ahead(self, rows: PromptRows) -> PromptRows:
        """Return the rows to use for a batch; a subclass may replace some."""
        return rows

    def limited(self, rows: PromptRows) -> AbstractContextManager[None]:
        """Return a context in which the answers to these rows are generated; a subclass may limit them."""
        del rows
        return nullcontext()

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: Any
    ) -> tuple[list[Any], Any]:
        """Return the next batches of an epoch, those that were prefetched first."""
        if self.producer is not None:
            epoch_iterator = self.producer.batches.over(epoch_iterator)
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def choose_rows(self, batch: PromptRows) -> PromptRows:
        """Set and return the rows to train instead of a batch: those with prefetched answers, if any."""
        if batch is not self.rows:
            self.rows = self._chosen(batch) if self.model.training else batch
        return self.rows

    def _chosen(self, batch: PromptRows) -> PromptRows:
        ready = None if self.producer is None else self.producer.rows_of_now()
        return self.rows_ahead(batch) if ready is None else ready

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        rows: Any = self.choose_rows(inputs)
        prompts = prompts_of(self, rows)
        with self.producer.scoring(rows) if self.producer is not None else nullcontext():
            if self.environment_factories is None and "prompt" not in rows[0]:
                # Prefetch hides the environments, without which TRL needs a prompt in each row.
                pairs = zip(rows, prompts, strict=True)
                rows = [{**row, "prompt": prompt} for row, prompt in pairs]
            return super()._generate_and_score_completions(rows)

    def _generate(self, prompts: list[Any]) -> Any:
        generated = self.answers(prompts)
        if self.producer is not None and self.model.training:
            self.producer.ask_ahead(self.rows_ahead)
        return generated

    def answers(self, prompts: list[Any]) -> Any:
        """Return what TRL's `_generate` returns for `rows`; a subclass may generate several times."""
        if self.interval is not None:
            self.interval.before_generation(self)
        if self.producer is None:
            return super()._generate(prompts)
        return self.producer.generate(prompts, super()._generate)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; then end the prefetch and delete the versions of the adapter."""
        self.start_prefetch()
        try:
            return super().train(*args, **kwargs)
        finally:
            self.close_rollouts()

    def close_rollouts(self) -> None:
        """Cancel the prefetch, and delete the versions of the adapter."""
        if self.producer is not None:
            self.producer.close()
            self.producer = None
        if self.lora_sync is not None:
            self.lora_sync.close()
