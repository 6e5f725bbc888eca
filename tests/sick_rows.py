"""A dataset with one defect of each kind in known rows, and the same without them."""

import random
from collections.abc import Callable
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
    for code, places in PLANTED.items():
        for place in places:
            made[place] = SICK[code](made[place], place)
    return made, {code: list(places) for code, places in PLANTED.items()}


PLANTED = {
    "chosen_equals_rejected": (11, 302),
    "direction_contradicted": (23, 324),
    "direction_tied": (31,),
    "control_tokens": (47, 348),
    "unclosed_think": (59,),
    "duplicate_rows": (67, 399),
    "equal_after_rendering": (71,),
    "role_order": (83,),
    "empty_turn": (97,),
}

SICK: dict[str, Callable[[Row, int], Row]] = {
    "chosen_equals_rejected": lambda row, _: {**row, "rejected": row["chosen"]},
    "direction_contradicted": lambda row, _: {**row, "score_chosen": 1, "score_rejected": "9"},
    "direction_tied": lambda row, _: {**row, "score_chosen": 5, "score_rejected": 5.0},
    "control_tokens": lambda row, i: last(row, "chosen", f"Stop <|eot_id|> at {i}."),
    "unclosed_think": lambda row, i: last(row, "rejected", f"<think>Is it {i}? Or"),
    "duplicate_rows": lambda _row, _: clean(66),
    "equal_after_rendering": lambda row, i: last(
        last(row, "chosen", f"Yes {i}."), "rejected", f"Yes {i}. "
    ),
    "role_order": lambda row, _: before_last(row, say("user", "And now?")),
    "empty_turn": lambda row, _: before_last(row, say("assistant", " "), say("user", "What?")),
}


def before_last(row: Row, *turns: Row) -> Row:
    """Put turns before the last of both sides."""
    sides = {side: [*row[side][:-1], *turns, row[side][-1]] for side in ("chosen", "rejected")}
    return {**row, **sides}
