"""The contract of a rollout function, checked at every call, so that errors are named.

TRL's contract: f(prompts, trainer) -> {"prompt_ids", "completion_ids", "logprobs", ...}. The prompts
hold `num_generations` copies of each; the lists have one entry for each of them. `logprobs` are flat:
one number for each token of a completion. `env_mask` is 1 where the model wrote the token, else 0.
Any other key becomes a column for the reward functions: a list, or one value for all. The key
`rollout_error` holds for each answer the reason why there is none, or None: such an answer is masked.
"""

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fmtkit.core.foreign_calls import OverdueError, Part, in_parts, retried, within
from fmtkit.training.building.callbacks import BetweenStepsError, TrainingError
from fmtkit.training.online.failed_samples import ROLLOUT_ERROR, Timings, processes

_NEEDED = ("prompt_ids", "completion_ids", "logprobs")


class RolloutError(BetweenStepsError):
    """A rollout function failed or broke its contract; the message names it and the entry."""


class RolloutFunction:
    """A user's rollout function that is checked at every call."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        self.takes_rows = bool(getattr(function, "takes_rows", False))
        # A function that samples together with the other processes must be called when they call it, and with
        # all prompts at once.
        self.in_step = bool(getattr(function, "in_step", False))
        # An environment that runs each sample separately has a time limit for each, and reports which failed.
        self.runs_alone = bool(getattr(function, "plays_alone", False))
        self.timings = getattr(function, "timings", None) or Timings()

    def __call__(
        self, prompts: list[Any], trainer: Any, rows: Sequence[Mapping[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Call the function; raises RolloutError if it fails or breaks the contract.

        Where samples may fail (`trl.max_failed_share`), the answers to a prompt for which it does
        have a reason in the column `rollout_error`, and one token that is not trained on.
        """
        return self.completed(self.made(prompts, trainer, rows), prompts, trainer)

    def made(
        self, prompts: list[Any], trainer: Any, rows: Sequence[Mapping[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Call the function, on any thread; prompts for which it failed have None for ids."""
        given = list(trainer.rows if rows is None else rows) if self.takes_rows else []
        settings = getattr(trainer, "rollouts", None)
        started = time.perf_counter()
        if settings is None or self.in_step or self.runs_alone:
            return self._called(prompts, trainer, given)

        def call(part: range, seconds: float) -> dict[str, Any]:
            chosen = slice(part.start, part.stop)
            once = partial(self._called, prompts[chosen], trainer, given[chosen])
            return retried(partial(self._limited, seconds, once), settings.max_retries)

        limit = settings.rollout_timeout
        if settings.max_failed_share == 0 and processes() == 1:
            output = call(range(len(prompts)), limit)
        else:
            group, none_may_fail = trainer.num_generations, settings.max_failed_share == 0
            unit = len(prompts) if none_may_fail or len(prompts) % group else group
            parts = list(in_parts(range(len(prompts)), call, limit, whole=unit))
            output = _joined(parts)
        each = (time.perf_counter() - started) / len(prompts)
        self.timings.add("rollout", [each] * len(prompts), limit, ["a batch"] * len(prompts))
        return output

    def _limited(self, seconds: float, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return within(seconds, call)
        except OverdueError as error:
            raise RolloutError(
                f"{self.name} had not returned after {seconds:g} seconds; set a time limit on what it "
                "waits for, or raise trl.rollout_timeout"
            ) from error

    def _called(
        self, prompts: list[Any], trainer: Any, rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        more = (rows,) if self.takes_rows else ()
        try:
            output = self.function(prompts, trainer, *more)
        except TrainingError:
            raise
        except Exception as error:
            raise RolloutError(f"{self.name} raised {in_one_line(error)}") from error
        problem = problem_of(output, len(prompts), needs_logprobs=_corrects(trainer))
        if problem is not None:
            raise RolloutError(f"{self.name}: {problem}")
        return dict(output)

    def completed(self, output: dict[str, Any], prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Give failed prompts ids and a masked end; on the main thread."""
        lost = [n for n, ids in enumerate(output["prompt_ids"]) if ids is None]
        if not lost:
            return output
        ids = trainer._tokenize_prompts([prompts[n] for n in lost])[0]
        masks = output.get("env_mask") or [None] * len(prompts)
        pairs = zip(masks, output["completion_ids"], strict=True)
        output["env_mask"] = [[1] * len(c or ()) if m is None else m for m, c in pairs]
        if output["logprobs"] is None and _corrects(trainer):
            output["logprobs"] = [[0.0] * len(c or ()) for c in output["completion_ids"]]
        for number, prompt_ids in zip(lost, ids, strict=True):
            output["prompt_ids"][number] = prompt_ids
            output["completion_ids"][number] = [trainer._tokenizer.eos_token_id]
            output["env_mask"][number] = [0]
            if output["logprobs"] is not None:
                output["logprobs"][number] = [0.0]
        return output


def _joined(parts: Sequence[Part[dict[str, Any]]]) -> dict[str, Any]:
    """Return the outputs of parts as one; rows that failed have None, and the reason beside it.

    Raises what always ends a run: a lost server.
    """
    for part in parts:
        if part.error is not None and not isinstance(part.error, RolloutError):
            raise part.error
    if len(parts) == 1 and parts[0].value is not None:
        return parts[0].value
    outputs = [part.value for part in parts if part.value is not None]
    names = dict.fromkeys([*_NEEDED, *(name for one in outputs for name in one), ROLLOUT_ERROR])
    out: dict[str, Any] = {name: [] for name in names}
    for part in parts:
        count, value = len(part.rows), part.value or {}
        for name in names:
            values = value.get(name)
            if name == ROLLOUT_ERROR and part.error is not None:
                values = str(part.error)
            out[name] += values if isinstance(values, list) else [values] * count
    if all(one["logprobs"] is None for one in outputs):
        out["logprobs"] = None
    return out


def _corrects(trainer: Any) -> bool:
    return bool(trainer.use_vllm and trainer.vllm_importance_sampling_correction)


def in_one_line(error: BaseException) -> str:
    """Return an exception in one line, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def problem_of(output: Any, count: int, *, needs_logprobs: bool = False) -> str | None:
    """Return what breaks the contract, or None."""
    if not isinstance(output, Mapping):
        return f"returned {type(output).__name__}; it must return a dict with {_listed(_NEEDED)}"
    missing = [name for name in _NEEDED if name not in output]
    if missing:
        return f"returned no {_listed(missing)}; it must return {_listed(_NEEDED)}"
    for name in ("prompt_ids", "completion_ids"):
        problem = _ids_problem(name, output[name], count)
        if problem is not None:
            return problem
    completions, logprobs = output["completion_ids"], output["logprobs"]
    if logprobs is None:
        return _NO_LOGPROBS if needs_logprobs else _mask_problem(output, completions)
    return _numbers_problem("logprobs", logprobs, completions, _LOGPROB) or _mask_problem(
        output, completions
    )


_NO_LOGPROBS = (
    "returned logprobs: None, which the correction for vLLM's probabilities needs; return them, or "
    "set trl.vllm_importance_sampling_correction: false"
)
_LOGPROB = ("a number or None", lambda v: v is None or (_is_number(v) and not isinstance(v, bool)))
_MASK = ("0 or 1", lambda v: v in (0, 1))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _count_problem(name: str, values: Any, count: int) -> str | None:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return f"{name} is of type {type(values).__name__}; it must be a list of lists"
    if len(values) != count:
        return (
            f"{name} has {len(values)} entries for {count} prompts; return one for each, the copies "
            "of a prompt among them"
        )
    return None


def _ids_problem(name: str, values: Any, count: int) -> str | None:
    problem = _count_problem(name, values, count)
    if problem is not None:
        return problem
    for index, ids in enumerate(values):
        if not isinstance(ids, Sequence) or not all(type(token) is int for token in ids):
            return f"{name}[{index}] must be a list of token ids, as plain integers"
        if not ids:
            return f"{name}[{index}] is empty; an answer has at least the token that ends it"
    return None


def _numbers_problem(
    name: str, values: Any, completions: Any, kind: tuple[str, Callable[[Any], bool]]
) -> str | None:
    problem = _count_problem(name, values, len(completions))
    if problem is not None:
        return problem
    words, fits = kind
    for index, (numbers, ids) in enumerate(zip(values, completions, strict=True)):
        if not isinstance(numbers, Sequence) or len(numbers) != len(ids):
            have = len(numbers) if isinstance(numbers, Sequence) else type(numbers).__name__
            return f"{name}[{index}] has {have} values for {len(ids)} tokens"
        wrong = next((n for n, value in enumerate(numbers) if not fits(value)), None)
        if wrong is not None:
            value = numbers[wrong]
            nested = "; flatten it to one number for each token" if isinstance(value, list) else ""
            return f"{name}[{index}][{wrong}] is {value!r}; it must be {words}{nested}"
    return None


def _mask_problem(output: Mapping[str, Any], completions: Any) -> str | None:
    if output.get("env_mask") is not None:
        problem = _numbers_problem("env_mask", output["env_mask"], completions, _MASK)
        if problem is not None:
            return problem
    for name in output.keys() - {*_NEEDED, "env_mask"}:
        values = output[name]
        if isinstance(values, list) and len(values) != len(completions):
            return f"{name} has {len(values)} values for {len(completions)} prompts"
    return None
