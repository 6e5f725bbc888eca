"""What a rollout function takes and returns, checked call by call, so that a mistake has a name.

TRL's contract: f(prompts, trainer) -> {"prompt_ids", "completion_ids", "logprobs", ...}. The prompts
hold `num_generations` copies of each; the lists have one entry for each of them. `logprobs` are flat:
one number for each token of a completion. `env_mask` is 1 where the model wrote the token, else 0.
Any other key becomes a column for the reward functions: a list, or one value for all.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fmtkit.errors import OptionError
from fmtkit.training.life import TrainingError

_NEEDED = ("prompt_ids", "completion_ids", "logprobs")


class RolloutError(TrainingError):
    """Name the rollout function, the entry, and what is wrong with it."""


class Rollout:
    """A user's rollout function that is checked at every call.

    One that `samples_here` takes its answers from the model that trains.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], *, samples_here: bool = False
    ) -> None:
        self.name = name
        self.function = function
        self.samples_here = samples_here
        self.takes_rows = bool(getattr(function, "takes_rows", False))

    def __call__(
        self, prompts: list[Any], trainer: Any, rows: Sequence[Mapping[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Call the function; raises RolloutError if it fails or breaks the contract."""
        more = (list(trainer.rows if rows is None else rows),) if self.takes_rows else ()
        try:
            output = self.function(prompts, trainer, *more)
        except TrainingError:
            raise
        except Exception as error:
            raise RolloutError(f"{self.name} raised {told(error)}") from error
        problem = problem_of(output, len(prompts), needs_logprobs=_corrects(trainer))
        if problem is not None:
            raise RolloutError(f"{self.name}: {problem}")
        return dict(output)


def check_place(rollout: Rollout, *, ahead: bool, use_vllm: bool) -> None:
    """Raise OptionError for a function of the model that trains where something else must answer."""
    if not rollout.samples_here or not (ahead or use_vllm):
        return
    why = "it cannot run ahead" if ahead else "its answers are not from vLLM"
    key = "trl.async_prefetch" if ahead else "trl.use_vllm"
    raise OptionError(
        f"{rollout.name} samples from the model that trains, so {why}; write it as f(prompts, trainer) "
        f"over a server, or leave out {key}"
    )


def _corrects(trainer: Any) -> bool:
    return bool(trainer.use_vllm and trainer.vllm_importance_sampling_correction)


def told(error: BaseException) -> str:
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
