"""A vLLM server that may be gone: calls are tried again for a while, then the run ends and loses nothing.

TRL's client repeats a request for a minute by itself. When it gives up, the server is waited for as
long as at the start of the run (`trl.vllm_server_timeout`). One that was started anew has the base
model's weights: an adapter is sent again; whole weights cannot be, since the NCCL group died with it.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from fmtkit.training.life import TrainingError
from fmtkit.training.rl.rollouts.server import Server, ServerError

_TRIES = 2
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class ServerLostError(TrainingError):
    """Say that a run's server is gone or makes no more answers, and how to go on."""


class Lifeline:
    """Runs calls to a server, and waits for it where it does not answer.

    `restore` brings a server that was started anew to the weights of now; None where that is impossible.
    """

    def __init__(
        self,
        server: Server,
        seconds: float,
        restore: Callable[[], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = server
        self.seconds = seconds
        self.restore = restore
        self.pause = pause
        self.instance = server.instance()

    def run(self, call: Callable[[], Any]) -> Any:
        """Return what the call returns.

        Raises ServerLostError if the server does not come back as it was, TrainingError if it is there
        and refuses.
        """
        for _ in range(_TRIES):
            try:
                return call()
            except Exception as error:
                reason = self._silence(error)
                if reason is None:
                    raise
                self._recover(reason)
        return self.run_once(call)

    def run_once(self, call: Callable[[], Any]) -> Any:
        """Return what the call returns, without a second try; raises as `run` does."""
        try:
            return call()
        except Exception as error:
            reason = self._silence(error)
            if reason is None:
                raise
            raise ServerLostError(self._lost(f"did not answer ({reason})")) from error

    def _silence(self, error: Exception) -> str | None:
        """Return why nothing was answered, None for an error of another kind; raises for a refusal."""
        reason = str(error).partition("\n")[0][:500]
        if _is_refusal(error):
            raise TrainingError(
                f"the vLLM server at {self.server.url} refused: {reason}"
            ) from error
        # The exceptions of `requests`, which TRL's client uses, are OSErrors.
        return reason if isinstance(error, (OSError, ServerError)) else None

    def _recover(self, reason: str) -> None:
        """Wait for the server; raises ServerLostError if it stays away, or came back without weights."""
        waited, step = 0.0, _FIRST_PAUSE
        while not self.server.is_up():
            if waited >= self.seconds:
                raise ServerLostError(self._lost(f"is gone for {self.seconds:.0f} s ({reason})"))
            self.pause(step)
            waited += step
            step = min(step * 2, _LONGEST_PAUSE)
        before, self.instance = self.instance, self.server.instance()
        known = before is not None and self.instance is not None
        if before == self.instance if known else waited == 0:
            return
        if self.restore is None:
            raise ServerLostError(self._lost("was started anew and lacks the trained weights"))
        self.restore()

    def _lost(self, what: str) -> str:
        return f"the vLLM server at {self.server.url} {what}; start it again with fmtkit vllm-serve"


def _is_refusal(error: Exception) -> bool:
    """Tell whether the server answered and said no: TRL raises a bare Exception with the status."""
    if isinstance(error, ServerError):
        return error.status is not None
    return type(error) is Exception and str(error).startswith("Request failed:")


class Failure:
    """A lost server, in the place of its answers: it raises on every process that takes them.

    Only the main process talks to the server. TRL sends what it got to all others, and so they end
    together; if the main process raised alone, the others would wait for it.
    """

    def __init__(self, message: str) -> None:
        self.message = message

    def __iter__(self) -> Iterator[Any]:
        raise ServerLostError(self.message)

    def __getitem__(self, _: object) -> NoReturn:
        raise ServerLostError(self.message)


class GuardedClient:
    """TRL's client of a server, with each call on a lifeline; everything else is the client's own."""

    def __init__(self, client: Any, lifeline: Lifeline) -> None:
        self.client = client
        self.lifeline = lifeline
        self.lost: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    @property
    def model(self) -> Any:
        """The name that requests ask for."""
        return self.client.model

    @model.setter
    def model(self, name: str) -> None:
        self.client.model = name

    def generate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Generate; a lost server is in the answer."""
        if self.lost is None:
            try:
                answer: dict[str, Any] = self.lifeline.run(
                    lambda: self.client.generate(*args, **kwargs)
                )
            except TrainingError as error:
                self.lost = str(error)
            else:
                return answer
        failure = Failure(self.lost)
        return dict.fromkeys(("prompt_ids", "completion_ids", "logprobs"), failure)

    def update_named_params(self, metadata: Any, named_params: Iterable[Any]) -> None:
        """Send the weights; a server that is lost meanwhile is reported by the next generation.

        The parameters are walked to their end in any case: the other processes take part in gathering
        them, and an adapter that was merged for this is taken out again only there.
        """
        remaining = iter(named_params)
        try:
            self.lifeline.run_once(lambda: self.client.update_named_params(metadata, remaining))
        except TrainingError as error:
            self.lost = str(error)
            for _ in remaining:
                pass

    def reset_prefix_cache(self) -> None:
        """Let the server forget what it computed with other weights."""
        if self.lost is not None:
            return
        try:
            self.lifeline.run(self.client.reset_prefix_cache)
        except TrainingError as error:
            self.lost = str(error)


def save_progress(trainer: Any) -> Path | None:
    """Save a checkpoint of a run whose server is gone, as of the last whole step; None before the first."""
    if trainer.state.global_step == 0:
        return None
    trainer._save_checkpoint(trainer.model, trial=None)
    return Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
