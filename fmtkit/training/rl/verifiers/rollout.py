"""Episodes of a `verifiers` environment as TRL's rollout_func, and the environment as a run sees it."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fmtkit.errors import OptionError
from fmtkit.training.job import Job
from fmtkit.training.rl.dialogs import calls
from fmtkit.training.rl.dialogs.dialog import NOTHING, PER_HOST, Dialog, columns
from fmtkit.training.rl.dialogs.naming import POLICY
from fmtkit.training.rl.dialogs.played import PlayedReward
from fmtkit.training.rl.dialogs.player import Player
from fmtkit.training.rl.rollouts.contract import RolloutError
from fmtkit.training.rl.rollouts.server import asks_server
from fmtkit.training.rl.verifiers.endpoint import Conversation, Endpoint, Wording
from fmtkit.training.rl.verifiers.policy import OwnPolicy, ServerPolicy, generating
from fmtkit.training.rl.verifiers.settings import (
    ADDRESS,
    TASK,
    VerifiersSettings,
    read_settings,
)

KIND = "verifiers"


def open_environment(job: Job, tokenizer: Any) -> Player | None:
    """Find the environment of a job; None where it names none.

    Raises OptionError where it is not served.
    """
    settings = read_settings(job.sections.get("verifiers"))
    if not settings.environment:
        return None
    file = Path(job.run) / ADDRESS
    if not file.is_file():
        raise OptionError(
            f"verifiers.environment: {settings.environment} is not served (no {file}); `fmtkit train` "
            "starts it on the machine of the first process"
        )
    is_adapter = job.sections.get("rl", {}).get("vllm_lora_sync") is True
    model = POLICY if is_adapter else job.model
    rollout = Rollout(settings, file.read_text(encoding="utf-8"), tokenizer, model)
    rollout.asks_server = asks_server(job.trainer)
    return Player(PlayedReward(None, KIND), rollout, model)


class Rollout:
    """Plays an episode for each row; the model's turns are its own, and theirs alone are trained on."""

    takes_rows = True
    asks_server = False

    def __init__(self, settings: VerifiersSettings, url: str, tokenizer: Any, model: str) -> None:
        """Take where the environment is served, and the name of the model in requests."""
        self.settings = settings
        self.url = url
        self.model = model
        self.wording = Wording(tokenizer)
        self.endpoint = Endpoint(self.wording, model)

    def __call__(
        self, prompts: Sequence[Any], trainer: Any, rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, list[Any] | None]:
        """Play an episode for each row, in order.

        Raises RolloutError for an environment that cannot be played with this model at all.
        """
        del prompts
        self.wording.variables = dict(trainer.chat_template_kwargs)
        policy: OwnPolicy | ServerPolicy
        if self.asks_server:
            policy = ServerPolicy(trainer, self.model, self.settings.run_timeout)
        else:
            policy = OwnPolicy(generating(trainer))
        limit = trainer.max_completion_length
        dialogs = [self.endpoint.begin(limit, policy.sample) for _ in rows]
        most = min(limit, self.settings.max_turn_tokens or limit)
        sampling = {"temperature": trainer.temperature, "top_p": trainer.top_p, "max_tokens": most}
        threads = ThreadPoolExecutor(PER_HOST)
        try:
            playing = [
                threads.submit(self._reward, row, url, sampling)
                for row, (url, _) in zip(rows, dialogs, strict=True)
            ]
            policy.until(playing)
        finally:
            for url, _ in dialogs:
                self.endpoint.end(url)
            threads.shutdown(wait=False, cancel_futures=True)
        fault = next((found.fault for _, found in dialogs if found.fault), None)
        if fault is not None:
            raise RolloutError(f"verifiers.environment: {self.settings.environment}: {fault}")
        played = [
            self._played(row, found, future)
            for row, (_, found), future in zip(rows, dialogs, playing, strict=True)
        ]
        out = columns([dialog for dialog, _, _ in played], played, KIND)
        # Nothing corrects for the sampler where it is the model that trains.
        return out if trainer.use_vllm else {**out, "logprobs": None}

    def _reward(
        self, row: Mapping[str, Any], url: str, sampling: Mapping[str, float]
    ) -> tuple[float | None, str]:
        """Return the reward of an episode, or None and the reason why there is none."""
        asked = {"task": row[TASK], "base_url": url, "model": self.model, "sampling": sampling}
        try:
            answer = calls.post(
                f"{self.url}/run", json.dumps(asked).encode(), self.settings.run_timeout
            )
        except calls.CallError as error:
            return None, str(error)
        said = answer.get("error") if isinstance(answer, dict) else f"it answered {answer!r:.200}"
        if said:
            return None, f"{self.settings.environment}: {said}"
        reward = answer.get("reward")
        if isinstance(reward, bool) or not isinstance(reward, (int, float)):
            return None, f"{self.settings.environment}: its reward is {reward!r}"
        return float(reward), ""

    def _played(
        self,
        row: Mapping[str, Any],
        found: Conversation,
        future: "Future[tuple[float | None, str]]",
    ) -> tuple[Dialog, float | None, str]:
        """Return a dialog, its reward, and why there is nothing to learn from it, if so."""
        reward, reason = future.result()
        dialog = found.dialog or Dialog(prompt_ids=self.wording.prompt(row["prompt"]))
        if not reason and dialog.is_empty:
            reward, reason = None, NOTHING
        if not dialog.completion_ids:
            dialog.insert([self.wording.tokenizer.eos_token_id])
        if reason:
            dialog.mask()
        dialog.cut(found.limit)
        return dialog, reward, reason
