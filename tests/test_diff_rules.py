"""Which rule names a planted difference: of rows that templates wrote, against a side with and without origins."""

import json
from pathlib import Path

import pytest

from fmtkit.diffing.rules import Judge
from fmtkit.masks.masked import TokenRow, given
from fmtkit.masks.masks import mask_row
from fmtkit.masks.token_origins import with_origins
from fmtkit.rendering import template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.tokenizers import tokens

HERE = Path(__file__).parent
TOKENIZER = tokens.load(HERE / "axolotl" / "tokenizers" / "ends")
CHATML = (HERE.parent / "templates" / "chatml.jinja").read_text()
ASKED = {"role": "user", "content": "And which river, by the way, is number 5?"}
SAID = {"role": "assistant", "content": "It is the red one; look at the map."}
THOUGHT = SAID | {"reasoning_content": "The map has five rivers."}
SYSTEM = {"role": "system", "content": "You are a guide. Be brief."}
TALK = [ASKED, SAID, {"role": "user", "content": "5"}, {"role": "assistant", "content": "Yes, 5."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at a map.",
            "parameters": {"type": "object", "properties": {"map": {"type": "string"}}},
        },
    }
]


def calls(**arguments) -> list[dict]:
    call = {"type": "function", "function": {"name": "look", "arguments": json.dumps(arguments)}}
    return [
        ASKED,
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "content": '{"river": "red"}'},
        SAID,
    ]


def row(messages: list[dict], template: str = "chatml", tools=None) -> TokenRow:
    """Return a row with origins, as fmtkit makes it; a template is a family's name, or Jinja."""
    named = template_sources.find_model_template
    written = RowTemplate(ChatTemplate("own", template) if "{" in template else named(template))
    values = {"messages": messages, "tools": None if tools is None else json.dumps(tools)}
    masked = mask_row(values, "Conversation", TOKENIZER, written)
    return TokenRow(with_origins(masked, values, "Conversation", TOKENIZER, written))


def bare(made: TokenRow) -> TokenRow:
    """Return a row as another trainer records it: without origins."""
    one = made.sequences[0]
    return TokenRow((given(one.ids.tolist(), one.labels.tolist()),))


def rules(one: TokenRow, other: TokenRow, *, longest: int | None = None, **more) -> set[str]:
    """Return the rules of two rows, which are the same on either side and without the origins of one."""
    judge = Judge(TOKENIZER, longest, ("one", "other"), **more)
    found = {*judge.difference(one, other).rules}
    assert {*judge.difference(other, one).rules} == found
    assert {*judge.difference(one, bare(other)).rules} == found, "without the origins of the other"
    assert {*judge.difference(other, bare(one)).rules} == found, "without the origins of the one"
    return found


COMPACT = "tojson(separators=(',', ':'))"
QWEN = template_sources.find_model_template("qwen3").source
"""Without marks of replies: masks follow from the turns."""


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        # The question has the same words as the reply, and a reply that is one of them.
        (row(TALK), row([ASKED | {"content": "Hello! " + ASKED["content"]}, *TALK[1:]]), {"prompt"}),
        (row(TALK), row([*TALK[:2], TALK[2] | {"content": "5, then?"}, TALK[3]]), {"prompt"}),
        (row(TALK), row([*TALK[:1], SAID | {"content": SAID["content"] + " Bye."}, *TALK[2:]]), {"content"}),
        (row(TALK), row(TALK[:2]), {"turn_lost"}),
        (row(TALK), row(TALK[2:]), {"turn_lost"}),
        (row([SYSTEM, *TALK]), row(TALK), {"system"}),
        (row([SYSTEM, *TALK]), row([SYSTEM | {"content": "Be long."}, *TALK]), {"system"}),
        (row(TALK), row(TALK, "zephyr"), {"eos", "template"}),
        (row([SYSTEM, *TALK]), row([SYSTEM, *TALK], "zephyr"), {"eos", "template"}),
        (row(TALK, "qwen3"), row(TALK, "qwen2_5"), {"system", "empty_think"}),
        (row([SYSTEM, *TALK], "qwen3"), row([SYSTEM, *TALK], "qwen2_5"), {"empty_think"}),
        (row([ASKED, THOUGHT], "qwen3"), row([ASKED, SAID], "qwen3"), {"reasoning"}),
        (row([ASKED, THOUGHT], "qwen3"), row([ASKED, THOUGHT | {"reasoning_content": "So it is."}], "qwen3"), {"content"}),
        # What a template adds behind the end of a turn was cut off by nobody.
        (row(TALK), row(TALK, CHATML + "{{- '</s>' }}"), {"eos", "template"}),
        (row(calls(map="all", page=2), "qwen3", TOOLS), row(calls(page=2, map="all"), "qwen3", TOOLS), {"key_order"}),
        (row(calls(map="all"), "qwen3", TOOLS), row(calls(map="none"), "qwen3", TOOLS), {"content"}),
        (row(calls(map="all"), QWEN, TOOLS), row(calls(map="all"), QWEN.replace("tool | tojson", "tool | " + COMPACT), TOOLS), {"json_text"}),
        (row(calls(map="all"), QWEN, TOOLS), row(calls(map="all"), QWEN.replace("You may call one", "Call one"), TOOLS), {"tools"}),
        (row(calls(map="all"), "qwen3", TOOLS), row(calls(map="all"), "qwen3", [{**TOOLS[0], "strict": True}]), {"tools"}),
        (row(TALK), row([ASKED | {"content": ASKED["content"].replace(" ", "  ")}, *TALK[1:]]), {"whitespace"}),
        (row([ASKED | {"content": 'Is {"a": 1} red?'}, SAID]), row([ASKED | {"content": 'Is {"a":1} red?'}, SAID]), {"whitespace"}),
    ],
)  # fmt: skip
def test_a_difference_is_named_by_whose_the_text_is(one, other, named):
    assert rules(one, other) == named


def test_a_bos_that_only_one_side_has_is_one_whatever_its_tokenizer_calls_it():
    ids, labels = (row(TALK).sequences[0].ids.tolist(), row(TALK).sequences[0].labels.tolist())
    judge = Judge(TOKENIZER, None, ("one", "other"))
    control = {*TOKENIZER.control_tokens().values()} - {ids[0]}
    begun = TokenRow((given([min(control), *ids], [-100, *labels]),))
    assert judge.difference(row(TALK), begun).rules == ("bos",)
    assert judge.difference(begun, row(TALK)).rules == ("bos",)
    # One that is no control token here, and is the other tokenizer's BOS.
    word = TokenRow((given([300, *ids], [-100, *labels]),))
    known = Judge(TOKENIZER, None, ("one", "other"), begins=frozenset({300}))
    assert known.difference(row(TALK), word).rules == ("bos",)


def test_a_cut_at_the_start_that_only_one_side_has_is_told_from_lost_turns():
    one = row([SYSTEM, *TALK]).sequences[0]
    for longest in (12, 24):
        end = slice(-longest, None)
        cut = TokenRow((given(one.ids[end].tolist(), one.labels[end].tolist()),))
        judge = Judge(TOKENIZER, longest, ("one", "other"))
        found = judge.difference(TokenRow((one,)), cut)
        assert found.rules == ("cut_start",)
        assert found.detail == f"other begins {len(one.ids) - longest} tokens after one"
        assert judge.difference(cut, TokenRow((one,))).rules == ("cut_start",)
    # Without a length it is seen where the cut is within a turn.
    assert Judge(TOKENIZER).difference(TokenRow((one.cut(slice(5, None)),)), TokenRow((one,))).rules == ("cut_start",)  # fmt: skip


def test_spaces_that_another_tokenizer_writes_are_its_own():
    spaced = row([ASKED | {"content": " " + ASKED["content"]}, *TALK[1:]])
    assert rules(row(TALK), spaced) == {"whitespace"}
    assert rules(row(TALK), spaced, same_settings=False) == {"tokenizer"}
