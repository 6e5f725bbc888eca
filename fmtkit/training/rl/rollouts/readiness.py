"""Wait in the training processes for the run's vLLM server, before a model is loaded."""

import os
import sys

from fmtkit.training.rl.rollouts import server
from fmtkit.training.run.job import Job

_PEFT_RANK = 8


def wait_for(job: Job) -> None:
    """Wait for the server of a job and look whether it fits; do nothing where no server is asked.

    Raises ServerError if it does not come up in time, OptionError if it serves something else.
    """
    if not server.asks_server(job.trainer):
        return
    there = server.address(job.trainer)
    seconds = job.trainer.get("vllm_server_timeout")
    start = f"fmtkit vllm-serve {job.run}/config.yaml"
    limit = float(seconds) if isinstance(seconds, (int, float)) else server.TIMEOUT
    server.wait(there, limit, say=_say, start=start)
    rank = _rank(job)
    for note in server.check(there, job.model, rank=rank, start=start):
        _say(f"note: {note}")


def _rank(job: Job) -> int | None:
    """Return the rank of the adapter that is sent alone, None where whole weights are sent."""
    if job.sections.get("rl", {}).get("vllm_lora_sync") is not True:
        return None
    rank = (job.peft or {}).get("r", _PEFT_RANK)
    return rank if isinstance(rank, int) else _PEFT_RANK


def _say(line: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr)  # noqa: T201
