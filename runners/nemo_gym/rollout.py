"""Conversations with an environment: an agent of the Gym runs them at /run and returns the tokens.

Only the last item of each model call has the tokens: `prompt_token_ids` of the prompt,
`generation_token_ids` and `generation_log_probs` of the answer. The prompt of a later call begins with all
tokens so far; the rest of it comes from the environment.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fmtkit.core import http_client
from fmtkit.core.http_client import CallError
from fmtkit.training.online.conversations.failures import Tried, tried
from fmtkit.training.online.conversations.tokenized_conversation import (
    MASKED,
    MISMATCH,
    NOTHING,
    PER_HOST,
    TokenizedConversation,
    columns,
)
from fmtkit.training.online.failed_samples import Timings
from fmtkit.training.online.rewards.calls import excerpt

from .bodies import row_of, run_body
from .settings import KIND, NO_TOKENS, GymSettings
from .verify import is_masked, reward_of


class GymRollout:
    """TRL's rollout_func: conversations as tokens, with the reward and the turns of each as columns."""

    takes_rows = True
    runs_alone = True

    def __init__(
        self,
        settings: GymSettings,
        agent: Callable[[str | None, str | None], str],
        tokenizer: Any,
        retries: int = 0,
    ) -> None:
        """Take the settings, a function from a row's server and agent to an agent's address, and retries.

        The tokenizer is copied, since this may run in a thread, and fast tokenizers are not thread-safe.
        """
        self.settings = settings
        self.url_of = agent
        self.tokenizer = copy.deepcopy(tokenizer)
        self.retries = retries
        self.timings = Timings()

    def __call__(
        self, prompts: Sequence[Any], trainer: Any, rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, list[Any] | None]:
        """Run a conversation for each row, in order; the prompts are in the rows."""
        del prompts
        sampling = {
            "temperature": trainer.temperature,
            "top_p": trainer.top_p,
            "max_output_tokens": trainer.max_completion_length,
        }
        with ThreadPoolExecutor(PER_HOST) as threads:
            found = list(threads.map(lambda row: self._tried(row, sampling), rows))
        outcomes = [_outcome(one) for one in found]
        seconds, texts = [one.seconds for one in found], [excerpt(row["prompt"]) for row in rows]
        self.timings.add(KIND, seconds, self.settings.run_timeout, texts)
        conversations = [
            conversation or self._failed(row, trainer.chat_template_kwargs)
            for row, (conversation, _, _) in zip(rows, outcomes, strict=True)
        ]
        for conversation in conversations:
            conversation.cut(trainer.max_completion_length)
        return columns(conversations, outcomes, KIND)

    def _tried(
        self, row: Mapping[str, Any], sampling: Mapping[str, float]
    ) -> Tried[tuple[TokenizedConversation | None, float | None]]:
        """Return a conversation and its reward, or the reason of the failure."""
        url = self.url_of(row["nemo_gym_server"], row["nemo_gym_agent"])
        body = run_body(row_of(row["nemo_gym_row"]), sampling)

        def once() -> tuple[TokenizedConversation | None, float | None]:
            answer = http_client.post(f"{url}/run", body, self.settings.run_timeout)
            reward, conversation = reward_of(answer), reconstruct(_items(answer))
            if is_masked(answer) and conversation is not None and not conversation.is_empty:
                conversation.mask()
            return conversation, reward

        return tried(once, self.retries)

    def _failed(
        self, row: Mapping[str, Any], variables: Mapping[str, Any] | None
    ) -> TokenizedConversation:
        """Return a conversation without trained tokens: the prompt, and a masked end."""
        ids = self.tokenizer.apply_chat_template(
            row["prompt"],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **(variables or {}),
        )
        conversation = TokenizedConversation(prompt_ids=list(ids))
        conversation.insert([self.tokenizer.eos_token_id])
        return conversation


def _outcome(
    found: Tried[tuple[TokenizedConversation | None, float | None]],
) -> tuple[TokenizedConversation | None, float | None, str]:
    """Return a conversation and its reward; None, None and the reason if it failed."""
    if found.value is None:
        return None, None, found.reason
    conversation, reward = found.value
    if conversation is None:
        return None, None, NO_TOKENS
    if conversation.is_empty and conversation.outcome != MASKED:
        return None, None, NOTHING
    return conversation, reward, ""


def _items(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    response = answer.get("response")
    items = response.get("output") if isinstance(response, Mapping) else None
    return [item for item in items or () if isinstance(item, Mapping)]


def reconstruct(items: Sequence[Mapping[str, Any]]) -> TokenizedConversation | None:
    """Return the conversation of `response.output`; None if no item has the model's tokens.

    If the prompt of a turn does not begin with all tokens before it (a template that rewrites earlier turns),
    that turn and all later ones are left out, and the outcome is MISMATCH.
    """
    calls = [item for item in items if item.get("generation_token_ids") is not None]
    if not calls:
        return None
    conversation = TokenizedConversation(prompt_ids=_ids(calls[0], "prompt_token_ids"))
    if not conversation.prompt_ids:
        raise CallError("the answer's first item has no prompt_token_ids")
    for number, call in enumerate(calls):
        read = _ids(call, "prompt_token_ids")
        seen = conversation.prompt_ids + conversation.completion_ids
        if read[: len(seen)] != seen:
            conversation.outcome = MISMATCH
            break
        if number:
            conversation.insert(read[len(seen) :])
        conversation.generate(
            _ids(call, "generation_token_ids"), call.get("generation_log_probs") or ()
        )
    return conversation


def _ids(item: Mapping[str, Any], name: str) -> list[int]:
    ids = item.get(name) or []
    if not isinstance(ids, list) or not all(type(value) is int for value in ids):
        raise CallError(f"{name} of the answer is not a list of token ids but {str(ids)[:80]}")
    return ids
