"""Sessions of Claude Code, a file each: lines name their parents, so that a session is a tree of turns."""

from collections.abc import Iterator, Sequence
from dataclasses import field

from fmtkit.columns.sessions import (
    BROKEN,
    HARNESS,
    OTHER,
    ROOTS,
    UNANSWERED,
    UNKNOWN,
    ConversationBuilder,
    Event,
    Events,
    Session,
    add_question,
    add_reply,
    add_result,
    conversations,
    kind_of,
    objects,
    text_of,
)
from fmtkit.core.data_classes import dataclass
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

HARMLESS = frozenset(
    {
        *("agent-color", "agent-name", "agent-setting", "ai-title", "attribution-snapshot"),
        *(
            "checkpoint",
            "custom-title",
            "file-history-delta",
            "file-history-snapshot",
            "last-prompt",
        ),
        *("mode", "permission-mode", "pr-link", "progress", "queue-operation", "summary", "system"),
        *("tag", "task-summary", "worktree-state"),
    }
)
"""Lines that no model reads: titles, undo snapshots, progress, notices."""
INJECTED = frozenset({"attachment"})
"""Lines with what Claude Code adds to the context."""
SYNTHETIC = "<synthetic>"
"""The model of replies that Claude Code writes where a request fails."""


@converter(wide=True, rows_by="parentUuid", whole_file=True)
def session(rows: Events) -> Conversation:
    """https://github.com/skillsynchq/txcript/blob/main/docs/formats/claude-code.md.

    Claude Code documents where sessions are (https://code.claude.com/docs/en/sessions), and that their lines
    may change. Each path to a last reply is a row; those of sidechains, and what follows a summary of the
    conversation, have a beginning of their own.
    """
    return conversations(rows, _read)


@dataclass
class _Turn:
    """A line of the user, or the lines of one message of the model."""

    parent: str | None
    is_side: bool
    begins: bool
    """Whether the conversation begins anew with it, with a summary of what was said before."""
    model: bool
    messages: list[Event] = field(default_factory=list)
    above: int | None = None
    """The turn that it follows."""
    below: list[int] = field(default_factory=list)
    replied: bool = False
    """Whether a reply of the model is below it."""


def _read(events: Sequence[Event | None]) -> Session:
    found = Session()
    turns, places, links = _turns(events, found)
    if not turns:
        found.fault = found.fault or OTHER
        return found
    roots = _link(turns, places, links, found)
    order = _order(turns, roots)
    for place in reversed(order):
        turn = turns[place]
        if turn.above is not None:
            turns[turn.above].replied |= turn.replied or turn.model
    results = _results(turns)
    used: set[int] = set()
    ends = (place for place in order if turns[place].model and not turns[place].replied)
    for end in sorted(ends):
        path = [*reversed([*_up(turns, end)]), *_down(turns, end)]
        used.update(path)
        lines = sum(len(turns[place].messages) for place in path)
        found.add(_conversation(turns, path, results, used, found), lines)
        if found.fault:
            return found
    mains = [root for root in roots if not (turns[root].is_side or turns[root].begins)]
    found.noted |= {ROOTS} if len(mains) > 1 else set()
    found.noted |= {UNANSWERED} if len(used) < len(turns) else set()
    return found


def _turns(
    events: Sequence[Event | None], found: Session
) -> tuple[list[_Turn], dict[str, int], dict[str, str | None]]:
    """Return the turns, the turn of each line that is one, and the parent of each line."""
    turns: list[_Turn] = []
    places: dict[str, int] = {}
    links: dict[str, str | None] = {}
    spoken: dict[tuple[str, bool], int] = {}
    begins: set[str] = set()
    last: str | None = None
    for number, event in enumerate(events):
        if event is None:
            continue
        kind, message = kind_of(event), event.get("message")
        name = text_of(event.get("uuid")) or f" {number}"
        parent = text_of(event.get("parentUuid")) or None
        if name in links:
            found.noted.add(BROKEN)
            continue
        if "uuid" in event or isinstance(message, dict):
            links[name] = parent if "uuid" in event else last
            last = name
        if event.get("subtype") == "compact_boundary":
            begins.add(name)
        if kind not in ("user", "assistant") or not isinstance(message, dict):
            unknown = HARNESS if kind in INJECTED else UNKNOWN
            found.noted |= set() if kind in HARMLESS else {unknown}
            continue
        is_model = kind == "assistant"
        if is_model and (message.get("model") == SYNTHETIC or event.get("isApiErrorMessage")):
            found.noted.add(HARNESS)
            continue
        is_side = bool(event.get("isSidechain"))
        key = (text_of(message.get("id")), is_side)
        if is_model and key[0] and key in spoken:
            places[name] = spoken[key]
        else:
            places[name] = len(turns)
            anew = bool(event.get("isCompactSummary")) or links[name] in begins
            turns.append(_Turn(links[name], is_side, anew, is_model))
        if is_model and key[0]:
            spoken[key] = places[name]
        turns[places[name]].messages.append(message)
    return turns, places, links


def _link(
    turns: Sequence[_Turn],
    places: dict[str, int],
    links: dict[str, str | None],
    found: Session,
) -> list[int]:
    """Link each turn to the one that it follows, and return those that follow none."""
    nearest = _nearest(places, links, found)
    for turn in turns:
        above = nearest.get(turn.parent) if turn.parent is not None else None
        is_apart = above is not None and turns[above].is_side != turn.is_side
        turn.above = None if is_apart or turn.begins else above
    _cut_cycles(turns, found)
    for place, turn in enumerate(turns):
        if turn.above is not None:
            turns[turn.above].below.append(place)
    return [place for place, turn in enumerate(turns) if turn.above is None]


def _nearest(
    places: dict[str, int], links: dict[str, str | None], found: Session
) -> dict[str | None, int | None]:
    """Return for each line the turn that it is, or else the nearest one above it."""
    nearest: dict[str | None, int | None] = {None: None}
    nearest.update(places)
    for start, parent in links.items():
        if parent is not None and parent not in links:
            found.noted.add(BROKEN)
        way: dict[str | None, None] = {}
        line: str | None = start
        while line not in nearest and line not in way:
            way[line] = None
            line = links.get(line) if line is not None else None
        if line in way:
            found.noted.add(BROKEN)
        nearest |= dict.fromkeys(way, nearest.get(line))
    return nearest


def _cut_cycles(turns: Sequence[_Turn], found: Session) -> None:
    """Let the first turn of those that follow each other in a circle follow none."""
    checked: set[int] = set()
    for place in range(len(turns)):
        way: set[int] = set()
        at: int | None = place
        while at is not None and at not in checked and at not in way:
            way.add(at)
            at = turns[at].above
        if at is not None and at in way:
            turns[min(_circle(turns, at))].above = None
            found.noted.add(BROKEN)
        checked |= way


def _circle(turns: Sequence[_Turn], start: int) -> set[int]:
    circle = {start}
    at = turns[start].above
    while at is not None and at != start:
        circle.add(at)
        at = turns[at].above
    return circle


def _order(turns: Sequence[_Turn], roots: Sequence[int]) -> list[int]:
    """Return the turns, each after the one that it follows."""
    order = list(roots)
    for place in order:
        order += turns[place].below
    return order


def _up(turns: Sequence[_Turn], place: int) -> Iterator[int]:
    at: int | None = place
    while at is not None:
        yield at
        at = turns[at].above


def _down(turns: Sequence[_Turn], place: int) -> Iterator[int]:
    """Yield what follows a last reply: results of its calls, or what the user said last."""
    while turns[place].below:
        place = turns[place].below[-1]
        yield place


def _results(turns: Sequence[_Turn]) -> dict[tuple[int | None, str], tuple[int, Event]]:
    """Return the result of each call and where it is: it may be beside the path, after a call beside it."""
    found: dict[tuple[int | None, str], tuple[int, Event]] = {}
    for place, turn in enumerate(turns):
        for part in _parts(turn, "tool_result"):
            found.setdefault((turn.above, text_of(part.get("tool_use_id"))), (place, part))
    return found


def _parts(turn: _Turn, kind: str) -> list[Event]:
    parts = (part for message in turn.messages for part in objects(message.get("content")))
    return [part for part in parts if kind_of(part) == kind]


def _conversation(
    turns: Sequence[_Turn],
    path: Sequence[int],
    results: dict[tuple[int | None, str], tuple[int, Event]],
    used: set[int],
    found: Session,
) -> ConversationBuilder:
    """Say the turns of a path, each call with its result, also where that is beside the path."""
    conversation = ConversationBuilder()
    given = (part for place in path for part in _parts(turns[place], "tool_result"))
    answered = {text_of(part.get("tool_use_id")) for part in given}
    for place in path:
        turn = turns[place]
        for message in turn.messages:
            if turn.model:
                add_reply(message, conversation, found)
            else:
                add_question(message, conversation, found)
        called = _parts(turn, "tool_use") if turn.model else []
        for key in dict.fromkeys(text_of(part.get("id")) for part in called):
            if key not in answered and (place, key) in results:
                beside, part = results[place, key]
                used.add(beside)
                add_result(part, conversation, found)
    return conversation
