"""The options of a conversion; each is the flag of the same name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmtkit.converting.error_limit import ErrorLimit
from fmtkit.converting.request import Request
from fmtkit.converting.text_stage import AS_MADE, OVERLONG
from fmtkit.errors import OptionError
from fmtkit.writing.encoding import check_format

HASHED_BYTES = 64 * 2**20
"""Sources up to this size are hashed unless --hash says otherwise: beyond it the hash costs a
fifth of the conversion where the processor has no SHA instructions (330 MB/s)."""
HASHED: dict[str, bool | int] = {"auto": HASHED_BYTES, "always": True, "never": False}
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
    folders: tuple[Path, ...] = ()
    """Folders of the configs that name types; user functions lie there."""
    function_config: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None
    compression: str | None = None
    hash: str = "auto"

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
            places=(*map(Path, self.plugins), *self.folders),
            config=self.function_config,
        )


def check_options(options: ConvertOptions) -> None:
    """Raise OptionError for a flag's value that nothing takes."""
    if options.on_error not in ON_ERROR:
        raise OptionError(f"--on-error {options.on_error}: choose one of {', '.join(ON_ERROR)}")
    if options.on_overlong not in OVERLONG:
        raise OptionError(
            f"--on-overlong {options.on_overlong}: choose one of {', '.join(OVERLONG)}"
        )
    if options.form not in (None, "text", "messages", "tokens", AS_MADE):
        raise OptionError(f"--as {options.form}: choose text, messages or tokens")
    check_format(options.format)
    if options.hash not in HASHED:
        raise OptionError(f"--hash {options.hash}: choose one of {', '.join(HASHED)}")
    if options.overwrite and options.resume:
        raise OptionError("--overwrite and --resume contradict each other; give one of them")
    ErrorLimit.parse(options.max_errors)
