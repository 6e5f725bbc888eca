"""Rendering row by row, for rows that cannot be rendered by columns; they are cut by the same rules."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from fmtkit.core.buffers import Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import ImageMark
from fmtkit.rendering.batch_answers import BatchContents, Unknowns
from fmtkit.rendering.conversation_columns import Batch, ConversationColumn, signature
from fmtkit.rendering.jinja_environment import text_part
from fmtkit.rendering.render_plan import Engine, Outcome, Output, Plan
from fmtkit.rendering.reply_cut import Problem
from fmtkit.rendering.survival import find, is_reasoning, part_slot, refusal, spoken
from fmtkit.rendering.tracing import Refusal, Request, View
from fmtkit.rendering.unknowns import ANY_SYMBOL, FIRST, LAST, Slot

Probe: TypeAlias = tuple[list[Output], Unknowns]
"""The symbolic outputs of a row's views."""

CHUNK = 256
"""Rows that go to the engine at once."""

NOT_PRESERVING = Problem(
    "template_not_prefix_preserving", "the template writes the prompt differently with a reply"
)


@dataclass(frozen=True, slots=True)
class PlainRow:
    """A row rendered by itself."""

    row: int
    outcome: Outcome | Problem
    warnings: tuple[str, ...] = ()
    unthought: tuple[bool, ...] = ()
    """For each reply whose reasoning is left out, whether it is the last of its row."""


@dataclass(frozen=True)
class PlainRows:
    """How rows are rendered one by one; `training`: another template for prompts that change."""

    engine: Engine
    plan: Plan
    batch: Batch
    training: Engine | None = None
    _absent: dict[Hashable, tuple[list[Slot], "_Constants"]] = field(default_factory=dict)

    @property
    def conversations(self) -> Sequence[ConversationColumn]:
        """Return the conversations of the rows."""
        return self.batch.conversations

    def render(self, rows: Int64s) -> Iterator[PlainRow]:
        """Render rows of any signature."""
        numbers = rows.tolist()
        for begin in range(0, len(numbers), CHUNK):
            chunk = numbers[begin : begin + CHUNK]
            for row, outputs in zip(chunk, self._outputs(self.engine, chunk), strict=True):
                outcome = self.plan.finish(outputs) or self._otherwise(row, outputs)
                yield self._checked(row, outcome)

    def _outputs(self, engine: Engine, rows: Iterable[int]) -> list[list[Output]]:
        views = self.plan.views
        requests = [self._request(row, view) for row in rows for view in views]
        outputs = engine.render(requests)
        return [outputs[i : i + len(views)] for i in range(0, len(outputs), len(views))]

    def _request(self, row: int, view: View) -> Request:
        messages = [
            m
            for conversation in view.conversations
            for m in self.conversations[conversation].messages(row)
        ]
        return Request.of(messages, self._tools(row), view.generation_prompt)

    def _tools(self, row: int) -> str | None:
        text: str | None = self.batch.tools[row].as_py() if self.batch.tools is not None else None
        return text

    def _otherwise(self, row: int, outputs: list[Output]) -> Outcome | Problem:
        """Render a row whose replies do not begin as the prompt ends."""
        if self.training is not None:
            outcome = self.plan.finish(self._outputs(self.training, [row])[0])
            if isinstance(outcome, Outcome):
                return outcome
        probed, unknowns = self._probe(row)
        if any(not isinstance(output, str) for output in (probed[0], *probed[2:])):
            return NOT_PRESERVING
        outcome = self.plan.finish_at_header(probed, unknowns)
        return outcome if isinstance(outcome, Problem) else _moved(outcome, probed, outputs)

    def _probe(self, row: int) -> Probe:
        """Find where a row's contents end up: by a trace, or a symbol for each one."""
        if any(d.with_parts()[row] or d.with_odd_calls()[row] for d in self.conversations):
            return self._probe_with_symbols(row)
        texts = BatchContents(self.batch.parts).every_text(row)
        for parts in (self.batch.parts, self.batch.parts_with_known_tools):
            leaf = self.engine.trace(signature(parts, row), self.plan.views, texts)
            if leaf is not None:
                return list(leaf.outputs), leaf.unknowns
        return self._probe_with_symbols(row)

    def _probe_with_symbols(self, row: int) -> Probe:
        slots = list(self._said(row))
        if len(slots) > LAST - FIRST:
            return [Refusal("more texts than there are symbols")], slots
        symbols = {slot: chr(FIRST + number) for number, slot in enumerate(slots)}
        requests = []
        for view in self.plan.views:
            messages = []
            for conversation in view.conversations:
                for number, message in enumerate(self.conversations[conversation].messages(row)):
                    messages.append(_marked(message, conversation, number, symbols))
            request = Request.of(messages, self._tools(row), view.generation_prompt)
            requests.append(replace(request, tools=_without_symbols(request.tools)))
        return self.engine.render(requests), slots

    def _checked(self, row: int, outcome: Outcome | Problem) -> PlainRow:
        if isinstance(outcome, Problem):
            return PlainRow(row, outcome)
        warnings = ["generation_prompt_not_a_prefix"] if outcome.shortened else []
        said = self._said(row)
        lost = self._lost(row, said, outcome)
        problem = refusal([slot for slot, words in said.items() if words], lost)
        if problem is not None:
            return PlainRow(row, problem)
        dropped = any(not is_reasoning(slot) for slot in lost)
        unthought = tuple(self._is_last(row, slot) for slot in lost if is_reasoning(slot))
        return PlainRow(row, outcome, tuple(warnings + ["content_dropped"] * dropped), unthought)

    def _is_last(self, row: int, slot: Slot) -> bool:
        conversation = self.conversations[slot.conversation]
        is_reply = slot.conversation > 0 or len(self.conversations) == 1
        return (
            is_reply and slot.message == int(conversation.ends[row] - conversation.starts[row]) - 1
        )

    def _lost(self, row: int, said: Mapping[Slot, str], outcome: Outcome) -> list[Slot]:
        """Return the slots whose text does not occur in the texts of a row."""
        shortened = outcome.shortened
        shapes = (signature(self.batch.parts, row), tuple(said), shortened)
        if shapes not in self._absent:
            probe = self._probe_with_symbols(row)
            own = "".join(output for output in probe[0] if isinstance(output, str))
            missing = self._missing(probe, said, shortened=shortened)
            self._absent[shapes] = missing, _Constants.of(own)
        absent, constants = self._absent[shapes]
        written, known = _InOrder("".join(outcome.texts)), constants.among(said.values())
        # A text may occur by chance: what symbols do not find, and what the template writes by
        # itself (`</think>`, as a content and as a constant), is checked one by one.
        doubtful = {
            slot
            for slot, words in said.items()
            if words and (words in known or not written.holds(words))
        }
        doubtful |= {slot for slot in absent if said[slot]}
        if not doubtful:
            return []
        missing = self._missing(self._probe(row), said, shortened=shortened)
        return [slot for slot in missing if slot in doubtful]

    def _missing(self, probe: Probe, slots: Iterable[Slot], *, shortened: bool) -> list[Slot]:
        """Return the slots of a row that are in none of the symbolic outputs that its texts are made of."""
        outputs, unknowns = self.plan.written(probe[0], shortened=shortened), probe[1]
        if not all(isinstance(output, str) for output in outputs):
            return []
        found = find("".join(output for output in outputs if isinstance(output, str)), unknowns)
        return [slot for slot in slots if slot not in found.whole and slot not in found.pieces]

    def _said(self, row: int) -> dict[Slot, str]:
        """Return a row's texts by slot, trimmed; a content in parts has a slot for each of its texts."""
        said: dict[Slot, str] = {}
        for slot in spoken(signature(self.conversations, row), range(len(self.conversations))):
            conversation = self.conversations[slot.conversation]
            place = int(conversation.starts[row]) + slot.message
            if slot.key == "content" and place in conversation.parts:
                for number, part in enumerate(conversation.parts[place]):
                    if not isinstance(part, ImageMark):
                        said[part_slot(slot.conversation, slot.message, number)] = part.strip()
            else:
                said[slot] = conversation.columns[slot.key].text(place).strip()
        return said


SEARCHES = 64
"""How often a whole text is searched for a row: each search takes time in proportion to the text."""


class _InOrder:
    """A rendered text in which contents are looked for one after the other, as templates write them.

    Contents elsewhere are found too, as long as they are few: the time for a row of many messages stays in
    proportion to its text.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at, self._searches = text, 0, SEARCHES

    def holds(self, words: str) -> bool:
        """Return whether the text has these words; False also if that is not looked for any more."""
        if self._text.startswith(words, self._at):
            self._at += len(words)
            return True
        near = self._text.find(words, self._at, self._at + 2 * len(words) + NEAR)
        if near >= 0:
            self._at = near + len(words)
            return True
        if not self._searches:
            return False
        self._searches -= 1
        return words in self._text


NEAR = 4_096
"""How far from one content the next begins, at most, to be found without a search of the whole text."""


LOOKED_THROUGH = 1 << 26
"""How many characters are looked through for the short contents of a row, at most."""


@dataclass(frozen=True)
class _Constants:
    """What a template writes by itself, each constant once."""

    text: str
    longest: int

    @classmethod
    def of(cls, symbolic: str) -> "_Constants":
        """Take them from a rendering with symbols for the contents."""
        constants = dict.fromkeys(ANY_SYMBOL.split(symbolic))
        # A symbol between two, so that nothing is found across both.
        return cls(chr(FIRST).join(constants), max(map(len, constants), default=0))

    def among(self, said: Iterable[str]) -> set[str]:
        """Return the contents that occur in them, or may: where too many are short, all of these."""
        short = {words for words in said if len(words) <= self.longest}
        if len(short) * len(self.text) > LOOKED_THROUGH:
            return short
        return {words for words in short if words in self.text}


def _marked(
    message: Mapping[str, Any], conversation: int, number: int, symbols: Mapping[Slot, str]
) -> dict[str, Any]:
    """Replace the texts of a message by symbols."""
    # A name may hold a character in the range of symbols, which must not be taken for one.
    bare = {key: _without_symbols(value) for key, value in message.items()}
    known = {
        key: symbols.get(Slot(conversation, number, key), value) for key, value in bare.items()
    }
    if isinstance(parts := bare.get("content"), list):
        # One part has the slot of the content, several have one each.
        slots = [Slot(conversation, number, "content")]
        if slots[0] not in symbols:
            slots = [part_slot(conversation, number, part) for part in range(len(parts))]
        known["content"] = [
            text_part(symbols[slot]) if "text" in part else part
            for part, slot in zip(parts, slots, strict=True)
        ]
    return known


def _without_symbols(value: Any) -> Any:
    if isinstance(value, str):
        return ANY_SYMBOL.sub("", value)
    if isinstance(value, dict):
        return {_without_symbols(key): _without_symbols(item) for key, item in value.items()}
    return [_without_symbols(item) for item in value] if isinstance(value, list) else value


def _moved(cut: Outcome, probed: list[Output], outputs: list[Output]) -> Outcome | Problem:
    """Cut real texts where the symbolic ones were cut: after the bare prompt and the header."""
    bare, symbolic_bare = outputs[1], probed[1]
    if isinstance(bare, str) and isinstance(symbolic_bare, str):
        prompt = bare + cut.texts[0][len(symbolic_bare) :]
        wholes = [output for output in outputs[2:] if isinstance(output, str)]
        if all(whole.startswith(prompt) for whole in wholes):
            replies = (whole[len(prompt) :] for whole in wholes)
            return Outcome((prompt, *replies), shortened=True)
    return NOT_PRESERVING
