"""Errors of a trainer in one line: what failed, where, and what to do next.

The traceback is kept in the run folder, for debugging the trainer.
"""

import errno
import traceback
from pathlib import Path

from fmtkit.core.errors import FmtkitError, OptionError, WriteError
from fmtkit.training.run.callbacks import TrainingError

FILE = "error.log"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL_WORDS = ("No space left on device", "Disk quota exceeded", "basic_ios::clear: iostream error")
"""Messages of C++ and Rust libraries for a full disk, which carry no errno."""
_WORDS = 300


def explained(error: Exception, run: Path) -> FmtkitError:
    """Return a one-line error for what a trainer has raised; keep its traceback."""
    if _is_full(error):
        return WriteError(
            f"the disk of {run} is full ({_first(error)}): free some space, lower save_total_limit, or "
            "set output_dir; --resume continues from the last complete checkpoint"
        )
    kept = _keep(error, run)
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(frame[0].filename).name}:{frame[0].lineno})" if frame else ""
    words = f"{type(error).__name__}: {_first(error)}{where}{_advice(error)}{kept}"
    return OptionError(words) if _is_setup(error) else TrainingError(words)


def _advice(error: Exception) -> str:
    if isinstance(error, IndexError) and "index out of range in self" in str(error):
        return "; the tokenizer has ids that the model has no embedding for: see tokens"
    return ""


def _is_full(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if any(words in str(error) for words in _FULL_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_setup(error: Exception) -> bool:
    """Return whether the setup is at fault: a package is missing, or no step was started yet."""
    if isinstance(error, ImportError):
        return True
    functions = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    return not functions & {"_trained", "_save", "_report"}


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no reason given"
    return text if len(text) <= _WORDS else f"{text[:_WORDS]}..."


def _keep(error: Exception, run: Path) -> str:
    """Write the traceback into the run folder, and return where it is."""
    text = "".join(traceback.format_exception(error))
    try:
        (run / FILE).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return ""
    return f"; {run / FILE} has the traceback"
