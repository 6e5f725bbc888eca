"""Dialogs with an environment: an agent of the Gym plays them by /run and tells the tokens."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fmtkit.training.rl.nemo_gym import calls
from fmtkit.training.rl.nemo_gym.reconstruction import Dialog, reconstruct
from fmtkit.training.rl.nemo_gym.requests import row_of, run_body
from fmtkit.training.rl.nemo_gym.settings import GymSettings
from fmtkit.training.rl.nemo_gym.verify import reward_of

PER_HOST = 64
"""Dialogs at a time."""
FAILED = "failed: "
"""How the outcome of a dialog begins that gave nothing to learn from; the reason follows."""
NO_TOKENS = (
    "no item of the answer has generation_token_ids; set return_token_id_information: true for the "
    "model server in the Gym's configuration (its vllm_model_for_training.yaml does)"
)


class Rollout:
    """TRL's rollout_func: dialogs as tokens, with the reward and the turns of each as columns."""

    def __init__(
        self, settings: GymSettings, agent: Callable[[str | None, str | None], str]
    ) -> None:
        """Take the settings, and what tells an agent's address from a row's server and agent."""
        self.settings = settings
        self.url_of = agent

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play the rows that the trainer generates for."""
        if len(prompts) != len(trainer.rows):
            raise ValueError(f"{len(prompts)} prompts for {len(trainer.rows)} rows")
        return self.play(trainer.rows, trainer)

    def play(self, rows: Sequence[Mapping[str, Any]], trainer: Any) -> dict[str, list[Any]]:
        """Play a dialog for each row, in order."""
        sampling = {
            "temperature": trainer.temperature,
            "top_p": trainer.top_p,
            "max_output_tokens": trainer.max_completion_length,
        }
        with ThreadPoolExecutor(PER_HOST) as threads:
            played = list(threads.map(lambda row: self._played(row, sampling), rows))
        dialogs = [
            _failed(row, trainer) if dialog is None else dialog
            for row, (dialog, _, _) in zip(rows, played, strict=True)
        ]
        for dialog in dialogs:
            dialog.cut(trainer.max_completion_length)
        return {
            "prompt_ids": [d.prompt_ids for d in dialogs],
            "completion_ids": [d.completion_ids for d in dialogs],
            "logprobs": [d.logprobs for d in dialogs],
            "env_mask": [d.env_mask for d in dialogs],
            "env_reward": [reward for _, reward, _ in played],
            "num_turns": [d.turns for d in dialogs],
            "nemo_gym_outcome": [
                FAILED + reason if reason else dialog.outcome
                for dialog, (_, _, reason) in zip(dialogs, played, strict=True)
            ],
        }

    def _played(
        self, row: Mapping[str, Any], sampling: Mapping[str, float]
    ) -> tuple[Dialog | None, float | None, str]:
        """Return the dialog and its reward; None, None and the reason where there is nothing to learn."""
        url = self.url_of(row["nemo_gym_server"], row["nemo_gym_agent"])
        body = run_body(row_of(row["nemo_gym_row"]), sampling)
        try:
            answer = calls.post(f"{url}/run", body, self.settings.run_timeout)
            reward = reward_of(answer)
        except calls.CallError as error:
            return None, None, str(error)
        dialog = reconstruct(_items(answer))
        if dialog is None or dialog.is_empty:
            return None, None, NO_TOKENS if dialog is None else "the model wrote nothing"
        return dialog, reward, ""


def _items(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    response = answer.get("response")
    items = response.get("output") if isinstance(response, Mapping) else None
    return [item for item in items or () if isinstance(item, Mapping)]


def _failed(row: Mapping[str, Any], trainer: Any) -> Dialog:
    """Return a dialog from which nothing is learnt: the prompt, and an end that no loss looks at."""
    tokenizer = trainer.processing_class
    prompt = row["prompt"]
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    else:
        ids = tokenizer.apply_chat_template(
            prompt,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **(trainer.chat_template_kwargs or {}),
        )
    dialog = Dialog(prompt_ids=list(ids))
    dialog.insert([tokenizer.eos_token_id])
    return dialog
