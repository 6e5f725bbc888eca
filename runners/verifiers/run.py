"""A `verifiers` environment around the training processes: its dataset before, its server meanwhile."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.building import interrupts
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.online.conversations.environment import ExternalEnvironment
from fmtkit.training.online.conversations.own_process import interrupt, start, stop, tail
from fmtkit.training.planning.job import Job
from fmtkit.training.planning.run_plan import Plan

from .plan import settings_of
from .settings import ADDRESS, LOG, ROWS, VerifiersSettings

BRIDGE = Path(__file__).with_name("bridge.py")
_POLL = 0.2


def check(plan: Plan) -> None:
    """Write the dataset of the environment into the run folder, before anything is converted.

    Raises DependencyError where its interpreter is not there, OptionError where it does not load.
    """
    settings = settings_of(plan.config)
    if not settings.environment:
        return
    words = [*_command(plan, settings), "--rows", str((plan.run / ROWS).absolute())]
    if settings.max_samples is not None:
        words += ["--count", str(settings.max_samples)]
    process = _started(words, plan.run)
    try:
        with interrupts.handling(interrupt):
            code = process.wait(settings.start_timeout)
    except subprocess.TimeoutExpired as error:
        raise _late(settings, plan.run / LOG, "did not write its dataset") from error
    finally:
        stop(process)
    if code != 0:
        raise _ended(settings, code, plan.run / LOG)
    if not (plan.run / ROWS).stat().st_size:
        raise OptionError(f"verifiers.environment: {settings.environment} has no rows to train on")


def environment(work: Job, tokenizer: Any) -> ExternalEnvironment | None:
    """Return the rewards and the episodes of a job's environment; None without one."""
    from .rollout import open_environment

    return open_environment(work, tokenizer)


@contextmanager
def servers(plan: Plan) -> Iterator[None]:
    """Serve the environment while the processes of a run train; nothing for a run without one."""
    settings = settings_of(plan.config)
    if not settings.environment:
        yield
        return
    address = plan.run / ADDRESS
    address.unlink(missing_ok=True)
    words = [*_command(plan, settings), "--address", str(address.absolute())]
    with interrupts.handling(interrupt):
        process = _started(words, plan.run)
        try:
            _wait(settings, process, plan.run)
            yield
        finally:
            stop(process)
            address.unlink(missing_ok=True)


def _command(plan: Plan, settings: VerifiersSettings) -> list[str]:
    words = [str(settings.interpreter), str(BRIDGE), settings.environment]
    words += ["--arguments", json.dumps(dict(settings.arguments))]
    for place in places_of(plan.config.source):
        words += ["--place", str(place.absolute())]
    return words


def _started(words: list[str], run: Path) -> "subprocess.Popen[bytes]":
    """Start a process of the environment's interpreter, which writes to the log of the run."""
    # Modules of this interpreter are none of that one's, and this machine is reached without a proxy.
    ours = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    near = ",".join(filter(None, (ours.get("NO_PROXY"), "127.0.0.1,localhost")))
    more = {"NO_PROXY": near, "no_proxy": near, "PYTHONUNBUFFERED": "1"}
    return start(words, run / LOG, {**ours, **more})


def _wait(settings: VerifiersSettings, process: "subprocess.Popen[bytes]", run: Path) -> None:
    """Wait until the environment is served."""
    deadline = time.monotonic() + settings.start_timeout
    while not (run / ADDRESS).is_file():
        if process.poll() is not None:
            raise _ended(settings, process.returncode, run / LOG)
        if time.monotonic() > deadline:
            raise _late(settings, run / LOG, "was not served")
        time.sleep(_POLL)


def _ended(settings: VerifiersSettings, code: int, log: Path) -> OptionError:
    return OptionError(
        f"verifiers.environment: {settings.environment} ended with code {code}: {tail(log)}; the "
        f"complete log is {log}"
    )


def _late(settings: VerifiersSettings, log: Path, what: str) -> OptionError:
    return OptionError(
        f"verifiers.start_timeout: {settings.environment} {what} within "
        f"{settings.start_timeout:g} s; look at {log}, or allow more time"
    )
