"""A run's rows do not depend on workers, blocks or units, and its ledger always balances."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_rows import damaged, mutated
from runs import INTEL, KTO, line, lines

from fmtkit.core.errors import ColumnMismatchError, OptionError
from fmtkit.core.tables import final_rows
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.ledger import TERMS, Ledger
from fmtkit.running.pipeline import Piece, Progress, process, stream
from fmtkit.running.preparation import Job, prepare
from fmtkit.sources.jsonl import blocks_of_lines
from fmtkit.sources.opening import open_sources
from fmtkit.sources.source import Source
from fmtkit.work.engines import Threads

FEW = settings(max_examples=15, deadline=None)
RANKED = {
    "prompt": "p",
    "answers": [{"answer": "a", "rank": 1}, {"answer": "b", "rank": 2}, {"answer": "c", "rank": 2}],
}
CHAT = {
    "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
    "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}],
}
TYPES = {"chatml.intel": INTEL, "llama3.nectar": RANKED, "zephyr.argilla_chat": CHAT}


def rows_of(row: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Return sound and bad lines, blank ones among them."""
    sound = st.builds(lambda n: line(row | {"extra": n}), st.integers(0, 3))
    return st.one_of(
        sound, sound.flatmap(mutated), sound.flatmap(damaged), st.just(b""), st.just(b" ")
    )


def bound(type: str, pairs: str | None = None) -> Job:
    options = {"pairs": pairs} if pairs else {}
    return prepare(open_sources([TYPES[type]]), RowOptions(type=type, options=options))


def results(job: Job, pieces: list[Piece], starts: list[int]) -> list[Any]:
    """Return rows with their records, and rejects, in the order of records."""
    found: list[Any] = []
    for piece, start in zip(pieces, starts, strict=True):
        for i, row in enumerate(piece.table.to_pylist()):
            found.append((int(piece.records[i]) + start, piece.line(i), json.dumps(row)))
        bad = piece.rejects
        found += [(b.row + start, b.line, (b.code, b.column, b.raw)) for b in bad]
    return sorted(found, key=lambda entry: entry[0])


def in_blocks(job: Job, data: bytes, block_bytes: int) -> tuple[list[Any], Ledger]:
    """Process a text cut into blocks of some size."""
    import io

    file: Any = io.BytesIO(data)
    pieces = [
        next(process(job, 0, number, block))
        for number, block in enumerate(blocks_of_lines(file, block_bytes=block_bytes))
    ]
    ledger, starts = Ledger(), []
    for piece in pieces:
        starts.append(ledger.rows_read)
        ledger.add(piece, skipped=False)
    ledger.check()
    return results(job, pieces, starts), ledger


@pytest.mark.parametrize("type", TYPES)
@FEW
@given(data=st.data(), size=st.integers(1, 400))
def test_rows_do_not_depend_on_where_blocks_are_cut(
    type: str, data: st.DataObject, size: int
) -> None:
    text = b"\n".join(data.draw(st.lists(rows_of(TYPES[type]), max_size=6)))
    found, ledger = in_blocks(bound(type), text, size)
    whole, expected = in_blocks(bound(type), text, 1 << 20)
    assert found == whole
    assert ledger.as_dict() == expected.as_dict()


@pytest.mark.parametrize("type", TYPES)
@FEW
@given(data=st.data(), pairs=st.sampled_from(["best-worst", "all", "adjacent"]))
def test_every_row_read_is_in_one_term_of_the_ledger(
    type: str, data: st.DataObject, pairs: str
) -> None:
    rows = data.draw(st.lists(rows_of(TYPES[type]), max_size=8))
    job = bound(type, pairs if "nectar" in type else None)
    found, ledger = in_blocks(job, lines(rows), 1 << 20)
    assert ledger.rows_read == sum(getattr(ledger, term) for term in TERMS)
    assert ledger.rows_read == sum(bool(row.strip(b" \t\r")) for row in rows)
    assert ledger.blank_lines == len(rows) - ledger.rows_read
    assert ledger.rows_written == sum(isinstance(entry[2], str) for entry in found)
    assert ledger.quarantined == sum(isinstance(entry[2], tuple) for entry in found)


def many(tmp_path: Any, count: int = 40) -> list[Source]:
    """Open three files of rows with bad ones among them, of several blocks together."""
    for name in "abc":
        rows = [INTEL | {"question": f"{name} {i}", "chosen": "x" * i} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_bytes(lines(rows))
    return open_sources([str(tmp_path / f"{name}.jsonl") for name in "abc"])


def everything(pieces: Any) -> list[Any]:
    return [
        (
            p.source,
            p.table.to_pylist(),
            p.records.tolist(),
            [(r.row, r.line, r.code) for r in p.rejects],
        )
        for p in pieces
    ]


def test_pieces_come_in_input_order_for_any_number_of_workers(tmp_path):
    job = prepare(many(tmp_path), RowOptions(type="chatml.intel"))
    expected = everything(stream(job, engine=Threads(1)))
    assert [source for source, *_ in expected] == [0, 1, 2]
    for workers in (2, 3, 8):
        assert everything(stream(job, engine=Threads(workers))) == expected


def test_records_are_counted_within_each_source(tmp_path):
    job = prepare(many(tmp_path), RowOptions(type="intel"))
    for _, rows, records, rejects in everything(stream(job)):
        assert [*records, *(row for row, _, _ in rejects)] == [*range(1, len(rows) + 1), 0]
        assert rejects == [(0, 1, "empty_field")]


@pytest.mark.parametrize("limit", [1, 39, 40, 41, 80, 119, 120, 500])
def test_a_limit_is_of_rows_read_over_all_sources(tmp_path, limit):
    job = prepare(many(tmp_path), RowOptions(type="intel", limit=limit))
    assert sum(piece.counts.rows_read for piece in stream(job)) == min(limit, 120)


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.parquet"])
def test_a_limit_cuts_every_kind_of_block(tmp_path, name):
    import csv

    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [INTEL | {"question": str(i)} for i in range(10)]
    if name == "a.json":
        (tmp_path / name).write_text(json.dumps(rows))
    elif name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    else:
        with (tmp_path / name).open("w") as file:
            writer = csv.DictWriter(file, list(INTEL))
            writer.writeheader()
            writer.writerows(rows)
    job = prepare(open_sources(str(tmp_path / name)), RowOptions(type="intel", limit=3))
    [piece] = stream(job)
    assert [row["prompt"][0]["content"] for row in piece.table.to_pylist()] == ["0", "1", "2"]


def test_a_stream_goes_on_from_where_progress_says(tmp_path):
    job = prepare(many(tmp_path), RowOptions(type="intel"))
    progress, pieces = Progress(), list(stream(job))
    for done, piece in enumerate(pieces):
        begun = Progress.from_dict(json.loads(json.dumps(progress.as_dict())))
        assert everything(stream(job, progress=begun)) == everything(pieces[done:])
        progress.add(piece)


def test_two_sources_with_columns_of_their_own_make_one_table(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines([CHAT | {"system": "s"}]))
    (tmp_path / "b.jsonl").write_bytes(lines([CHAT | {"note": 5}]))
    sources = open_sources([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    tables = [piece.table for piece in stream(prepare(sources, RowOptions(type="argilla_chat")))]
    assert tables[0].schema == tables[1].schema


def test_sources_of_different_tables_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines([INTEL]))
    (tmp_path / "b.jsonl").write_bytes(lines([KTO]))
    sources = open_sources([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    with pytest.raises(
        OptionError,
        match=r"a.jsonl makes Preference of messages, .*b.jsonl makes Unpaired of messages",
    ):
        prepare(sources, RowOptions(type="intel"))


def test_an_empty_source_beside_a_full_one_is_no_mismatch(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(lines([KTO]))
    sources = open_sources([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    job = prepare(sources, RowOptions(type="intel"))
    assert job.table.name() == "Unpaired"
    assert sum(piece.counts.rows_written for piece in stream(job)) == 1


def test_a_missing_column_in_any_source_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines([INTEL]))
    (tmp_path / "b.jsonl").write_bytes(lines([{"prompt": "p"}]))
    sources = open_sources([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    with pytest.raises(ColumnMismatchError, match=r"b\.jsonl"):
        prepare(sources, RowOptions(type="intel"))


def test_rows_of_a_generator_are_read_as_often_as_a_run_needs():
    rows = ({"question": f"q{i}", "answer": "a #### 4", "extra": i} for i in range(5))
    job = prepare(open_sources(rows), RowOptions(type="gsm8k"))
    [piece] = stream(job)
    assert final_rows(piece.table).column("extra").to_pylist() == [0, 1, 2, 3, 4]


def test_a_row_of_which_one_pair_cannot_be_rendered_is_lost_as_a_whole(tmp_path):
    template = tmp_path / "mine.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.content == 'c' %}{{ raise_exception('no c') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    ranked = RANKED | {"answers": [{"answer": a, "rank": i} for i, a in enumerate("abc")]}
    request = RowOptions(
        type="nectar", options={"pairs": "all"}, as_="text", chat_template=str(template)
    )
    [piece] = stream(
        prepare(open_sources([ranked, RANKED | {"answers": RANKED["answers"][:2]}]), request)
    )
    assert [reject.row for reject in piece.rejects] == [0]
    assert piece.records.tolist() == [1]
    assert (piece.counts.converted, piece.counts.rows_written) == (1, 1)
