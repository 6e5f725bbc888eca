"""The tier for whatever cannot be rendered by columns: rows one by one, cut by the same rules."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fmtkit.buffers import Int64s
from fmtkit.dialog_columns import DialogColumn, signature
from fmtkit.render_plan import Engine, Outcome, Output, Plan
from fmtkit.reply_cut import Problem
from fmtkit.survival import spoken
from fmtkit.symbols import FIRST, Slot, Unknown
from fmtkit.tracing import Request, View

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


@dataclass(frozen=True)
class PlainRows:
    """How rows are rendered one by one; `training`: another template for prompts that change."""

    engine: Engine
    plan: Plan
    dialogs: Sequence[DialogColumn]
    tools: pa.Array | None
    training: Engine | None = None

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
        messages = [m for dialog in view.dialogs for m in self.dialogs[dialog].messages(row)]
        return Request(messages, self._tools(row), view.generation_prompt)

    def _tools(self, row: int) -> object:
        text = self.tools[row].as_py() if self.tools is not None else None
        return json.loads(text) if text else None

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

    def _probe(self, row: int) -> tuple[list[Output], list[Unknown]]:
        """Render a row with a symbol for each content, to see where the contents come to stand."""
        slots = self._slots(row)
        symbols = {slot: chr(FIRST + number) for number, slot in enumerate(slots)}
        requests = []
        for view in self.plan.views:
            messages = []
            for dialog in view.dialogs:
                for number, message in enumerate(self.dialogs[dialog].messages(row)):
                    known = {k: symbols.get(Slot(dialog, number, k), v) for k, v in message.items()}
                    messages.append(known)
            requests.append(Request(messages, self._tools(row), view.generation_prompt))
        return self.engine.render(requests), list(slots)

    def _slots(self, row: int) -> list[Slot]:
        return spoken(signature(self.dialogs, row), range(len(self.dialogs)))

    def _checked(self, row: int, outcome: Outcome | Problem) -> PlainRow:
        if isinstance(outcome, Problem):
            return PlainRow(row, outcome)
        warnings = ["generation_prompt_not_a_prefix"] if outcome.shortened else []
        lost = self._lost(row, "".join(outcome.texts))
        if any(slot.dialog and slot.key == "content" for slot in lost):
            return PlainRow(row, Problem("template_error", "the template leaves out the reply"))
        return PlainRow(row, outcome, tuple(warnings + ["content_dropped"] * bool(lost)))

    def _lost(self, row: int, text: str) -> list[Slot]:
        """Return the slots of which nothing occurs in a text."""
        missing = [slot for slot in self._slots(row) if self._said(slot, row) not in text]
        if not missing:
            return []
        probed, slots = self._probe(row)
        outputs = "".join(output for output in probed if isinstance(output, str))
        return [slot for slot in missing if chr(FIRST + slots.index(slot)) not in outputs]

    def _said(self, slot: Slot, row: int) -> str:
        dialog = self.dialogs[slot.dialog]
        return dialog.columns[slot.key].text(int(dialog.starts[row]) + slot.message).strip()


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
