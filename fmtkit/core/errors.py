"""Errors and warnings of fmtkit: each says what is wrong, and what to do about it.

FmtkitError                      exit 2  base of every error that fmtkit raises on purpose
  UnknownNameError (LookupError)         no type, template, table, runner, option or key of that name
  ColumnMismatchError (ValueError)       the data lacks columns that the type needs
  OptionError (ValueError)               a flag, an option of a type or a config value is not understood
  TemplateError (ValueError)             a template cannot be found, compiled or rendered at all
  TokenizerError (ValueError)            a tokenizer cannot be loaded or lacks what is asked of it
  ImageError (ValueError)                an image is missing or cannot be read; a bad row, as a rule
  DependencyError (ImportError)          a package is missing or of a version that does not work
  OutputExistsError (FileExistsError)    the output exists already
  ForkedError (RuntimeError)             a forked process lacks the threads that read
  ResumeError (ValueError)               a run cannot be resumed, since something changed
  LimitError (ValueError)        exit 1  more bad rows than --max-errors or --on-error allows
  SourceError (OSError)          exit 3  a source cannot be read
  WriteError (OSError)           exit 3  an output cannot be written (a full disk, no permission)
  NothingWrittenError            exit 4  not one row could be written

The command line prints the message as one line and exits with the class's `exit_code`.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import ClassVar

from fmtkit.core.credentials import public
from fmtkit.core.escaping import without_addresses
from fmtkit.core.urls import ObjectPath

MANY = 12
"""Up to this many names are all listed in an error; of more it lists the closest."""
NEAREST = 5


class FmtkitError(Exception):
    """Base of fmtkit's errors: what is wrong, where, and what to do next, in one line."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str = "") -> None:
        # Whoever wrote the message, a client library or fmtkit: no error shows a key or a token, nor where in
        # memory a wrong value is.
        super().__init__(without_addresses(public(message)))

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines to print: one, or several for the problems of a configuration."""
        return (str(self),)

    @property
    def shown(self) -> tuple[str, ...]:
        """Return the lines as a terminal shows them: each with the line of the file that it concerns."""
        shown: tuple[str, ...] = self.__dict__.get("_shown", ())
        return shown or self.lines


class UnknownNameError(FmtkitError, LookupError):
    """An unknown name, with the one that was probably meant."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str], hint: str = "", near: str | None = ""
    ) -> None:
        known = sorted(known)
        # Empty: the most similar name; else what the caller knows to be meant, or None for nothing.
        near = near_match(name, known) if near == "" else near
        advice = f"did you mean {near!r}?" if near else f"{_listed(name, known)}{hint}"
        super().__init__(f"no {kind} named {name!r}; {advice}")


class ColumnMismatchError(FmtkitError, ValueError):
    """Columns are missing or have values of a different kind; the message lists the types that fit."""


class OptionError(FmtkitError, ValueError):
    """A wrong flag, option or key; the message has its value, and what it takes."""


class TemplateError(FmtkitError, ValueError):
    """A template cannot be used; the message says which and why."""


class TokenizerError(FmtkitError, ValueError):
    """A tokenizer cannot be used; the message says what it lacks."""


class ImageError(FmtkitError, ValueError):
    """An image is missing or cannot be read; the message says why, `code` is that of a row with it."""

    def __init__(self, message: str = "", code: str = "image_unreadable") -> None:
        super().__init__(message)
        self.code = code


class DependencyError(FmtkitError, ImportError):
    """A package is missing; the message has the command that installs it."""


class ForkedError(FmtkitError, RuntimeError):
    """A process was forked from one that had already read data; the message says how to start it instead."""


class OutputExistsError(FmtkitError, FileExistsError):
    """The output exists already; the message names the flags that overwrite or resume it."""


class ResumeError(FmtkitError, ValueError):
    """A run cannot be resumed; the message says what changed."""


class LimitError(FmtkitError, ValueError):
    """Too many rows were bad; the message says how many, and where the first ones are listed."""

    exit_code = 1


class SourceError(FmtkitError, OSError):
    """A source cannot be read; the message says which and why."""

    exit_code = 3


class WriteError(FmtkitError, OSError):
    """An output cannot be written; the message says which and why."""

    exit_code = 3


class NothingWrittenError(FmtkitError):
    """No row was written; the message says why, and `report` is the report of the run."""

    exit_code = 4

    def __init__(self, message: str, report: "Path | ObjectPath | None" = None) -> None:
        super().__init__(message)
        self.report = report


class RejectedRowsWarning(UserWarning):
    """The library left rows out of a table; the message counts them by code."""


class UnreadFilesWarning(UserWarning):
    """Files of a folder are not read, since they are those of another split; the message names them."""


class UnreadKeysWarning(UnreadFilesWarning):
    """What an object holds beside its list of rows is not read; the message names it."""


class UnreadTurnsWarning(UserWarning):
    """Columns carry turns that the type of a table does not read; the message names them."""


def _listed(name: str, known: list[str]) -> str:
    if len(known) <= MANY:
        return f"known: {', '.join(known)}"
    return f"the nearest of {len(known)} are {', '.join(nearest(name, known))}"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names most similar to one, the closest first."""
    return sorted(known, key=lambda one: (-SequenceMatcher(None, name, one).ratio(), one))[:NEAREST]


def near_match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None."""
    near = get_close_matches(name, list(known), n=1)
    return near[0] if near else None


class UnusedKernelWarning(RuntimeWarning):
    """There could be a native kernel, but it was not built, is stale or cannot be loaded."""
