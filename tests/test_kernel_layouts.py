"""Rows that are made as they are read become what the ordinary way makes of them, to the byte."""

import json
import random
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pytest
from fixture_cases import Case
from line_mutants import mutants
from test_kernel_lines import STRESS, mostly_sound
from test_parse import CASES, sound_lines

from fmtkit.columns.read_spec import ConversationNode, KeyNode, ReadColumn, ReadSpec
from fmtkit.columns.strict_kinds import value_of
from fmtkit.columns.text_layout import Ask, Condition, Layout, Shape, View
from fmtkit.columns.text_layout import Path as Way
from fmtkit.columns.turn_sources import Blank, Equal, Last, Messages, Texts, turns
from fmtkit.core.errors import FmtkitError
from fmtkit.core.message_keys import MESSAGE_KEYS
from fmtkit.options.convert_options import RowOptions
from fmtkit.reading import clean_lines, native
from fmtkit.reading.clean_lines import CompiledLayout
from fmtkit.rendering import tiers
from fmtkit.running.pipeline import Piece, process
from fmtkit.running.preparation import Job, prepare
from fmtkit.sources.blocks import JsonBlock
from fmtkit.sources.opening import open_sources
from fmtkit.stages import fusing
from fmtkit.stages.fusing import Fusion

pytestmark = pytest.mark.skipif(
    native.kernel() is None, reason=f"there is no native kernel: {native.why_not()}"
)
TEMPLATES = ("chatml", "zephyr", "llama3", "gemma", "qwen3", "")
"""Without a template the rows are messages."""
TRIED = [
    pytest.param(name, marks=[pytest.mark.slow] if name in {"zephyr", "llama3", "gemma"} else [])
    for name in TEMPLATES
]
NASTY = (
    *("", " ", "\t\n", "\x1c", "\u2028", "\u00a0\u3000", "\u200b", "x", " x ", "\n\nx\n"),
    *("<|im_end|>", "a <|im_start", "</s>", "[INST]", "<start_of_turn>", "<think>a</think>b"),
    *("</think>", "日本語", "😀" * 20, 'quote " and \\ and \n', "é" * 300, "\x00\x1f", "{{ x }}"),
)


@pytest.fixture(autouse=True)
def _all_worth(monkeypatch):
    """Lay out what can be, however little it is."""
    monkeypatch.setattr(fusing, "WORTH", 0.0)


@cache
def job_of(case: Case, template: str, keep: str = "") -> Job | None:
    """Return a job whose rows can be laid out, that has seen its rows; None where they cannot be."""
    options = {
        "type": case.name,
        "chat_template": template or None,
        "keep": (keep,) if keep else (),
    }
    try:
        job = prepare(open_sources(str(case.source)), RowOptions(**{**case.settings, **options}))
    except FmtkitError:
        return None
    fusion = job.fusions[0]
    if fusion is None or not fusion.fits:
        return None
    next(process(job, 0, 0, JsonBlock(case.source.read_bytes(), 1)))
    return job


def fitting(*templates: str) -> list[tuple[Case, Job]]:
    found = [(case, job_of(case, template)) for case in CASES for template in templates]
    return [(case, job) for case, job in found if job is not None]


def ordinary(job: Job, block: bytes) -> Piece:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Fusion, "fuse", lambda *_: None)
        return next(process(job, 0, 0, JsonBlock(block, 1)))


def laid_rows(job: Job, lines: list[bytes]) -> int:
    """Compare both ways of a block; return how many of its rows were laid out."""
    return laid_again(job, lines, 1)[0]


def laid_again(job: Job, lines: list[bytes], times: int = 2) -> list[int]:
    """Lay a block out so many times, compare each with the ordinary way; return how many rows were."""
    counts = []
    block = b"".join(line + b"\n" for line in lines)
    expected = ordinary(job, block)
    fuse = Fusion.fuse

    def counted(self, records):
        laid = fuse(self, records)
        counts.append(0 if laid is None else len(laid.rows))
        return laid

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Fusion, "fuse", counted)
        for _ in range(times):
            same(next(process(job, 0, 0, JsonBlock(block, 1))), expected)
    return counts


def same(one: Piece, other: Piece) -> None:
    for field in fields(Piece):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("records", "lines"):
            mine, theirs = mine.tolist(), theirs.tolist()
        if field.name == "table":
            assert mine.schema.equals(theirs.schema, check_metadata=True)
            assert mine.to_pylist() == theirs.to_pylist()
            # A table without rows has any number of chunks.
            chunks = [[c.num_chunks for c in one.columns] for one in (mine, theirs)]
            assert chunks[0] == chunks[1] or not mine.num_rows
        assert mine == theirs, field.name


@pytest.mark.parametrize("template", ["chatml", ""])
def test_flat_types_and_lists_of_messages_are_laid_out(template):
    names = {case.name for case, _ in fitting(template)}
    assert {"intel", "icr", "chat_template.default", "ultra", "openai", "sharegpt"} <= names
    assert {"argilla_chat", "messages_label", "openai_preference", "completion"} <= names


@pytest.mark.parametrize(
    ("template", "keep"),
    [
        *(pytest.param(*one.values, "", marks=one.marks) for one in TRIED),
        *(("chatml", "all"), ("", "all")),
    ],
)
def test_fixtures_become_the_same(template, keep):
    total = 0
    for case in CASES:
        job = job_of(case, template, keep)
        if job is not None:
            total += laid_rows(job, [*sound_lines(case), *case.source.read_bytes().split(b"\n")])
    assert total > 20


def upset(value: list | dict, draw: random.Random) -> None:
    """Change a message somewhere in a value, or a list of them."""
    if isinstance(value, list):
        held = [one for one in value if isinstance(one, list | dict)]
        change = draw.random()
        if held and change < 0.7:
            upset(draw.choice(held), draw)
        elif value and change < 0.8:
            value.insert(draw.randrange(len(value)), draw.choice(value))
        elif value and change < 0.9:
            del value[draw.randrange(len(value))]
        return
    says = [key for key in ("role", "from", "content", "value") if key in value]
    inner = [one for one in value.values() if isinstance(one, list | dict)]
    if not says:
        if inner:
            upset(draw.choice(inner), draw)
        return
    key = draw.choice(says)
    roles = (
        "user",
        "assistant",
        "system",
        "tool",
        "developer",
        "human",
        "gpt",
        "observation",
        "odd",
    )
    value[key] = draw.choice(roles if key in ("role", "from") else (*NASTY, None))
    if draw.random() < 0.3:
        more = {
            "name": ("n", "", None, 1),
            "reasoning_content": ("why", "", None),
            "thinking": ("hm", [], 1),
            "tool_calls": (None, [], "", {}, [{"name": "f"}], "[]", [{"function": {"name": "f"}}]),
            "function_call": (None, {"name": "f", "arguments": "{}"}, "f"),
            "tool_call_id": ("c1", None),
            "weight": (0, 1, True, "x", 0.5),
            "train": (True, False, None),
            "train_detail": (None, []),
            "extra": (1, {"a": [1, 2.5e3]}),
        }
        name = draw.choice(list(more))
        value[name] = draw.choice(more[name])


@pytest.mark.parametrize("template", TRIED)
def test_nasty_texts_become_the_same(template):
    draw = random.Random(template)
    total = 0
    for case, job in fitting(template):
        lines = []
        for line in sound_lines(case) * 20:
            row = json.loads(line)
            for key in draw.sample(list(row), min(len(row), 2)):
                if isinstance(row[key], str) or row[key] is None:
                    row[key] = draw.choice((*NASTY, None))
                elif isinstance(row[key], list | dict):
                    upset(row[key], draw)
            if "chosen" in row and draw.random() < 0.2:
                row["rejected"] = row["chosen"] if draw.random() < 0.5 else f" {row['chosen']}"
            lines.append(json.dumps(row, ensure_ascii=draw.random() < 0.5).encode())
        # Again, since the paths that the first ones took are known then.
        first, again = laid_again(job, lines)
        assert first <= again
        total += again
    assert total > 400


def test_sources_mean_what_the_expressions_make():
    rows = 0
    for case, job in fitting(""):
        fusion, lines = job.fusions[0], sound_lines(case)
        block = b"".join(line + b"\n" for line in lines)
        # A row of which a rule holds may mean something else.
        laid = fusion.fuse(JsonBlock(block, 1).records()).rows.tolist()
        made = ordinary(job, block)
        columns = made.table.select(fusion.names).to_pylist()
        for record, written in zip(made.records.tolist(), columns, strict=True):
            values = values_of(fusion, json.loads(lines[record])) if record in laid else {}
            for name, source in zip(fusion.names, fusion.paths.layout.conversations, strict=True):
                if values:
                    assert [held(turn) for turn in turns(source, values)] == [
                        *map(held, written[name])
                    ]
                    rows += 1
    assert rows > 100


def values_of(fusion: Fusion, row: dict[str, Any]) -> dict[str, object]:
    """Return the strict parser's values of a row for the columns of which conversations are made."""
    bound = fusion.paths.layout.bound
    values = {
        one.name: (one, one.lookup(row)) for one in fusion.binding.columns if one.name in bound
    }
    return {
        name: None if value is None else value_of(one.kind, value)
        for name, (one, value) in values.items()
    }


def held(turn: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in turn.items() if value is not None}


def survive(count: int, seed: str) -> None:
    cases = fitting("chatml", "qwen3", "")
    seen = laid = 0
    for case, job in cases:
        made = mutants(
            mostly_sound(case, job.plans[0].binding), count // len(cases), f"{seed} {case}"
        )
        lines = [line for _, line in made]
        for at in range(0, len(lines), 300):
            laid += laid_rows(job, lines[at : at + 300])
        seen += len(lines)
    print(f"{laid} of {seen} mutants are laid out")
    assert laid > 0.15 * seen


def test_mutants_become_the_same():
    survive(3_000, "few")


@pytest.mark.slow
def test_many_mutants_become_the_same():
    survive(50_000, "many")


def run_through(count: int, seed: str) -> None:
    """Lay mutants out by every layout, in blocks that end where their memory does."""
    cases = fitting("chatml", "qwen3", "")
    seen = laid = 0
    for case, job in cases:
        binding, fusion = job.plans[0].binding, job.fusions[0]
        fusion.take_paths()
        if fusion.paths is None:
            continue  # rows with images have no text, and no other test has traced the template yet
        paths = fusion.paths
        made = mutants(mostly_sound(case, binding), count // len(cases), f"{seed} {case}")
        lines = [line for _, line in made]
        for at in range(0, len(lines), 50):
            block = b"\n".join(lines[at : at + 50])
            found = paths.compiled.read(block)
            for column in found.made:
                column.validate(full=True)
            rows = int((found.verdicts == clean_lines.CLEAN).sum())
            assert {len(column) for column in found.made} == {found.frame.height} == {rows}
            laid += rows
        seen += len(lines)
    print(f"{laid} of {seen} mutants are laid out")
    assert laid > 0.1 * seen


def test_mutants_run_through_every_layout():
    run_through(6_000, "through")


@pytest.mark.stress
def test_a_great_many_mutants_run_through_every_layout():
    run_through(STRESS, "through")


INTEL = next(case for case in CASES if case.name == "intel")


def lines_of(count: int, **texts: str) -> list[bytes]:
    row = {"system": "", "question": "q {}", "chosen": "good {}", "rejected": "bad {}"} | texts
    return [
        json.dumps({key: text.format(i) for key, text in row.items()}).encode()
        for i in range(count)
    ]


def test_a_column_of_texts_that_is_full_costs_no_row(monkeypatch):
    job = job_of(INTEL, "chatml")
    lines = [*lines_of(50), *lines_of(50, system="s" * 100)]
    assert laid_rows(job, lines) == 100
    monkeypatch.setattr(clean_lines, "MAX_INT32", 2_000)
    fusion = job.fusions[0]
    told = clean_lines.layout_tuple(fusion.binding.spec, fusion.paths.layout)
    compiled = replace(fusion.paths.compiled, layout=native.kernel().compile_layout(told))
    monkeypatch.setattr(fusion, "paths", replace(fusion.paths, compiled=compiled))
    assert 0 < laid_rows(job, lines) < 100


def test_a_long_block_is_laid_out_though_its_template_has_met_no_row(tmp_path):
    own = tmp_path / "own.jinja"
    own.write_text(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    options = RowOptions(type="intel", chat_template=str(own))
    job = prepare(open_sources(str(INTEL.source)), options)
    assert laid_rows(job, lines_of(1_500, system="s" * 1_000)) == 1_500


def test_a_template_that_renders_otherwise_is_found_by_the_sample(monkeypatch):
    job = prepare(open_sources(str(INTEL.source)), RowOptions(type="intel", chat_template="chatml"))
    next(process(job, 0, 0, JsonBlock(INTEL.source.read_bytes(), 1)))
    lines = lines_of(300)
    assert laid_rows(job, lines) == 300
    read = CompiledLayout.read

    def wrong(self, block):
        laid = read(self, block)
        texts = pa.array([text.upper() for text in laid.made[0].to_pylist()])
        return type(laid)(laid.frame, laid.verdicts, (texts, *laid.made[1:]), laid.taken)

    monkeypatch.setattr(CompiledLayout, "read", wrong)
    monkeypatch.setattr(tiers, "SAMPLE", 10)
    block = b"".join(line + b"\n" for line in lines)
    made = next(process(job, 0, 0, JsonBlock(block, 1)))
    assert job.text.template.compiled.difference is not None
    assert made.table.column("prompt")[0].as_py() == (
        "<|im_start|>user\nq 0<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_mostly_goes_the_ordinary_way_goes_it_whole(monkeypatch):
    monkeypatch.setattr(fusing, "WORTH", 0.5)
    job = job_of(INTEL, "chatml")
    lines = [*lines_of(40), *lines_of(60, chosen="<|im_end|> {}")]
    assert laid_rows(job, lines) == 0
    assert laid_rows(job, lines[:60]) == 40


def layout(**changed) -> Layout:
    """Return a layout of the texts of `question`, trimmed, between constants."""
    shape = Shape((("user",),), (View(0, ((3, None),)), View(0)), (Way((), (("<", 0, ">"),)),))
    return Layout(**{"conversations": (ASKED,), "shapes": (shape,)} | changed)


ASKED = Texts((("user", "question"),))
OTHER = Texts((("assistant", "other"),))


def spec():
    from fmtkit.columns.kinds import TextKind
    from fmtkit.columns.read_spec import spec_of

    named = [
        ("question", ("question",), TextKind(), True),
        ("other", ("other",), TextKind(), False),
    ]
    return spec_of(named, [], [], [])


def laid_texts(rows: list[object], **changed) -> list[str | None]:
    """Return the text of each row, None of one that is not laid out."""
    block = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    laid = clean_lines.compile_layout(spec(), layout(**changed)).read(block)
    texts = iter(laid.made[0].to_pylist())
    laid.made[0].validate(full=True)
    return [next(texts) if v == clean_lines.CLEAN else None for v in laid.verdicts.tolist()]


def questions(*texts: str) -> list[object]:
    return [{"question": text} for text in texts]


def test_texts_are_trimmed_as_python_does():
    texts = ["\u3000a b\n", "\x1c x \x85", "日本", "\u2028", "\u00a0é\u00a0", "a", "xxaxx", "aéa"]
    for sides, method in ((1, str.lstrip), (2, str.rstrip), (3, str.strip)):
        for characters in (None, "x", "xa", "\n "):
            views = (View(0, ((sides, characters),)),)
            shape = Shape((("user",),), views, (Way((), (("<", 0, ">"),)),))
            expected = [f"<{method(text, characters)}>" for text in texts]
            assert laid_texts(questions(*texts), shapes=(shape,)) == expected


@pytest.mark.parametrize(
    ("ask", "word", "method"),
    [
        (Ask.NONEMPTY, "", lambda text, word: bool(text)),
        (Ask.STARTSWITH, "ab", str.startswith),
        (Ask.ENDSWITH, "ab", str.endswith),
        (Ask.EQUALS, "ab", str.__eq__),
        (Ask.CONTAINS, "ab", str.__contains__),
        (Ask.CONTAINS, "", str.__contains__),
    ],
)
def test_questions_are_answered_as_python_does(ask, word, method):
    texts = ["ab", "abc", "cab", "xaby", "a", "b", "aab", "aaaab", "é", " ab "]
    for answer in (True, False):
        path = Way((Condition(1, ask, word, answer),), (("<", 1, ">"),))
        shape = Shape((("user",),), (View(0), View(0)), (path,))
        expected = [f"<{text}>" if method(text, word) is answer else None for text in texts]
        assert laid_texts(questions(*texts), shapes=(shape,)) == expected


def test_rules_leave_lines():
    rules = (Blank("question"),)
    assert laid_texts(questions("a", "", " ", "\u3000"), rules=rules) == ["<a>"] + [None] * 3
    rows = [{"question": "a", "other": "b"}, {"question": "a", "other": "a"}, {"question": "a"}]
    way = Way((), (("<", 0, ">"), ("",)))
    shapes = (
        Shape((("user",), ("assistant",)), (View(0), View(1)), (way,)),
        Shape((("user",), ()), (View(0),), (way,)),
    )
    told = {
        "conversations": (ASKED, OTHER),
        "shapes": shapes,
        "rules": (Equal("question", "other"),),
    }
    assert laid_texts(rows, **told) == ["<a>", None, "<a>"]
    assert laid_texts(rows, **{**told, "shapes": shapes[:1]}) == ["<a>", None, None]


def test_tokens_leave_lines():
    tokens = ("<|im_end|>", "<s>", "é!", "[X]", "<|im|>")
    texts = ["a", "<s", "<<s>", "x<|im_end|>", "<|im_end|", "é", "é!", "ee!", "[X]", "<|im|>"]
    assert laid_texts(questions(*texts), tokens=tokens) == [
        None if any(token in text for token in tokens) else f"<{text}>" for text in texts
    ]


def test_texts_that_may_not_be_equal_leave_lines():
    way = Way((), (("<", 0, ">"), ("<", 1, ">")))
    shape = Shape((("user",), ("user",)), (View(0), View(0, ((3, None),))), (way,))
    changed = {"conversations": (ASKED, ASKED), "shapes": (shape,), "unlike": ((0, 1),)}
    assert laid_texts(questions("a", " a", "b ", "b"), **changed) == [None, "< a>", "<b >", None]


@pytest.mark.parametrize(
    "changed",
    [
        {"conversations": (ASKED, ASKED)},
        {"conversations": (ASKED,) * 9},
        {
            "conversations": (
                Texts((("user", "question"),) * 2),
                reduce(lambda of, _: Last(of), range(40), ASKED),
            )
        },
        {"unlike": ((0, 1),)},
        {"messages": True, "unlike": ((0, 0),)},
        {"shapes": (Shape((("user",),), (View(0, (), "name"),), ()),), "keys": (("name", "text"),)},
        {"tokens": ("",)},
        {"shapes": (Shape((("user",),), (View(1),), ()),)},
        {"shapes": (Shape((("user",),), (View(0, ((1, "é"),)),), ()),)},
        {"shapes": (Shape((("user",),), (View(0, ((4, "a"),)),), ()),)},
        {"shapes": (Shape((("user",),), (View(0),), (Way((), ((1,),)),)),)},
        {"shapes": (Shape((("user",),), (), ()), Shape((("user",),), (), ()))},
        {"shapes": (Shape((("user",),), (View(0),) * 300, ()),)},
    ],
)
def test_the_kernel_refuses_what_is_no_layout(changed):
    with pytest.raises(ValueError, match=r"layout|path|ASCII|views|control"):
        clean_lines.compile_layout(spec(), layout(**changed))


KEYS = tuple(f"key{number}" for number in range(clean_lines.MOST_MESSAGE_KEYS))


def keyed(*names: str) -> ReadSpec:
    """Return a spec of messages that may have some keys of texts."""
    node = ConversationNode(
        forms=("messages",),
        role="role",
        content="content",
        speaker="user",
        roles=(("user", "user"),),
        silent=(),
        media=(),
        keys=tuple(KeyNode(name, (name,), "text") for name in names),
        refused=(),
        call_role=None,
    )
    return ReadSpec((ReadColumn("messages", ("messages",), node, True),), (), (), ())


def keyed_layout(names: tuple[str, ...], **changed) -> Layout:
    keys = tuple((name, "text") for name in names)
    return Layout(**{"conversations": (Messages("messages"),), "keys": keys} | changed)


def test_messages_have_as_many_keys_as_the_kernel_holds():
    draw = random.Random("keys")
    held = [(), KEYS, *((name,) for name in KEYS)]
    held += [tuple(name for name in KEYS if draw.random() < 0.5) for _ in range(100)]
    unknown = held[-1]
    known = [names for names in dict.fromkeys(held) if names != unknown]
    block = b"".join(
        json.dumps(
            {"messages": [{"role": "user", "content": "c"} | {n: f"{n} of {i}" for n in names}]}
        ).encode()
        + b"\n"
        for i, names in enumerate(held)
    )
    shapes = tuple(
        Shape(
            (("user",),),
            tuple(View(0, (), name) for name in names),
            (Way((), (("<", *range(len(names)), ">"),)),),
            ((names,),),
        )
        for names in known
    )
    texts = clean_lines.compile_layout(keyed(*KEYS), keyed_layout(KEYS, shapes=shapes)).read(block)
    expected = [
        f"<{''.join(f'{name} of {i}' for name in names)}>"
        for i, names in enumerate(held)
        if names != unknown
    ]
    assert texts.made[0].to_pylist() == expected
    written = clean_lines.compile_layout(keyed(*KEYS), keyed_layout(KEYS, messages=True)).read(
        block
    )
    written.made[0].validate(full=True)
    for i, ([message], names) in enumerate(zip(written.made[0].to_pylist(), held, strict=True)):
        said = {name: f"{name} of {i}" if name in names else None for name in KEYS}
        assert message == {"role": "user", "content": "c"} | said


def test_messages_of_more_keys_than_the_kernel_holds_are_an_error_and_not_slow():
    more = (*KEYS, "one_more")
    with pytest.raises(ValueError, match="too many keys"):
        clean_lines.compile_layout(spec(), keyed_layout(more, conversations=(ASKED,)))
    with pytest.raises(ValueError, match="too many keys"):
        clean_lines.read(b"", keyed(*more))
    assert len(MESSAGE_KEYS) <= clean_lines.MOST_MESSAGE_KEYS, "raise clean_lines.THERE_CHARACTERS"


BARE = (1, (), (), ("user",), (), (0, 0, 0, 0, 0), (), (), (), 0, (), (), 1, ())
BAD = {
    1: [((0, 2),), ((1, 0),), ((0,),)],
    2: [(1,), (-1,)],
    3: [("user", "user"), (1,), tuple(map(str, range(200)))],
    5: [(), (0, 0, 0, 0, 1 << 20)],
    6: [((0, 0, 0, 0, "\x01", ()),), ((99, 0, 0, 0, "", ()),), ((4, 1, 0, 0, "", ()),), ((4, 0, 0, 0, "", ()),)],
    7: [((0, 0, 0, 0, "", ()),), ((7, 0, 0, 0, "\x01", ()),), ((3, 0, 0, 0, "\x02", ()),), ((99, 0, 0, 0, "", ()),)],
    8: [(0,), (1,)],
    10: [((0, 0),)],
    12: [-1, 1 << 40],
    13: [(("x", (), ()),), (("\x01", (), ()),), (("\x01\x01\x7f", (), ()),),
         (("\x01\x20\x60\x7f", (), ()),), (("\x01\x20\x1f\x7f", (), ()),), (("\x01\x20", (), ()),),
         (("\x01\x20\x20\x7f", ((0, (), 12),), ()),), (("\x01\x20\x20\x7f", ((0, (), 13),), ()),)],
}  # fmt: skip


def test_the_kernel_takes_a_layout_of_nothing():
    native.kernel().compile_layout(BARE)


@pytest.mark.parametrize(
    "told",
    [
        (),
        ((),) * 14,
        *((*BARE[:at], bad, *BARE[at + 1 :]) for at, each in BAD.items() for bad in each),
    ],
)
def test_the_kernel_refuses_tuples_that_tell_no_layout(told):
    with pytest.raises((TypeError, ValueError, IndexError)):
        native.kernel().compile_layout(told)


def test_a_layout_goes_with_its_own_spec():
    kernel = native.kernel()
    other = kernel.compile((((("a",), ("text",), True),), (), (), 100))
    own = clean_lines.compile_layout(spec(), layout()).layout
    with pytest.raises(ValueError, match="another spec"):
        kernel.read(b"", other, own)
    texts = kernel.compile(
        (((("a",), ("bool", False, ()), True), (("b",), ("text",), True)), (), (), 100)
    )
    with pytest.raises(ValueError, match="another spec"):
        kernel.read(b"", texts, own)


def test_every_cut_of_a_block_is_laid_out_or_left():
    block = b"".join(line + b"\n" for line in lines_of(2, system="s", question="q \\n"))
    job = job_of(INTEL, "chatml")
    for end in range(len(block)):
        same(
            next(process(job, 0, 0, JsonBlock(block[:end], 1))),
            ordinary(job, block[:end]),
        )
