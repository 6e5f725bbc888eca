"""Conversion as a whole: sources in, files out, and the report that accounts for every row."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from fmtkit import registry
from fmtkit.encoding import Encoded, compression_of, encode, format_of
from fmtkit.errors import LimitError, NothingWrittenError, OptionError
from fmtkit.ledger import Ledger
from fmtkit.pipeline import Job, Piece, Request, prepare, stream
from fmtkit.sources.opening import Source, open_sources
from fmtkit.splitting import TRAIN, VALIDATION

ON_ERROR = ("quarantine", "fail", "skip")


@dataclass(frozen=True)
class ConvertOptions:
    """Options of `fmtkit convert`; each is the flag of the same name."""

    type: str | None = None
    config: str | None = None
    form: str | None = None
    method: str | None = None
    chat_template: str | None = None
    tokenizer: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    on_error: str = "quarantine"
    max_errors: str | None = None
    max_length: int | None = None
    on_overlong: str = "keep"
    val_size: str | float | None = None
    seed: int = 0
    limit: int | None = None
    workers: int | None = None
    overwrite: bool = False
    resume: bool = False
    plugins: tuple[str, ...] = ()
    format: str | None = None
    compression: str | None = None

    def request(self) -> Request:
        """Return the part that concerns rows."""
        if self.type is None:
            raise OptionError("--type is missing; `fmtkit inspect SOURCE` names the types that fit")
        return Request(
            type=self.type,
            form=self.form,
            method=self.method,
            chat_template=self.chat_template,
            tokenizer=self.tokenizer,
            columns=self.columns,
            options=self.options,
            keep=self.keep,
            max_length=self.max_length,
            on_overlong=self.on_overlong,
            seed=self.seed,
            limit=self.limit,
            functions=bool(self.plugins or self.config),
        )


@dataclass(frozen=True)
class ErrorLimit:
    """How many bad rows a run may have."""

    rows: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> "ErrorLimit":
        """Read --max-errors: N, or P%."""
        if text is None:
            return cls()
        try:
            if text.endswith("%"):
                return cls(share=float(text[:-1]) / 100)
            return cls(rows=int(text))
        except ValueError as error:
            raise OptionError(f"--max-errors {text}: give a number of rows or a percentage such as 1%") from error

    def is_passed(self, ledger: Ledger) -> bool:
        """Tell whether there are more bad rows than that."""
        if self.rows is not None:
            return ledger.bad > self.rows
        return self.share is not None and ledger.bad > self.share * ledger.rows_read
