"""CPO and ORPO with exact token ids.

Their trainers put BOS before a prompt that has none and EOS after every reply, whatever the chat
template says (TRL 1.16): a reply that ends with its end of turn would end twice. Here the ids are
those of the rendered text.
"""

from typing import Any

from fmtkit.training.building.build import Parts, load_class, trainer_inputs
from fmtkit.training.data.rows import rendered
from fmtkit.training.planning.job import Job


def build_trainer(job: Job, parts: Parts) -> Any:
    """Make a CPO or ORPO trainer that takes the rendered text unchanged."""
    trainer_class = load_class(parts.runner.trainer)
    parts.train = rendered(parts.train, parts.tokenizer)
    parts.evaluation = rendered(parts.evaluation, parts.tokenizer)
    exact = type(
        trainer_class.__name__,
        (trainer_class,),
        {"tokenize_row": tokenize_row, "__doc__": tokenize_row.__doc__},
    )
    return exact(**trainer_inputs(job, parts, trainer_class))


def tokenize_row(self: Any, feature: dict[str, str], model: Any = None) -> dict[str, list[int]]:
    """Tokenize rendered text; labels are -100 on the prompt, rows are cut at max_length."""
    del model
    out: dict[str, list[int]] = {}
    for name in ("chosen", "rejected"):
        prompt, reply = feature["prompt"], feature[name]
        ids = _ids(self.processing_class, prompt + reply)
        prompt_ids = _ids(self.processing_class, prompt)
        start = _common(prompt_ids, ids)
        labels = [-100] * start + ids[start:]
        out[f"{name}_input_ids"] = ids[: self.max_length]
        out[f"{name}_attention_mask"] = [1] * len(ids[: self.max_length])
        out[f"{name}_labels"] = labels[: self.max_length]
        out.setdefault("prompt_input_ids", prompt_ids[:start])
        out.setdefault("prompt_attention_mask", [1] * start)
    return out


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _common(first: list[int], second: list[int]) -> int:
    """Return the length of the common prefix of ids."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
