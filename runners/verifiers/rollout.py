"""Episodes of a `verifiers` environment as TRL's rollout_func, and the environment as a run sees it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.core import http_client
from fmtkit.core.errors import OptionError
from fmtkit.core.section import read
from fmtkit.training.online.conversations.environment import EnvReward, ExternalEnvironment
from fmtkit.training.online.conversations.failures import Tried, tried
from fmtkit.training.online.conversations.naming import POLICY
from fmtkit.training.online.conversations.tokenized_conversation import (
    NOTHING,
    PER_HOST,
    TokenizedConversation,
    columns,
)
from fmtkit.training.online.failed_samples import Timings
from fmtkit.training.online.rewards import read_options
from fmtkit.training.online.rewards.calls import excerpt
from fmtkit.training.online.rollouts.contract import RolloutError
from fmtkit.training.planning.job import Job
from fmtkit.training.vllm import rollout_settings as rollouts
from fmtkit.training.vllm.server_state import asks_server

from .endpoint import Conversation, Endpoint, Wording
from .policy import OwnPolicy, ServerPolicy, generating
from .settings import ADDRESS, TASK, VerifiersSettings

KIND = "verifiers"
ADVICE = "verifiers.log in the run folder has the details; --resume continues"


def open_environment(job: Job, tokenizer: Any) -> ExternalEnvironment | None:
    """Find the environment of a job; None where it names none.

    Raises OptionError where it is not served.
    """
    settings = read(VerifiersSettings, job.sections.get("verifiers"))
    if not settings.environment:
        return None
    file = Path(job.run) / ADDRESS
    if not file.is_file():
        raise OptionError(
            f"verifiers.environment: {settings.environment} is not served (no {file}); `fmtkit train` "
            "starts it on the machine of the first process"
        )
    is_adapter = rollouts.read_settings(job.of_rollouts(), run=job.run).vllm_lora_sync
    model = POLICY if is_adapter else job.model
    retries = read_options(job.section("rl")).retries
    rollout = EpisodeRollout(settings, file.read_text(encoding="utf-8"), tokenizer, model, retries)
    rollout.asks_server = asks_server(job.trainer)
    return ExternalEnvironment(EnvReward(None, KIND, ADVICE), rollout, model)


class EndedError(http_client.CallError):
    """An episode must not be retried."""


class Episode:
    """The attempts at one episode: each has a conversation of its own, and the last one counts."""

    def __init__(
        self, begin: Callable[[], tuple[str, Conversation]], end: Callable[[str], None]
    ) -> None:
        """Take what opens a conversation at an address of its own, and what closes it."""
        self._begin = begin
        self._end = end
        self._is_over = False
        self._url, self.conversation = begin()

    @property
    def fault(self) -> str:
        """Return why the environment cannot be served with this model, if so."""
        return self.conversation.fault

    @contextmanager
    def attempt(self) -> Iterator[str]:
        """Open a conversation and close it; raise EndedError where nothing is to be tried again."""
        if self._is_over or self.fault:
            raise EndedError(self.fault or "this conversation has ended")
        if self.conversation.is_closed:
            self._url, self.conversation = self._begin()
        try:
            yield self._url
        finally:
            self._end(self._url)

    def close(self) -> None:
        """Refuse all further requests."""
        self._is_over = True
        self._end(self._url)


class EpisodeRollout:
    """Runs an episode for each row; only the model's turns are trained on."""

    takes_rows = True
    runs_alone = True
    asks_server = False

    def __init__(
        self, settings: VerifiersSettings, url: str, tokenizer: Any, model: str, retries: int = 0
    ) -> None:
        """Take where the environment is served, the model's name in requests, and retries of an episode."""
        self.settings = settings
        self.url = url
        self.model = model
        self.retries = retries
        self.timings = Timings()
        self.wording = Wording(tokenizer)
        self.endpoint = Endpoint(self.wording, model)

    def __call__(
        self, prompts: Sequence[Any], trainer: Any, rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, list[Any] | None]:
        """Run an episode for each row, in order.

        Raises RolloutError for an environment that cannot be run with this model at all.
        """
        del prompts
        self.wording.variables = dict(trainer.chat_template_kwargs)
        policy: OwnPolicy | ServerPolicy
        if self.asks_server:
            policy = ServerPolicy(trainer, self.model, self.settings.run_timeout)
        else:
            policy = OwnPolicy(generating(trainer))
        limit = trainer.max_completion_length
        open_one = partial(self.endpoint.begin, limit, policy.sample)
        episodes = [Episode(open_one, self.endpoint.end) for _ in rows]
        most = min(limit, self.settings.max_turn_tokens or limit)
        sampling = {"temperature": trainer.temperature, "top_p": trainer.top_p, "max_tokens": most}
        threads = ThreadPoolExecutor(PER_HOST)
        try:
            running = [
                threads.submit(self._tried, row, episode, sampling)
                for row, episode in zip(rows, episodes, strict=True)
            ]
            policy.until(running)
        finally:
            for episode in episodes:
                episode.close()
            threads.shutdown(wait=False, cancel_futures=True)
        fault = next((episode.fault for episode in episodes if episode.fault), None)
        if fault is not None:
            raise RolloutError(f"verifiers.environment: {self.settings.environment}: {fault}")
        found = [future.result() for future in running]
        outcomes = [
            self._outcome(row, episode.conversation, one)
            for row, episode, one in zip(rows, episodes, found, strict=True)
        ]
        seconds, texts = [one.seconds for one in found], [excerpt(row["prompt"]) for row in rows]
        self.timings.add(KIND, seconds, self.settings.run_timeout, texts)
        out = columns([tokens for tokens, _, _ in outcomes], outcomes, KIND)
        # Nothing corrects for the sampler where it is the model that trains.
        return out if trainer.use_vllm else {**out, "logprobs": None}

    def _tried(
        self, row: Mapping[str, Any], episode: "Episode", sampling: Mapping[str, float]
    ) -> Tried[float]:
        """Run an episode, and retry it if it fails; return its reward, or the reason why it has none."""

        def once() -> float:
            with episode.attempt() as url:
                return self._reward(row, url, sampling)

        return tried(once, self.retries, final=(EndedError,))

    def _reward(self, row: Mapping[str, Any], url: str, sampling: Mapping[str, float]) -> float:
        """Return the reward of an episode; raise CallError where it has none."""
        asked = {"task": row[TASK], "base_url": url, "model": self.model, "sampling": sampling}
        answer = http_client.post(
            f"{self.url}/run", json.dumps(asked).encode(), self.settings.run_timeout
        )
        said = answer.get("error") if isinstance(answer, dict) else f"it answered {answer!r:.200}"
        if said:
            raise http_client.CallError(f"{self.settings.environment}: {said}")
        reward = answer.get("reward")
        if isinstance(reward, bool) or not isinstance(reward, (int, float)):
            raise http_client.CallError(f"{self.settings.environment}: its reward is {reward!r}")
        return float(reward)

    def _outcome(
        self, row: Mapping[str, Any], found: Conversation, judged: Tried[float]
    ) -> tuple[TokenizedConversation, float | None, str]:
        """Return a conversation, its reward, and the reason if it cannot be trained on."""
        reward, reason = judged.value, judged.reason
        tokens = found.tokens or TokenizedConversation(
            prompt_ids=self.wording.prompt(row["prompt"])
        )
        if not reason and tokens.is_empty:
            reward, reason = None, NOTHING
        if not tokens.completion_ids:
            tokens.insert([self.wording.tokenizer.eos_token_id])
        if reason:
            tokens.mask()
        tokens.cut(found.limit)
        return tokens, reward, reason
