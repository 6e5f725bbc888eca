"""The token stage: conversations and continuations become rows of a Tokens table, padded to one length.

For these tables it takes the place of the text stage.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from fmtkit.columns.documents import Answer, Continuation, Document
from fmtkit.core.buffers import int64s, whole
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.tables import MESSAGE, Table, Tokens
from fmtkit.formats.registry import Converter
from fmtkit.formats.typenames import TypeName
from fmtkit.options.convert_options import RowOptions
from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import Cuts
from fmtkit.rendering.spans import TokenRow, continuation_rows, find_spans, token_rows
from fmtkit.stages.text_stage import Done, RowFailure
from fmtkit.tokenizers import tokens
from fmtkit.tokenizers.tokens import Tokenizer

COLUMNS = frozenset(Tokens.column_names())


@dataclass(frozen=True)
class TokenStage:
    """How untokenised rows become tokens of at most `longest`."""

    table: type[Table]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    longest: int
    pad_id: int
    form: str = "tokens"
    is_text: bool = False

    @classmethod
    def of(cls, name: TypeName, converter: Converter, options: RowOptions) -> "TokenStage":
        """Load what the type needs; raises OptionError if tokenizer or length is not given."""
        if options.tokenizer is None:
            raise OptionError(f"type {name.type} makes tokens: give --tokenizer")
        if options.eos is not None:
            raise OptionError(f"--eos {options.eos}: type {name.type} makes tokens, not text")
        if options.min_length is not None:
            raise OptionError(
                f"type {name.type} pads its rows to one length: leave --min-length out "
                "(min_sample_len in a config)"
            )
        if options.max_length is None:
            raise OptionError(
                f"type {name.type} pads its rows to one length: give --max-length "
                "(sequence_len in a config)"
            )
        tokenizer = tokens.load(options.tokenizer)
        pad = tokenizer.pad_id if tokenizer.pad_id is not None else tokenizer.eos_id
        if pad is None:
            tokenizer.needs("pad_token", f"type {name.type}")
        wanted = options.chat_template or name.template or "tokenizer_default"
        template = None
        if converter.makes in (Document, Answer):
            template = template_sources.find_model_template(wanted, tokenizer=options.tokenizer)
            template = template.at(options.now)
        return cls(
            converter.makes,
            tokenizer,
            template,
            options.max_length,
            pad or 0,
        )

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of what comes out: Tokens, and the columns that are kept."""
        own = set(self.table.column_names())
        made = Tokens.schema(wide=False, text=False)
        return pa.schema([*made, *(entry for entry in schema if entry.name not in own)])

    def apply(self, table: pa.Table, cuts: Mapping[int, Cuts] | None = None) -> Done:
        """Tokenise a table; rows are identified by their index, also in `cuts` (see TextStage)."""
        places, rows, failures = self._rows(table, cuts)
        short = [(i, row.cut(self.longest)) for i, row in zip(places, rows, strict=True)]
        kept = [(i, row) for i, row in short if any(row.anchor_mask)]
        lost = set(places) - {i for i, _ in kept}
        failures += [
            RowFailure(i, "too_long", None, f"nothing to train on within {self.longest} tokens")
            for i in sorted(lost)
        ]
        index = np.array([i for i, _ in kept], dtype=np.int64)
        out = self._padded([row for _, row in kept])
        for name in table.schema.names:
            if name not in self.table.column_names():
                out = out.append_column(
                    table.schema.field(name), table.column(name).take(int64s(index))
                )
        return Done(out, index, tuple(failures), plain_rows=len(rows))

    def _rows(
        self, table: pa.Table, cuts: Mapping[int, Cuts] | None
    ) -> tuple[list[int], list[TokenRow], list[RowFailure]]:
        if self.table is Continuation:
            before, after = (table.column(n).to_pylist() for n in ("context", "continuation"))
            return list(range(table.num_rows)), continuation_rows(before, after, self.tokenizer), []
        if self.template is None:
            raise OptionError("conversations need a chat template to become tokens")
        conversations = whole(table.column("messages")).cast(pa.list_(MESSAGE))
        if self.table is Answer:
            answers = table.column("answer").to_pylist()
            return self._answers(self.template, conversations, answers, cuts)
        spanned, failed = find_spans(self.template, conversations, cuts)
        trained = table.column("trained").to_pylist()
        found = [(i, one) for i, one in enumerate(spanned) if one is not None]
        made = token_rows([one for _, one in found], [trained[i] for i, _ in found], self.tokenizer)
        failures = [RowFailure(f.row, f.code, None, f.message) for f in failed]
        return [i for i, _ in found], made, failures

    def _answers(
        self,
        template: ChatTemplate,
        prompts: pa.Array,
        answers: list[str],
        cuts: Mapping[int, Cuts] | None,
    ) -> tuple[list[int], list[TokenRow], list[RowFailure]]:
        """Let the template write the prompts, special tokens included; answers follow as text."""
        written = chat.render(template, prompts, add_generation_prompt=True, cuts=cuts)
        texts = {i: text for i, text in enumerate(written.text.to_pylist()) if text is not None}
        made = continuation_rows(
            list(texts.values()), [answers[i] for i in texts], self.tokenizer, special_tokens=False
        )
        failures = [RowFailure(f.row, f.code, None, f.message) for f in written.failures]
        return list(texts), made, failures

    def _padded(self, rows: Sequence[TokenRow]) -> pa.Table:
        fill = self._fill
        columns = {
            "input_ids": [fill(row.input_ids, self.pad_id) for row in rows],
            "attention_mask": [fill([1] * len(row.input_ids), 0) for row in rows],
            "labels": [fill(row.labels, -100) for row in rows],
            "prompt_length": [row.prompt_length for row in rows],
            "anchor_mask": [fill(row.anchor_mask, 0) for row in rows],
        }
        return pa.table(columns, schema=Tokens.schema(wide=False, text=False))

    def _fill(self, values: list[int], filler: int) -> list[int]:
        return values + [filler] * (self.longest - len(values))
