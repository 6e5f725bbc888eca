"""Answers of a causal model to one prompt, and the tokens that end them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fmtkit.core.data_classes import dataclass


@dataclass(frozen=True)
class Answer:
    """What a model wrote behind a prompt."""

    text: str
    """The answer without the token that ends it."""
    ids: list[int]
    is_finished: bool


def answer(
    model: Any,
    tokenizer: Any,
    context: Sequence[int],
    ends: Sequence[int],
    *,
    most: int,
    temperature: float = 0,
    inputs: Mapping[str, Any] | None = None,
) -> Answer:
    """Continue a prompt's ids by at most `most` tokens: greedily, or sampled at a temperature.

    `inputs` are all inputs of a prompt with images, with the same ids.
    """
    import torch

    ids = torch.tensor([list(context)], device=model.device)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)} if inputs is None else inputs
    how: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    if temperature:
        how = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
    out = model.generate(
        **given,
        max_new_tokens=most,
        eos_token_id=list(ends) or None,
        pad_token_id=tokenizer.pad_token_id,
        **how,
    )[0, len(context) :].tolist()
    is_finished = bool(out) and out[-1] in ends
    text = tokenizer.decode(out[:-1] if is_finished else out, skip_special_tokens=False)
    return Answer(text, out, is_finished)


def ends_of(tokenizer: Any) -> list[int]:
    """Return the tokens that end an answer: the EOS, and what the template writes after a reply."""
    ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    if tokenizer.chat_template is None:
        return ends
    reply = "answer"
    messages = [{"role": "user", "content": "question"}, {"role": "assistant", "content": reply}]
    text = rendered(tokenizer, messages)
    after = tokenizer(text[text.rfind(reply) + len(reply) :], add_special_tokens=False)["input_ids"]
    special = set(tokenizer.all_special_ids) | {
        number for number, token in tokenizer.added_tokens_decoder.items() if token.special
    }
    return list(dict.fromkeys([*ends, *(i for i in after[:1] if i in special)]))


def rendered(tokenizer: Any, messages: Sequence[Mapping[str, Any]], **given: Any) -> str:
    """Render messages in the form of contents that the template takes: of vision models often parts."""
    from fmtkit.rendering.content_parts import in_form
    from fmtkit.training.data.rows import forms_of_content

    forms = forms_of_content(tokenizer)
    shown = [in_form(message, forms) for message in messages]
    return str(tokenizer.apply_chat_template(shown, tokenize=False, **given))
