"""Several training processes on one machine, by torchrun or accelerate, which end together.

`python -m fmtkit.training.run.several torchrun|accelerate ARGUMENT...`. On their own, both end every
failure with exit code 1 and a traceback below the line in which the process says what is wrong, and kill
their processes thirty seconds after a signal, even while a checkpoint is written. Here the exit code is
that of the process that failed first, and signals are passed on: the processes save and stop.
"""

import logging
import os
import signal
import sys
from collections.abc import Collection, Sequence
from subprocess import CalledProcessError
from types import FrameType
from typing import Any

import psutil

from fmtkit.core.parent_death import end_with_parent, environment_of_child
from fmtkit.training.building.interrupts import INTERRUPTED, handling, is_interruption


class _Relay:
    """Passes signals on to the processes below this one."""

    def __init__(self) -> None:
        self.asked = False

    def take(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on; before there is a process to take it, stop here."""
        del frame
        self.asked = True
        children = psutil.Process().children()
        for child in children:
            child.send_signal(number)
        if not children:
            raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Run the processes and return the exit code of the first that failed."""
    # What torchrun would set for several processes, with a warning.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    relay = _Relay()
    try:
        with handling(relay.take):
            end_with_parent()
            os.environ |= environment_of_child()
            code = _run(arguments[0], list(arguments[1:]), relay)
    except KeyboardInterrupt:
        return INTERRUPTED
    return INTERRUPTED if relay.asked and code else code


def _run(launcher: str, arguments: list[str], relay: _Relay) -> int:
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # torch's launcher registers its own handler, which would kill the processes.
    vars(api)["_terminate_process_handler"] = relay.take
    # The process that fails has said why; its end is in the exit code.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        _launch(launcher, arguments)
    except ChildFailedError as error:
        return _exit_code(exit_code_of(error.failures.values()))
    except CalledProcessError as error:
        # accelerate's way with a single process.
        return _exit_code(error.returncode)
    return 0


def exit_code_of(failures: Collection[Any]) -> int:
    """Return the exit code of the process that failed first.

    Their times are whole seconds: of those that failed together, one that was killed comes before those
    that failed since it is gone. The launcher ends the rest by SIGTERM.
    """
    earliest = min(failure.timestamp for failure in failures)
    together: list[int] = [f.exitcode for f in failures if f.timestamp <= earliest + 1]
    failed = [code for code in together if code != -signal.SIGTERM]
    killed = [code for code in failed if code < 0]
    return [*killed, *failed, *together][0]


def _exit_code(code: int) -> int:
    """Return a process's code as a shell would: 128 and the number of the signal that killed it."""
    if is_interruption(code):
        return INTERRUPTED
    return code if code > 0 else 128 - code


def _launch(launcher: str, arguments: list[str]) -> None:
    if launcher == "torchrun":
        from torch.distributed.run import main as torchrun

        torchrun(arguments)
    else:
        from accelerate.commands.accelerate_cli import main as accelerate

        sys.argv = [launcher, *arguments]
        accelerate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
