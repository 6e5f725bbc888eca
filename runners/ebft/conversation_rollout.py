"""Rollouts of several turns: after an answer of the policy comes the next user turn of the reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .reference_sequences import Message, Renderer

Generate = Callable[[list[list[int]], int], tuple[list[list[int]], list[list[float]] | None]]
"""(prompts as ids, samples per prompt) -> completions as ids, their log-probs if they are known."""


@dataclass
class GrowingConversation:
    """A conversation as it grows; `mask` is 1 for generated tokens and 0 for inserted ones."""

    prompt: list[int]
    segments: list[list[int]]
    """The ids to insert before each further answer."""
    completion: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def answer(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Append an answer of the policy."""
        self.completion.extend(ids)
        self.mask.extend([1] * len(ids))
        self.logprobs.extend(logprobs or [0.0] * len(ids))

    def insert(self, ids: Sequence[int]) -> None:
        """Append tokens of the environment, which are masked."""
        self.completion.extend(ids)
        self.mask.extend([0] * len(ids))
        self.logprobs.extend([0.0] * len(ids))

    def end(self, longest: int) -> None:
        """Cut the conversation at `longest` tokens of completion."""
        del self.completion[longest:], self.mask[longest:], self.logprobs[longest:]


@dataclass(frozen=True)
class ConversationRollouts:
    """Rolls out batches of conversations."""

    generate: Generate
    eos: int
    ends: frozenset[int]
    longest: int
    """Tokens of a completion, inserted ones included."""
    rounds: Callable[[int], int] = lambda turns: turns
    """This rank's number of turns -> the number for all ranks, since sharded generation needs all at once."""
    together: bool = False
    """Whether every turn generates for all conversations, as is necessary with several ranks."""

    def run(
        self, prompts: list[list[int]], segments: list[list[list[int]]], group: int
    ) -> list[GrowingConversation]:
        """Roll out conversations; `segments` holds the ids before each further answer of each."""
        conversations = [
            GrowingConversation(p, list(s)) for p, s in zip(prompts, segments, strict=True)
        ]
        self._extend(conversations, conversations, group)
        for _ in range(self.rounds(max(len(s) for s in segments))):
            going = [d for d in conversations if self._takes_turn(d)]
            if going or self.together:
                self._extend(going, conversations if self.together else going, 1)
        return conversations

    def _takes_turn(self, conversation: GrowingConversation) -> bool:
        """Insert the next turn if there is one and room for a token after it; else end the conversation."""
        if not conversation.segments:
            return False
        ended = bool(conversation.completion) and conversation.completion[-1] in self.ends
        turn = ([] if ended else [self.eos]) + conversation.segments[0]
        if len(conversation.completion) + len(turn) >= self.longest:
            conversation.segments.clear()
            return False
        conversation.segments.pop(0)
        conversation.insert(turn)
        return True

    def _extend(
        self, going: list[GrowingConversation], asked: list[GrowingConversation], group: int
    ) -> None:
        completions, logprobs = self.generate([d.prompt + d.completion for d in asked], group)
        answering = {id(conversation) for conversation in going}
        for i, conversation in enumerate(asked):
            if id(conversation) in answering:
                conversation.answer(completions[i], logprobs[i] if logprobs else None)
                conversation.end(self.longest)


def inserted_turns(remaining: Sequence[Message] | None) -> list[list[Message]]:
    """Return the turns before each further answer; turns after the last answer are cut."""
    groups: list[list[Message]] = []
    turns: list[Message] = []
    for message in remaining or ():
        if message["role"] != "assistant":
            turns.append(message)
        elif turns:
            groups.append(turns)
            turns = []
    return groups


def roll_out_conversations(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """Generate complete conversations for TRL, which masks the inserted turns from the loss.

    The signature is that of TRL's `rollout_func`; the rows are in `trainer.rows`.
    """
    rows: Sequence[Mapping[str, Any]] = trainer.rows
    renderer: Renderer = trainer.renderer
    prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
    segments = [
        [renderer.suffix_ids(turns) for turns in inserted_turns(row.get("remaining_turns"))]
        for row in rows
    ]
    rollout = ConversationRollouts(
        generate=lambda ids, group: trainer._generate_single_turn(ids, None, {}, group),
        eos=trainer.processing_class.eos_token_id,
        ends=frozenset(trainer.eos_token_ids),
        longest=trainer.max_completion_length,
        rounds=trainer.most_of_all_ranks,
        together=trainer.accelerator.num_processes > 1,
    )
    conversations = rollout.run(prompt_ids, segments, trainer.group_size)
    first = trainer.settings.multi_turn_train == "first"
    return {
        "prompt_ids": [d.prompt for d in conversations],
        "completion_ids": [d.completion for d in conversations],
        "logprobs": [d.logprobs for d in conversations] if trainer.use_vllm else None,
        "env_mask": [first_turn(d.mask) if first else d.mask for d in conversations],
    }


roll_out_conversations.in_step = True  # type: ignore[attr-defined]  # it samples with all processes


def first_turn(mask: list[int]) -> list[int]:
    """Return the mask with only its first run of ones left."""
    end = next((i for i, inside in enumerate(mask) if not inside), len(mask))
    return mask[:end] + [0] * (len(mask) - end)
