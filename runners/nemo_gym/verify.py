"""The reward of single answers: a resources server scores each by /verify."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fmtkit.core import http_client
from fmtkit.training.online.conversations.failures import Tried, stop_if_none_answered, tried
from fmtkit.training.online.conversations.tokenized_conversation import LEFT_OUT
from fmtkit.training.online.failed_samples import Failures
from fmtkit.training.online.rewards.calls import excerpt

from .bodies import row_of, seed_body, verify_body
from .settings import ADVICE, KIND, VERIFY, GymSettings

THREADS = 32
"""Concurrent calls: a server takes milliseconds for one, and serves many at once."""
_NO_SUCH_PATH = 404
Completion = str | list[dict[str, Any]]


class Verify:
    """TRL's reward function `nemo_gym_verify`: the server's reward, None where it gave none."""

    # A server that is lost shows in the whole batch; a part of it may fail by chance.
    needs_full_batch = True
    __name__ = VERIFY

    def __init__(
        self,
        settings: GymSettings,
        server: Callable[[str | None, str | None], str],
        retries: int = 0,
    ) -> None:
        """Take the settings, and a function from a row's server and agent to a server's address."""
        self.settings = settings
        self.url_of = server
        self.retries = retries
        self.failures = Failures()
        """Answers that failed, for the trainer; shared with the run's other rewards."""

    def __call__(
        self,
        completions: Sequence[Completion],
        nemo_gym_row: Sequence[str],
        nemo_gym_server: Sequence[str | None],
        nemo_gym_agent: Sequence[str | None],
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the rewards in order; raise GymError if no call at all had an answer."""
        urls = map(self.url_of, nemo_gym_server, nemo_gym_agent)
        with ThreadPoolExecutor(THREADS) as threads:
            found = list(
                threads.map(self._judged, range(len(completions)), urls, nemo_gym_row, completions)
            )
        self._note(found, completions)
        reasons = [one.reason or None for one in found]
        failed = stop_if_none_answered(reasons, "calls of /verify", kind=KIND, advice=ADVICE)
        masked = [one.value is None and not one.reason for one in found]
        if log_metric is not None:
            log_metric("nemo_gym/verify_errors", float(failed))
            log_metric("nemo_gym/masked", float(sum(masked)))
        if log_extra is not None and any(masked):
            log_extra("masked", [LEFT_OUT if one else None for one in masked])
        return [one.value for one in found]

    def _note(
        self, found: Sequence[Tried[float | None]], completions: Sequence[Completion]
    ) -> None:
        """Report to the trainer which answers failed, why, and how long each took."""
        self.failures.add({row: one.reason for row, one in enumerate(found) if one.reason})
        self.failures.timings.add(
            KIND,
            [one.seconds for one in found],
            self.settings.verify_timeout,
            [f"completion {excerpt(one)}" for one in completions],
        )

    def _judged(
        self, number: int, url: str, row_text: str, completion: Completion
    ) -> Tried[float | None]:
        """Return the reward of an answer, or None and the reason why there is none."""
        row = row_of(row_text)
        body = verify_body(row, text_of(completion), self.settings.model_name, number)

        def once() -> float | None:
            session, timeout = http_client.session(), self.settings.verify_timeout
            self._seed(url, seed_body(row), session)
            return reward_of(
                http_client.post(f"{url}/verify", body, timeout, session, repeats=True)
            )

        return tried(once, self.retries)

    def _seed(self, url: str, body: bytes, session: Any) -> None:
        """Start a session: a stateful server verifies by what it set up for this row."""
        try:
            timeout = self.settings.verify_timeout
            http_client.post(f"{url}/seed_session", body, timeout, session, repeats=True)
        except http_client.CallError as error:
            if error.status != _NO_SUCH_PATH:
                raise


def text_of(completion: Completion) -> str:
    """Return the text of a completion: TRL gives a list of messages where the prompt is one."""
    if isinstance(completion, str):
        return completion
    return "".join(str(message.get("content") or "") for message in completion)


def is_masked(answer: Any) -> bool:
    """Return whether a server says that a sample is not to be trained on (`mask_sample`, Gym 0.7)."""
    return isinstance(answer, dict) and answer.get("mask_sample") is True


def reward_of(answer: Any) -> float | None:
    """Return the reward of an answer, None for a masked one; raise CallError if it has none."""
    if is_masked(answer):
        return None
    reward = answer.get("reward") if isinstance(answer, dict) else None
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        raise http_client.CallError(f"the answer has no reward, but {str(answer)[:200]}")
    return float(reward)
