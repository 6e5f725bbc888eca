"""Conversations that templates stumble over: think tags, control tokens, odd white space."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from fmtkit.core.tables import WIDE_MESSAGE
from fmtkit.rendering.content_parts import TEXTS, Cuts, cuts_of, in_form, texts_of
from fmtkit.rendering.jinja_environment import text_part

CONVERSATIONS = pa.list_(WIDE_MESSAGE)

BITS = [
    *("", "a", "user", "assistant", " ", "\n", "\t x ", "0", "None", "false", "x" * 13),
    *("</think>", "<think>", "<think>\nr\n</think>\n\nans", "<think>x</think>y</think>z"),
    *("<tool_response>", "<tool_response>q</tool_response>", "/no_think", "/think"),
    *("\u3000wide\u3000", "\xa0n\xa0", "\u2028", "\x1cfs\x1c", "\x85", "é", "😀", "日本語"),
    *("<|im_end|>", "[INST]", "</s>", "{{ 7*7 }}", "{% x %}", "{0}", "a'b\"c\\d", "<b>&amp;</b>"),
    *("<channel|>", "<|channel>thought\nabc<channel|>", "<|channel|>analysis<|message|>hm<|end|>"),
    *("\U000f0000", "\U0010fff0", "long text " * 20, "ends\n\n", "\n\nstarts", "aaa", "aaaa"),
]

texts = (
    st.lists(st.sampled_from(BITS) | st.text(max_size=6), max_size=4)
    .map("".join)
    .filter(lambda text: text.isascii() or text.encode("utf-8", "ignore").decode() == text)
)


@st.composite
def messages(draw: st.DrawFn, role: str) -> dict[str, Any]:
    """Make a message of a role."""
    message = {"role": role, "content": draw(texts)}
    if role == "assistant" and draw(st.integers(0, 6)) == 0:
        message["reasoning_content"] = draw(texts)
    if draw(st.integers(0, 19)) == 0:
        message["name"] = draw(texts)
    return message


@st.composite
def prompts(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Make a conversation that ends with a question."""
    roles = ["system"] * draw(st.booleans()) + ["user"]
    for _ in range(draw(st.integers(0, 2))):
        roles += ["assistant", draw(st.sampled_from(["user", "user", "user", "tool"]))]
    return [draw(messages(role)) for role in roles]


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Make a conversation, now and then one with its roles in disorder."""
    if draw(st.integers(0, 9)) == 0:
        roles = draw(st.lists(st.sampled_from(["system", "user", "assistant", "tool", "odd"])))
        return [draw(messages(role)) for role in roles or ["user"]]
    asked = draw(prompts())
    return [*asked, draw(messages("assistant"))] if draw(st.booleans()) else asked


@st.composite
def in_parts(draw: st.DrawFn, made: st.SearchStrategy[list[dict[str, Any]]]) -> list[Any]:
    """Give some contents of conversations in text parts: one, several, blank ones, none."""
    conversation = draw(made)
    parts = st.lists(texts.map(text_part), max_size=3)
    changed = [{**m, "content": draw(parts)} if draw(st.booleans()) else m for m in conversation]
    # The parts of a content are found again by its text: one that also stands whole has none.
    joined = ["".join(texts_of(m["content"])) for m in changed]
    return changed if len(set(joined)) == len(joined) else conversation


def joined(rows: list[Any]) -> tuple[list[Any], dict[int, Cuts]]:
    """Make canonical messages of such in parts, and say of each row which parts these came in."""
    cuts = {
        row: cuts_of(m["content"] for m in conversation) for row, conversation in enumerate(rows)
    }
    return [[in_form(m, TEXTS) for m in conversation] for conversation in rows], cuts


def column(rows: list[Any]) -> pa.Array:
    """Make a column of conversations; None is a null row."""
    return pa.array(rows, CONVERSATIONS)


def say(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    """Make a conversation of (role, content)."""
    return [{"role": role, "content": content} for role, content in turns]
