"""The kernel's clean lines are what the strict parser takes, with its values, byte for byte."""

import json
import os
import random
import struct
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from fixture_cases import Case
from line_mutants import mutants
from test_conversions import contents
from test_parse import CASES, bound, sound_lines

from fmtkit.columns.kinds import IntegerKind, NumberKind, OpenKind, TextKind, TreeKind
from fmtkit.columns.read_spec import node_of, spec_of
from fmtkit.core.errors import NothingWrittenError
from fmtkit.options.convert_options import ConvertOptions, RowOptions
from fmtkit.reading import clean_lines, native
from fmtkit.reading.binding import Binding
from fmtkit.reading.clean_lines import BLANK, CLEAN, UNSURE
from fmtkit.reading.column_kinds import kinds_of_rows
from fmtkit.reading.lost_turns import carried
from fmtkit.running.conversions import convert_to
from fmtkit.running.preparation import prepare
from fmtkit.sources.opening import open_sources
from fmtkit.sources.strict import MAX_DEPTH, parse

pytestmark = pytest.mark.skipif(
    native.kernel() is None, reason=f"there is no native kernel: {native.why_not()}"
)
REAL = Path("/work/shared/data/real")
MUTATIONS = 50_000
STRESS = int(os.environ.get("FMTKIT_MUTATIONS", "1000000"))
PARTS = 20
LEAST_CLEAN = 0.3
BATCH = 2000


@dataclass
class Judged:
    """What the strict parser makes of lines: the sound ones, with their places."""

    places: list[int]
    frame: pl.DataFrame


def strictly(binding: Binding, lines: list[bytes], places: list[int]) -> Judged:
    """Judge lines; each of `places` must be sound, and made of no parts."""
    rows = []
    for place in places:
        value, fault = parse(lines[place], written=True)
        assert fault is None, (lines[place], fault)
        assert binding.judge(value) == [], (lines[place], binding.judge(value))
        assert not binding.cuts(value), lines[place]
        rows.append(value)
    return Judged(places, binding.frame(rows, places))


def bits(value):
    """Return a value of which floats are told apart by their bits."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return [bits(item) for item in value] if isinstance(value, list) else value


def told(column: pl.Series) -> list[list[str]]:
    return [sorted(texts or []) for texts in column.to_list()]


def check(binding: Binding, lines: list[bytes]) -> list[int]:
    """Compare the clean lines with the strict parser's values; return the verdicts."""
    read = clean_lines.read(b"".join(line + b"\n" for line in lines), binding.spec)
    assert read is not None
    verdicts = read.verdicts.tolist()
    assert len(verdicts) == len(lines)
    for line, verdict in zip(lines, verdicts, strict=True):
        assert (verdict == BLANK) == (not line.strip(b" \t\r")), line
    expected = strictly(binding, lines, [i for i, v in enumerate(verdicts) if v == CLEAN])
    assert read.frame.height == len(expected.places)
    for column in binding.every:
        made, strict = read.frame[column.name], expected.frame[column.name]
        assert made.dtype == strict.dtype
        if column in binding.watched:
            equal = told(carried(made)) == told(strict)
        else:
            equal = made.equals(strict, null_equal=True) and (
                not holds_floats(made.dtype) or bits(made.to_list()) == bits(strict.to_list())
            )
        assert equal, first_difference(lines, expected.places, made, strict)
    return verdicts


def holds_floats(dtype: pl.DataType) -> bool:
    return "Float" in str(dtype)


def first_difference(lines, places, made, strict):
    pairs = zip(places, made.to_list(), strict.to_list(), strict=True)
    return next((lines[i], a, b) for i, a, b in pairs if bits(a) != bits(b))


@pytest.mark.parametrize("keep", ["", "all"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_clean_lines_of_the_fixtures_are_what_the_strict_parser_makes_of_them(case, keep):
    binding = bound(case, keep).plans[0].binding
    if any(isinstance(column.kind, TreeKind) for column in binding.columns):
        assert clean_lines.read(b"{}\n", binding.spec) is None
        return
    check(binding, [*sound_lines(case), *case.source.read_bytes().split(b"\n")])
    check_kinds([*sound_lines(case), *case.source.read_bytes().split(b"\n")])


def is_read(case: Case) -> bool:
    """Return whether the kernel reads what a case's type takes."""
    return clean_lines.read(b"", bound(case).plans[0].binding.spec) is not None


def mostly_sound(case: Case, binding: Binding) -> list[bytes]:
    """Return the lines of a fixture, those that the type takes four times: most others stay wrong."""
    lines = sound_lines(case)
    good = [line for line in lines if not binding.judge(parse(line, written=True)[0])]
    return [*lines, *good, *good, *good]


def check_kinds(lines: list[bytes]) -> None:
    """Compare the kinds of the clean lines with those of the strict parser's values, in their order."""
    read = clean_lines.kinds(b"".join(line + b"\n" for line in lines), MAX_DEPTH)
    assert read is not None
    expected: dict[str, tuple[int, int, set[str]]] = {}
    for number in np.flatnonzero(read.verdicts == CLEAN).tolist():
        value, fault = parse(lines[number], written=True)
        assert fault is None, lines[number]
        for place, (name, kinds) in enumerate(kinds_of_rows(iter([(value, None)])).items()):
            expected.setdefault(name, (number, place, set()))[2].update(kinds)
    assert sorted((*at, name, kinds) for name, (*at, kinds) in expected.items()) == sorted(read.met)
    assert ((read.verdicts == BLANK) == [not line.strip(b" \t\r") for line in lines]).all()


def survive(count: int, seed: str) -> None:
    """Check mutants of every fixture, and print how many of each class stay clean."""
    seen: Counter[str] = Counter()
    clean: Counter[str] = Counter()
    cases = [case for case in CASES if is_read(case)]
    each = count // (2 * len(cases)) + 1
    for case in cases:
        for keep in ("", "all"):
            binding = bound(case, keep).plans[0].binding
            made = list(mutants(mostly_sound(case, binding), each, f"{seed} {case} {keep}"))
            for at in range(0, len(made), BATCH):
                part = made[at : at + BATCH]
                verdicts = check(binding, [line for _, line in part])
                if not keep:
                    check_kinds([line for _, line in part])
                for (name, _), verdict in zip(part, verdicts, strict=True):
                    seen[name] += 1
                    clean[name] += verdict == CLEAN
    for name, number in sorted(seen.items()):
        print(f"{name:28} {number:8} {clean[name] / number:7.1%} clean")
    print(f"{'all':28} {seen.total():8} {clean.total() / seen.total():7.1%} clean")
    assert seen.total() >= count
    assert clean.total() >= LEAST_CLEAN * seen.total()


def test_mutants_that_stay_clean_are_what_the_strict_parser_makes_of_them():
    survive(MUTATIONS // 20, "few")


@pytest.mark.slow
def test_many_mutants_that_stay_clean_are_what_the_strict_parser_makes_of_them():
    survive(MUTATIONS, "many")


@pytest.mark.stress
@pytest.mark.parametrize("part", range(PARTS))
def test_a_million_mutants_that_stay_clean_are_what_the_strict_parser_makes_of_them(part):
    survive(STRESS // PARTS, f"stress {part}")


REAL_TYPES = {
    "gsm8k.bradley_terry.jsonl": "bradley_terry.chat_template",
    "gsm8k.ebft_opencode.jsonl": "ebft_opencode.transform",
    "gsm8k.kto_intel.jsonl": "intel",
    "gsm8k_outcome_steps.stepwise.jsonl": "stepwise_supervised",
    "gsm8k_pairs.chatml_intel.jsonl": "intel",
    "gsm8k_rank_ties.zephyr_nectar.jsonl": "nectar",
    "gsm8k_test.jsonl": "gsm8k",
    "lf_dpo.argilla_chat.jsonl": "argilla_chat",
    "lf_dpo.ultra.jsonl": "ultra",
    "llamafactory_alpaca_en_demo.json": "alpaca",
    "llamafactory_glaive_toolcall_en_demo.json": "sharegpt",
    "nemogym_mcqa.jsonl": "nemo_gym",
    "tinker_conversations.jsonl": "openai",
}


def real_lines(path: Path) -> list[bytes]:
    """Return the rows of a file, one a line."""
    if path.suffix == ".jsonl":
        return path.read_bytes().removesuffix(b"\n").split(b"\n")
    rows = json.loads(path.read_bytes())
    return [json.dumps(row, ensure_ascii=i % 2 > 0).encode() for i, row in enumerate(rows)]


@pytest.mark.parametrize("keep", [(), ("all",)])
def test_real_data_is_clean_but_for_a_line_in_a_thousand(keep):
    if not REAL.is_dir():
        pytest.skip(f"the real data is not here: {REAL}")
    verdicts: Counter[int] = Counter()
    for name, kind in REAL_TYPES.items():
        job = prepare(open_sources(str(REAL / name)), RowOptions(type=kind, keep=keep))
        found = check(job.plans[0].binding, real_lines(REAL / name))
        print(f"{name:44} {found.count(CLEAN)} of {len(found)} lines are clean")
        verdicts += Counter(found)
    assert verdicts[CLEAN] >= 0.999 * verdicts.total()


def both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path, **options) -> None:
    """Convert with the kernel and without: every file that is written must be the same."""
    found = []
    for kernel in ("1", "0"):
        monkeypatch.setenv(native.VARIABLE, kernel)
        folder = tmp_path / kernel
        folder.mkdir()
        try:
            convert_to(source, folder / "out.parquet", ConvertOptions(**options))
        except NothingWrittenError as error:
            (folder / "error").write_text(str(error).replace(str(folder), ""))
        found.append(contents(folder))
    assert found[0] == found[1]


@pytest.mark.parametrize("keep", [(), ("all",)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_files_are_the_same_without_the_kernel(case, keep, tmp_path, monkeypatch):
    both_ways(tmp_path, monkeypatch, case.source, type=case.name, keep=keep, **case.settings)


@pytest.mark.parametrize("kind", REAL_TYPES.values())
def test_files_of_real_data_are_the_same_without_the_kernel(kind, tmp_path, monkeypatch):
    if not REAL.is_dir():
        pytest.skip(f"the real data is not here: {REAL}")
    for name in (name for name, own in REAL_TYPES.items() if own == kind):
        folder = tmp_path / name
        folder.mkdir()
        both_ways(folder, monkeypatch, REAL / name, type=kind, keep=("all",))


PAIRS = json.dumps({"system": "s", "question": "q\n", "chosen": "é", "rejected": "日本"}).encode()


@cache
def intel() -> Binding:
    return bound(next(case for case in CASES if case.name == "intel"), "").plans[0].binding


def verdicts_of(block: bytes, binding: Binding | None = None) -> list[int]:
    read = clean_lines.read(block, (binding or intel()).spec)
    assert read is not None
    assert read.frame.height == read.verdicts.tolist().count(CLEAN)
    return read.verdicts.tolist()


@pytest.mark.parametrize(
    ("block", "verdicts"),
    [
        (b"", []),
        (b"\n", [BLANK]),
        (b"{", [UNSURE]),
        (b"\r", [BLANK]),
        (b"\r\n \t\r\n", [BLANK, BLANK]),
        (b"\x0b\n", [UNSURE]),
        (PAIRS, [CLEAN]),
        (PAIRS + b"\r\n", [CLEAN]),
        (b" " + PAIRS + b"\r\r\n", [CLEAN]),
        (PAIRS + b"\n" + PAIRS, [CLEAN, CLEAN]),
        (PAIRS + b"\n\n" + PAIRS + b"\n", [CLEAN, BLANK, CLEAN]),
        (PAIRS + PAIRS, [UNSURE]),
        (PAIRS + b"\x00", [UNSURE]),
        (b"\xef\xbb\xbf" + PAIRS, [UNSURE]),
        (b"null\n[]\n1\n", [UNSURE] * 3),
    ],
)
def test_every_line_has_a_verdict(block, verdicts):
    assert verdicts_of(block) == verdicts


def test_a_block_may_end_after_any_byte():
    block = PAIRS + b"\r\n" + PAIRS.decode().encode("unicode_escape") + b"\n"
    for end in range(len(block) + 1):
        lines = block[:end].split(b"\n")
        check(intel(), [line for line in lines if line or end] if lines[-1] else lines[:-1])
        # Of memory that ends there, so that a sanitizer sees what lies behind.
        assert verdicts_of(bytearray(block[:end])) == verdicts_of(block[:end])


def test_a_line_of_16_mib_is_one_line():
    for text in ("a", "é", "\\n", "漢", '\\"'):
        long = PAIRS.replace(b'"q\\n', b'"' + (text * ((16 << 20) // len(text.encode()))).encode())
        assert verdicts_of(PAIRS + b"\n" + long + b"\n" + PAIRS) == [CLEAN] * 3
        assert verdicts_of(long[:-9]) == [UNSURE]


@pytest.mark.parametrize("depth", [1, 98, 99, 100, 101, 100_000])
def test_what_nobody_uses_may_nest_as_deep_as_the_strict_parser_lets_it(depth):
    for begin, end in ((b"[", b"]"), (b'{"a":', b"}")):
        line = PAIRS[:-1] + b',"x":' + begin * depth + b"1" + end * depth + b"}"
        assert verdicts_of(line) == [CLEAN if depth <= 99 else UNSURE]
        assert verdicts_of(line[:-50]) == [UNSURE]


def test_rows_that_are_taken_back_leave_nothing_behind():
    draw = random.Random(5)
    case = next(case for case in CASES if case.name == "openai")
    binding = bound(case, "all").plans[0].binding
    own = sound_lines(case)
    lines = [b"".join((line[: draw.randrange(len(line))], b"")) for line in own * 20] + own * 20
    draw.shuffle(lines)
    check(binding, [line or b"{}" for line in lines])


def spec_of_kind(kind):
    return spec_of([("value", ("v",), kind, False)], [], [], [])


def values(kind, *tokens):
    """Return what becomes of tokens, `unsure` of those that are."""
    read = clean_lines.read(
        b"".join(b'{"v":%s}\n' % t.encode() for t in tokens), spec_of_kind(kind)
    )
    found = iter(read.frame["value"].to_list())
    return [next(found) if v == CLEAN else "unsure" for v in read.verdicts.tolist()]


def test_reals_are_those_of_python_to_the_bit():
    draw = random.Random(7)
    tokens = [repr(draw.random()) for _ in range(5000)]
    tokens += [repr(draw.uniform(-1e9, 1e9)) for _ in range(5000)]
    tokens += [repr(draw.random() * 10 ** draw.randint(-20, 20)) for _ in range(5000)]
    for _ in range(20000):
        digits = "".join(draw.choices("0123456789", k=draw.randint(1, 19)))
        tokens.append(f"{int(digits)}.{draw.choice(('0', '5', digits))}"[:20])
        tokens.append(f"{int(digits)}e{draw.randint(-30, 30)}")
    # Halves between two doubles, and their neighbours.
    for n in range(2**53 - 50, 2**53 + 200):
        tokens += [f"{n}.0", f"{n}.5", f"{n * 3}.0", f"{n * 8 + 4}.0", f"{n * 8 + 5}.0"]
    tokens = [t for t in tokens if "e+" not in t]
    made = values(NumberKind(), *tokens)
    wrong = [
        (t, v)
        for t, v in zip(tokens, made, strict=True)
        if v != "unsure" and bits(v) != bits(float(t))
    ]
    assert wrong == []
    assert made.count("unsure") < 0.1 * len(made)


def test_whole_numbers_are_those_of_64_bits_in_their_range():
    numbers = [0, -1, 2**63 - 1, -(2**63), 10**18, 1 - 10**18]
    assert values(IntegerKind(), *map(str, numbers)) == numbers
    assert values(IntegerKind(), "-0") == [0]
    assert (
        values(IntegerKind(), str(2**63), str(-(2**63) - 1), "1.0", "1e0", "true") == ["unsure"] * 5
    )
    assert values(IntegerKind(range=(0, 5)), "0", "5", "-1", "6") == [0, 5, "unsure", "unsure"]


def test_what_the_kernel_does_not_read_is_left_to_the_strict_parser():
    assert clean_lines.read(b"{}\n", spec_of_kind(TreeKind())) is None
    assert (
        clean_lines.read(b"{}\n", spec_of([("v", ("\ud800",), TextKind(), False)], [], [], []))
        is None
    )
    with pytest.raises(TypeError):
        node_of(object())


def test_a_value_may_be_wanted_more_than_once():
    columns = [
        ("whole", (), OpenKind(), True),
        ("a", ("a",), OpenKind(), False),
        ("again", ("a",), OpenKind(), False),
        ("b", ("a", "b"), TextKind(), True),
        ("c", ("a", "c"), IntegerKind(), False),
    ]
    block = b'{"a": {"b": "x", "c": 1}}\n{"a": {"b": "y"}, "z": [ ]}\n{"a": {"c": 2}}\n{"a": 5}\n'
    read = clean_lines.read(block, spec_of(columns, [], [("c",)], []))
    assert read.verdicts.tolist() == [CLEAN, UNSURE, UNSURE, UNSURE]
    read = clean_lines.read(block, spec_of(columns, [], [], []))
    assert read.verdicts.tolist() == [CLEAN, CLEAN, UNSURE, UNSURE]
    assert read.frame.to_dicts() == [
        {
            "whole": '{"a":{"b":"x","c":1}}',
            "a": '{"b":"x","c":1}',
            "again": '{"b":"x","c":1}',
            "b": "x",
            "c": 1,
        },
        {
            "whole": '{"a":{"b":"y"},"z":[]}',
            "a": '{"b":"y"}',
            "again": '{"b":"y"}',
            "b": "y",
            "c": None,
        },
    ]


def conversation_of(keys: object = (), call: object = None) -> tuple[object, ...]:
    roles = (("user", "user"),)
    node = ("conversation", ("messages",), "role", "content", "user", roles, (), keys, (), call)
    return (("a",), node, False)


ODD_CONVERSATIONS = (
    *(("keys", ((("a", ("a",), form),))) for form in ("spans", "", "texts")),
    *(("call", told) for told in ("function_call", (), ("f",), (1, "assistant"), ("f", 1))),
)


def test_the_kernel_refuses_what_is_no_spec():
    kernel = native.kernel()
    good = ((), (), (), 100)
    kernel.compile(((conversation_of((("a", ("a",), "text"),), ("f", "assistant")),), (), (), 100))
    for bad in (
        None,
        (),
        (1,),
        ((1,), (), (), 100),
        (((("a",), ("x",), False),), (), (), 100),
        ((), ((0,),), (), 100),
        ((), (), (), 0),
        ((), (), (), 10**6),
        (((("a",), ("list",), False),), (), (), 100),
        (((), ("text",), 1), (), ()),
        *(((conversation_of(**{key: value}),), (), (), 100) for key, value in ODD_CONVERSATIONS),
    ):
        with pytest.raises((TypeError, ValueError, IndexError, SystemError)):
            kernel.compile(bad)
    with pytest.raises(TypeError):
        kernel.read("text", kernel.compile(good))
    with pytest.raises((TypeError, ValueError)):
        kernel.read(b"", object())


def test_kinds_of_reals_are_told_by_how_they_are_written():
    draw = random.Random(11)
    tokens = [repr(draw.random() * 10 ** draw.randint(-20, 20)) for _ in range(3000)]
    tokens += [f"{draw.random():.{draw.randint(10, 19)}f}" for _ in range(3000)]
    tokens += [f"{draw.randint(1, 2**62)}e{draw.randint(-30, 20)}" for _ in range(3000)]
    tokens += [f"{n}.{tail}" for n in (2**52, 2**53, 2**60, 1) for tail in ("0", "5", "25", "1")]
    tokens = [token for token in tokens if "e+" not in token]
    lines = [b'{"%d":%s}' % (i, token.encode()) for i, token in enumerate(tokens)]
    check_kinds(lines)
    read = clean_lines.kinds(b"\n".join(lines), MAX_DEPTH)
    assert (read.verdicts == CLEAN).mean() > 0.85


def test_keys_of_one_row_are_as_many_as_they_are():
    names = [f"k{i}" for i in range(5000)]
    wide = json.dumps(dict.fromkeys(names)).encode()
    check_kinds([wide, wide, b'{"k3": 1, "k1": "x"}'])
    read = clean_lines.kinds(wide[:-1] + b',"k7":2}\n' + wide, MAX_DEPTH)
    assert read.verdicts.tolist() == [UNSURE, CLEAN]
    assert [name for *_, name, _ in sorted(read.met)] == names


def keys_of_one_hash(count: int) -> list[bytes]:
    """Return keys of sixteen bytes: the second half undoes what the first makes of the hash."""
    draw = np.random.default_rng(3)
    found: list[bytes] = []
    while len(found) < count:
        letters = draw.integers(0x30, 0x5B, (1 << 20, 8), dtype=np.uint8)
        first = letters.view(np.uint64).ravel()
        mixed = (first ^ np.uint64(16 * 0x9E3779B97F4A7C15 % 2**64)) * np.uint64(0xFF51AFD7ED558CCD)
        second = (mixed ^ mixed >> np.uint64(32)).view(np.uint8).reshape(-1, 8)
        plain = ((second > 0x5C) & (second < 0x7F)) | ((second > 0x22) & (second < 0x5C))
        chosen = plain.all(axis=1)
        halves = np.concatenate((letters[chosen], second[chosen]), axis=1)
        found += map(bytes, halves)
    return found[:count]


def test_keys_that_have_one_hash_make_a_line_unsure_and_no_work_by_their_square():
    few, many = (
        b"{" + b",".join(b'"%s":1' % key for key in keys_of_one_hash(count)) + b"}"
        for count in (200, 300)
    )
    assert clean_lines.kinds(few + b"\n" + many, MAX_DEPTH).verdicts.tolist() == [CLEAN, UNSURE]


def test_columns_outlive_the_block_and_the_spec():
    block = bytearray((PAIRS + b"\n") * 100)
    made = native.kernel().read(
        block, native.kernel().compile((((("question",), ("text",), True),), (), (), 100))
    )
    batch = pa.RecordBatch._import_from_c_capsule(*made[:2])
    del made
    block[:] = b"x" * len(block)
    batch.validate(full=True)
    assert set(batch.column(0).to_pylist()) == {"q\n"}


def test_results_that_nobody_takes_are_freed():
    for _ in range(100):
        native.kernel().read(
            PAIRS + b"\n",
            native.kernel().compile((((("question",), ("text",), True),), (), (), 100)),
        )


def test_characters_of_three_bytes_are_utf8_as_python_says():
    first = [
        bytes([lead, second, 0x81]) for lead in range(0xDF, 0xF2) for second in range(0x7E, 0xC2)
    ]
    texts = [text for one in first for text in (one + "中".encode(), "中".encode() + one, one * 2)]
    texts += [
        one[:2] + bytes([last]) + "中文".encode()
        for one in first
        for last in (0x7F, 0x80, 0xBF, 0xC0)
    ]
    made = clean_lines.kinds(
        b"".join(b'{"a":"%b"}\n' % (text + b"a" * 8) for text in texts), MAX_DEPTH
    )
    for text, verdict in zip(texts, made.verdicts.tolist(), strict=True):
        assert (verdict == CLEAN) == is_utf8(text), text


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
