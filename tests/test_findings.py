"""Every planted defect is found in the rows where it was planted, and a clean table has none."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fmtkit.core.tables import MESSAGE, WIDE_MESSAGE
from fmtkit.findings import fingerprints
from fmtkit.findings.advice import ADVICE
from fmtkit.findings.findings import Finding, Findings, kto_weights

WORDS = ("red", "green", "blue", "grey")


def say(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def pair(number: int) -> dict[str, Any]:
    """Make a clean pair: every second has the longer chosen reply."""
    texts = [f"It is {number} and short.", f"It is {number}, and longer than that by far."]
    chosen, rejected = texts if number % 2 else texts[::-1]
    return {
        "prompt": [say("system", "Be kind."), say("user", f"What is {number}?")],
        "chosen": [say("assistant", chosen)],
        "rejected": [say("assistant", rejected)],
        "chosen_score": 7.0,
        "rejected_score": 3.0,
    }


def pairs_table(rows: list[dict[str, Any]], message: pa.StructType = WIDE_MESSAGE) -> pa.Table:
    conversation = pa.list_(message)
    schema = pa.schema(
        [
            *(
                ("prompt", conversation),
                ("chosen", conversation),
                ("rejected", conversation),
                ("tools", pa.string()),
            ),
            *(("chosen_score", pa.float64()), ("rejected_score", pa.float64())),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def look(table: pa.Table, *, batch: int = 16, **options: Any) -> dict[str, Finding]:
    findings = Findings(**options)
    for start in range(0, table.num_rows, batch):
        part = table.slice(start, batch)
        findings.add(part, np.arange(start, start + part.num_rows))
        if "chosen" in part.column_names:
            sides = (
                [len(r[0]["content"] or "") for r in part[s].to_pylist()]
                for s in ("chosen", "rejected")
            )
            findings.add_sides(*map(np.array, sides))
    return {finding.code: finding for finding in findings.result()}


@pytest.mark.parametrize("message", [MESSAGE, WIDE_MESSAGE])
def test_a_clean_table_has_no_findings(message):
    assert (
        look(pairs_table([pair(n) for n in range(100)], message), control_tokens=("<|im_end|>",))
        == {}
    )


PLANTED = {
    "chosen_equals_rejected": lambda row: {**row, "rejected": row["chosen"]},
    "direction_contradicted": lambda row: {**row, "chosen_score": 1.0},
    "direction_tied": lambda row: {**row, "rejected_score": row["chosen_score"]},
    "control_tokens": lambda row: {**row, "rejected": [say("assistant", "I <|im_end|> end")]},
    "empty_turn": lambda row: {**row, "chosen": [say("assistant", " \n")]},
    "role_order": lambda row: {**row, "prompt": [*row["prompt"], say("user", "and?")]},
    "unclosed_think": lambda row: {**row, "chosen": [say("assistant", "<think>hm")]},
    "trailing_user_turn": lambda row: {**row, "chosen": [*row["chosen"], say("user", "thanks")]},
    "tools_not_uniform": lambda row: {**row, "tools": None},
}


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_defect_is_found_where_it_was_planted(code):
    rows = [{**pair(n), "tools": "[]"} for n in range(100)]
    for place in (7, 40, 99):
        rows[place] = PLANTED[code](rows[place])
    found = look(pairs_table(rows), control_tokens=("<|im_end|>", "<think>"))
    assert set(found) == {code}
    assert (found[code].rows, found[code].count, found[code].share) == ((7, 40, 99), 3, 0.03)
    assert ADVICE[code].message


ORDERS = {
    "": ["user", "assistant", "user", "assistant"],
    " ": ["system", "user", "assistant"],
    "  ": ["user", "assistant+call", "tool", "tool", "assistant", "user", "assistant"],
    "   ": ["user", "assistant+call", "assistant"],
    "starts with the assistant": ["assistant", "user", "assistant"],
    "system in the middle": ["user", "system", "assistant"],
    "two users": ["user", "user", "assistant"],
    "two assistants": ["user", "assistant", "assistant"],
    "a tool that nobody called": ["user", "tool", "assistant"],
}


@pytest.mark.parametrize("problem", ORDERS)
def test_turns_are_to_alternate(problem):
    turns = [
        say(role.removesuffix("+call"), "x", tool_calls="[{}]" if role.endswith("+call") else None)
        for role in ORDERS[problem]
    ]
    clean = [say("user", "x"), say("assistant", "y")]
    table = pa.table({"messages": pa.array([turns, clean], pa.list_(WIDE_MESSAGE))})
    found = look(table)
    assert (found["role_order"].rows if "role_order" in found else None) == (
        (0,) if problem.strip() else None
    )


def test_ranks_are_better_when_they_are_lower_and_text_may_hold_numbers():
    rows = [pair(n) for n in range(3)]
    table = pairs_table(rows).drop_columns(["chosen_score", "rejected_score"])
    table = table.append_column("chosen_rank", pa.array([1, 3, 2])).append_column(
        "rejected_rank", pa.array([2, 2, 2])
    )
    found = look(table)
    assert (found["direction_contradicted"].rows, found["direction_tied"].rows) == ((1,), (2,))
    table = table.drop_columns(["chosen_rank", "rejected_rank"])
    table = table.append_column("score_chosen", pa.array(["1.5", "8", "n/a"])).append_column(
        "score_rejected", pa.array(["2", "7", "1"])
    )
    assert look(table)["direction_contradicted"].rows == (0,)


def test_a_side_that_is_nearly_always_longer_is_a_bias():
    rows = [pair(1) | {"prompt": [say("user", str(n))]} for n in range(60)]
    found = look(pairs_table(rows))["length_bias"]
    assert (found.count, found.details["longer"], found.details["share"]) == (60, "rejected", 1.0)
    assert found.details["mean_chosen"] < found.details["mean_rejected"]


def unpaired(labels: list[bool]) -> pa.Table:
    rows = [
        {"prompt": [say("user", str(n))], "completion": [say("assistant", "x")], "label": label}
        for n, label in enumerate(labels)
    ]
    conversation = pa.list_(MESSAGE)
    return pa.Table.from_pylist(
        rows,
        schema=pa.schema(
            [("prompt", conversation), ("completion", conversation), ("label", pa.bool_())]
        ),
    )


def test_labels_out_of_balance_get_the_weights_that_balance_them():
    assert look(unpaired([True, False] * 20)) == {}
    found = look(unpaired([True] * 10 + [False] * 40))["label_balance"]
    for end in ("from", "to"):
        weighted = 10 * found.details[f"desirable_weight_{end}"] / 40
        assert weighted == pytest.approx({"from": 1, "to": 4 / 3}[end], abs=1e-3)
        weighted = 10 / (40 * found.details[f"undesirable_weight_{end}"])
        assert weighted == pytest.approx({"from": 4 / 3, "to": 1}[end], abs=1e-3)
    assert kto_weights(400, 300) is None
    assert kto_weights(401, 300) is not None
    assert look(unpaired([False] * 5))["one_label"].count == 5


def test_soft_and_missing_step_labels_are_found():
    rows = [([True], 1.0), ([True], 0.5), ([True], None)]
    table = pa.table(
        {
            "prompt": ["a", "b", "c"],
            "completions": [["x"]] * 3,
            "labels": pa.array(
                [[1.0], [label for _, label in rows[1:2]], [None]], pa.list_(pa.float64())
            ),
        }
    )
    found = look(table)
    assert (found["soft_labels"].rows, found["missing_labels"].rows) == ((1,), (2,))


def test_copies_are_found_wherever_they_stand(monkeypatch):
    rows = [pair(n) for n in range(60)]
    rows[50] = rows[20] = rows[3]
    table = pairs_table(rows)
    for in_memory in (fingerprints.IN_MEMORY, 10, 25):
        monkeypatch.setattr(fingerprints, "IN_MEMORY", in_memory)
        findings = merged((first, table.slice(first, 15), "") for first in range(0, 60, 15))
        found = {finding.code: finding for finding in findings.result()}
        assert set(found) == {"duplicate_rows"}
        assert found["duplicate_rows"].rows == (20, 50)


def merged(batches):
    """Add up what is found in each batch alone, as a pass over blocks does."""
    findings = Findings()
    for first, table, split in batches:
        block = Findings()
        block.add(table, np.arange(table.num_rows), split)
        findings.absorb(block, first)
    return findings


def test_contents_that_only_run_together_alike_are_no_copies():
    texts = [("ab", "c"), ("a", "bc"), ("abc", ""), (None, "abc")]
    rows = [[say("user", a), say("assistant", b)] for a, b in texts]
    table = pa.table({"messages": pa.array(rows, pa.list_(MESSAGE))})
    assert len(set(fingerprints.hash_columns(table, ("messages",)).tolist())) == 4


@pytest.mark.parametrize("in_memory", [10, 1000])
def test_prompts_of_two_splits_are_found_in_both(monkeypatch, in_memory):
    monkeypatch.setattr(fingerprints, "IN_MEMORY", in_memory)
    train, other = unpaired([True, False] * 10), unpaired([False, True] * 10)
    findings = merged([(0, train, "train"), (20, other.slice(18), "test")])
    found = {finding.code: finding for finding in findings.result()}
    assert found["prompt_in_splits"].rows == (18, 19, 20, 21)


def test_more_rows_are_counted_than_named():
    rows = [PLANTED["direction_contradicted"](pair(n)) for n in range(90)]
    found = look(pairs_table(rows))["direction_contradicted"]
    assert (found.count, found.rows) == (90, tuple(range(20)))
