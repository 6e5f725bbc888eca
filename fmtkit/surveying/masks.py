"""Which tokens of a row are trained, and why: the ids and masks that TRL 1.16 builds from it.

A test compares them with TRL's own trainers and collators. Two of TRL's ways are followed although
they are wrong, and the notes say so: CPO, ORPO and SimPO append an EOS token after the template's
own end of turn, and transformers stretches a generation span that ends in no token too far.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fmtkit.errors import OptionError
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.tokens import Tokenizer

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

WHY = {
    "sft": "the reply is trained, the prompt is context",
    "assistant": "what the template marks as generation is trained: replies and their end of turn",
    "everything": "every token is trained, prompts too",
    "preference": "the log-probability of the reply is compared, the prompt is context",
    "unpaired": "the log-probability of the reply is raised or lowered, the prompt is context",
    "reward": "the score is read at the last token; no token is predicted",
    "prm": "the token after each step carries the step's label",
    "labels": "tokens whose label is not -100 are trained",
    "context": "the row is context; what is trained is generated while training",
}
"""Rule of a mask -> what it means, in a sentence."""

RULES = {
    "sft": "sft",
    **dict.fromkeys(("dpo", "ipo"), "preference"),
    **dict.fromkeys(("cpo", "orpo", "simpo", "alphapo"), "appended"),
    **dict.fromkeys(("kto", "bco"), "unpaired"),
    "reward": "reward",
}
"""Training method -> how its trainer makes ids and masks of dialogs."""

DEFAULT_RULES = {"Preference": "preference", "Unpaired": "unpaired", "Completion": "sft"}
"""Table -> the rule of the method that takes it first."""


@dataclass(frozen=True, eq=False)
class Masked:
    """One sequence that reaches the model."""

    side: str
    """`chosen`, `rejected` or `` where the row makes one sequence."""
    text: str
    ids: Ints
    trained: Bools
    offsets: tuple[tuple[int, int], ...]
    """Where each token stands in `text`, in characters; (n, n) for a token that has no text."""
    prompt_length: int
    """Tokens before the first of the reply."""
    rule: str
    labels: tuple[float, ...] | None = None
    """Of the trained tokens of a stepwise row."""
    notes: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """Say in a sentence why these tokens are trained."""
        return WHY[self.rule]


def mask_row(
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate | None = None,
    *,
    method: str | None = None,
    assistant_only: bool = False,
) -> tuple[Masked, ...]:
    """Return the sequences of one canonical row, in the order chosen, rejected.

    `assistant_only` is TRL's `assistant_only_loss`. Raises OptionError where the table needs a
    template and there is none, TemplateError where the template refuses the messages.
    """
    if table == "Tokens":
        return (_tokens(row, tokenizer),)
    if table == "Stepwise":
        return (stepwise(row, tokenizer),)
    if template is None:
        raise OptionError(f"masks of a {table} table need a chat template: --chat-template NAME")
    tools = row.get("tools")
    if table == "Conversation":
        return (_conversation(row["messages"], tools, tokenizer, template, assistant_only),)
    prompt = row["prompt"]
    if table in ("Prompt", "Reference", "Ranking"):
        return (_context(prompt, tools, tokenizer, template),)
    sides = ("chosen", "rejected") if table == "Preference" else ("completion",)
    rule = RULES.get(method or "", DEFAULT_RULES[table])
    replies = [row[side] for side in sides]
    if rule == "reward":
        made = [_scored(prompt + reply, tools, tokenizer, template) for reply in replies]
    elif rule == "appended":
        made = _appended(prompt, replies, tools, tokenizer, template)
    else:
        made = _replies(prompt, replies, tools, tokenizer, template)
        made = [replace(one, rule=rule) for one in made]
    if rule == "sft" and assistant_only:
        marked = _conversation(prompt + replies[0], tools, tokenizer, template, assistant_only=True)
        made = [
            replace(
                marked,
                trained=made[0].trained & marked.trained,
                prompt_length=made[0].prompt_length,
            )
        ]
    names = sides if len(sides) > 1 else ("",)
    return tuple(replace(one, side=side) for one, side in zip(made, names, strict=True))


def _encoded(text: str, tokenizer: Tokenizer, rule: str) -> Masked:
    encoding = tokenizer.encode(text)
    ids = np.array(encoding.ids, dtype=np.int64)
    nothing = np.zeros(len(ids), dtype=np.bool_)
    return Masked("", text, ids, nothing, tuple(encoding.offsets), 0, rule)


def _conversation(
    messages: list[Message],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
    assistant_only: bool,
) -> Masked:
    if not assistant_only:
        one = _encoded(template.render(messages, tools), tokenizer, "everything")
        return replace(one, trained=np.ones(len(one.ids), dtype=np.bool_))
    text, spans = template.render_spans(messages, tools)
    encoding = tokenizer.encode(text)
    one = _encoded(text, tokenizer, "assistant")
    notes: list[str] = []
    for start, end in spans:
        first, last = encoding.char_to_token(start), encoding.char_to_token(end - 1)
        if first is None:
            notes.append(
                "a generation span begins in no token: transformers trains nothing from there on"
            )
            break
        if not last:
            notes.append(
                "a generation span ends in no token: transformers trains all that follows it"
            )
        one.trained[first : last + 1 if last else len(one.ids)] = True
    before = int(np.argmax(one.trained)) if one.trained.any() else len(one.ids)
    return replace(one, prompt_length=before, notes=tuple(notes))


def _replies(
    prompt: list[Message],
    replies: Sequence[list[Message]],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
) -> list[Masked]:
    """Train what follows the tokens that the prompt alone and every whole have in common."""
    context = tokenizer.encode(template.render(prompt, tools, add_generation_prompt=True)).ids
    made = [_encoded(template.render(prompt + r, tools), tokenizer, "sft") for r in replies]
    length = min(common_prefix(context, one.ids) for one in made)
    notes = () if length == len(context) else (
        f"the last {len(context) - length} tokens of the prompt are not in the whole: "
        "the template or the tokenizer writes them otherwise once a reply follows",
    )  # fmt: skip
    for one in made:
        one.trained[length:] = True
    return [replace(one, prompt_length=length, notes=notes) for one in made]


def _appended(
    prompt: list[Message],
    replies: Sequence[list[Message]],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
) -> list[Masked]:
    """Do as CPO and ORPO do: a BOS before, an EOS after, unless they stand there already."""
    before = template.render(prompt, tools, add_generation_prompt=True)
    context = tokenizer.encode(before).ids
    made = []
    for reply in replies:
        one = _encoded(template.render(prompt + reply, tools), tokenizer, "preference")
        length = len(context) if context == one.ids[: len(context)].tolist() else len(context) - 1
        bos, eos = tokenizer.bos_id, tokenizer.eos_id
        notes: tuple[str, ...] = ()
        if bos is not None and (length == 0 or one.ids[0] != bos):
            one, length = _with_token(one, bos, at=0), length + 1
        if eos is not None and (len(one.ids) == length or one.ids[-1] != eos):
            one = _with_token(one, eos, at=len(one.ids))
            notes = ("TRL appends an EOS token after what the template wrote",)
        one.trained[length:] = True
        made.append(replace(one, prompt_length=length, notes=notes))
    return made


def _with_token(one: Masked, token: int, *, at: int) -> Masked:
    place = 0 if at == 0 else len(one.text)
    return replace(
        one,
        ids=np.insert(one.ids, at, token),
        trained=np.insert(one.trained, at, values=False),
        offsets=(*one.offsets[:at], (place, place), *one.offsets[at:]),
    )


def _scored(
    messages: list[Message], tools: str | None, tokenizer: Tokenizer, template: RowTemplate
) -> Masked:
    one = _encoded(template.render(messages, tools), tokenizer, "reward")
    one.trained[-1:] = True
    return replace(one, prompt_length=max(len(one.ids) - 1, 0))


def _context(
    prompt: list[Message], tools: str | None, tokenizer: Tokenizer, template: RowTemplate
) -> Masked:
    one = _encoded(template.render(prompt, tools, add_generation_prompt=True), tokenizer, "context")
    return replace(one, prompt_length=len(one.ids))


def stepwise(
    row: Mapping[str, Any],
    tokenizer: Tokenizer,
    *,
    step_separator: str = "\n",
    train_on_last_step_only: bool = False,
) -> Masked:
    """Do as TRL's PRM trainer did (last in 1.13): labels are on the last token of separators."""
    separator = tokenizer.encode(step_separator).ids
    prompt = tokenizer.encode(row["prompt"]).ids
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    ids, places, text = [*bos, *prompt], [], row["prompt"]
    offsets = [*((0, 0) for _ in bos), *tokenizer.encode(row["prompt"]).offsets]
    for step in row["completions"]:
        encoding = tokenizer.encode(step)
        ids += [*encoding.ids, *separator]
        offsets += [(len(text) + a, len(text) + b) for a, b in encoding.offsets]
        text += step + step_separator
        offsets += [(len(text) - len(step_separator), len(text))] * len(separator)
        places.append(len(ids) - 1)
    chosen = places[-1:] if train_on_last_step_only else places
    trained = np.zeros(len(ids), dtype=np.bool_)
    trained[chosen] = True
    labels = tuple(float(label) for label in row["labels"][-len(chosen) :])
    soft = any(label not in (0.0, 1.0) for label in labels)
    notes = ("soft labels: TRL cut them to 0 with int()",) if soft else ()
    made = Masked("", text, np.array(ids, dtype=np.int64), trained, tuple(offsets), 0, "prm")
    return replace(made, prompt_length=len(bos) + len(prompt), labels=labels, notes=notes)


def _tokens(row: Mapping[str, Any], tokenizer: Tokenizer) -> Masked:
    ids = np.array(row["input_ids"], dtype=np.int64)
    attended = np.array(row["attention_mask"], dtype=np.bool_)
    trained = (np.array(row["labels"], dtype=np.int64) != -100) & attended
    pieces = [
        tokenizer.backend.decode([number], skip_special_tokens=False) for number in ids.tolist()
    ]
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    offsets = tuple(zip([0, *ends[:-1]], ends, strict=True))
    return Masked("", "".join(pieces), ids, trained, offsets, int(row["prompt_length"]), "labels")


def common_prefix(ids: Sequence[int], others: Sequence[int] | Ints) -> int:
    """Return how many tokens two sequences begin with in common."""
    size = min(len(ids), len(others))
    different = np.flatnonzero(np.asarray(ids[:size]) != np.asarray(others[:size]))
    return int(different[0]) if len(different) else size
