"""Kill a piece of work at its n-th change of a file, without a process of its own.

What the system would do after a kill is nothing: until `work` has been left, each further event is refused too,
so that no handler, `finally` or finalizer of it changes anything.
"""

import gc
import sys
from collections.abc import Callable, Collection

CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "write")


class KilledError(BaseException):
    """The process would end here."""


class Kills:
    """One for a process: its hook stays to its end."""

    def __init__(self, events: Collection[str]) -> None:
        self._events, self._left, self._is_dead = frozenset(events), 0, False
        gc.freeze()  # what was imported is not looked at after each kill
        sys.addaudithook(lambda name, _: self.happens(name))

    def happens(self, name: str) -> None:
        """Count what Python tells audit hooks, or a script itself."""
        if self._is_dead and name in CHANGES:
            raise KilledError
        if self._left and name in self._events:
            self._left -= 1
            self._is_dead = not self._left
            if self._is_dead:
                raise KilledError

    def killed_at(self, event: int, work: Callable[[], object]) -> bool:
        """Work until the `event`-th event; return whether it came to that. Zero is no kill."""
        self._left, was_killed = event, False
        try:
            work()
        except KilledError:
            was_killed = True
        if was_killed:
            gc.collect()
        self._left, self._is_dead = 0, False
        return was_killed
