"""Building blocks of converters: expressions that make conversations, prompts and replies."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import Expr

from fmtkit import former_names
from fmtkit.columns import ABSENT, blank, filled
from fmtkit.columns.dialog_pairs import joined, same_dialog
from fmtkit.columns.messages import NARROW, WIDE, same_message
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.turn_sources import (
    PROMPT_END_ROLES,
    AllButLast,
    Ends,
    Equal,
    HasRole,
    Last,
    OtherSystem,
    QuestionMissing,
    Same,
    Several,
    Texts,
    WithoutSystem,
    WithSystem,
    known,
)
from fmtkit.columns.turns import turn
from fmtkit.core.messages import SYSTEM
from fmtkit.core.tables import Completion, Conversation, Preference, Ranking, Unpaired


def message(role: str, content: Expr, *, wide: bool = False) -> Expr:
    """Make one message; null content stays null."""
    made = {"role": pl.lit(role), "content": content}
    return pl.struct(
        made.get(entry.name, pl.lit(None, dtype=entry.dtype)).alias(entry.name)
        for entry in (WIDE if wide else NARROW).fields
    )


def dialog(*, wide: bool = False, **turns: Column) -> Column:
    """Make one message of each named turn, in order; a row's null or empty turns are left out."""
    messages = [message(role, said.value, wide=wide) for role, said in turns.items()]
    columns = {role: said.bound for role, said in turns.items() if said is not ABSENT}
    texts = tuple((role, bound) for role, bound in columns.items() if bound is not None)
    known = None if len(texts) < len(columns) else Texts(texts)
    if all(map(_is_required, turns.values())):
        return Column(pl.concat_list(messages), turns=known).depending_on(*turns.values())
    # concat_arr and a filter, not concat_list and drop_nulls: 20 times as fast (polars 2.1).
    spoken = pl.element().struct.field("content").str.len_bytes() > 0
    kept = pl.concat_arr(messages).arr.to_list().list.eval(pl.element().filter(spoken))
    return Column(kept, turns=known).depending_on(*turns.values())


def _is_required(turn: Column) -> bool:
    return any(problem.code == "empty_field" for problem in turn.problems)


def after(history: Column, prompt: Column, *, wide: bool = False) -> Column:
    """Put earlier exchanges before the last turn of a prompt, the user's."""
    exchange = pl.element()
    wrong = exchange.list.len() != 2

    def in_any(found: Expr) -> Expr:
        return history.value.list.eval(found).list.any()

    absent = exchange.is_null() | exchange.list.eval(pl.element().is_null()).list.any()
    silent = exchange.list.eval(blank(pl.element())).list.any()
    earlier = history.value.list.eval(pl.element().explode(empty_as_null=False, keep_nulls=False))
    turns = earlier.list.eval(_alternating(pl.element(), wide=wide))
    return prompt.with_value(
        pl.map_batches([prompt.value, turns], _before_last, is_elementwise=True),
        Problem(
            "value_error",
            "history[]",
            in_any(wrong),
            "history[] is not a pair of a question and its answer",
        ),
        Problem("null_field", "history[][]", in_any(absent), "history[][] is null"),
        Problem("empty_field", "history[][]", in_any(silent), "history[][] is empty or blank"),
    ).depending_on(history)


def _alternating(text: Expr, *, wide: bool) -> Expr:
    role = (
        pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("user")).otherwise(pl.lit("assistant"))
    )
    return turn(role, text) if wide else pl.struct(role=role, content=text)


def _before_last(columns: Sequence[pl.Series]) -> pl.Series:
    prompt, earlier = columns
    # concat_list takes 20 times as long as all else: it runs only for sources that have a history.
    if not earlier.list.len().max():
        return prompt
    both = pl.DataFrame({"prompt": prompt, "earlier": earlier.fill_null([])})
    whole = pl.concat_list(all_but_last(pl.col("prompt")), "earlier", pl.col("prompt").list.tail(1))
    return both.select(whole.alias(prompt.name)).to_series()


def with_context(question: Column, context: Column) -> Column:
    """Append the context to a question, on a new line, unless it is empty."""
    both = pl.concat_str([question.value, pl.lit("\n"), context.value])
    asked = pl.when(filled(context.value)).then(both).otherwise(question.value)
    return question.with_value(asked).depending_on(context)


def pair(question: Column, chosen: Column, rejected: Column, system: Column = ABSENT) -> Preference:
    """Make a preference of one question and two answers, all of them text."""
    return chosen_over(dialog(system=system, user=question), chosen, rejected)


def chosen_over(prompt: Column, chosen: Column, rejected: Column) -> Preference:
    """Make a preference of a prompt and two answers that are text."""
    known = chosen.bound is not None and rejected.bound is not None
    rule = Equal(str(chosen.bound), str(rejected.bound)) if known else None
    equal = chosen.value == rejected.value
    same = Problem("no_preference", None, equal, "chosen equals rejected", rule)
    worse = dialog(assistant=rejected)
    return Preference(prompt, dialog(assistant=chosen), worse.with_value(worse.value, same))


def labelled(question: Column, answer: Column, label: Column, system: Column = ABSENT) -> Unpaired:
    """Make an unpaired row of one question and one answer, both of them text."""
    return Unpaired(dialog(system=system, user=question), dialog(assistant=answer), label)


def last(messages: Expr) -> Expr:
    """Return the last message, or null."""
    return messages.list.last()


def all_but_last(messages: Expr) -> Expr:
    """Return every message but the last."""
    size = messages.list.len()
    return messages.list.head(pl.when(size > 0).then(size - 1).otherwise(0))


def role_of(one: Expr) -> Expr:
    """Return the role of a message; null where there is no message, or an unknown role."""
    return one.struct.field("role")


def _ends_otherwise(messages: Expr, *roles: str) -> Expr:
    """Return whether messages end with none of these roles; an unknown role is another problem."""
    return (messages.list.len() == 0) | ~role_of(last(messages)).is_in(list(roles))


def has_role(messages: Expr, *roles: str) -> Expr:
    """Return whether any message has one of these roles."""
    role = pl.element().struct.field("role")
    return messages.list.eval(role.is_in(list(roles))).list.any().fill_null(value=False)


def without_system(messages: Column) -> Column:
    """Leave out the first message where it is the system's."""
    first = role_of(messages.value.list.first())
    skipped = pl.when(first == "system").then(1).otherwise(0)
    left = messages.with_value(messages.value.list.slice(skipped))
    return left.with_turns(known(WithoutSystem, messages.turns))


def reply_of(messages: Column, name: str) -> Column:
    """Take the last message as the reply; it must be the assistant's."""
    only = must_end_with_reply(messages, name).with_value(messages.value.list.tail(1))
    return only.with_turns(known(Last, messages.turns))


def must_end_with_reply(messages: Column, name: str) -> Column:
    """Reject conversations that do not end with an assistant turn."""
    wrong = Problem(
        "role_order",
        name,
        _ends_otherwise(messages.value, "assistant"),
        f"{name} does not end with the assistant",
        known(partial(Ends, roles=("assistant",), holds=False), messages.turns),
    )
    return messages.with_value(messages.value, wrong)


def must_end_with_prompt(prompt: Column, name: str) -> Column:
    """Reject prompts that do not end with a turn that expects a reply: the user's or a tool's."""
    wrong = Problem(
        "role_order",
        name,
        _ends_otherwise(prompt.value, *PROMPT_END_ROLES),
        f"the turns of {name} before the reply do not end with the user's",
        known(partial(Ends, roles=PROMPT_END_ROLES, holds=False), prompt.turns),
    )
    return prompt.with_value(prompt.value, wrong)


def context_of(messages: Column, name: str) -> Column:
    """Take all turns but the last as the prompt."""
    context = messages.with_value(all_but_last(messages.value)).with_turns(
        known(AllButLast, messages.turns)
    )
    return must_end_with_prompt(context.once(f"__context_{name}"), name)


def with_system(system: Column, messages: Column) -> Column:
    """Put a system prompt before the messages, unless it is empty or they begin with the same."""
    if system is ABSENT:
        return messages
    first = messages.value.list.first().struct
    begins = first.field("role").is_in(list(SYSTEM)).fill_null(value=False)
    twice = Problem(
        "ambiguous_fields",
        "system",
        filled(system.value) & begins & (first.field("content") != system.value),
        "the system column and the system turn of the messages differ",
        known(OtherSystem, system.bound, messages.turns),
    )
    wanted = filled(system.value) & ~begins
    led = pl.map_batches([messages.value, system.value, wanted], _led, is_elementwise=True)
    put = messages.with_value(led).with_turns(known(WithSystem, system.bound, messages.turns))
    put = put.depending_on(system).once("__led")
    return put.with_value(put.value, twice)


def _led(columns: Sequence[pl.Series]) -> pl.Series:
    """Put a system turn before the messages of the rows that want one."""
    messages, system, wanted = columns
    # Making messages takes longer than all else: it runs only for sources that have system prompts.
    if not wanted.any():
        return messages
    both = pl.DataFrame({"messages": messages, "system": system, "wanted": wanted})
    wide = messages.dtype == pl.List(WIDE)
    lead = pl.concat_list([message("system", pl.col("system"), wide=wide)])
    put = joined(lead, pl.col("messages"), pl.col("wanted"))
    return both.select(put.alias(messages.name)).to_series()


def with_question(question: Column, messages: Column, name: str) -> Column:
    """Put a question before the reply of narrow messages that hold no user turn."""
    alone = ~has_role(messages.value, "user")
    asked = pl.concat_list([message("user", question.value)])
    put = pl.concat_list([all_but_last(messages.value), asked, messages.value.list.tail(1)])
    missing = f"{name} has no user turn, and prompt"
    # The rule as data: where there is a user turn, nothing is inserted and nothing is missing.
    rule = known(partial(HasRole, roles=("user",), holds=False), messages.turns)
    null = alone & question.value.is_null()
    made = messages.with_value(
        pl.when(alone & filled(question.value)).then(put).otherwise(messages.value),
        Problem("null_field", "prompt", null, f"{missing} is null", rule),
        Problem(
            "empty_field", "prompt", alone & (question.value == ""), f"{missing} is empty", rule
        ),
    )
    return made.with_turns(messages.turns).once(f"__asked_{name}")


def must_hold_question(question: Column, messages: Column, name: str) -> Column:
    """Reject messages that have user turns, none of which is the question."""
    turn = pl.element().struct
    asked = messages.value.list.eval(
        turn.field("content").filter(turn.field("role") == "user").str.strip_chars()
    )
    other = (
        filled(question.value)
        & (asked.list.len() > 0)
        & ~asked.list.contains(question.value.str.strip_chars())
    )
    rule = known(QuestionMissing, question.bound, messages.turns)
    wrong = Problem("context_mismatch", name, other, f"prompt is not a turn of {name}", rule)
    return messages.with_value(messages.value, wrong)


def split_pair(chosen: Column, rejected: Column, system: Column = ABSENT) -> Preference:
    """Cut two whole narrow conversations before their last turns; what comes before must be the same."""
    context = context_of(chosen, "chosen")
    before = known(AllButLast, rejected.turns)
    differ = Problem(
        "context_mismatch",
        "rejected",
        ~same_dialog(context.value, all_but_last(rejected.value)),
        "chosen and rejected do not answer the same turns",
        known(partial(Same, holds=False), context.turns, before),
    )
    same = _same_replies(chosen, rejected)
    worse = reply_of(rejected, "rejected")
    return Preference(
        prompt=with_system(system, context),
        chosen=reply_of(chosen, "chosen"),
        rejected=worse.with_value(worse.value, differ, same),
    )


def _same_replies(chosen: Column, rejected: Column) -> Problem:
    ends = known(Last, chosen.turns), known(Last, rejected.turns)
    return Problem(
        "no_preference",
        None,
        same_message(last(chosen.value), last(rejected.value)),
        "chosen equals rejected",
        known(Same, *ends),
    )


def answered(context: Column, name: str, chosen: Column, rejected: Column) -> Preference:
    """Make a preference of a narrow context and one reply message for each side."""
    same = _same_replies(chosen, rejected)
    worse = reply_of(rejected, "rejected")
    return Preference(
        must_end_with_prompt(context, name),
        reply_of(chosen, "chosen"),
        worse.with_value(worse.value, same),
    )


def continued(context: Column, reply: Column, label: Column) -> Unpaired:
    """Make an unpaired row of a narrow context and the reply to it, one message."""
    several = Problem(
        "multi_message_answer",
        "completion",
        reply.value.list.len() > 1,
        "completion is an answer of several messages",
        known(partial(Several, calls=False), reply.turns),
    )
    only = reply_of(reply, "completion")
    return Unpaired(
        must_end_with_prompt(context, "chosen"), only.with_value(only.value, several), label
    )


def conversation(messages: Column, tools: Column | None = None) -> Conversation:
    """Make a conversation; it must hold an assistant turn, and should end with one."""
    none = Problem(
        "no_assistant_turn",
        None,
        ~has_role(messages.value, "assistant"),
        "no assistant turn to train on",
        known(partial(HasRole, roles=("assistant",), holds=False), messages.turns),
    )
    unanswered = role_of(last(messages.value)) == "user"
    rule = known(partial(Ends, roles=("user",)), messages.turns)
    trained = messages.with_value(messages.value, none).warn("trailing_user_turn", unanswered, rule)
    return Conversation(trained, tools)


def completion(prompt: Column, reply: Column, tools: Column | None = None) -> Completion:
    """Make a completion of a prompt and the one message that answers it."""
    return Completion(must_end_with_prompt(prompt, "prompt"), reply_of(reply, "completion"), tools)


def ranking(prompt: Column, replies: Column, scores: Expr) -> Ranking:
    """Make a ranking of a list of texts and the list of their scores, higher is better."""
    turn = pl.struct(role=pl.lit("assistant"), content=pl.element())
    dialogs = replies.value.list.eval(pl.concat_list([turn]))
    return Ranking(prompt, replies.with_value(dialogs), Column(scores))


def of_each(items: Expr, name: str) -> Expr:
    """Return one field of every record of a list."""
    return items.list.eval(pl.element().struct.field(name))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
