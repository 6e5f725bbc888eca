"""What runs in a reward worker's process. Neither torch nor TRL is imported here, unless a function does.

An item is a pickled (index, batch); its answer is a pickled ("done", rewards, logged) or ("failed",
message, traceback).
"""

import pickle
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fmtkit.core import user_modules
from fmtkit.core.worker import Serve
from fmtkit.training.online.rewards.batch import Batch, recording
from fmtkit.training.online.rewards.calls import Called
from fmtkit.training.online.rewards.entries import Entry
from fmtkit.training.online.rewards.loading import load_entry
from fmtkit.training.online.rewards.pool import GREETING
from fmtkit.training.online.rewards.verdicts import RewardError


def serve(setup: Mapping[str, Any]) -> Serve:
    """Load the functions; return what answers an item."""
    # Ctrl-C is the trainer's to handle: it ends the step, which needs its rewards.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    functions = {
        int(index): _called(label, bytes.fromhex(spec), setup)
        for index, (label, spec) in setup["functions"].items()
    }

    def answer(item: bytes) -> bytes:
        if item == GREETING:
            return GREETING
        # The items are our own parent's, which has the user's functions loaded as well.
        index, batch = pickle.loads(item)  # noqa: S301
        return _answered(functions[index], batch)

    return answer


def _called(label: str, spec: bytes, setup: Mapping[str, Any]) -> Called:
    folders, pickled = pickle.loads(spec)  # noqa: S301
    item = user_modules.unpickle(pickled, folders)
    function, options = load_entry(item) if isinstance(item, Entry) else (item, {})
    return Called(label, function, options, setup["seconds"], setup["retries"], setup["masks"])


def _answered(called: Called, batch: Batch) -> bytes:
    context, logged = recording(batch.context)
    try:
        scored = called.scored(replace(batch, context=context))
    except RewardError as error:
        return pickle.dumps(("failed", str(error), error.trace))
    try:
        return pickle.dumps(("done", scored, logged))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        message = f"reward {called.label} logged what cannot leave its worker: {error}"
        return pickle.dumps(("failed", message, ""))
