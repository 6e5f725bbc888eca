"""Several training processes on one machine, by torchrun: ends as the process that failed first did.

`python -m fmtkit.training.several` takes torchrun's arguments. torchrun itself would end every failure with
exit code 1 and a traceback of its own, below the line in which the process says what is wrong.
"""

import logging
import os
import sys


def main(arguments: list[str]) -> int:
    """Run the processes and return the exit code of the first that failed."""
    # What torchrun would set for several processes, with a warning.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # The process that fails has said why; its end is in the exit code.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        torchrun(arguments)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
