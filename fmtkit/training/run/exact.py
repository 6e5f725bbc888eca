"""CPO and ORPO with exact token ids.

Their trainers put BOS before a prompt that has none and EOS after every reply, whatever the chat
template says (TRL 1.16): a reply that ends with its end of turn would end twice. Here the ids of messages are
those of the rendered text; rows of text get both, as from TRL.
"""

from typing import Any

from fmtkit.tokenizers.text_ends import tokens_of
from fmtkit.training.building.build import Parts, load_class, trainer_inputs
from fmtkit.training.data.rows import are_strings, rendered
from fmtkit.training.data.tokenized_rows import adapted
from fmtkit.training.planning.job import Job


def build_trainer(job: Job, parts: Parts) -> Any:
    """Make a CPO or ORPO trainer that takes the rendered text unchanged."""
    trainer_class = load_class(parts.runner.trainer)
    is_text = are_strings(parts.train)
    parts.train = rendered(parts.train, parts.tokenizer)
    parts.evaluation = rendered(parts.evaluation, parts.tokenizer)
    ends = parts.runner.text_ends if is_text else ""
    exact = type(
        trainer_class.__name__,
        (trainer_class,),
        {"tokenize_row": tokenize_row, "__doc__": tokenize_row.__doc__, "text_ends": ends},
    )
    return exact(**trainer_inputs(job, parts, trainer_class))


def tokenize_row(self: Any, feature: dict[str, str], model: Any = None) -> dict[str, list[int]]:
    """Tokenize rendered text; labels are -100 on the prompt, rows are cut at max_length."""
    del model
    out: dict[str, list[int]] = {}
    tokenizer, ends = adapted(self.processing_class), self.text_ends
    for name in ("chosen", "rejected"):
        prompt, reply = feature["prompt"], feature[name]
        ids = tokens_of(prompt + reply, tokenizer, ends, closed=bool(ends)).ids
        prompt_ids = tokens_of(prompt, tokenizer, ends, closed=False).ids
        start = _common(prompt_ids, ids)
        labels = [-100] * start + ids[start:]
        out[f"{name}_input_ids"] = ids[: self.max_length]
        out[f"{name}_attention_mask"] = [1] * len(ids[: self.max_length])
        out[f"{name}_labels"] = labels[: self.max_length]
        out.setdefault("prompt_input_ids", prompt_ids[:start])
        out.setdefault("prompt_attention_mask", [1] * start)
    return out


def _common(first: list[int], second: list[int]) -> int:
    """Return the length of the common prefix of ids."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
