"""A dataset with one defect of each kind in known rows, and the same without them."""

import random
from typing import Any

Row = dict[str, Any]
THINGS = ("apples", "pears", "plums", "figs", "limes", "kiwis")


def say(role: str, content: str) -> Row:
    return {"role": role, "content": content}


def clean(number: int) -> Row:
    """Make a pair of two whole conversations; every second has the longer chosen reply."""
    rng = random.Random(number)
    thing, count = rng.choice(THINGS), rng.randint(2, 99)
    asked = [say("system", "Count."), say("user", f"{number}: how many {thing} are {count} + 1?")]
    right, wrong = f"There are {count + 1} {thing}.", f"There are {count + 2} {thing}."
    if number % 2:
        right += " That is one more than before."
    else:
        wrong += " That is two more than before."
    return {
        "chosen": [*asked, say("assistant", right)],
        "rejected": [*asked, say("assistant", wrong)],
        "score_chosen": 8,
        "score_rejected": 3.5,
    }


def last(row: Row, side: str, content: str) -> Row:
    return {**row, side: [*row[side][:-1], say("assistant", content)]}


def sick(rows: int = 400) -> tuple[list[Row], dict[str, list[int]]]:
    """Make rows, and of each finding the rows where it was planted."""
    made = [clean(number) for number in range(rows)]
    planted: dict[str, list[int]] = {}

    def plant(code: str, *places: int) -> list[int]:
        planted[code] = sorted(places)
        return list(places)

    for i in plant("chosen_equals_rejected", 11, 302):
        made[i]["rejected"] = made[i]["chosen"]
    for i in plant("direction_contradicted", 23, 324):
        made[i] |= {"score_chosen": 1, "score_rejected": "9"}
    for i in plant("direction_tied", 31):
        made[i] |= {"score_chosen": 5, "score_rejected": 5.0}
    for i in plant("control_tokens", 47, 348):
        made[i] = last(made[i], "chosen", f"Stop <|eot_id|> at {i}.")
    for i in plant("unclosed_think", 59):
        made[i] = last(made[i], "rejected", f"<think>Is it {i}? Or")
    for i in plant("duplicate_rows", 67, 399):
        made[i] = {**made[66]}
    for i in plant("equal_after_rendering", 71):
        made[i] = last(last(made[i], "chosen", f"Yes {i}."), "rejected", f"Yes {i}. ")
    for i in plant("role_order", 83):
        for side in ("chosen", "rejected"):
            turns = made[i][side]
            made[i][side] = [*turns[:2], say("user", "And now?"), turns[2]]
    for i in plant("empty_turn", 97):
        for side in ("chosen", "rejected"):
            turns = made[i][side]
            made[i][side] = [*turns[:2], say("assistant", " "), say("user", "What?"), turns[2]]
    return made, planted
