"""Guesses by values: what columns and their relations say under names that nobody knows."""

import json
import shlex

import pytest
import runs

import fmtkit
from fmtkit.detection import detection

ASKED = [
    "How do I get wine out of a shirt?",
    "What causes the seasons?",
    "Name two noble gases, please.",
    "Is it safe to eat sprouted potatoes?",
    "Why is bread sour?",
]
GOOD = [
    "Blot it, cover it with salt, and rinse it with cold water.",
    "The tilt of the axis of the Earth.",
    "Helium and neon are noble gases.",
    "Small sprouts can be cut off generously.",
    "Acids form while the dough rests.",
]
POOR = [
    "Put it into the dryer on high heat.",
    "The Earth comes closer to the Sun.",
    "Iron and oxygen are noble gases.",
    "Yes, every potato is always fine.",
    "Somebody has poured vinegar into it.",
]
EVERY = [*zip(ASKED, GOOD, POOR, strict=True)]


def made(capsys, tmp_path, rows):
    """Return the certainty of the guess and what its command makes of the rows; None without one."""
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    survey = fmtkit.inspect(str(path))
    command = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out).get("command")
    if command is None:
        return survey.certainty, None
    words = shlex.split(command)
    done = runs.fmtkit(capsys, *words[1 : words.index("-o")], "-o", str(out))
    assert done.code == 0, done.err
    return survey.certainty, [json.loads(line) for line in out.read_text().splitlines()]


def sides(one, other):
    """Return rows in which the better of two replies is in turn in one and in the other column."""
    return [
        ({one: good, other: poor} if i % 2 else {one: poor, other: good}) | {"zq": asked}
        for i, (asked, good, poor) in enumerate(EVERY)
    ]


def turns(who, said, names):
    talks = [[{who: names[0], said: a}, {who: names[1], said: g}] for a, g, _ in EVERY]
    return [{"talk": talk, "nr": f"k{i}"} for i, talk in enumerate(talks)]


def judged(texts, verdicts, values):
    """Return rows with replies and as many values in a list of objects."""
    return [
        {
            "zq": asked,
            "pool": [{texts: poor, verdicts: values[0]}, {texts: good, verdicts: values[1]}],
        }
        for asked, good, poor in EVERY
    ]


PAIRS = [
    [row | {"pick": "AB"[i % 2 == 0]} for i, row in enumerate(sides("sys_a_out", "sys_b_out"))],
    [row | {"won": ["right", "left"][i % 2]} for i, row in enumerate(sides("left", "right"))],
    [row | {"res": ["B>A", "A>>B"][i % 2]} for i, row in enumerate(sides("answer1", "answer2"))],
    [row | {"z": ["tuned", "base"][i % 2]} for i, row in enumerate(sides("base_t", "tuned_t"))],
    [
        row | {"winner_model_a": i % 2, "winner_model_b": 1 - i % 2, "winner_tie": 0}
        for i, row in enumerate(sides("response_a", "response_b"))
    ],
    [
        row | {"base_rating": [1, 5][i % 2], "tuned_rating": [4, 2][i % 2]}
        for i, row in enumerate(sides("base_reply", "tuned_reply"))
    ],
    judged("said", "reward", (0.25, 0.5)),
    judged("text", "verdict", (False, True)),
    judged("body", "rank", (2, 1)),
    [{"zq": a, "samples": [p, g], "reward_scores": [-1, 2]} for a, g, p in EVERY],
    [
        {"zq": a, "outs": [p, g][:: i % 2 * 2 - 1], "best_idx": i % 2}
        for i, (a, g, p) in enumerate(EVERY)
    ],
    [{"zq": a, "outs": {"m-1": p, "m-2": g}, "scores": {"m-1": 1, "m-2": 7}} for a, g, p in EVERY],
    [{"zq": a, "ai_draft": p, "human_edit": g, "remarks": "x"} for a, g, p in EVERY],
]


@pytest.mark.parametrize("rows", PAIRS, ids=lambda rows: " ".join(rows[0]))
def test_values_tell_which_reply_is_better(capsys, tmp_path, rows):
    certainty, found = made(capsys, tmp_path, rows)
    assert certainty == "unsure"
    assert [row["prompt"][-1]["content"] for row in found] == ASKED
    assert [row["chosen"][0]["content"] for row in found] == GOOD
    assert [row["rejected"][0]["content"] for row in found] == POOR


@pytest.mark.parametrize("keys", [("who", "said"), ("party", "utterance"), ("typ", "inhalt")])
@pytest.mark.parametrize(
    "names", [("Kunde", "Berater"), ("visitor", "operator"), ("用户", "客服"), ("Xo", "Yp")]
)
def test_a_few_speakers_in_turn_are_roles(capsys, tmp_path, keys, names):
    certainty, found = made(capsys, tmp_path, turns(*keys, names))
    assert certainty == "unsure"
    assert [row["messages"][0] for row in found] == [{"role": "user", "content": a} for a in ASKED]
    assert [row["messages"][1]["content"] for row in found] == GOOD


def test_rows_of_one_message_each_are_joined_by_their_conversation(capsys, tmp_path):
    talks = turns("who", "said", ("customer", "agent"))
    rows = [
        {"ticket": row["nr"], "step": i, **message}
        for row in talks
        for i, message in enumerate(row["talk"])
    ]
    _, found = made(capsys, tmp_path, rows)
    assert [len(row["messages"]) for row in found] == [2] * len(EVERY)
    assert [row["messages"][1]["content"] for row in found] == GOOD
    # Rows that are in no order are no conversations.
    assert not any(f.converter.name == "message_rows" for f in detection.detect(rows[::-1]))


def test_people_who_change_from_talk_to_talk_are_no_roles():
    people = ["Ann", "Ben", "Cyd", "Dan", "Eve", "Fay"]
    rows = [
        {"talk": [{"who": people[i], "said": a}, {"who": people[i + 1], "said": g}]}
        for i, (a, g, _) in enumerate(EVERY)
    ]
    assert not any(f.converter.name == "openai" for f in detection.detect(rows))


def test_a_log_of_an_api_is_its_request_and_its_response(capsys, tmp_path):
    rows = [
        {
            "body": {"messages": [{"role": "user", "content": asked}], "model": "m"},
            "answer": {"choices": [{"message": {"role": "assistant", "content": good}}]},
        }
        for asked, good, _ in EVERY
    ]
    _, found = made(capsys, tmp_path, rows)
    assert [row["prompt"][0]["content"] for row in found] == ASKED
    assert [row["completion"][0]["content"] for row in found] == GOOD


def test_nothing_is_made_of_two_replies_that_nobody_judged(tmp_path):
    rows = [{"prompt": a, "response_1": g, "response_2": p} for a, g, p in EVERY]
    assert detection.detect(rows) == []
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(fmtkit.FmtkitError, match="no column says which is better"):
        fmtkit.convert(str(path), None, out=str(tmp_path / "out.jsonl"))


@pytest.mark.parametrize(
    ("texts", "numbers"), [("passages", "scores"), ("choices", "labels"), ("replies", "token_ids")]
)
def test_passages_choices_and_lengths_make_no_pairs(texts, numbers):
    rows = [{"question": a, texts: [g, p], numbers: [1, 3]} for a, g, p in EVERY]
    made = {found.converter.table for found in detection.detect(rows)}
    assert not made & {"Preference", "Ranking"}


def test_the_task_beside_starter_code_is_a_prompt():
    rows = [
        {"problem_statement": a, "starter_code": f"def f{i}(x): ...", "public_tests": "[]"}
        for i, a in enumerate(ASKED)
    ]
    best = detection.detect(rows)[0]
    assert (best.converter.table, best.mapping) == ("Prompt", {"prompt": "problem_statement"})
