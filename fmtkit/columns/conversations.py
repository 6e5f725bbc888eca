"""Building blocks of converters: expressions that make conversations, prompts and replies."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import Expr

from fmtkit import former_names
from fmtkit.columns import ABSENT, blank, filled
from fmtkit.columns.message_rules import NARROW, WIDE, message_of
from fmtkit.columns.message_rules import all_but_last as all_but_last  # noqa: PLC0414 - formats import it from here
from fmtkit.columns.message_rules import has_role as has_role  # noqa: PLC0414 - formats import it from here
from fmtkit.columns.message_rules import last as last  # noqa: PLC0414 - formats import it from here
from fmtkit.columns.message_rules import role_of as role_of  # noqa: PLC0414 - formats import it from here
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.turn_sources import (
    PROMPT_END_ROLES,
    AllButLast,
    Empty,
    Ends,
    Equal,
    Except,
    HasRole,
    Last,
    Null,
    OtherSystem,
    QuestionMissing,
    Same,
    Several,
    Source,
    Texts,
    WithoutSystem,
    WithQuestion,
    WithSystem,
)
from fmtkit.core.tables import Completion, Conversation, Preference, Ranking, Unpaired


def message(role: str, content: Expr, *, wide: bool = False) -> Expr:
    """Make one message; null content stays null.

    Args:
        role: Who speaks, such as `user`.
        content: The text.
        wide: Whether the message has the fields of tool calls and reasoning, which are null here.
    """
    return message_of(WIDE if wide else NARROW, pl.lit(role), content)


def messages_of(*, wide: bool = False, **turns: Column) -> Column:
    """Make one message of each named turn, in order; a row's null or empty turns are left out.

    Args:
        wide: Whether the messages have the fields of tool calls and reasoning.
        **turns: The text of each turn by its role, in the order of the turns; `ABSENT` for a column that is
            not there.
    """
    texts = {role: said.named() for role, said in turns.items() if said is not ABSENT}
    columns = [column for _, column in texts.values()]
    source = Texts(
        tuple((role, name) for role, (name, _) in texts.items()),
        wide=wide,
        complete=all(map(_is_required, columns)),
    )
    return Column(pl.lit(None)).depending_on(*columns).with_turns(source)


def _is_required(turn: Column) -> bool:
    return any(problem.code == "empty_field" for problem in turn.problems)


def after(history: Column, prompt: Column, *, wide: bool = False) -> Column:
    """Put earlier exchanges before the last turn of a prompt, the user's.

    Args:
        history: A list of pairs: what the user said, and what the model answered.
        prompt: Messages of which the last is the user's.
        wide: Whether the messages of the prompt are wide.
    """
    exchange = pl.element()
    wrong = exchange.list.len() != 2

    def in_any(found: Expr) -> Expr:
        return history.value.list.eval(found).list.any()

    absent = exchange.is_null() | exchange.list.eval(pl.element().is_null()).list.any()
    silent = exchange.list.eval(blank(pl.element())).list.any()
    earlier = history.value.list.eval(pl.element().explode(empty_as_null=False, keep_nulls=False))
    turns = earlier.list.eval(_alternating(pl.element(), WIDE if wide else NARROW))
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


def _alternating(text: Expr, layout: pl.Struct) -> Expr:
    role = (
        pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("user")).otherwise(pl.lit("assistant"))
    )
    return message_of(layout, role, text)


def _before_last(columns: Sequence[pl.Series]) -> pl.Series:
    prompt, earlier = columns
    # concat_list takes 20 times as long as all else: it runs only for sources that have a history.
    if not earlier.list.len().max():
        return prompt
    both = pl.DataFrame({"prompt": prompt, "earlier": earlier.fill_null([])})
    whole = pl.concat_list(all_but_last(pl.col("prompt")), "earlier", pl.col("prompt").list.tail(1))
    return both.select(whole.alias(prompt.name)).to_series()


def with_context(question: Column, context: Column) -> Column:
    """Append the context to a question, on a new line, unless it is empty.

    Args:
        question: The text that comes first, of which the result keeps the problems.
        context: The text that follows on a new line; it may be `ABSENT`.
    """
    both = pl.concat_str([question.value, pl.lit("\n"), context.value])
    asked = pl.when(filled(context.value)).then(both).otherwise(question.value)
    return question.with_value(asked).depending_on(context)


def with_input(instruction: Column, input: Column) -> Column:
    """Append the input to an instruction, on a new line; without an instruction the input is asked.

    Args:
        instruction: The text that comes first.
        input: The text that follows on a new line; it may be `ABSENT`.
    """
    has_both = filled(instruction.value) & filled(input.value)
    both = pl.concat_str([instruction.value, pl.lit("\n"), input.value])
    either = (
        pl.when(filled(instruction.value))
        .then(instruction.value)
        .otherwise(pl.coalesce(input.value, instruction.value))
    )
    return instruction.with_value(pl.when(has_both).then(both).otherwise(either)).depending_on(
        input
    )


def pair(question: Column, chosen: Column, rejected: Column, system: Column = ABSENT) -> Preference:
    """Make a preference of one question and two answers, all of them text.

    Args:
        question: The text of the user's turn.
        chosen: The text of the better answer.
        rejected: The text of the worse answer; a row where both are equal is a bad one.
        system: The text of the system turn; null or empty where there is none.
    """
    return chosen_over(messages_of(system=system, user=question), chosen, rejected)


def chosen_over(prompt: Column, chosen: Column, rejected: Column) -> Preference:
    """Make a preference of a prompt and two answers that are text.

    Args:
        prompt: The messages before the answers.
        chosen: The text of the better answer.
        rejected: The text of the worse answer; a row where both are equal is a bad one.
    """
    one, better = chosen.named()
    other, worse = rejected.named()
    same = Problem("no_preference", None, Equal(one, other), "chosen equals rejected")
    said = messages_of(assistant=worse)
    return Preference(prompt, messages_of(assistant=better), said.with_value(said.value, same))


def labelled(question: Column, answer: Column, label: Column, system: Column = ABSENT) -> Unpaired:
    """Make an unpaired row of one question and one answer, both of them text.

    Args:
        question: The text of the user's turn.
        answer: The text of the answer.
        label: Whether the answer is a desirable one.
        system: The text of the system turn; null or empty where there is none.
    """
    return Unpaired(messages_of(system=system, user=question), messages_of(assistant=answer), label)


def without_system(messages: Column) -> Column:
    """Leave out the first message where it is the system's."""
    source, whole = messages.described()
    return whole.with_turns(WithoutSystem(source))


def reply_of(messages: Column, name: str) -> Column:
    """Take the last message as the reply; it must be the assistant's.

    Args:
        messages: A conversation with its reply at the end.
        name: The source column, for the error.
    """
    source, whole = must_end_with_reply(messages, name).described()
    return whole.with_turns(Last(source))


def must_end_with_reply(messages: Column, name: str) -> Column:
    """Reject conversations that do not end with an assistant turn.

    Args:
        messages: The conversation, which is returned.
        name: The source column, for the error.
    """
    return _must_end(messages, name, f"{name} does not end with the assistant", "assistant")


def must_end_with_prompt(prompt: Column, name: str) -> Column:
    """Reject prompts that do not end with a turn that expects a reply: the user's or a tool's.

    Args:
        prompt: The messages, which are returned.
        name: The source column, for the error.
    """
    words = f"the turns of {name} before the reply do not end with the user's"
    return _must_end(prompt, name, words, *PROMPT_END_ROLES)


def _must_end(messages: Column, name: str, words: str, *roles: str) -> Column:
    """Reject conversations that do not end with a turn of these roles."""
    source, whole = messages.described()
    wrong = Problem("role_order", name, Ends(source, roles, holds=False), words)
    return whole.with_value(whole.value, wrong)


def context_of(messages: Column, name: str) -> Column:
    """Take all turns but the last as the prompt.

    Args:
        messages: A conversation with its reply at the end.
        name: The source column, for the error.
    """
    source, whole = messages.described()
    return must_end_with_prompt(whole.with_turns(AllButLast(source)), name)


def with_system(system: Column, messages: Column) -> Column:
    """Put a system prompt before the messages, unless it is empty or they begin with the same.

    Args:
        system: The text of the system turn; `ABSENT` leaves the messages as they are. A row where it
            differs from the system turn of the messages is a bad one.
        messages: The conversation.
    """
    if system is ABSENT:
        return messages
    name, lead = system.named()
    source, whole = messages.described()
    twice = Problem(
        "ambiguous_fields",
        "system",
        OtherSystem(name, source),
        "the system column and the system turn of the messages differ",
    )
    put = whole.depending_on(lead).with_turns(WithSystem(name, source))
    return put.with_value(put.value, twice)


def with_question(question: Column, messages: Column, name: str) -> Column:
    """Put a question before the reply of messages that hold no user turn.

    Args:
        question: The text of a user turn; a row that needs it and has none is a bad one.
        messages: The conversation with its reply at the end.
        name: The source column of the messages, for the error.
    """
    asked, source, put = _beside(question, messages)
    unasked = HasRole(source, ("user",), holds=False)
    null = Except(unasked, (Null(asked, holds=False),))
    empty = Except(unasked, (Empty(asked, holds=False),))
    if question is not ABSENT:
        put = put.with_turns(WithQuestion(asked, source))
    missing = f"{name} has no user turn, and prompt"
    return put.with_value(
        put.value,
        Problem("null_field", "prompt", null, f"{missing} is null"),
        Problem("empty_field", "prompt", empty, f"{missing} is empty"),
    )


def must_hold_question(question: Column, messages: Column, name: str) -> Column:
    """Reject messages that have user turns, none of which is the question.

    Args:
        question: The text of a user turn; `ABSENT` accepts all messages.
        messages: The conversation, which is returned.
        name: The source column of the messages, for the error.
    """
    if question is ABSENT:
        return messages
    asked, source, whole = _beside(question, messages)
    other = QuestionMissing(asked, source)
    wrong = Problem("context_mismatch", name, other, f"prompt is not a turn of {name}")
    return whole.with_value(whole.value, wrong)


def _beside(question: Column, messages: Column) -> tuple[str, Source, Column]:
    """Return names of a question and messages, and the messages; problems of the question are not theirs."""
    name, asked = question.named()
    source, whole = messages.described()
    return name, source, replace(whole, steps=(*whole.steps, *asked.steps))


def split_pair(chosen: Column, rejected: Column, system: Column = ABSENT) -> Preference:
    """Cut two whole conversations before their last turns; what comes before must be the same.

    Args:
        chosen: The conversation with the better reply at its end.
        rejected: The conversation with the worse reply at its end.
        system: The text of a system turn to put before the prompt.
    """
    one, better = chosen.described()
    other, worse = rejected.described()
    differ = Problem(
        "context_mismatch",
        "rejected",
        Same(AllButLast(one), AllButLast(other), holds=False),
        "chosen and rejected do not answer the same turns",
    )
    reply = reply_of(worse, "rejected")
    return Preference(
        prompt=with_system(system, context_of(better, "chosen")),
        chosen=reply_of(better, "chosen"),
        rejected=reply.with_value(reply.value, differ, _same_replies(one, other)),
    )


def _same_replies(chosen: Source, rejected: Source) -> Problem:
    same = Same(Last(chosen), Last(rejected))
    return Problem("no_preference", None, same, "chosen equals rejected")


def answered(context: Column, name: str, chosen: Column, rejected: Column) -> Preference:
    """Make a preference of a context and one reply message for each side.

    Args:
        context: The messages before the replies.
        name: The source column of the context, for the error.
        chosen: A list with the better reply as its last message.
        rejected: A list with the worse reply as its last message.
    """
    one, better = chosen.described()
    other, worse = rejected.described()
    reply = reply_of(worse, "rejected")
    return Preference(
        must_end_with_prompt(context, name),
        reply_of(better, "chosen"),
        reply.with_value(reply.value, _same_replies(one, other)),
    )


def continued(context: Column, reply: Column, label: Column) -> Unpaired:
    """Make an unpaired row of a context and the reply to it, one message.

    Args:
        context: The messages before the reply.
        reply: A list with one message, the reply.
        label: Whether the reply is a desirable one.
    """
    source, whole = reply.described()
    several = Problem(
        "multi_message_answer",
        "completion",
        Several(source, calls=False),
        "completion is an answer of several messages",
    )
    only = reply_of(whole, "completion")
    return Unpaired(
        must_end_with_prompt(context, "chosen"), only.with_value(only.value, several), label
    )


def conversation(messages: Column, tools: Column | None = None) -> Conversation:
    """Make a conversation; it must hold an assistant turn, and should end with one.

    Args:
        messages: The messages, in order.
        tools: JSON text with the definitions of the tools; None where the layout has none.
    """
    source, whole = messages.described()
    unanswered = HasRole(source, ("assistant",), holds=False)
    none = Problem("no_assistant_turn", None, unanswered, "no assistant turn to train on")
    trained = whole.with_value(whole.value, none)
    return Conversation(trained.warn("trailing_user_turn", Ends(source, ("user",))), tools)


def completion(prompt: Column, reply: Column, tools: Column | None = None) -> Completion:
    """Make a completion of a prompt and the one message that answers it.

    Args:
        prompt: The messages before the reply.
        reply: A list with the reply as its last message.
        tools: JSON text with the definitions of the tools; None where the layout has none.
    """
    return Completion(must_end_with_prompt(prompt, "prompt"), reply_of(reply, "completion"), tools)


def ranking(prompt: Column, replies: Column, scores: Expr) -> Ranking:
    """Make a ranking of a list of texts and the list of their scores, higher is better.

    Args:
        prompt: The messages before the replies.
        replies: A list of texts.
        scores: A list of numbers, as long as that of the replies.
    """
    conversations = replies.value.list.eval(pl.concat_list([message("assistant", pl.element())]))
    return Ranking(prompt, replies.with_value(conversations), Column(scores))


def of_each(items: Expr, name: str) -> Expr:
    """Return one field of every record of a list.

    Args:
        items: A list of records.
        name: The field.
    """
    return items.list.eval(pl.element().struct.field(name))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
