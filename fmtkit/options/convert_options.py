"""The options of a conversion: how sources are read, rows converted, and outputs written."""

from collections.abc import Mapping
from dataclasses import field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit import targets
from fmtkit.core import moments
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.options import (
    CHOICE,
    COLUMNS,
    COUNT,
    DATE,
    NAMES,
    NUMBER,
    OPTIONAL_CHOICE,
    PAIRS,
    PATH,
    PATHS,
    ROWS_OR_PERCENT,
    SIZE,
    SWITCH,
    TEXT,
    Options,
    option,
)

if TYPE_CHECKING:
    # The command line imports this module, and does not need polars.
    from fmtkit.writing.splitting import Split

HASHED_BYTES = 64 * 2**20
"""Sources up to this size are hashed unless --hash is set: beyond it the hash costs a
fifth of the conversion where the processor has no SHA instructions (330 MB/s)."""
HASHED: dict[str, bool | int] = {"auto": HASHED_BYTES, "always": True, "never": False}
AS_MADE = "as_made"
"""Form of the rows in `fmtkit train`: prompts stay text or messages, as the converter made them."""
OVERLONG = ("keep", "drop", "truncate-start", "truncate-end", "fail")


@dataclass(frozen=True)
class SourceOptions(Options):
    """How sources are read."""

    panel = "Reading"

    type: str | None = option(
        TEXT,
        "TEMPLATE.SOURCE, for example chatml.intel.",
        flags=("--type", "-t"),
        keys=("datasets.type",),
    )
    method: str | None = option(
        TEXT,
        "Training method; decides between the tables that type and columns allow.",
        keys=("rl",),
    )
    chat_template: str | None = option(
        PATH,
        "Chat template: a name, FILE.jinja or tokenizer_default.",
        keys=("datasets.chat_template", "chat_template"),
    )
    tokenizer: str | None = option(
        PATH, "Tokenizer: a folder or a hub id.", keys=("tokenizer_config", "base_model")
    )
    date: str | None = option(
        DATE,
        "Date that templates write (strftime_now); else SOURCE_DATE_EPOCH, or when the run begins.",
        keys=("date",),
    )
    columns: Mapping[str, str] = option(
        COLUMNS,
        "COLUMN=PATH: read a column of the type from a different column of the source.",
        default={},
        flags=("--map",),
        json_flag="--columns",
        former=("map",),
        keys=("datasets.columns",),
    )
    map_file: str | None = option(
        PATH, "JSON or YAML file with such a mapping, or LLaMA-Factory's dataset_info.json[#NAME]."
    )
    delimiter: str | None = option(
        TEXT, "Separator of the cells of a CSV file: one character, or tab."
    )
    options: Mapping[str, Any] = option(
        PAIRS,
        "KEY=VALUE: an option of the type.",
        default={},
        flags=("--option", "-O"),
        keys=("datasets.options",),
    )
    ignore: tuple[str, ...] = option(
        NAMES,
        "Source columns to leave out, as if they were not there: A,B; also messages[].KEY.",
        default=(),
        keys=("datasets.ignore", "ignore"),
    )
    select: tuple[str, ...] = option(
        NAMES,
        "Source columns to read, as if there were no others: A,B; --where may name any.",
        default=(),
        keys=("datasets.select",),
    )
    where: str | None = option(
        TEXT,
        "SQL expression over the source's columns, such as \"score > 3 and lang = 'en'\"; rows of which it "
        "is not true are left out.",
        keys=("datasets.where", "where"),
    )
    limit: int | None = option(
        COUNT, "Read the first N rows only.", keys=("datasets.limit", "limit")
    )
    workers: int | None = option(
        COUNT,
        "Number of threads; the output does not depend on it.",
        keys=("dataset_processes",),
        same_rows=True,
    )
    plugins: tuple[str, ...] = option(
        PATHS,
        "Python file with converters or functions.",
        default=(),
        flags=("--plugin",),
        keys=("plugins",),
    )
    engine: str = option(
        CHOICE,
        "Where blocks are converted: threads of this process, or Ray's workers.",
        default="threads",
        choices=("threads", "ray"),
        same_rows=True,
    )
    ray_address: str | None = option(
        TEXT,
        "A Ray cluster, HOST:PORT or auto; without it one is started here.",
        same_rows=True,
    )
    shared_filesystem: bool = option(
        SWITCH,
        "The machines of the cluster see local files (sources, OUT) at the same paths.",
        default=False,
        same_rows=True,
    )
    begun: datetime = field(default_factory=moments.now, compare=False, repr=False, kw_only=True)
    """When the run began; options derived from these keep it."""

    @property
    def now(self) -> datetime:
        """Return the time that templates get."""
        return self.begun if self.date is None else datetime.fromisoformat(self.date)

    def of_sources(self) -> dict[str, Any]:
        """Return the options that concern sources, as keywords for other options."""
        names = {entry.name for entry in fields(SourceOptions)} - {"typed", "beside"}
        return {name: getattr(self, name) for name in names}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine != "ray" and (self.ray_address or self.shared_filesystem):
            raise OptionError("--ray-address and --shared-filesystem need --engine ray")


@dataclass(frozen=True)
class RowOptions(SourceOptions):
    """How rows are converted."""

    panel = "Rows"

    as_: str | None = option(
        OPTIONAL_CHOICE,
        "Form of the rows: text, messages or tokens.",
        choices=("text", "messages", "tokens"),
        flags=("--as",),
        former=("form",),
    )
    to: str | None = option(TEXT, "Layout of the rows: " + ", ".join(targets.shipped()) + ".")
    allow_loss: tuple[str, ...] = option(
        NAMES, "Fields that --to may drop if the layout cannot hold them: A,B.", default=()
    )
    keep: tuple[str, ...] = option(
        NAMES,
        "Source columns to carry through: A,B or all.",
        default=(),
        keys=("datasets.keep", "keep"),
    )
    images: str | None = option(
        OPTIONAL_CHOICE,
        "Images of rows: keep (as they are stored), embed (the bytes of files too) or paths (files only).",
        choices=("keep", "embed", "paths"),
        keys=("datasets.images", "images"),
    )
    image_folder: str | None = option(
        PATH,
        "Folder in which the paths of images are; without it, that of the source.",
        keys=("datasets.image_folder", "image_folder"),
    )
    verify_images: bool = option(
        SWITCH,
        "Decode every image; without it, its header is read.",
        default=False,
        keys=("datasets.verify_images", "verify_images"),
    )
    fetch_images: bool = option(
        SWITCH,
        "Fetch images that are URLs.",
        default=False,
        keys=("datasets.fetch_images", "fetch_images"),
    )
    on_error: str = option(
        CHOICE,
        "quarantine, fail or skip bad rows.",
        default="quarantine",
        choices=("quarantine", "fail", "skip"),
        keys=("datasets.on_error", "on_error"),
    )
    max_errors: str | None = option(
        ROWS_OR_PERCENT,
        "Stop after N bad rows, or P%.",
        keys=("datasets.max_errors", "max_errors"),
    )
    max_length: int | None = option(
        COUNT, "Maximum number of tokens in a row.", keys=("sequence_len",)
    )
    min_length: int | None = option(
        COUNT,
        "Minimum number of tokens in a row; a shorter one is a bad row.",
        keys=("min_sample_len",),
    )
    on_overlong: str = option(
        CHOICE,
        "keep, drop, truncate-start, truncate-end, or fail: the row is a bad one.",
        default="keep",
        choices=OVERLONG,
        keys=("excess_length_strategy",),
    )
    eos: str | None = option(
        TEXT,
        "Token that ends each reply of prerendered text, where it does not yet, such as </s>.",
        keys=("datasets.eos",),
    )
    allow_rendered: bool = option(
        SWITCH,
        "Render text that a template has rendered already.",
        default=False,
        keys=("datasets.allow_rendered", "allow_rendered"),
    )
    seed: int = option(NUMBER, "Seed of the split and of random pairs.", default=0, keys=("seed",))

    as_made: bool = False
    """Whether prompts stay what the converter makes, text or messages (`fmtkit train`)."""
    rendered_later: bool = False
    """Whether the trainer renders the rows (`fmtkit train`)."""
    cut_in_training: bool = False
    """Whether the trainer truncates the rows (`fmtkit train`): here they stay whole, and rows in which
    truncation would leave no trained token are bad rows.
    """
    folders: tuple[Path, ...] = ()
    """Folders of the config files, where user functions are looked for."""
    function_config: Mapping[str, Any] = field(default_factory=dict)
    """The config that user functions are called with."""
    command: str = "convert"
    """The command that is run: `validate` without a type reads canonical rows, other commands need one."""

    out: str = field(default="", compare=False, repr=False)
    """OUT of the command, for commands that an error suggests; empty where there is none."""

    @property
    def form(self) -> str | None:
        """Return the form of the rows (text, messages, tokens); None for the default of the type."""
        return AS_MADE if self.as_made else self.as_

    @property
    def places(self) -> tuple[Path, ...]:
        """Return the plugin files and folders in which a type may name a user function."""
        return (*map(Path, self.plugins), *self.folders)

    @property
    def chosen_type(self) -> str:
        """Return the type; OptionError where there is none."""
        if self.type is None:
            raise OptionError("--type is missing; `fmtkit inspect SOURCE` names the types that fit")
        return self.type


@dataclass(frozen=True)
class ConvertOptions(RowOptions):
    """Options of `fmtkit convert`: those of rows, and how they are written."""

    panel = "Writing"

    config: str | None = option(
        PATH, "YAML whose datasets are converted.", flags=("--config", "-c")
    )
    val_size: float | int | None = option(
        SIZE, "Fraction or rows for validation.", keys=("val_set_size",)
    )
    split_by: str = option(
        CHOICE,
        "What --val-size splits: whole prompts, or rows.",
        default="prompts",
        choices=("prompts", "rows"),
        keys=("split_by",),
    )
    split: "Split | None" = None
    """A train/validation split over several datasets that was computed before."""
    overwrite: bool = option(
        SWITCH, "Replace an output that fmtkit wrote.", default=False, same_rows=True
    )
    resume: bool = option(SWITCH, "Continue an interrupted run.", default=False)
    format: str | None = option(
        TEXT, "parquet, jsonl, arrow, or a format that an installed package adds."
    )
    compression: str | None = option(TEXT, "snappy, zstd, lz4 or none.")
    hash: str = option(
        CHOICE,
        "Hash the sources for the report: auto (up to 64 MiB), always or never.",
        default="auto",
        choices=tuple(HASHED),
        keys=("hash",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overwrite and self.resume:
            raise OptionError("--overwrite and --resume contradict each other; give one of them")
