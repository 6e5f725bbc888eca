"""Calls into code that is not ours: interrupted, left to themselves, made again, and parted."""

import asyncio
import threading

import pytest

from fmtkit.core import foreign_calls
from fmtkit.core.foreign_calls import (
    OverdueError,
    in_parts,
    retried,
    retried_coroutine,
    within,
    within_or_abandoned,
)


@pytest.fixture
def pauses(monkeypatch):
    found = []
    monkeypatch.setattr(foreign_calls.time, "sleep", found.append)

    async def sleep(seconds):
        found.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


def failing(times: int, error: Exception):
    left = iter([error] * times)

    def call():
        found = next(left, None)
        if found is not None:
            raise found
        return "done"

    return call


def test_a_call_that_waits_forever_is_interrupted_where_it_waits():
    never = threading.Event()
    with pytest.raises(OverdueError, match=r"no answer within 0\.2 seconds") as found:
        within(0.2, never.wait)
    assert found.value.where is not None


def test_on_another_thread_a_call_is_left_to_itself():
    never = threading.Event()
    with pytest.raises(OverdueError):
        within_or_abandoned(0.1, lambda: within(5, never.wait))
    never.set()


def test_what_a_call_returns_or_raises_comes_out():
    assert within(5, lambda: 3) == within_or_abandoned(5, lambda: 3) == 3
    with pytest.raises(KeyError, match="of its own"):
        within_or_abandoned(5, failing(1, KeyError("of its own")))


def awaited(call, retries, **options):
    async def coroutine():
        return call()

    return asyncio.run(retried_coroutine(coroutine, retries, **options))


@pytest.mark.parametrize("tried", [retried, awaited])
def test_a_call_is_made_again_after_growing_pauses(pauses, tried):
    assert tried(failing(6, OSError()), 6) == "done"
    assert pauses == [0.5, 1, 2, 4, 8, 8]


@pytest.mark.parametrize("tried", [retried, awaited])
def test_the_last_attempt_raises_and_final_errors_are_not_tried_again(pauses, tried):
    with pytest.raises(OSError, match="gone"):
        tried(failing(3, OSError("gone")), 2)
    assert len(pauses) == 2
    with pytest.raises(KeyError):
        tried(failing(1, KeyError()), 5, final=(KeyError,))
    assert len(pauses) == 2


def scored(rows: range, bad: set[int]) -> list[int]:
    if bad & set(rows):
        raise ValueError(f"one of {len(rows)}")
    return list(rows)


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {2, 3}, set(range(7))])
def test_what_fails_is_found_by_halves_and_the_others_keep_their_values(bad):
    parts = list(in_parts(range(7), lambda rows, _: scored(rows, bad), 60))
    assert [row for part in parts for row in part.rows] == list(range(7))
    assert {row for part in parts if part.error for row in part.rows} == bad
    assert [v for part in parts for v in part.value or ()] == sorted(set(range(7)) - bad)


def test_halves_keep_groups_whole():
    parts = list(in_parts(range(12), lambda rows, _: scored(rows, {5}), 60, whole=4))
    assert [part.rows for part in parts if part.error] == [range(4, 8)]
    whole = list(in_parts(range(6), lambda rows, _: scored(rows, {5}), 60, whole=4))
    assert [part.rows for part in whole] == [range(6)]


def test_one_row_that_never_ends_costs_twice_the_time_at_most():
    asked = []

    def call(rows, seconds):
        if 5 in rows:
            asked.append(seconds)
            raise OverdueError(seconds)

    list(in_parts(range(8), call, 64.0))
    assert asked == [64, 32, 16, 8]
    assert sum(asked) < 2 * 64
