"""Warnings of a run that dynamic sampling could mend, or that it could not mend."""

from collections.abc import Iterator

from fmtkit.training.building.online_health import PATIENCE, SOMETIMES, OnlineHealth, no_spread


def health(health: OnlineHealth, _: int) -> Iterator[tuple[str, str]]:
    """Yield what the last logs say of groups without a signal."""
    advice = (
        f"{SOMETIMES}, raise temperature or trl.num_generations, or set trl.dynamic_sampling: true"
    )
    yield from no_spread(health, advice)
    last = health.last("dynamic_sampling/unfilled_groups")
    if last and min(last) > 0:
        yield (
            "unfilled",
            f"trl.dynamic_sampling left {last[-1]:g} groups of a batch without a signal, {PATIENCE} logs in "
            f"a row: {SOMETIMES}, or raise trl.dynamic_sampling_max_gen_batches",
        )
