"""What a config does not say of its rows, and the rows do, is said in the plan: media, type, method."""

import json
from pathlib import Path

import pytest

pytest.importorskip("trl")

from fmtkit.core.errors import OptionError
from fmtkit.training.data import prerendered
from fmtkit.training.planning import plan as planning

USER = {"role": "user", "content": "red"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("good", "bad"))
SOUND = [{"type": "audio"}, {"type": "text", "text": "what?"}]
PAIR = {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}
IMPLICIT = {"chosen": "Human: red\n\nAssistant: good", "rejected": "Human: red\n\nAssistant: bad"}
SHARED = {"messages": [USER], "chosen": GOOD, "rejected": BAD}
GRPO = {"rl": "grpo", "trl": {"reward_funcs": ["a.b"], "num_generations": 2}, "micro_batch_size": 2}


def settle(folder: Path, row: dict, **keys: object) -> planning.Plan:
    file = folder / "rows.jsonl"
    file.write_text((json.dumps(row) + "\n") * 3, encoding="utf-8")
    entry = {"path": str(file)} | ({"type": keys.pop("type")} if "type" in keys else {})
    plan = planning.plan({"base_model": "a/m", "datasets": [entry], **keys})
    return prerendered.settled(plan, with_hub=False)


@pytest.mark.parametrize(
    ("row", "keys", "message"),
    [
        (PAIR, {}, r"table Preference, which sft \(no rl is set\) does not take: set rl: dpo"),
        (SHARED, {}, "set rl: dpo or cpo or ipo, and type: chat_template.default"),
        (IMPLICIT, {}, "set rl: dpo or cpo or ipo, and type: "),
        ({"prompt": "a", "completion": "b", "label": False}, {}, "set rl: kto or bco"),
        ({"prompt": "a", "completion": "b", "label": False}, {"rl": "dpo"}, "set rl: kto or bco"),
        ({"prompt": "a", "completions": ["b"], "labels": [True]}, {}, "set rl: prm"),
        ({"instruction": "a", "output": "b"}, {}, "set type: alpaca$"),
        ({"messages": [USER, GOOD]}, GRPO, "table Conversation, which grpo does not take"),
        ({"messages": [USER, GOOD], "audio": {"path": "a.wav"}}, {}, r"hold media \(audio\)"),
        ({"messages": [{**USER, "content": SOUND}, GOOD]}, {}, r"hold media \(audio\)"),
    ],
)
def test_the_plan_names_what_fits(tmp_path, row, keys, message):
    with pytest.raises(OptionError, match=message):
        settle(tmp_path, row, **keys)


WORDS = {"chosen": "What is red? Good.", "rejected": "What is red? Bad."}


@pytest.mark.parametrize(
    ("row", "method", "type_", "is_text"),
    [
        (IMPLICIT, "dpo", "hh_rlhf", False),
        (SHARED, "dpo", "chat_template.default", False),
        (WORDS, "dpo", "implicit_prompt", True),
        (WORDS, "reward", "implicit_prompt", True),
        ({n: [USER, PAIR[n][0]] for n in ("chosen", "rejected")}, "orpo", "implicit_prompt", False),
    ],
)
def test_the_type_that_inspect_is_sure_of_is_that_of_rows_without_one(
    tmp_path, row, method, type_, is_text
):
    plan = settle(tmp_path, row, rl=method)
    (dataset,) = plan.datasets
    assert dataset.reading.type == type_
    assert dataset.reading.is_text == is_text
    assert f"names no type, and the rows are {type_}" in plan.notes[-1]


@pytest.mark.parametrize(
    ("row", "keys"),
    [
        (PAIR, {"rl": "dpo"}),
        ({"messages": [USER, GOOD]}, {}),
        ({"messages": [USER, GOOD], "images": []}, {}),
        ({"prompt": "a", "completion": "b"}, {}),
        ({"prompt": "a", "completion": "b", "label": True}, {"rl": "sft"}),
        ({"prompt": [USER], "answer": "4", "chosen": 3}, GRPO),
        (IMPLICIT, {"rl": "dpo", "type": "hh_rlhf"}),
    ],
)
def test_what_is_said_is_taken(tmp_path, row, keys):
    assert len(settle(tmp_path, row, **keys).datasets) == 1
