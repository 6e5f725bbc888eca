"""The paths through a template that are known, as a tree of questions: rows walk down it together.

When a row comes to a branch that no row took before, that row is traced and the tree grows.
"""

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from threading import Lock

from fmtkit.core.buffers import Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.batch_answers import BatchContents
from fmtkit.rendering.tracing import Leaf
from fmtkit.rendering.unknowns import Question, Slot, Unknown, answer

MAX_LEAVES = 64
"""Most paths of one signature; rows on others are rendered one by one, each at a fifth of a trace's cost."""


@dataclass
class Branch:
    """A question, and what follows each answer: None where nothing can be traced."""

    question: Question
    unknowns: tuple[Unknown, ...]
    follows: "dict[bool, Branch | Leaf | None]" = field(default_factory=dict)


@dataclass
class Tree:
    """The known paths of one signature, for all threads."""

    top: dict[bool, Branch | Leaf | None] = field(default_factory=dict)
    leaves: int = 0
    lock: Lock = field(default_factory=Lock)
    taken: set[int] = field(default_factory=set)

    def first_time(self, leaf: Leaf) -> bool:
        """Return whether no row took this path before."""
        first = id(leaf) not in self.taken
        self.taken.add(id(leaf))
        return first

    def known(self) -> list[Leaf]:
        """Return the paths that rows have taken, and were compared on, before."""
        with self.lock:
            waiting: list[Branch | Leaf | None] = list(self.top.values())
            found = []
            while waiting:
                one = waiting.pop()
                if isinstance(one, Branch):
                    waiting += one.follows.values()
                elif one is not None and id(one) in self.taken:
                    found.append(one)
        return found

    def add(self, leaf: Leaf) -> None:
        """Add a path to the tree; the part that it shares with a known path exists already."""
        follows, answer = self.top, True
        for question, then in leaf.path:
            branch = follows.setdefault(answer, Branch(question, leaf.unknowns))
            # Only a template that asks differently each time would deviate from the known path.
            if not isinstance(branch, Branch) or branch.question != question:
                return
            follows, answer = branch.follows, then
        follows[answer] = leaf
        self.leaves += 1

    def grow(
        self,
        follows: dict[bool, Branch | Leaf | None],
        answer: bool,
        trace: Callable[[], Leaf | None],
    ) -> None:
        """Trace where the tree ends, unless another thread was faster or it is large enough."""
        with self.lock:
            if answer not in follows and self.leaves < MAX_LEAVES:
                leaf = trace()
                if leaf is not None:
                    self.add(leaf)
            follows.setdefault(answer, None)


def follow(tree: Tree, texts: dict[Slot, str], trace: Callable[[], Leaf | None]) -> Leaf | None:
    """Return the path of one row, which is traced if it is the first to take it."""
    follows, then = tree.top, True
    while True:
        if then not in follows:
            tree.grow(follows, then, trace)
        found = follows[then]
        if not isinstance(found, Branch):
            return found
        follows, then = found.follows, answer(found.question, list(found.unknowns), texts)


@dataclass(frozen=True)
class Taken:
    """Rows that take one path; without a leaf they must be rendered one by one.

    `fresh` says that no row took it before.
    """

    leaf: Leaf | None
    rows: Int64s
    fresh: bool = False


def walk(
    tree: Tree, rows: BatchContents, chosen: Int64s, trace: Callable[[int], Leaf | None]
) -> Iterator[Taken]:
    """Send rows of one signature down their paths, growing the tree where they leave it."""
    waiting = [(tree.top, True, chosen)]
    while waiting:
        follows, answer, walking = waiting.pop()
        if not len(walking):
            continue
        if answer not in follows:
            tree.grow(follows, answer, partial(trace, int(walking[0])))
        found = follows[answer]
        if isinstance(found, Branch):
            answers = rows.answer(found.question, found.unknowns, walking)
            waiting.append((found.follows, False, walking[~answers]))
            waiting.append((found.follows, True, walking[answers]))
        else:
            yield Taken(found, walking, found is not None and tree.first_time(found))
