"""Problems of a configuration, each with its code and line; they are reported together."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.escaping import one_line

_SAID_BY: dict[str, frozenset[str]] = {
    "environment_answers": frozenset({"section"}),
}
"""Code of a general check -> codes of checks that report the same problem more precisely."""
_UNREAD = frozenset({"value", "argument"})
"""Codes of values that no key takes: the checks after them see the default instead."""
_WIDTH = 120
_WORD = re.compile(r"[\w.]+\w")

NEEDED = " (needed to train)"
"""The end of a note on what a run needs and this machine lacks: `fmtkit train` stops there."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why a run cannot train; `key` is the (dotted) name of the key that causes it."""

    code: str
    message: str
    key: str = ""
    error: type[FmtkitError] | None = None
    """The class that is raised if it is the only problem; None for a RefusalError."""
    line: int | None = None
    """Its line, if no key determines it."""


class RefusalError(OptionError):
    """A configuration cannot be honoured; the message has the line, the reason and a remedy of each problem.

    `name` is the code of the first problem, `problems` are all of them.
    """

    def __init__(self, name: str, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message if problems else f"{message} [{name}]")
        self.name = name
        self.message = message
        self.problems = problems or (Problem(name, message),)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return one line, or one before and one for each of several problems."""
        return tuple(str(self).split("\n")) if len(self.problems) > 1 else (str(self),)


class Problems:
    """Collects problems, so that the first one does not hide the others."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, code: str, message: str, key: str = "") -> None:
        """Add a problem that is raised as a RefusalError."""
        self.found.append(Problem(code, message, key))

    def collecting(self, code: str, key: str = "") -> "_Collecting":
        """Return a context that adds the error which ends its block, if one does."""
        return _Collecting(self, code, key)

    def has(self, codes: Collection[str]) -> bool:
        """Return whether a problem of one of these codes was found."""
        return any(problem.code in codes for problem in self.found)

    def check(self, source: str, lines: Mapping[str, int]) -> None:
        """Raise one error with all problems, in the order of the file.

        It is a RefusalError; for a single problem it may have the class that the problem names.
        """
        causes = [p for p in self.found if not self.has(_SAID_BY.get(p.code, ()))]
        causes = [p for p in causes if p.code in _UNREAD or not _is_of_default(p, causes)]
        problems = sorted(dict.fromkeys(causes), key=lambda p: line_of(p, lines) or 0)
        if not problems:
            return
        messages = [one_line(f"{_place(p, source, lines)}{p.message} [{p.code}]") for p in problems]
        excerpts = [excerpt(source, line_of(p, lines), p.key) for p in problems]
        if len(problems) == 1:
            raise with_excerpt(_alone(problems[0], messages[0]), excerpts[0])
        head = f"{source}: {len(problems)} problems"
        text = "\n".join([head, *(f"  {line}" for line in messages)])
        shown = [head]
        for line, below in zip(messages, excerpts, strict=True):
            shown += [f"  {line}", *(f"  {part}" for part in below)]
        error = RefusalError(problems[0].code, text, tuple(problems))
        error.__dict__["_shown"] = tuple(shown)
        raise error


@dataclass(frozen=True)
class _Collecting:
    """A context that adds an error to the problems; the code after its block runs in any case."""

    problems: Problems
    code: str
    key: str

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        """Add a FmtkitError; do not catch any other exception."""
        if isinstance(error, RefusalError):
            self.problems.found += error.problems
        elif isinstance(error, FmtkitError):
            self.problems.found.append(Problem(self.code, str(error), self.key, type(error)))
        return isinstance(error, FmtkitError)


def _is_of_default(problem: Problem, causes: Collection[Problem]) -> bool:
    """Return whether a problem is about a key whose own value could not be read; advice is not looked at."""
    unread = {one.key.rpartition(".")[2] for one in causes if one.code in _UNREAD}
    return bool(_names(problem.message.partition(";")[0]) & unread)


def _names(message: str) -> set[str]:
    words = (word.rpartition(".")[2] for word in _WORD.findall(message))
    return {word for word in words if "_" in word}


def excerpt(source: str, line: int | None, key: str = "") -> tuple[str, ...]:
    """Return a line of a file and a line of carets below the key in it; nothing for an unknown line."""
    if line is None or not Path(source).is_file():
        return ()
    lines = Path(source).read_text(encoding="utf-8-sig", errors="replace").splitlines()
    if not 0 < line <= len(lines):
        return ()
    text = one_line(lines[line - 1].replace("\t", "    ").rstrip())
    if len(text) > _WIDTH:
        text = f"{text[: _WIDTH - 1]}…"
    word = next((p for p in reversed(key.split(".")) if p and not p.isdigit() and p in text), None)
    bare = text.lstrip(" -")
    start = text.index(word) if word else len(text) - len(bare)
    length = len(word) if word else len(bare)
    number = str(line)
    blank = " " * len(number)
    return f"{number} | {text}", f"{blank} | {' ' * start}{'^' * max(length, 1)}"


def with_excerpt(error: FmtkitError, below: tuple[str, ...]) -> FmtkitError:
    """Return the error with lines to show below its message."""
    if below:
        error.__dict__["_shown"] = (*error.lines, *(f"  {part}" for part in below))
    return error


def line_of(problem: Problem, lines: Mapping[str, int]) -> int | None:
    """Return the line of the key that a problem is about, or of the first one that it names."""
    if problem.line is not None:
        return problem.line
    for word in (problem.key, *_WORD.findall(problem.message)):
        parts = word.split(".")
        # A place inside a key's value has the line of the key, unless it has its own.
        prefixes = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        line = next((lines[prefix] for prefix in prefixes if prefix in lines), None)
        if line is not None:
            return line
    return None


def _place(problem: Problem, source: str, lines: Mapping[str, int]) -> str:
    line = line_of(problem, lines)
    if line is not None:
        return f"{source}:{line}: "
    return f"{source}: "


def _alone(problem: Problem, text: str) -> FmtkitError:
    kind = problem.error
    if kind is None or kind is OptionError:
        return RefusalError(problem.code, text, (problem,))
    error = kind.__new__(kind, text)
    error.args = (text,)
    return error
