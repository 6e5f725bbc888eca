"""Format detection: which converter fits a source, by its columns and their values.

Column names alone are ambiguous (`prompt_pairs` and `ultra`): the rows of the first block decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fmtkit.columns.kinds import ConversationKind, ListKind, TextKind
from fmtkit.columns.known_words import GOLD, NO_ANSWERS
from fmtkit.columns.transcripts import marks_of
from fmtkit.core.errors import ColumnMismatchError, OptionError, near_match
from fmtkit.core.tables import Completion, Conversation, Prompt, steps_to, table_for
from fmtkit.detection import numbered_replies
from fmtkit.detection.contradicted_fits import (
    without_contradicted,
)
from fmtkit.detection.fits import (
    ASSUMED,
    GENERIC,
    HARDLY,
    LATE,
    NAMED,
    PLAIN,
    TRUSTED,
    UNKNOWN,
    WRITTEN,
    Fit,
    fit,
    has_path,
    missing_columns,
    needs_tokenizer,
    renamed_likeness,
)
from fmtkit.detection.guessed_labels import with_label_fit
from fmtkit.detection.near_misses import (
    FIRST,
    are_asked,
    asks,
    is_given,
    is_message,
    is_thinking,
    proposal,
    replies,
    spelled,
    spelling,
    tells_of_reply,
    values_by_path,
)
from fmtkit.detection.told_answers import answers_by_label, without_samples
from fmtkit.detection.unread_columns import (
    FILES,
    LABEL,
    PARENT,
    SCORE,
    TEXTS,
    OpenColumn,
    beside,
    is_prose,
    names_speakers,
    open_columns,
    open_keys_of,
)
from fmtkit.formats import registry
from fmtkit.formats.registry import JOINED_BY, Converter
from fmtkit.formats.type_options import MESSAGE_OPTIONS
from fmtkit.reading.binding import bind
from fmtkit.reading.bound_column import BoundColumn, Row, top_of
from fmtkit.reading.lost_turns import head_of, looks_like_turns, texts_within, words_of
from fmtkit.rows.joined_rows import joined, lacks
from fmtkit.sources.marks import Fault

SAMPLE_ROWS = 200
"""Rows of the first block that are examined closely."""
FIRST_ROWS, EVERY = 20, 8
"""Rows of a sample that every type is tried on: the first ones, and every n-th of the others."""
MIXED = 0.02
"""Share of rows with a different layout above which they are no longer taken for a few bad rows."""
LOOKED_AT = 6
"""Fits, from the best, whose unread columns are judged."""
PROPOSALS = 12
"""Renamed columns that are tried, of the closest types."""
CODE = frozenset({"code", "sql"})
"""Names of what is written as asked in a text: the text is then no document."""
LONGER = 1.5
"""How much longer replies are than what was asked, where a list of texts is taken for a conversation."""


def _order_within_name(
    found: Fit, method: str | None = None
) -> tuple[int, bool, int, float, float, float]:
    """Order the converters of one name: the columns decide, and kinds only where columns do not.

    For a method, the table that it takes comes before one that would be made into it.
    """
    return (
        len(found.missing),
        found.sound == 0,
        steps_to(found.converter.table, registry.tables_of(method)) if method else 0,
        -round(found.weight, 3),
        -round(found.sound, 2),
        -round(found.shaped, 2),
    )


def detect(sample: Sequence[Row], method: str | None = None) -> list[Fit]:
    """Return the converters that fit the rows, best first."""
    whole = sample
    sample = _fewer(sample)
    tables = registry.tables_of(method) if method else None
    asked = [
        converter
        for converter in registry.converters()
        if tables is None or table_for(converter.table, tables)
    ]
    tried = (fit(c, whole if c.rows_by else sample) for c in asked)
    tried = (_as_prompts(without_samples(found, sample), sample) for found in tried)
    there = [found for found in tried if found.sound > 0 and not found.missing]
    there = _without_lossy_text(without_contradicted(there, sample, whole), sample)
    if not any(_is_enough(found) for found in there):
        there += without_contradicted(_near(asked, sample), sample, whole)
    if all(map(needs_tokenizer, there)) and (tables is None or "Prompt" in tables):
        there += _prompts(sample)
    if any(found.is_good for found in there):
        # A type that would lose turns must be named: --type.
        there = [found for found in there if not found.unread]
    if all(map(needs_tokenizer, there)):
        # That a file has text does not tell what it is.
        there = _questions(asked, sample)
        is_conversation = tables is None or "Conversation" in tables
        if not there and is_conversation:
            there = _transcripts(asked, sample) or answers_by_label(asked, sample)
        if not there and (tables is None or "Prompt" in tables):
            there = _only_questions(sample)
        if not there and is_conversation:
            there = _plain_text(sample)
    there = sorted(without_contradicted(there, sample, whole), key=Fit.rank)
    found = with_label_fit(_with_open(there, whole), whole)
    return (
        found if found and not _leaves_more(found[0]) else _by_values(found, asked, sample, whole)
    )


def _leaves_more(found: Fit) -> bool:
    """Return whether more may be made of rows than a fit does: it leaves columns, or takes a part for all."""
    return _is_part(found) or bool(found.unread) or any(one.is_grave for one in found.open)


def _is_part(found: Fit) -> bool:
    """Return whether a fit takes a part for all of the rows, or each of several replies for good."""
    takes_all = found.converter.name == "sampled_replies"
    is_part = found.converter.makes is Prompt or _is_plain(found)
    return is_part or takes_all or not found.is_good


def _is_plain(found: Fit) -> bool:
    """Return whether a fit takes prompts, plain text or tokens for all of the rows."""
    is_text = found.converter.required == {"text"}
    is_prompt = found.converter.makes is Prompt and found.converter.name == "passthrough"
    return is_prompt or is_text or needs_tokenizer(found)


def _by_values(
    fits: Sequence[Fit], asked: Sequence[Converter], sample: Sequence[Row], whole: Sequence[Row]
) -> list[Fit]:
    """Return the fits, before them what only the values of the columns say."""
    best = next(iter(fits), None)
    if best is not None and best.converter.makes not in (Completion, Conversation, Prompt):
        return [*fits]
    is_part = best is None or _is_part(best)
    kinds = (True, best is None or _is_plain(best), best is None)
    from fmtkit.detection import value_readings  # which a conversion of a named type does without

    read = value_readings.fits_of(asked, sample, whole, kinds)
    if best is not None and not is_part:
        left = {top_of(name) for name in (*best.unread, *(one.name for one in best.open))}
        read = [one for one in read if left & {top_of(path) for path in one.mapping.values()}]
    return [*_with_open(without_contradicted(read, sample, whole), whole), *fits]


def _fewer(sample: Sequence[Row]) -> list[Row]:
    """Return the rows of a sample on which types are tried."""
    return [*sample[:FIRST_ROWS], *sample[FIRST_ROWS::EVERY]]


def _as_prompts(found: Fit, sample: Sequence[Row]) -> Fit:
    """Return the fit that reads messages to which nobody replies as prompts; any other fit as it is."""
    made = found.converter
    if made.name != "passthrough" or made.table != "Conversation" or "messages" not in made.takes:
        return found
    held = (row.get("messages") for row in sample)
    turns = (turn for value in held if isinstance(value, list) for turn in value)
    said = [turn.get("role") for turn in turns if isinstance(turn, Mapping)]
    if not said or found.missing or "assistant" in said:
        return found
    (prompts,) = (
        c for c in registry.converters_named(made.name) if c.table == "Prompt" and not c.text
    )
    return fit(prompts, sample, {"prompt": "messages"})


def _prompts(sample: Sequence[Row]) -> list[Fit]:
    """Return the fit that reads the only column of messages to which nobody replies as prompts."""
    found = [path for path, held in values_by_path(sample).items() if all(map(are_asked, held))]
    if len(found) != 1:
        return []
    (prompts,) = (
        c for c in registry.converters_named("passthrough") if c.table == "Prompt" and not c.text
    )
    made = fit(prompts, sample, {"prompt": found[0]})
    return [made] if made.is_good else []


def _only_questions(sample: Sequence[Row]) -> list[Fit]:
    """Return the fit that reads the only column of text as prompts, where its name is that of a question."""
    held = open_columns(sample, (), beside="messages")
    texts = [one.name for one in held if one.could_be in TEXTS | {FILES}]
    asked = [row.get(name) for row in sample for name in texts]
    if len(texts) != 1 or not asks(texts[0]) or not _are_prose(asked):
        return []
    if any(map(names_speakers, filter(None, asked))):
        return []
    said = [name for name in _names(sample) if tells_of_reply(name)]
    if any(isinstance(row.get(name), str) for row in sample for name in said):
        return []
    (prompts,) = (
        c for c in registry.converters_named("passthrough") if c.table == "Prompt" and c.text
    )
    found = fit(prompts, sample, {"prompt": texts[0]} if texts[0] != "prompt" else {})
    return [found] if found.is_good else []


def _with_open(fits: Sequence[Fit], sample: Sequence[Row]) -> list[Fit]:
    """Return the fits, the first ones with the columns that they leave open."""
    first = [
        replace(
            found,
            open=open_beside(found.converter, found.mapping, sample, found.options),
            speakers=_speakers(found, sample),
        )
        for found in fits[:LOOKED_AT]
    ]
    first = [_with_thoughts(_with_given(found, sample), sample) for found in first]
    # Two texts of which the second is no reply are both the user's.
    first.sort(key=lambda one: one.speakers == UNKNOWN and _are_questions(one, fits, sample))
    return [*first, *fits[LOOKED_AT:]]


def _with_given(found: Fit, sample: Sequence[Row]) -> Fit:
    """Return the fit with the only open column that a question is about read as its context."""
    if (
        "context" not in found.converter.columns
        or has_path(sample[0], ("context",))
        or "context" in found.mapping
    ):
        return found
    columns = values_by_path(sample)
    given = [o for o in found.open if o.is_grave and is_given(o.name, columns.get(o.name, ()))]
    if len(given) != 1:
        return found
    whole = fit(found.converter, sample, {**found.mapping, "context": given[0].name}, found.options)
    rest = tuple(one for one in found.open if one is not given[0])
    return replace(whole, open=rest, speakers=found.speakers) if whole.is_good else found


def _with_thoughts(found: Fit, sample: Sequence[Row]) -> Fit:
    """Return the fit that reads the only open column of what was thought before the replies."""
    columns = values_by_path(sample)
    thought = [o for o in found.open if o.is_grave and is_thinking(o.name, columns.get(o.name, ()))]
    if found.converter.makes is not Completion or len(thought) != 1:
        return found
    for other in registry.converters_named(found.converter.name):
        if other.columns.keys() >= {*found.converter.columns, "reasoning"}:
            whole = fit(
                other, sample, {**found.mapping, "reasoning": thought[0].name}, found.options
            )
            rest = tuple(one for one in found.open if one is not thought[0])
            return replace(whole, open=rest, speakers=found.speakers) if whole.is_good else found
    return found


def _are_questions(found: Fit, fits: Sequence[Fit], sample: Sequence[Row]) -> bool:
    """Return whether a fit takes lists of two texts for conversations, and another one for prompts."""
    conversations = [value for row in sample for value in _texts_of(found, row)]
    is_short = bool(conversations) and all(len(value) <= 2 for value in conversations)
    return (
        is_short
        and found.converter.makes is not Prompt
        and any(f.converter.makes is Prompt for f in fits)
    )


def _texts_of(found: Fit, row: Row) -> list[list[Any]]:
    """Return the lists of texts that a fit reads of a row."""
    lists = [name for name, kind in found.converter.columns.items() if kind == ListKind(TextKind())]
    paths = [found.mapping.get(name, found.converter.path(name)) for name in lists]
    return [held for path in paths if isinstance(held := row.get(path), list)]


def _speakers(found: Fit, sample: Sequence[Row]) -> str:
    """Return how far it is known who speaks: replies are longer than questions, two questions are not."""
    if found.converter.table not in ("Conversation", "Prompt"):
        return NAMED
    conversations = [value for row in sample for value in _texts_of(found, row)]
    if found.converter.makes is Prompt:
        return UNKNOWN if conversations else NAMED
    asked, said = ([t for d in conversations for t in d[start::2]] for start in (0, 1))
    if not conversations or not all(isinstance(text, str) for text in (*asked, *said)):
        return NAMED
    questions = sum(map(_asks, said))
    longer = sum(map(len, said)) * len(asked) >= LONGER * sum(map(len, asked)) * len(said)
    return ASSUMED if said and longer and questions <= HARDLY * len(said) else UNKNOWN


def open_beside(
    converter: Converter,
    mapping: Mapping[str, str],
    sample: Sequence[Row],
    options: Mapping[str, str] = {},
) -> tuple[OpenColumn, ...]:
    """Return the open columns beside those that a converter reads, and the open keys of its messages."""
    if converter.takes_rows or converter.rows_by or converter.makes is Prompt:
        return ()
    paths = (mapping.get(name, converter.path(name)) for name in converter.columns)
    read = {top_of(path) for path in paths} | converter.harmless
    found = open_columns(sample, read, beside=beside(converter))
    kinds = spelled(converter, options).columns
    conversations = {
        mapping.get(name, converter.path(name)): kind
        for name, kind in kinds.items()
        if isinstance(kind, ConversationKind)
    }
    return (*found, *open_keys_of(conversations, sample, [sample]).found)


def layouts(sample: Sequence[Row], fits: Sequence[Fit]) -> list[tuple[Fit, float]]:
    """Return the two types that share the rows of a sample, with their shares; none where one takes all.

    `fits` are those of the sample, best first.
    """
    best = next(iter(fits), None)
    if best is None or best.is_renamed or best.converter.rows_by:
        return []
    binding = bind(best.converter, sample, mapping={}, options=best.converter.options)
    others = [row for row in sample if binding.judge(row)]
    share = len(others) / max(len(sample), 1)
    if share < MIXED or share > 1 - MIXED:
        return []
    other = next(iter(detect(others)), None)
    same = (best.converter.name, best.converter.makes)
    if other is None or other.is_renamed or not other.is_good or other.sound < PLAIN:
        return []
    is_other = (other.converter.name, other.converter.makes) != same
    return [(best, 1 - share), (other, share)] if is_other else []


def nearest(sample: Sequence[Row]) -> tuple[str, str] | None:
    """Return the type that has most columns of rows that no type takes, and what it finds wrong in one."""
    found: list[tuple[int, str, str]] = []
    for converter in registry.converters():
        made = converter.table
        is_vague = converter.name in GENERIC or made in LATE | WRITTEN
        if is_vague or converter.takes_rows or converter.rows_by:
            continue
        binding = bind(converter, sample, mapping={}, options=converter.options)
        faults = [] if missing_columns(binding, sample) else binding.judge(sample[0])
        used = [column for column in binding.columns if column.top in sample[0]]
        if faults and _could_be_meant(used, faults[0]):
            found.append((len(used), converter.name, faults[0].message))
    best = min(found, key=lambda one: (-one[0], -_names_of(one[1]), one[1]), default=None)
    return None if best is None else best[1:]


def _could_be_meant(used: Sequence[BoundColumn], fault: Fault) -> bool:
    """Return whether rows may be of a type though a value is wrong: the name of one column says little."""
    is_conversation = any(isinstance(column.kind, ConversationKind) for column in used)
    return len(used) > 1 or is_conversation or fault.code not in ("type_error", "missing_field")


def _names_of(name: str) -> int:
    """Return how many other names of a type there are: the usual one has most."""
    return len({alias for found in registry.converters_named(name) for alias in found.aliases})


def _is_enough(found: Fit) -> bool:
    """Return whether no renamed columns need be tried."""
    return found.is_good and not found.is_narrow and not found.is_written


def _near(converters: Sequence[Converter], sample: Sequence[Row]) -> list[Fit]:
    """Fit converters to columns that have other names than theirs."""
    proposed: list[tuple[Converter, Mapping[str, str], Mapping[str, str]]] = []
    for converter in converters:
        # That lists are turns must be said by their names: a table as one object has a list for each column.
        if _takes_lists(converter):
            continue
        is_general = converter.name in GENERIC - {"question_answer", "passthrough"}
        if (
            is_general
            or "text" in converter.required
            or converter.table in LATE | WRITTEN
            or converter.takes_rows
            or converter.rows_by
        ):
            continue
        options = spelling(converter, sample)
        mapping = proposal(spelled(converter, options), sample)
        if converter.name == "passthrough" and mapping:
            # Its columns have these names: only their messages may be spelled in another way.
            continue
        if mapping is not None and (mapping or options):
            proposed.append((converter, mapping, options))
    numbered = _numbered(converters, sample)
    proposed.sort(
        key=lambda one: (len(one[2]), -renamed_likeness(one[1]), len(one[1]), one[0].name)
    )
    tried = [fit(c, sample, m, o) for c, m, o in proposed[:PROPOSALS]]
    judged = [fit(c, sample, m, o) for c, m, o in numbered]
    # Where values say who won, what the judge wrote beside is no reason to refuse: it is named.
    found = [
        one
        for one in tried
        if _leaves_little(one)
        and not _turns_beside(one.mapping, sample)
        and not _is_less(one, sample)
    ]
    return found + [one for one in judged if not one.missing and one.sound >= TRUSTED]


def _leaves_little(found: Fit) -> bool:
    """Return whether a fit is good, or leaves unread only what replies are compared with, or were."""
    beside = all((GOLD | FIRST) & {*words_of(name)} for name in found.unread)
    return replace(found, unread=()).is_good and beside


def _takes_lists(converter: Converter) -> bool:
    """Return whether a type takes nothing but several lists of texts."""
    needed = [{name} for name in converter.required] + [{*group} for group in converter.any_of]
    kinds = [converter.takes.get(name) for group in needed for name in group]
    return len(needed) > 1 and all(kind == ListKind(TextKind()) for kind in kinds)


def _is_less(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a column of text that a fit does not read has more of it than all that it reads."""
    if found.converter.makes is Prompt:
        return False
    read = {top_of(found.mapping.get(n, found.converter.path(n))) for n in found.converter.columns}
    sizes = {
        name: sum(len(text) for row in sample for text in texts_within(row.get(name)))
        for name in _names(sample)
    }
    whole = sum(size for name, size in sizes.items() if name in read)
    left = open_beside(found.converter, found.mapping, sample, found.options)
    return any(
        one.is_grave and one.could_be in TEXTS and sizes.get(one.name, 0) > whole for one in left
    )


def _turns_beside(mapping: Mapping[str, str], sample: Sequence[Row]) -> list[str]:
    """Return the fields that look like turns within objects of which only other fields are read."""
    read = {*mapping.values()}
    objects = {path.partition(".")[0] for path in read if "." in path}
    return [
        path
        for path, held in values_by_path(sample).items()
        if path not in read and path.partition(".")[0] in objects and "." in path
        if looks_like_turns(path.partition(".")[2], held)
    ]


def _numbered(
    converters: Sequence[Converter], sample: Sequence[Row]
) -> list[tuple[Converter, Mapping[str, str], Mapping[str, str]]]:
    """Propose the types of two replies for columns under names that differ in a number or a letter."""
    taking = [c for c in converters if {"response_a", "response_b"} <= c.required]
    taking = [c for c in taking if c.name not in GENERIC]
    found = numbered_replies.proposals(sample) if taking else ()
    whole = (
        (c, o, proposal(c, sample, m))
        for m, o in found
        for c in taking
        if m.keys() <= c.columns.keys() and o.keys() <= c.options.keys()
    )
    two = [(c, mapping, o) for c, o, mapping in whole if mapping is not None]
    return [*two, *_in_columns(converters, sample)]


def _in_columns(
    converters: Sequence[Converter], sample: Sequence[Row]
) -> list[tuple[Converter, Mapping[str, str], Mapping[str, str]]]:
    """Propose the types of three replies and more for columns whose names differ in a number."""
    taking = [
        c for c in converters if {"response_1", "response_2", "response_8"} <= c.columns.keys()
    ]
    read = numbered_replies.several(sample) if taking else None
    if read is None:
        return []
    is_scored = any(name.startswith("score_") for name in read) or _has_named_scores(sample)
    fitting = [c for c in taking if ("score_1" in c.columns) == is_scored]
    whole = [(c, proposal(c, sample, read)) for c in fitting]
    return [(c, mapping, {}) for c, mapping in whole if mapping is not None]


def _has_named_scores(sample: Sequence[Row]) -> bool:
    """Return whether scores of replies have the names that a type knows."""
    return all(f"score_{place}" in row for row in sample[:1] for place in (1, 2, 3))


def _without_lossy_text(fits: Sequence[Fit], sample: Sequence[Row]) -> list[Fit]:
    """Return the fits without those of plain text beside which something else could be turns."""
    texts = [found for found in fits if found.converter.required == {"text"}]
    # All of them read the same column.
    if not texts or not _loses_turns(texts[0], sample):
        return [*fits]
    return [found for found in fits if found.converter.required != {"text"}]


def _loses_turns(text: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a column beside plain text could be turns, or says which row a text follows.

    A short text may be its title, but not one that is named as an answer or a summary.
    """
    others = open_beside(text.converter, text.mapping, sample)
    turns = (one for one in others if one.could_be in TEXTS | {PARENT, FILES})
    is_code = any(head_of(one.name) in CODE for one in others)
    return is_code or any(one.is_grave or replies(one.name) for one in turns)


def _transcripts(converters: Sequence[Converter], sample: Sequence[Row]) -> list[Fit]:
    """Read the only column whose texts are transcripts, whatever its name; none where there are two."""
    texts = {n: [row[n] for row in sample if isinstance(row.get(n), str)] for n in _names(sample)}
    found = [name for name, held in texts.items() if held and all(marks_of(held))]
    taking = [c for c in converters if c.name == "transcript" and "text" in c.columns]
    fits = [fit(c, sample, {"text": found[0]}) for c in taking] if len(found) == 1 else []
    return [one for one in fits if one.is_good]


def _questions(converters: Sequence[Converter], sample: Sequence[Row]) -> list[Fit]:
    """Read two columns of text, of which one asks, as questions and answers, whatever their names.

    None where a third column could be turns, where both ask, or the one that asks comes after the other.
    """
    held = open_columns(sample, (), beside="messages")
    grave = [one.name for one in held if one.is_grave and one.could_be not in (LABEL, SCORE)]
    texts = {name: [row.get(name) for row in sample] for name in grave if "." not in name}
    if len(grave) != 2 or len(texts) != 2 or not all(map(_are_prose, texts.values())):
        return []
    asking = {name: sum(map(_asks, held)) / len(held) for name, held in texts.items()}
    (answer, least), (question, most) = sorted(asking.items(), key=lambda one: one[1])
    comes_first = _names(sample).index(question) < _names(sample).index(answer)
    comes_first = comes_first and not NO_ANSWERS & {*words_of(answer)}
    if most < TRUSTED or least > HARDLY or not comes_first:
        return []
    taking = [
        c for c in converters if {"question", "answer"} <= c.columns.keys() and not c.required
    ]
    mapping = {"question": question, "answer": answer}
    tried = (fit(c, sample, mapping) for c in taking if c.table == "Completion")
    return [found for found in tried if found.is_good][:1]


def _are_prose(values: Sequence[Any]) -> bool:
    """Return whether all values are texts, and prose."""
    texts = [value for value in values if isinstance(value, str)]
    return len(texts) == len(values) and is_prose(texts)


def _asks(text: Any) -> bool:
    """Return whether a text is a question, in any script."""
    return isinstance(text, str) and text.rstrip().endswith(("?", "？", "؟"))


def _names(sample: Sequence[Row]) -> list[str]:
    """Return the names of the columns of rows."""
    return list(dict.fromkeys(name for row in sample for name in row))


def _plain_text(sample: Sequence[Row]) -> list[Fit]:
    """Take a column of prose as plain text, if no type fits the file and nothing else could be turns.

    A column that is named as a question is none: an answer to it is elsewhere, or still to be made.
    """
    if all(map(is_message, sample)):
        return []
    texts: dict[str, list[str]] = {}
    for row in sample:
        for name, value in row.items():
            if isinstance(value, str) and value.strip() and "." not in name:
                texts.setdefault(name, []).append(value)
    prose = {
        name: sum(map(len, held))
        for name, held in texts.items()
        if is_prose(held) and not asks(name)
    }
    if not prose:
        return []
    column = max(prose, key=lambda name: prose[name])
    (plain,) = (c for c in registry.converters_named("text") if c.table == "Conversation")
    mapping = {"text": column} if column != "text" else {}
    found = fit(plain, sample, mapping)
    is_whole = found.sound >= PLAIN and not found.unread and not _loses_turns(found, sample)
    return [found] if is_whole else []


def choose(
    name: str,
    sample: Sequence[Row],
    *,
    method: str | None,
    mapping: Mapping[str, str],
    source: str,
    options: Mapping[str, Any] | None = None,
) -> Converter:
    """Return the converter of that name that fits the rows; `options` may spell their messages.

    Raises:
        UnknownNameError: if no converter has that name.
        ColumnMismatchError: if a required column is in none of the rows; it names what fits instead.
        OptionError: if the name fits several tables and nothing decides between them.
    """
    candidates = _with_columns(registry.converters_named(name, method), mapping)
    if not sample:
        return candidates[0]
    whole = [c for c in candidates if not _lacks(c, sample, mapping, options or {})]
    if len(whole) == 1:
        # What the columns decide needs no trial: of many small files it is a third of the time.
        return whole[0]
    spells = {k: v for k, v in (options or {}).items() if k in (*MESSAGE_OPTIONS, JOINED_BY)}
    few = _fewer(sample)
    found = (fit(c, sample if c.rows_by else few, _within(c, mapping), spells) for c in candidates)
    order = partial(_order_within_name, method=method)
    fits = sorted(found, key=order)
    best = fits[0]
    if best.missing:
        raise ColumnMismatchError(_mismatch(name, best, sample, source, mapping, options or {}))
    rivals = [
        f
        for f in fits[1:]
        if order(f) == order(best) and f.converter.makes is not best.converter.makes
    ]
    if rivals:
        tables = ", ".join(sorted({f.converter.table for f in (best, *rivals)}))
        raise OptionError(f"{source}: type {name} fits {tables}; choose one with --method")
    return best.converter


def _with_columns(
    candidates: Sequence[Converter], mapping: Mapping[str, str]
) -> Sequence[Converter]:
    """Return the converters that have every column that is mapped; all of them where none has."""
    having = [c for c in candidates if all(name in c.columns for name in mapping)]
    return having or candidates


def check_joined(name: str, by: str, sample: Sequence[Row], source: str) -> None:
    """Raise ColumnMismatchError where rows lack the column by which a type joins them."""
    if sample and lacks(sample, by):
        missing = Fit(registry.converters_named(name)[0], (by,), 0.0, 0, 0.0, 0)
        raise ColumnMismatchError(_mismatch(name, missing, sample, source))


def _lacks(
    converter: Converter,
    sample: Sequence[Row],
    mapping: Mapping[str, str],
    options: Mapping[str, Any],
) -> bool:
    within = _within(converter, mapping)
    if converter.rows_by:
        sample = joined(sample, converter.joins_by(options), whole_file=converter.whole_file)
    binding = bind(converter, sample, mapping=within, options=converter.options)
    return bool(missing_columns(binding, sample))


def _within(converter: Converter, mapping: Mapping[str, str]) -> dict[str, str]:
    return {name: path for name, path in mapping.items() if name in converter.columns}


def _mismatch(
    name: str,
    best: Fit,
    sample: Sequence[Row],
    source: str,
    mapping: Mapping[str, str] = {},
    options: Mapping[str, Any] = {},
) -> str:
    there = sorted({key for row in sample for key in row})
    given = {n: f"--option field_{n}={path}" for n, path in mapping.items()}
    given |= {n: f"--map {n}={p}" for n, p in mapping.items() if options.get(f"field_{n}") != p}
    hints = []
    for missing in best.missing:
        advice = _advice(missing, best.converter, sample, mapping, given)
        hints.append(f"{missing} ({advice})" if advice else missing)
    fitting = _distinct(found.converter.name for found in detect(sample))[:4]
    fits = f"; types that fit: {', '.join(fitting)}" if fitting else ""
    columns = ", ".join(there) or "none"
    needed = f"column{'s' * (len(hints) != 1)} {', '.join(hints)}"
    return f"{source}: type {name} needs {needed}; the columns are {columns}{fits}"


def _advice(
    missing: str,
    converter: Converter,
    sample: Sequence[Row],
    mapping: Mapping[str, str],
    given: Mapping[str, str],
) -> str:
    """Return how a parameter gets the column that it lacks: a wrong mapping left out, or a near name.

    `missing` are its paths as the user wrote them; `given` says for a mapped parameter by which flag.
    """
    paths = {path: n for n in converter.columns if (path := mapping.get(n, converter.path(n)))}
    lacking = [(path, paths.get(path, path)) for path in missing.split(" or ")]
    for _, parameter in lacking:
        own = converter.path(parameter)
        if parameter in given and any(has_path(row, tuple(own.split("."))) for row in sample):
            return f"column {own} is there: leave out {given[parameter]}"
    there = sorted({key for row in sample for key in row})
    near = ((near_match(path, there), parameter) for path, parameter in lacking)
    return next((f"near: {n}; map it with --map {p}={n}" for n, p in near if n), "")


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
