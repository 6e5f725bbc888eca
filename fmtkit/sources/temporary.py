"""Temporary files, and the error where their disk is full."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from fmtkit.core.errors import FmtkitError, WriteError


@contextmanager
def naming_full_disk(what: str) -> Iterator[None]:
    """Turn an OSError about a temporary file into a WriteError that says what to do about it."""
    try:
        yield
    except FmtkitError:
        # Of the source that is read meanwhile.
        raise
    except OSError as error:
        folder = tempfile.gettempdir()
        raise WriteError(
            f"{what} does not fit into {folder} ({error.strerror or error}); "
            "set TMPDIR to a larger disk"
        ) from error
