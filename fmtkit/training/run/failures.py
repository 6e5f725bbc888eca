"""Exceptions of a trainer as one-line errors: what failed, where, and what to do next.

The traceback is written to the run folder, for debugging the trainer.
"""

import errno
import traceback
from pathlib import Path

from fmtkit.core.errors import FmtkitError, OptionError, WriteError

FILE = "error.log"
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DISK_FULL_MESSAGES = (
    "No space left on device",
    "Disk quota exceeded",
    "basic_ios::clear: iostream error",
)
"""Messages for a full disk from C++ and Rust libraries, whose exceptions have no errno."""
_CUT_IMAGES = ("Mismatch in `image` token count", "Image features and image tokens do not match")
"""What transformers says of a row of which a trainer has cut a part of an image."""
_LONGEST = 300
"""Characters of a trainer's message that are kept."""


def explained(error: Exception, run: Path, kind: type[FmtkitError]) -> FmtkitError:
    """Return a one-line error for an exception of a trainer, and write its traceback to the run folder.

    Args:
        error: What a trainer, a model or a user's function raised.
        run: The run folder.
        kind: OptionError before training has started, TrainingError after. A full disk and a missing package
        always have their own kinds.
    """
    if _is_full(error):
        return WriteError(
            f"the disk of {run} is full ({_first_line(error)}): free some space, lower save_total_limit, or "
            "set output_dir; --resume continues from the last complete checkpoint"
        )
    log = _write_traceback(error, run)
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(frame[0].filename).name}:{frame[0].lineno})" if frame else ""
    message = f"{type(error).__name__}: {_first_line(error)}{where}{_advice(error)}{log}"
    return OptionError(message) if isinstance(error, ImportError) else kind(message)


def _advice(error: Exception) -> str:
    if isinstance(error, IndexError) and "index out of range in self" in str(error):
        return "; the tokenizer has ids that the model has no embedding for: see the key tokens"
    if any(words in str(error) for words in _CUT_IMAGES):
        return "; a row is longer than sequence_len, which cuts its image: raise it, or filter such rows"
    return ""


def _is_full(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return True
        if any(message in str(error) for message in _DISK_FULL_MESSAGES):
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no reason given"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _write_traceback(error: Exception, run: Path) -> str:
    """Write the traceback to the run folder, and return the end of a message that says where."""
    text = "".join(traceback.format_exception(error))
    try:
        (run / FILE).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return ""
    return f"; {run / FILE} has the traceback"
