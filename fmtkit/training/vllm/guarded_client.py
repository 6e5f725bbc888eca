"""TRL's client of a vLLM server behind a lifeline: its requests have time limits and are retried.

Only the main process has a client. If the server is lost, `generate` returns a `Failure` instead of
answers. TRL sends it to all processes, so that they end together; `chat` raises.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from fmtkit.training.building.callbacks import TrainingError, asked_to_stop
from fmtkit.training.vllm.lifeline import Lifeline, ServerLostError
from fmtkit.training.vllm.request_limits import limit
from fmtkit.training.vllm.server_state import ServerError, address


class Failure:
    """Stands in for the answers of a lost server: it raises on every process that reads it.

    Only the main process talks to the server. TRL sends the answers to all others, so they end together; if
    only the main process raised, the others would wait for it.
    """

    def __init__(self, message: str) -> None:
        self.message = message

    def __iter__(self) -> Iterator[Any]:
        raise ServerLostError(self.message)

    def __getitem__(self, _: object) -> NoReturn:
        raise ServerLostError(self.message)


class GuardedClient:
    """TRL's client of a server, with time limits and retries; everything else is the client's own."""

    def __init__(self, client: Any, lifeline: Lifeline) -> None:
        self.client = client
        self.lifeline = lifeline
        self.failure_message: str | None = None
        self.update: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    @property
    def model(self) -> Any:
        """The model name of requests."""
        return self.client.model

    @model.setter
    def model(self, name: str) -> None:
        self.client.model = name

    def generate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Generate; if the server is lost, return a `Failure` in place of each part of the answer."""
        if self.failure_message is None:
            try:
                answer: dict[str, Any] = self.lifeline.run(
                    lambda: self._whole_answer(*args, **kwargs)
                )
            except TrainingError as error:
                self.failure_message = str(error)
            else:
                return answer
        failure = Failure(self.failure_message)
        return dict.fromkeys(("prompt_ids", "completion_ids", "logprobs"), failure)

    def _whole_answer(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Generate; raise ServerError, which is retried, for fewer answers than requested."""
        answer: dict[str, Any] = self.client.generate(*args, **kwargs)
        prompts = kwargs["prompts"] if "prompts" in kwargs else args[0]
        wanted, have = len(prompts) * kwargs.get("n", 1), len(answer["completion_ids"])
        if have != wanted:
            raise ServerError(f"it gave {have} of {wanted} answers")
        return answer

    def chat(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Generate for conversations; raise ServerLostError if the server is lost."""
        if self.failure_message is not None:
            raise ServerLostError(self.failure_message)
        answer: dict[str, Any] = self.lifeline.run(lambda: self.client.chat(*args, **kwargs))
        return answer

    def update_named_params(self, metadata: Any, named_params: Iterable[Any]) -> None:
        """Send the weights; if the server is lost meanwhile, the next generation reports it.

        All parameters are always iterated over: the other processes take part in gathering them, and an
        adapter that was merged for the transfer is unmerged only at the end.
        """
        remaining = iter(named_params)
        try:
            self._send(metadata, remaining)
        except TrainingError as error:
            self.failure_message = str(error)
            for _ in remaining:
                pass

    @contextmanager
    def weight_update(self) -> Iterator[None]:
        """Let the caller send weights one by one (online DPO); the next generation reports a lost server.

        A lost server does not interrupt the caller's loop, which unmerges a merged adapter only at its end.
        """
        update = self.client.weight_update()
        self._guarded(self._check_up)
        self._guarded(lambda: self._transfer(update.__enter__))
        has_begun = self.failure_message is None
        yield
        if has_begun:
            self._guarded(lambda: self._transfer(lambda: update.__exit__(None, None, None)))
        # Keep a reference: the garbage collector would end an unfinished update, with another request.
        self.update = update

    def update_named_param(self, name: str, weights: Any) -> None:
        """Send one parameter; do nothing once the server is lost."""
        self._guarded(lambda: self._transfer(lambda: self.client.update_named_param(name, weights)))

    def _guarded(self, call: Callable[[], object]) -> None:
        if self.failure_message is not None:
            return
        try:
            call()
        except TrainingError as error:
            self.failure_message = str(error)

    def _send(self, metadata: Any, params: Iterator[Any]) -> None:
        """Send the weights in this thread, where the trainer's CUDA device and gradient mode are set."""
        self._check_up()
        self._transfer(lambda: self.client.update_named_params(metadata, params))

    def _check_up(self) -> None:
        if not self.lifeline.server.is_up():
            raise ServerLostError(self.lifeline.lost("did not answer before the weights were sent"))

    def _transfer(self, call: Callable[[], object]) -> None:
        lifeline = self.lifeline
        try:
            with lifeline.watching("a transfer of weights"):
                call()
        except Exception as error:
            reason = lifeline.silence(error)
            if reason is None:
                raise
            raise ServerLostError(lifeline.lost(f"did not answer ({reason})")) from error

    def reset_prefix_cache(self) -> None:
        """Let the server drop its cache of prefixes, which other weights computed."""
        self._guarded(lambda: self.lifeline.run(self.client.reset_prefix_cache))


def guard(
    trainer: Any, holder: Any, request_seconds: float, lifeline: Lifeline | None = None
) -> None:
    """Guard the client of `holder` (its `vllm_client`, on the main process) by a lifeline."""
    client = getattr(holder, "vllm_client", None)
    if client is None or isinstance(client, GuardedClient):
        return
    if lifeline is None:
        lifeline = Lifeline(
            address(vars(trainer.args)),
            trainer.args.vllm_server_timeout,
            request_seconds=request_seconds,
            is_stopped=partial(asked_to_stop, trainer),
        )
    session = getattr(client, "session", None)
    if session is not None:
        limit(session, request_seconds)
    holder.vllm_client = GuardedClient(client, lifeline)
