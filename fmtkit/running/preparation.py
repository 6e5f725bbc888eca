"""Preparation: options are bound to their sources, and become a job.

Converters are chosen by what the first rows of each source hold; whatever does not fit is reported here,
before a row is converted.
"""

import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import datetime
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from fmtkit.columns.documents import Untokenized
from fmtkit.columns.kinds import ConversationKind, Kind, ListKind
from fmtkit.columns.strict_kinds import Cell
from fmtkit.columns.typed_kinds import may_carry
from fmtkit.core.carried_code import CarriedCode, carried
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ColumnMismatchError, DependencyError, OptionError, near_match
from fmtkit.core.image_columns import IMAGES_FIELD
from fmtkit.core.tables import (
    TABLES,
    Preference,
    Prompt,
    Ranking,
    Table,
    Tokens,
    Unpaired,
    stored_schema,
    written_schema,
)
from fmtkit.detection import detection
from fmtkit.detection.no_type_advice import wrapped
from fmtkit.detection.rendered_texts import check_unrendered, report_of_file
from fmtkit.detection.unread_columns import (
    TEXTS,
    OpenColumn,
    OpenKeys,
    beside,
    open_columns,
    open_keys_of,
)
from fmtkit.formats import map_files, registry, target_registry, type_options, typenames
from fmtkit.formats.registry import Converter
from fmtkit.formats.type_options import TypeOptions
from fmtkit.options.convert_options import RowOptions
from fmtkit.reading import row_images
from fmtkit.reading.binding import bind
from fmtkit.reading.block_parsing import ReadPlan
from fmtkit.reading.bound_column import MEDIA, Row, top_of
from fmtkit.reading.ignoring import absent_columns, check_ignored, selected, without
from fmtkit.reading.keeping import Kept, find_kept
from fmtkit.reading.lost_turns import CarriedKind, watched
from fmtkit.reading.step_labels import has_soft_labels
from fmtkit.rows.joined_rows import ROWS, JoinedSource
from fmtkit.rows.user_functions import TransformedSource, find_function
from fmtkit.sources.blocks import Block
from fmtkit.sources.source import Source
from fmtkit.stages import control_tokens, pairing
from fmtkit.stages.fusing import Fusion
from fmtkit.stages.image_loading import ImageLoader
from fmtkit.stages.image_stage import ImageStage
from fmtkit.stages.target_stage import TargetStage
from fmtkit.stages.text_stage import TextStage, with_images
from fmtkit.stages.token_stage import TokenStage
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.engines import Engine
from fmtkit.writing.splitting import Split

AnySource = Source | TransformedSource | JoinedSource

IMAGE_OPTIONS = ("images", "image_folder", "verify_images", "fetch_images")
"""Options that say how images are read: setting one implies that rows have images."""
CANONICAL = "passthrough"
"""The type that reads rows in TRL's formats, fmtkit's own among them."""
_SAMPLE_BLOCKS = 16
"""How many blocks are searched for a valid row before a source counts as having none."""
Stage = TextStage | TokenStage | TargetStage


@dataclass(frozen=True)
class Job:
    """Options bound to their sources."""

    options: RowOptions
    name: typenames.TypeName
    sources: tuple[AnySource, ...]
    plans: tuple[ReadPlan, ...]
    table: type[Table]
    text: Stage
    pairs: str | None
    """The pair policy, where a ranking becomes pairs."""
    unpairs: bool
    """Whether each pair is split into a desirable and an undesirable row."""
    canonical: pa.Schema
    """Schema of the rows before they are rendered or tokenised."""
    staged: pa.Schema
    """Schema of the tables that `stream` yields, with its carried columns still named as such."""
    images: ImageStage | None = None
    """How the images of rows are read; None where rows have none."""
    uncounted: str = ""
    """Why lengths do not include the tokens of images, where lengths are counted."""
    split: Split | None = None
    replayed: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the report on repaired rows (`fmtkit.running.replay`)."""
    open_columns: tuple[OpenColumn, ...] = ()
    """Columns that the type does not read and that could hold something to train on."""
    open_keys: OpenKeys = field(default_factory=OpenKeys)
    """Keys of messages that the type does not read and that could hold the same, by the first rows."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Include the code of plugins: their converters are registered where the job is unpickled."""
        state = tuple(getattr(self, entry.name) for entry in fields(self))
        try:
            return _unpickled, (self.code, pickle.dumps(state))
        except pickle.PicklingError as error:
            raise self._unnamed() or error from error

    def _unnamed(self) -> OptionError | None:
        """Return the error for a plugin file with the name of a different module."""
        for plugin in self.options.plugins:
            file, name = Path(plugin).resolve(), Path(plugin).stem
            held = getattr(sys.modules.get(name), "__file__", None)
            if held is None or Path(held).resolve() != file:
                return OptionError(
                    f"--plugin {plugin}: another module is called {name}, so that no other process "
                    "finds what is in this one; give the file another name"
                )
        return None

    @cached_property
    def code(self) -> CarriedCode:
        """Return the code that a process needs to unpickle the job, besides fmtkit's own."""
        return carried(self.options.plugins)

    @cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """Return the tokens that content should not contain: those of the template in use."""
        template = self.text.template
        if template is None:
            return ()
        return control_tokens.written_by(template)

    @cached_property
    def fusions(self) -> tuple[Fusion | None, ...]:
        """Return how rows of each source are fused as they are read; None where they cannot be."""
        if not isinstance(self.text, TextStage) or self.images is not None:
            return (None,) * len(self.plans)
        if self.pairs is not None or self.unpairs:
            return (None,) * len(self.plans)
        plans = {id(plan): plan for plan in self.plans}
        made = {
            key: Fusion(plan.binding, self.text, self.staged, self.control_tokens)
            for key, plan in plans.items()
        }
        return tuple(made[id(plan)] for plan in self.plans)

    @cached_property
    def ignored_columns(self) -> tuple[str, ...]:
        """Return the columns at the start of the sources that nothing uses and --ignore does not name."""
        names = dict.fromkeys(name for plan in self.plans for name in plan.ignored)
        used = {*_filtering(self.options), *self.options.ignore}
        return tuple(name for name in names if name not in used)

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows that are written."""
        return written_schema(self.staged)

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """Return the schema of a file of these rows; the layout of another tool says itself what is JSON."""
        is_target = isinstance(self.text, TargetStage)
        return self.schema if is_target else stored_schema(self.staged)

    @property
    def now(self) -> datetime | None:
        """Return the time that its template gets; None where the rows do not depend on it."""
        template = self.text.template
        return template.now if template is not None and template.writes_date else None

    @property
    def formats(self) -> tuple[str, ...] | None:
        """Return the formats that the rows may be written in, the default first; None for any."""
        return self.text.target.formats if isinstance(self.text, TargetStage) else None

    def beside(self, name: str, rows: str) -> tuple[str, str] | None:
        """Return file name and text of the metadata that readers of the target need."""
        stage = self.text
        if not isinstance(stage, TargetStage) or stage.target.beside is None:
            return None
        return stage.target.beside(name, rows, stage.columns)

    @property
    def size(self) -> int | None:
        """Return the bytes of all sources; None if only reading them would show it."""
        return total_size(source.size for source in self.sources)

    @property
    def converter(self) -> Converter:
        """Return the converter of the first source; all make the same table."""
        return self.plans[0].binding.converter


def total_size(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of sizes; None where one is not known."""
    known = list(sizes)
    return None if None in known else sum(size for size in known if size is not None)


def _unpickled(code: CarriedCode, state: bytes) -> Job:
    for plugin in code.unpack():
        registry.load_plugin(plugin)
    try:
        return Job(*pickle.loads(state))  # noqa: S301 - made by Job.__reduce__, for a process of fmtkit
    except DependencyError:
        raise
    except ImportError as error:
        raise code.missing(error) from error


def prepare(opened: Sequence[Source], settings: RowOptions) -> Job:
    """Bind a type to its sources.

    Raises:
        UnknownNameError, OptionError, ColumnMismatchError: if type, options and columns do not fit.
        SourceError: if a source cannot be read.
    """
    settings = _typed(selected(settings, map(sample_of, opened)), opened)
    name = typenames.read(settings.chosen_type, functions=bool(settings.places))
    sources = _as_joined(opened, name, settings.options)
    if name.function:
        function = replace(
            find_function(name.source, settings.places), config=settings.function_config
        )
        sources = [TransformedSource(source, function) for source in opened]
        name = replace(name, source=CANONICAL)
    if settings.map_file is not None:
        settings = _with_map_file(settings, name.source, [one.name for one in opened])
    samples = [sample_of(source) for source in sources]
    converters = _converters(name, sources, samples, settings)
    said = {**name.options, **settings.options}
    engine = engine_of(settings) if settings.engine != "threads" else None
    resolved = [type_options.resolve(c, settings.columns, said) for c in converters]
    resolved = [
        _decide_softness(s, c, o, engine)
        for s, c, o in zip(sources, converters, resolved, strict=True)
    ]
    if any(options.values.get("soft") for options in resolved):
        resolved = [
            replace(options, values={**options.values, "soft": True}) for options in resolved
        ]
    policy = _policy(converters[0], settings)
    table = Preference if policy else converters[0].makes
    method = settings.method or name.method
    unpairs = table is Preference and method is not None and _wants_single_rows(method)
    if unpairs:
        table = Unpaired
    converter = converters[0]
    shown = _image_columns(name, converters, resolved, samples, settings, table)
    written = _written_columns(
        name, converter, resolved[0], table, settings, images=shown is not None
    )
    check_ignored(settings, converters, resolved, [*map(_rows_of, sources, samples)])
    _check_mapped(settings, converters, sources, samples)
    found = _open_columns(converters, resolved, samples, settings)
    columns = _listed_images(converters, resolved, samples, settings)
    unkept = (*settings.ignore, *columns)
    kept = find_kept(sources, converters, resolved, settings.keep, written, engine, unkept)
    plans: list[ReadPlan] = []
    images: Sequence[tuple[str, ...] | None] = shown or [None] * len(sources)
    for converter, options, sample, named in zip(
        converters, resolved, samples, images, strict=True
    ):
        binding = bind(
            converter,
            sample,
            mapping=options.mapping,
            options=options.values,
            kinds=options.kinds,
            kept=kept.kinds,
            watched=_watched(converter, options, sample, settings, found),
            ignored=absent_columns(settings, converter, options),
            images=named,
        )
        earlier = plans[-1].binding if plans else None
        if earlier is not None and earlier.is_like(binding):
            # With many small files, building expressions for each would take half of the time.
            vars(binding)["made"] = earlier.made
        # A wrong option is reported here, before a row is converted.
        _ = binding.made
        plan = ReadPlan.of(binding, sample)
        # Files of the same layout share a plan, and what is learned from one applies to the next.
        plans.append(plans[-1] if plans and plans[-1] == plan else plan)
    canonical = _canonical_schema(converter, resolved[0], table, kept, images=shown is not None)
    stage = _stage(name, converter, table, canonical, settings)
    text, uncounted = (stage, "") if shown is None else _with_images(stage, settings)
    if not settings.allow_rendered and _renders(text, settings):
        template = text.template.name if text.template else "the model's template"
        for source, converter, options, sample in zip(
            sources, converters, resolved, samples, strict=True
        ):
            read = None if converter.takes_rows else frozenset(_read_columns(converter, options))
            check_unrendered(source, sample, read, template)
    made = Tokens if text.form == "tokens" else table
    return Job(
        settings,
        name,
        tuple(sources),
        tuple(plans),
        made,
        text,
        policy,
        unpairs,
        canonical,
        text.schema(canonical),
        images=_image_stage(sources, settings) if shown is not None else None,
        uncounted=uncounted,
        open_columns=found,
        open_keys=_open_keys(
            converters, resolved, [without(rows, settings.ignore) for rows in samples], settings
        ),
    )


def prepare_all(opened: Sequence[Source], settings: RowOptions) -> list[Job]:
    """Bind a type to its sources; one table in several forms, of text and of messages, takes several jobs.

    Raises what `prepare` raises; OptionError where rows of text and of messages would be in one file.
    """
    try:
        return [prepare(opened, settings)]
    except MixedSourcesError as mixed:
        if not mixed.of_one_table:
            raise
        groups = mixed.groups
    jobs = [prepare([opened[place] for place in group], settings) for group in groups]
    forms = {job.text.form: job.sources[0].name for job in reversed(jobs)}
    if len(forms) > 1:
        held = " and ".join(f"{form} ({name})" for form, name in sorted(forms.items()))
        raise OptionError(
            f"one file would hold {held}: name a template that renders the messages (--chat-template), "
            "or convert them one by one"
        )
    return jobs


def _renders(stage: Stage, settings: RowOptions) -> bool:
    """Return whether a template writes the rows, to keep or to measure them, here or in training."""
    if not isinstance(stage, TextStage) or stage.text_source:
        return False
    is_written = stage.form != "messages" or stage.limit is not None
    return settings.rendered_later or (stage.template is not None and is_written)


def _typed(settings: RowOptions, opened: Sequence[Source]) -> RowOptions:
    """Find the type where none is named: of fmtkit's own output, and of canonical rows that are validated.

    Raises OptionError, with the type that fits, for other rows.
    """
    if settings.type is not None:
        return settings
    if settings.to is not None:
        found = _written_type([one.name for one in opened])
        if found is not None:
            return replace(settings, type=found)
    samples = [without(sample_of(source), settings.ignore) for source in opened]
    if settings.command == "validate" and _are_canonical(samples, settings):
        return replace(settings, type=CANONICAL)

    from fmtkit.detection.untyped_sources import untyped

    said = untyped(opened, samples, settings)
    raise OptionError(said)


def _are_canonical(samples: Sequence[Sequence[Row]], settings: RowOptions) -> bool:
    """Return whether rows have the columns of one of TRL's formats; sources without rows count as such."""
    try:
        for sample in samples:
            detection.choose(
                CANONICAL, sample, method=settings.method, mapping=_paths(settings), source=""
            )
    except ColumnMismatchError:
        return False
    return True


def _written_type(paths: Sequence[str]) -> str | None:
    """Return the type that reads these files if fmtkit wrote them all, and of the same type; else None."""
    found = {_type_of_report(Path(path)) for path in paths}
    return found.pop() if len(found) == 1 else None


def _type_of_report(path: Path) -> str | None:
    """Return the type that reads a file written by fmtkit, according to the report that names it."""
    report = report_of_file(path)
    if not report:
        return None
    to, table = report.get("to"), TABLES.get(str(report.get("table")))
    if to is None or table is None:
        return CANONICAL
    return target_registry.find(to, table, text=False).reads


def _stage(
    name: typenames.TypeName,
    converter: Converter,
    table: type[Table],
    canonical: pa.Schema,
    settings: RowOptions,
) -> Stage:
    """Return how canonical rows are written."""
    if issubclass(table, Untokenized):
        stage: Stage = TokenStage.of(name, converter, settings)
    else:
        stage = TextStage.of(name, converter, table, _as_messages(settings, name, converter))
    return _as_target(stage, table, canonical, settings)


def _with_images(text: Stage, settings: RowOptions) -> tuple[Stage, str]:
    """Return the stage whose lengths include images; where they cannot, the same stage and why."""
    stage = text.before if isinstance(text, TargetStage) else text
    if not isinstance(stage, TextStage):
        return text, ""
    counting = with_images(stage, settings.tokenizer)
    if isinstance(counting, str):
        return text, counting
    return replace(text, before=counting) if isinstance(text, TargetStage) else counting, ""


def _written_columns(
    name: typenames.TypeName,
    converter: Converter,
    options: TypeOptions,
    table: type[Table],
    settings: RowOptions,
    *,
    images: bool,
) -> set[str]:
    """Return the columns of the rows that are written, without those that are kept."""
    canonical = _canonical_schema(converter, options, table, Kept(), images=images)
    stage = _stage(name, converter, table, canonical, replace(settings, allow_loss=()))
    required = {*table.column_names()} - table.optional
    return {*stage.schema(canonical).names, *required}


def _as_messages(
    settings: RowOptions, name: typenames.TypeName, converter: Converter
) -> RowOptions:
    """Keep messages for --to, though --chat-template names the template that lengths are counted by."""
    if settings.to is None or settings.as_ or name.template or converter.text:
        return settings
    return replace(settings, as_="messages")


def _as_target(
    text: Stage, table: type[Table], canonical: pa.Schema, settings: RowOptions
) -> Stage:
    """Return the stage that writes the target of --to; the given stage without --to."""
    to = settings.to
    if to is None:
        if settings.allow_loss:
            raise OptionError("--allow-loss says what --to may leave out: give --to")
        return text
    if not isinstance(text, TextStage) or text.form == "tokens":
        target_registry.targets_named(to)
        raise OptionError(f"--to {to} writes messages, not tokens; leave out what makes tokens")
    return TargetStage.of(text, to, table, canonical, settings.allow_loss)


def _as_joined(
    opened: Sequence[Source], name: typenames.TypeName, options: Mapping[str, Any]
) -> list[AnySource]:
    """Return the sources, with joined rows where a type reads several rows as one."""
    first = None if name.function else registry.converters_named(name.source)[0]
    if first is None or not first.rows_by:
        return list(opened)
    by = first.joins_by(options)
    for source in opened:
        detection.check_joined(name.source, by, sample_of(source), source.name)
    return [JoinedSource(source, by, first.whole_file) for source in opened]


def _rows_of(source: AnySource, sample: Sequence[Row]) -> Sequence[Row]:
    """Return the source's own rows of a sample, where a type reads several as one."""
    if not isinstance(source, JoinedSource):
        return sample
    # A row that is joined already may hold anything; what it holds is judged when it is read.
    lists = (joined.get(ROWS) for joined in sample)
    return [r for rows in lists if isinstance(rows, list) for r in rows if isinstance(r, Mapping)]


def _with_map_file(settings: RowOptions, type_name: str, sources: Sequence[str]) -> RowOptions:
    """Apply the columns and options of a map file; flags take precedence."""
    mapped = map_files.read(settings.map_file or "", type_name, sources)
    return replace(
        settings,
        columns={**mapped.columns, **settings.columns},
        options={**mapped.options, **settings.options},
        map_file=None,
    )


def _watched(
    converter: Converter,
    options: TypeOptions,
    sample: Sequence[Row],
    settings: RowOptions,
    found: Sequence[OpenColumn],
) -> dict[str, CarriedKind]:
    """Return the columns to compare with what is read; none if all of a row reaches the trainer."""
    if _is_complete(converter, settings):
        return {}
    read = _read_columns(converter, options)
    named = watched(sample, {*read, *settings.keep, *settings.ignore, *MEDIA})
    filtering = _filtering(settings)
    named = {n: kind for n, kind in named.items() if n not in filtering or not kind.is_label}
    kinds = {
        one.name: CarriedKind(nested=True, is_label=one.could_be not in TEXTS, is_open=True)
        for one in found
        if one.name not in read and one.name not in named
    }
    return named | kinds


def _is_complete(converter: Converter, settings: RowOptions) -> bool:
    return converter.takes_rows or converter.makes is Prompt or "all" in settings.keep


def _read_columns(converter: Converter, options: TypeOptions) -> set[str]:
    paths = (options.mapping.get(p, converter.path(p)) for p in converter.columns)
    return {top_of(path) for path in paths}


def _open_columns(
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
    samples: Sequence[Sequence[Row]],
    settings: RowOptions,
) -> tuple[OpenColumn, ...]:
    """Return the columns that are open, judged by rows of all sources: one file may have a single row."""
    first = converters[0]
    if _is_complete(first, settings) or first.rows_by:
        return ()
    pairs = zip(converters, resolved, strict=True)
    read = {name for converter, options in pairs for name in _read_columns(converter, options)}
    rows = _pooled(samples)
    known = frozenset[str]().union(*(converter.harmless for converter in converters))
    named = {*read, *known, *settings.keep, *settings.ignore}
    found = open_columns(rows, named, beside=beside(first))
    # A score or a label by which rows are chosen is used; text beside it is still not read.
    filtering = _filtering(settings)
    return tuple(one for one in found if one.name not in filtering or one.could_be in TEXTS)


def _filtering(settings: RowOptions) -> set[str]:
    """Return the columns that --where names."""
    if settings.where is None:
        return set()
    from fmtkit.reading.where_expression import Condition

    return {path[0] for path in Condition(settings.where).paths}


def _open_keys(
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
    samples: Sequence[Sequence[Row]],
    settings: RowOptions,
) -> OpenKeys:
    """Return the open keys of the messages that are read, but for columns that are carried through too."""
    if _is_complete(converters[0], settings) or converters[0].rows_by:
        return OpenKeys()
    conversations = {
        path: kind
        for converter, options in zip(converters, resolved, strict=True)
        for name, kind in {**converter.columns, **options.kinds}.items()
        if isinstance(kind, ConversationKind)
        and (path := options.mapping.get(name, converter.path(name))) not in settings.keep
    }
    return open_keys_of(conversations, _pooled(samples), samples)


def _pooled(samples: Sequence[Sequence[Row]]) -> list[Row]:
    """Return rows of all samples: a few of each, and more where one has columns that are new."""
    share = max(1, detection.SAMPLE_ROWS // max(len(samples), 1))
    rows: list[Row] = []
    seen: set[str] = set()
    for sample in samples:
        names = set().union(*sample)
        if len(rows) < detection.SAMPLE_ROWS or names - seen:
            rows += sample[: share if len(samples) > 1 and not names - seen else None]
            seen |= names
    return rows


def _decide_softness(
    source: AnySource, converter: Converter, options: TypeOptions, engine: Engine | None
) -> TypeOptions:
    """Check a source's step labels for soft ones, unless an option decides."""
    if "soft" not in converter.options or options.values["soft"] is not None:
        return options
    path = options.mapping.get("labels", converter.path("labels"))
    return replace(
        options, values={**options.values, "soft": has_soft_labels(source, path, engine)}
    )


def sample_of(source: AnySource) -> list[Row]:
    """Return the valid rows at the start of a source, for choosing a converter and its shapes."""
    block = source.first_block()
    is_csv = source.kind == "csv"
    sample = [] if block is None else _sound_rows(block, detection.SAMPLE_ROWS, is_csv=is_csv)
    # Of the rows that --where takes few may be in the first block, or none in many blocks.
    is_filtered = source.row_filter is not None
    enough = detection.SAMPLE_ROWS if is_filtered and not source.once else 1
    if len(sample) >= enough or block is None:
        return sample
    # The source begins with rows that are not JSON, or with one too long to be held.
    source.keep()
    for number, later in enumerate(source.blocks(1)):
        if number >= _SAMPLE_BLOCKS and (sample or not is_filtered):
            break
        sample += _sound_rows(later, detection.SAMPLE_ROWS - len(sample), is_csv=is_csv)
        if len(sample) >= enough:
            break
    return sample


def _sound_rows(block: Block, count: int | None = None, *, is_csv: bool = False) -> list[Row]:
    records = block.records()
    values = (records.value(i) for i in range(len(records))[:count])
    rows = [value for value, fault in values if fault is None]
    return [{n: v and Cell(v) for n, v in row.items()} for row in rows] if is_csv else rows


def _converters(
    name: typenames.TypeName,
    sources: Sequence[AnySource],
    samples: Sequence[Sequence[Row]],
    settings: RowOptions,
) -> list[Converter]:
    less = [without(sample, settings.ignore) for sample in samples]
    try:
        chosen = [_converter(name, *one, settings) for one in zip(sources, less, strict=True)]
    except ColumnMismatchError:
        if not settings.ignore:
            raise
        # What is ignored is needed, which `check_ignored` says.
        chosen = [_converter(name, *one, settings) for one in zip(sources, samples, strict=True)]
    schemas = [s.schema if s.kind == "arrow" else None for s in sources]
    chosen = [as_they_are(c, schemas, _paths(settings)) for c in chosen]
    filled = [c for c, sample in zip(chosen, samples, strict=True) if sample] or chosen
    chosen = [c if sample else filled[0] for c, sample in zip(chosen, samples, strict=True)]
    if len({_form_of(c) for c in filled}) > 1:
        raise MixedSourcesError([source.name for source in sources], chosen)
    return chosen


def _form_of(converter: Converter) -> tuple[str, bool, bool]:
    return converter.table, converter.wide, converter.text


class MixedSourcesError(OptionError):
    """Sources of different tables, or of one table in several forms: one job cannot read them."""

    def __init__(self, names: Sequence[str], converters: Sequence[Converter]) -> None:
        first = dict(zip(map(_form_of, reversed(converters)), reversed(names), strict=True))
        both = len({is_text for _, _, is_text in first}) < len(first)
        made = [
            f"{name} makes {_in_words(*form, says_wide=both)}"
            for form, name in reversed(first.items())
        ]
        self.of_one_table = len({converter.table for converter in converters}) == 1
        together = ", or all into one file" if self.of_one_table else ""
        super().__init__(f"{', '.join(made)}: convert them one by one{together}")
        runs = groupby(range(len(converters)), key=lambda place: _form_of(converters[place]))
        self.groups = tuple(tuple(places) for _, places in runs)
        """Places of the sources, in their order: those of each group one job can read."""


def _in_words(table: str, is_wide: bool, is_text: bool, *, says_wide: bool) -> str:
    wide = "wide " if is_wide and says_wide else ""
    return f"{table} of {'text' if is_text else f'{wide}messages'}"


def _converter(
    name: typenames.TypeName, source: AnySource, sample: Sequence[Row], settings: RowOptions
) -> Converter:
    method, mapping = settings.method or name.method, _paths(settings)
    choose = partial(
        detection.choose,
        name.source,
        method=method,
        mapping=mapping,
        source=source.name,
        options=settings.options,
    )
    try:
        return choose(sample)
    except ColumnMismatchError:
        within = wrapped(sample, source.name)
        if within is not None:
            raise ColumnMismatchError(f"type {name.source} does not fit: {within}") from None
        block = source.first_block()
        # A column may begin after the sample; it is missing only if the whole block has none.
        return choose((_sound_rows(block) if block is not None else []) or sample)


def _check_mapped(
    settings: RowOptions,
    converters: Sequence[Converter],
    sources: Sequence[AnySource],
    samples: Sequence[Sequence[Row]],
) -> None:
    """Raise ColumnMismatchError where --map reads a column that no source has.

    Rows of JSON may have a column only later: there it must be like one that they have, and misspelt.
    """
    seen = dict.fromkeys(name for sample in samples for row in sample for name in row)
    for name, path in settings.columns.items():
        top = top_of(path)
        if not seen or top in seen or any(path == c.path(name) for c in converters):
            continue
        near = near_match(top, seen)
        blocks = [source.first_block() for source in sources]
        if any(top in row for block in blocks if block for row in _sound_rows(block)):
            continue
        if near or all(source.schema is not None for source in sources):
            hint = f"did you mean {near!r}?" if near else f"the columns are {', '.join(seen)}"
            raise ColumnMismatchError(f"--map {name}={path}: no row has column {top}; {hint}")


def _paths(settings: RowOptions) -> dict[str, str]:
    fields = {
        key.removeprefix("field_"): str(value)
        for key, value in settings.options.items()
        if key.startswith("field_")
    }
    return fields | dict(settings.columns)


def _policy(converter: Converter, settings: RowOptions) -> str | None:
    if converter.makes is not Ranking:
        return None
    default = "best-worst" if settings.method else converter.options.get("pairs", "best-worst")
    said = settings.options.get("pairs")
    policy = pairing.check_policy(str(default if said is None else said))
    return None if policy == "none" else policy


def _wants_single_rows(method: str) -> bool:
    tables = registry.tables_of(method)
    return Preference.name() not in tables and Unpaired.name() in tables


def _canonical_schema(
    converter: Converter, options: TypeOptions, table: type[Table], kept: Kept, *, images: bool
) -> pa.Schema:
    """Return the schema of the rows before they are rendered."""
    # A table made from a different one has those optional columns that mean the same.
    present = frozenset(converter.table_columns())
    schema = table.schema(present, wide=converter.wide, text=converter.text)
    if options.values.get("soft"):
        soft = pa.field("labels", pa.list_(pa.float64()))
        schema = schema.set(schema.get_field_index("labels"), soft)
    return pa.schema([*schema, *([IMAGES_FIELD] if images else ()), *kept.fields])


def _image_columns(
    name: typenames.TypeName,
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
    samples: Sequence[Sequence[Row]],
    settings: RowOptions,
    table: type[Table],
) -> list[tuple[str, ...]] | None:
    """Return the columns with images of each source; None if no source has any, or the rows become text.

    Raises OptionError where images are asked for, and rows of this type hold none.
    """
    first = converters[0]
    wanted = [option for option in IMAGE_OPTIONS if getattr(settings, option)]
    flag = f"--{wanted[0].replace('_', '-')}" if wanted else ""
    if not first.may_have_images:
        if wanted:
            raise OptionError(f"{flag}: type {first.name} makes rows of text, which hold no images")
        return None
    canonical = _canonical_schema(first, resolved[0], table, Kept(), images=False)
    form = _stage(name, first, table, canonical, replace(settings, allow_loss=())).form
    if form != "messages":
        if wanted:
            raise OptionError(
                f"{flag}: images are shown by messages, and these rows become {form}: leave the template "
                f"out (--type {first.name})"
            )
        return None
    found = [
        row_images.columns_of(c, sample, options.mapping, settings.ignore, wanted=bool(wanted))
        for c, options, sample in zip(converters, resolved, samples, strict=True)
    ]
    if all(names is None for names in found):
        return None
    return [names or () for names in found]


def _listed_images(
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
    samples: Sequence[Sequence[Row]],
    settings: RowOptions,
) -> list[str]:
    """Return the columns with images of all sources, which are not kept besides."""
    found = [
        row_images.columns_of(c, sample, options.mapping, settings.ignore)
        for c, options, sample in zip(converters, resolved, samples, strict=True)
    ]
    return [name for names in found for name in names or ()]


def _image_stage(sources: Sequence[AnySource], settings: RowOptions) -> ImageStage:
    """Return the stage that reads the images of these sources."""
    folders = {source.name: _folder_of(source) for source in sources}
    loaders = {
        folder: ImageLoader.of(folder, settings) for folder in dict.fromkeys(folders.values())
    }
    return ImageStage(tuple(loaders[folders[source.name]] for source in sources))


def _folder_of(source: AnySource) -> Path:
    """Return the folder of a source: of the current one, where it is no file."""
    path = Path(source.name)
    return path.absolute().parent if path.is_file() else Path.cwd()


_PASSTHROUGH = "passthrough"


def as_they_are(
    converter: Converter, schemas: Sequence[pa.Schema | None], mapping: Mapping[str, str]
) -> Converter:
    """Return the converter that keeps such tables as they are; itself if one has no schema."""
    known = [schema for schema in schemas if schema is not None]
    if converter.name != _PASSTHROUGH or len(known) < len(schemas):
        return converter
    tops = {p: top_of(mapping.get(p, converter.path(p))) for p in converter.takes}
    types = {
        parameter: [schema.field(top).type for schema in known if top in schema.names]
        for parameter, top in tops.items()
    }
    lacking = {p for p in converter.takes if p not in converter.required and not types[p]}
    takes = {p: kind for p, kind in converter.takes.items() if p not in lacking}
    wide = any(may_carry(dtype) for found in types.values() for dtype in found)
    if not wide:
        takes = {p: _narrow(kind) for p, kind in takes.items()}
    function = _without(converter.function, lacking)
    return replace(converter, takes=takes, function=function, wide=converter.wide and wide)


def _without(function: Callable[..., Table], lacking: Iterable[str]) -> Callable[..., Table]:
    def made(**arguments: Any) -> Table:
        return replace(function(**arguments), **dict.fromkeys(lacking))

    return made


def _narrow(kind: Kind) -> Kind:
    if isinstance(kind, ListKind):
        return replace(kind, item=_narrow(kind.item))
    return replace(kind, wide=False) if isinstance(kind, ConversationKind) else kind
