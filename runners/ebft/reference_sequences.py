"""Token sequences that structured EBFT compares: what was generated, and what the row gives.

All work is on token ids; nothing that was generated is decoded and tokenised again.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fmtkit.core.errors import ColumnMismatchError

Message = Mapping[str, Any]
Prompt = str | list[Message]

OPENING = re.compile(r"(<think>|<reasoning>|<\|begin_of_thought\|>)(\s*)\Z")


@dataclass(frozen=True)
class TokenSequence:
    """Token ids, and how many of them are the prompt's."""

    ids: list[int]
    prompt: int
    truncated: bool = False


@dataclass(frozen=True)
class Renderer:
    """How prompts and references become ids: as the trainer renders what it generates from."""

    tokenizer: Any
    ends: Collection[int]
    """Ids that end a string or fill a batch, and are cut off before strings are compared."""
    longest: int
    """Sequences lose tokens on the left beyond this length: the pooled end must survive."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of apply_chat_template."""

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the ids that a completion continues."""
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        return self._render(prompt, generation=True)

    def generated(self, prompt: Prompt, completion: Sequence[int]) -> TokenSequence:
        """Join a prompt and a completion, which loses its end-of-text and padding."""
        ids = self.prompt_ids(prompt)
        return self._cut(ids + self._stripped(completion, self._is_end), len(ids))

    def reference(
        self, prompt: Prompt, ground_truth: str, remaining: Sequence[Message] = ()
    ) -> TokenSequence:
        """Return the sequence that completions of the prompt are compared with.

        With remaining turns it is the complete conversation, rendered at once. It ends without an
        end-of-text, as the generated one does, so that content is compared with content.
        """
        start = self.prompt_ids(prompt)
        if not remaining:
            return self._cut(start + self.answer_ids(prompt, ground_truth), len(start))
        if isinstance(prompt, str):
            raise ColumnMismatchError(
                "a row has remaining_turns and a prompt that is text; give the prompt as messages"
            )
        answer = {"role": "assistant", "content": ground_truth}
        ids = self._render([*prompt, answer, *remaining], generation=False)
        return self._cut(self._stripped(ids, self._is_end_or_blank), len(start))

    def answer_ids(self, prompt: Prompt, ground_truth: str) -> list[int]:
        """Return the ids of a reference answer, without a thinking tag that the prompt opens."""
        text = without_opened_tag(self._text(prompt), ground_truth)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def suffix_ids(self, turns: Sequence[Message]) -> list[int]:
        """Return what follows an answer's end-of-text: these turns and the generation prompt.

        Found on a dummy conversation, whose rendering up to the last end-of-text must be a prefix
        of the rendering with the turns.
        """
        dummy = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        before = self._render(dummy, generation=False)
        after = self._render([*dummy, *turns], generation=True)
        ends = [i for i, token in enumerate(before) if token == self.tokenizer.eos_token_id]
        before = before[: ends[-1] + 1] if ends else before
        if after[: len(before)] != before:
            raise ColumnMismatchError(
                "the chat template renders an answer differently once turns follow it, so that "
                "remaining_turns cannot be appended to what was generated; use a template that "
                "keeps earlier turns, or data without remaining_turns"
            )
        return after[len(before) :]

    def _render(self, messages: Sequence[Message], *, generation: bool) -> list[int]:
        return list(
            self.tokenizer.apply_chat_template(
                messages,
                add_generation_prompt=generation,
                tokenize=True,
                return_dict=False,
                **self.options,
            )
        )

    def _text(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        return str(
            self.tokenizer.apply_chat_template(
                prompt, add_generation_prompt=True, tokenize=False, **self.options
            )
        )

    def _is_end(self, token: int) -> bool:
        return token in self.ends

    def _is_end_or_blank(self, token: int) -> bool:
        return token in self.ends or not self.tokenizer.decode([token]).strip()

    def _stripped(self, ids: Sequence[int], is_end: Any) -> list[int]:
        stop = len(ids)
        while stop and is_end(ids[stop - 1]):
            stop -= 1
        return list(ids[:stop])

    def _cut(self, ids: list[int], prompt: int) -> TokenSequence:
        excess = max(len(ids) - self.longest, 0)
        return TokenSequence(ids[excess:], max(prompt - excess, 0), excess > 0)


def without_opened_tag(prompt: str, answer: str) -> str:
    """Remove the thinking tag that an answer begins with, where the prompt ends with it already."""
    opened = OPENING.search(prompt)
    if opened is None or not answer.startswith(opened[1]):
        return answer
    return answer.removeprefix(opened[1]).removeprefix(opened[2])
