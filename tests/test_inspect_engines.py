"""inspect on other processes: the same report, byte for byte, as from threads."""

import gzip
import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sick_rows
from fixture_cases import FIXTURES, Case, cases
from runs import INTEL
from runs import fmtkit as command
from test_engines import TOKENIZER, Pickling

from fmtkit import convert
from fmtkit.core.errors import FmtkitError
from fmtkit.findings import fingerprints
from fmtkit.formats import registry
from fmtkit.inspection import inspection
from fmtkit.options.convert_options import RowOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.reports import survey_outputs
from fmtkit.running.validation import validate_sources
from fmtkit.sources import jsonl, parts
from fmtkit.work import ray_engine

RAY = {"engine": "ray"}
JOINED = "oasst.rows/source.jsonl"
SHORT = "several words, and a few more"
LONG = "several words, so that a file is of several blocks; " * 450


def report(source: Any, **options: Any) -> str:
    """Return the report that --json prints; the error of an inspection that is refused."""
    try:
        found = inspection.run(source, InspectOptions(**options))
    except FmtkitError as error:
        return f"{type(error).__name__}: {error}"
    return survey_outputs.json_text(found.survey)


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


def sick_pairs(folder: Path, text: str) -> dict[str, Any]:
    """Plant each defect of a pair in a known row, and bad rows between them."""
    rows, _ = sick_rows.sick(400)
    rows = [{**row, "note": text} for row in rows]
    rows[300:300] = [{"chosen": 1}, {"chosen": [], "rejected": []}]
    return {"source": write(folder / "pairs.jsonl", rows), "type": "llama3.ultra"}


def splits(folder: Path, text: str) -> dict[str, Any]:
    def row(number: int) -> dict[str, Any]:
        return {"question": f"q{number}", "chosen": f"c{number}", "rejected": text, "system": ""}

    write(folder / "train.jsonl", [row(i) for i in range(400)])
    pq.write_table(pa.Table.from_pylist([row(i) for i in range(395, 800)]), folder / "test.parquet")
    return {"source": [str(folder / "train.jsonl"), str(folder / "test.parquet")], "type": "intel"}


def steps(folder: Path, text: str) -> dict[str, Any]:
    rows = [
        {"prompt": f"p{i}", "completions": [text, "b"], "labels": [0.5 if i % 7 else 1, i % 2]}
        for i in range(400)
    ]
    rows[333]["labels"] = [None, 1]
    return {"source": write(folder / "steps.jsonl", rows), "type": "stepwise_supervised"}


def labelled(folder: Path, text: str) -> dict[str, Any]:
    rows = [{"prompt": f"p{i}", "completion": text, "label": i % 5 == 0} for i in range(400)]
    return {"source": write(folder / "labelled.jsonl", rows), "method": "kto"}


def windows(folder: Path, text: str) -> dict[str, Any]:
    said = (text * 10)[:400]
    rows = [conversation(i, said if i % 3 else "No.") | {"note": text} for i in range(400)]
    return {
        "source": write(folder / "chats.jsonl", rows),
        "type": "ebft_strided_chat.transform",
        "tokenizer": TOKENIZER,
        "chat_template": "chatml",
        "max_length": (300,),
        "ebft": {"stride": 60, "generate_max_len": 40},
    }


def tools(folder: Path, text: str) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    own = {"tools": [tool]}
    rows = [conversation(i, text) | (own if i > 350 else {}) for i in range(400)]
    return {"source": write(folder / "tools.jsonl", rows), "type": "openai"}


def conversation(number: int, reply: str) -> dict[str, Any]:
    said = {"user": f"Say {number}.", "assistant": reply}
    return {"messages": [{"role": role, "content": content} for role, content in said.items()]}


def of_no_type(folder: Path, text: str) -> dict[str, Any]:
    rows: list[Any] = [{"colour": f"c{i}", "weight": i, "text_of_it": text} for i in range(400)]
    rows[300] = {"late": [1, "Ж"]}
    return {"source": write(folder / "odd.jsonl", rows)}


MADE = [sick_pairs, splits, steps, labelled, windows, tools, of_no_type]
LOOKED_AT: list[dict[str, Any]] = [
    {},
    {"tokenizer": TOKENIZER, "show_mask": 2, "rows": (7, 390)},
    {"tokenizer": TOKENIZER, "max_length": (16, 64), "sample": 100, "limit": 333},
]


def compare(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, ways: list[dict[str, Any]]
) -> None:
    """Compare the reports of threads and of Ray in some ways of looking."""
    source = asked.pop("source")
    # Hashes go to files, as those of millions of rows do.
    monkeypatch.setattr(fingerprints, "IN_MEMORY", 100)
    for options in ways:
        expected = report(source, **options | asked)
        assert '"rows_read"' in expected
        assert report(source, **options | asked | RAY) == expected


@pytest.fixture
def on_copies(monkeypatch):
    """Let Ray work on copies of everything, as other processes would; return what was copied."""
    worked = []

    class Noting(Pickling):
        def map(self, work, tasks):
            worked.append(work)
            return super().map(work, tasks)

    monkeypatch.setattr(ray_engine, "Ray", lambda *arguments: Noting())
    return worked


@pytest.mark.parametrize("made", MADE)
def test_the_report_of_copies_is_that_of_threads(tmp_path, monkeypatch, on_copies, made):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", 50_000)
    compare(made(tmp_path, SHORT), monkeypatch, LOOKED_AT[1:2])


def one_of_each_table() -> list[Any]:
    """Give the cases, but for the first of each table with the mark slow."""
    seen: set[str] = set()
    given = []
    for case in cases():
        table = registry.converters_named(case.name)[0].table
        given.append(
            pytest.param(case, id=str(case), marks=[pytest.mark.slow] if table in seen else [])
        )
        seen.add(table)
    return given


@pytest.mark.parametrize("case", one_of_each_table())
def test_every_fixture_is_looked_at_alike_by_tasks(case, monkeypatch, on_copies):
    # Tasks of a few rows each: what is counted within one is counted again within its source.
    monkeypatch.setattr(parts, "PART_BYTES", 400)
    source, options = str(case.source), {"show_mask": 2, "rows": (3,)}
    assert report(source, **options, **RAY) == report(source, **options)
    assert checked(case, source, **RAY) == checked(case, source)
    assert on_copies


def checked(case: Case, source: str, **engine: Any) -> Any:
    """Return what validate finds in a fixture by its own type; its error where it is refused."""
    options = RowOptions(type=case.name, **case.settings, **engine)
    try:
        return validate_sources(source, options).as_dict()
    except FmtkitError as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture
def cut(tmp_path, monkeypatch):
    """Give files of many kinds that are cut into many tasks, and blocks of a few rows."""
    monkeypatch.setattr(parts, "PART_BYTES", 40_000)
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", 6_000)
    rows, _ = sick_rows.sick(400)
    rows = [{**row, "note": SHORT} for row in rows]
    for place in (30, 200, 201, 399):
        rows[place] = {"chosen": place}
    folder = tmp_path / "files"
    folder.mkdir()
    data = "".join(json.dumps(row) + "\n" + "\n" * (n % 7 == 0) for n, row in enumerate(rows))
    (folder / "0.jsonl").write_text(data)
    (folder / "1.jsonl").write_text(data[:3000])
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(data[3000:].encode()))
    (folder / "3.jsonl").write_text(data[40_000:])
    (folder / "4.json").write_text(json.dumps(rows[:9]))
    return [str(path) for path in sorted(folder.iterdir())]


WORK = {"TaskView", "RowsOfPart", "CheckOfTask", "BareTask", "BlockScan", "RowCount"}


@pytest.mark.parametrize(
    "asked",
    [
        {"type": "ultra"},
        {"type": "llama3.ultra", "tokenizer": TOKENIZER, "show_mask": 3, "rows": (205, 777)},
        {"type": "ultra", "limit": 1},
        {"type": "ultra", "limit": 555, "rows": (30, 500, 554)},
        {"type": "ultra", "sample": 50, "tokenizer": TOKENIZER, "max_length": (64,)},
    ],
)
def test_many_tasks_are_inspected_as_on_threads_and_read_by_workers_alone(
    cut, monkeypatch, on_copies, asked
):
    expected = report(cut, **asked)
    assert json.loads(expected)["rows_read"] > 0
    assert report(cut, **asked, **RAY) == expected
    assert {type(work).__name__ for work in on_copies} <= WORK
    if "limit" not in asked:
        bad = json.loads(expected)["bad_rows"]
        text = {path: Path(path).read_text().splitlines() for path in cut if path[-1] == "l"}
        placed = [b for b in bad if b["place"]["source"] in text]
        assert placed
        for one in placed:
            line = text[one["place"]["source"]][one["place"]["line"] - 1]
            assert line.startswith(one["raw"][:20])


@pytest.mark.parametrize("flags", [{}, {"schema": True}])
@pytest.mark.parametrize("options", [{}, {"limit": 300}, {"max_errors": "5%"}])
def test_many_tasks_are_validated_as_on_threads(cut, on_copies, flags, options):
    one, other = (
        validate_sources(cut, RowOptions(type="ultra", **options, **engine), **flags)
        for engine in ({}, RAY)
    )
    assert one.as_dict() == other.as_dict()
    assert one.items
    assert (one.exit_code, one.ledger) == (other.exit_code, other.ledger)
    assert one.report.data["sources"] == other.report.data["sources"]
    assert {type(work).__name__ for work in on_copies} <= WORK


def test_the_page_of_many_tasks_is_that_of_threads(cut, tmp_path, capsys, on_copies):
    pages = []
    for engine in ("threads", "ray"):
        page = tmp_path / f"{engine}.html"
        flags = ("--type", "ultra", "--html", str(page), "--engine", engine, "--quiet")
        assert command(capsys, "inspect", *cut, *flags).code == 0
        pages.append(page.read_text())
    assert pages[0] == pages[1]
    assert {type(work).__name__ for work in on_copies} <= WORK


def test_sources_of_no_type_are_counted_by_workers_alone(tmp_path, monkeypatch, on_copies):
    monkeypatch.setattr(parts, "PART_BYTES", 4_000)
    rows = [{"colour": i, "weight": [i]} for i in range(400)]
    source = write(tmp_path / "odd.jsonl", [*rows[:300], {"late": {"a": "Ж"}}, *rows[300:]])
    found = report(source)
    assert json.loads(found)["rows_read"] == 401
    assert report(source, **RAY) == found
    assert {type(work).__name__ for work in on_copies} == {"BareTask"}


def test_a_source_that_is_read_once_shows_its_first_rows_from_copies(on_copies):
    rows = [sick_rows.clean(number) for number in range(300)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    found = [
        report(BytesIO(data), type="llama3.ultra", **LOOKED_AT[1], **engine) for engine in ({}, RAY)
    ]
    assert found[0] == found[1]
    assert json.loads(found[0])["shown"][0]["place"]["line"] == 1


def test_results_on_the_way_back_hold_no_tokenizer(tmp_path, monkeypatch):
    import pickle

    sizes = []

    class Weighing(Pickling):
        def map(self, work, tasks):
            for result in super().map(work, tasks):
                sizes.append(len(pickle.dumps(result)))
                yield result

    monkeypatch.setattr(ray_engine, "Ray", lambda *arguments: Weighing())
    source = write(tmp_path / "a.jsonl", [sick_rows.clean(number) for number in range(50)])
    report(source, type="llama3.ultra", tokenizer=TOKENIZER, **RAY)
    assert max(sizes) < 100_000 < Path(TOKENIZER, "tokenizer.json").stat().st_size * 100


def test_what_engines_need_is_the_same_for_inspect_as_for_convert(tmp_path, capsys):
    source = write(tmp_path / "a.jsonl", [sick_rows.clean(1)])
    done = command(capsys, "inspect", source, "--ray-address", "auto")
    assert done.code == 2
    assert "need --engine ray" in done.err
    flags = ("--engine", "ray", "--ray-address", "auto")
    for name in ("inspect", "validate"):
        done = command(capsys, name, source, "--type", "ultra", *flags)
        assert done.code == 2
        assert "--shared-filesystem" in done.err


@pytest.fixture(scope="module")
def cluster():
    """Give a head and a node of one CPU each, to which this process is connected."""
    if "CI" not in os.environ:  # there it is an error that it is missing
        pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("made", MADE)
def test_the_report_of_ray_is_that_of_threads(cluster, tmp_path, monkeypatch, made):
    compare(made(tmp_path, LONG), monkeypatch, LOOKED_AT[1:])


@pytest.mark.slow
def test_every_fixture_is_inspected_alike_by_ray(cluster):
    for case in cases():
        options = LOOKED_AT[1]
        source = str(case.source)
        assert report(source, **options, **RAY) == report(source, **options), case


@pytest.mark.slow
def test_a_config_is_inspected_alike_by_ray(cluster, tmp_path, capsys):
    source = write(tmp_path / "a.jsonl", [sick_rows.clean(number) for number in range(100)])
    (tmp_path / "dpo.yaml").write_text(
        f"base_model: {TOKENIZER}\nrl: dpo\nsequence_len: 64\nchat_template: llama3\n"
        f"datasets:\n  - path: {source}\n    type: ultra\n"
    )
    printed = []
    for engine in ("threads", "ray"):
        flags = ("--engine", engine, "--json", "--show-mask", "1")
        done = command(capsys, "inspect", "-c", str(tmp_path / "dpo.yaml"), *flags)
        assert done.code == 0
        printed.append(done.out)
    assert printed[0] == printed[1]
    assert json.loads(printed[0])["rows"] == 100


def test_flags_of_reading_count_beside_a_config(tmp_path, capsys):
    rows = [INTEL | {"question": f"q{number}"} for number in range(5)]
    source = write(tmp_path / "a.jsonl", rows)
    (tmp_path / "dpo.yaml").write_text(
        f"base_model: {TOKENIZER}\nrl: dpo\nchat_template: chatml\n"
        f"datasets:\n  - path: {source}\n    type: intel\n"
    )

    def inspected(*flags):
        done = command(capsys, "inspect", "-c", str(tmp_path / "dpo.yaml"), "--json", *flags)
        assert done.code == 0, done.err
        return json.loads(done.out)

    plain = inspected()
    assert plain["table"] == "Preference"
    assert inspected("--workers", "3") == plain
    unpaired = inspected("--method", "kto")
    assert (unpaired["table"], unpaired["rows"]) == ("Unpaired", 10)


FUNCTION = """
def asked(cfg, **keywords):
    def made(row):
        if row["question"] == "q17":
            return None
        return {"prompt": row["question"] + "?", "chosen": row["chosen"], "rejected": row["rejected"]}
    return made, {"remove_columns": ["__all__"]}
"""


@pytest.fixture
def made_rows(tmp_path):
    """Give sources whose rows are made: by a function, and joined ones; and how they are read."""
    (tmp_path / "makes_rows.py").write_text(FUNCTION)
    for name in "abc":
        rows = [INTEL | {"question": f"q{i}"} for i in range(40)]
        write(tmp_path / f"{name}.jsonl", [*rows, {"question": 1}, INTEL | {"chosen": name}])
    trees = [json.loads(line) for line in (FIXTURES / JOINED).read_text().splitlines()]
    write(tmp_path / "trees.jsonl", trees * 3)
    plugin = str(tmp_path / "makes_rows.py")
    return {
        "function": ([str(tmp_path / f"{n}.jsonl") for n in "abc"], "makes_rows.asked", [plugin]),
        "joined": ([str(tmp_path / "trees.jsonl"), str(FIXTURES / JOINED)], "oasst.rows", []),
    }


@pytest.mark.parametrize("which", ["function", "joined"])
def test_rows_that_are_made_of_others_are_made_by_workers(
    made_rows, tmp_path, monkeypatch, on_copies, which
):
    monkeypatch.setattr(parts, "PART_BYTES", 2_000)
    sources, kind, plugins = made_rows[which]
    made = []
    for engine in ("threads", "ray"):
        asked: dict[str, Any] = {"plugins": plugins, "engine": engine}
        out = tmp_path / engine
        convert(sources, kind, out, **asked)
        files = {
            str(path.relative_to(out)): path.read_bytes()
            for path in sorted(out.rglob("*"))
            if path.is_file() and path.name != "report.json"
        }
        found = validate_sources(sources, RowOptions(type=kind, **asked)).as_dict()
        options = {"type": kind} if which == "joined" else {}
        made.append((files, found, report(sources, **options, engine=engine)))
    assert made[0] == made[1]
    assert len([name for name in made[0][0] if name.endswith(".parquet")]) > 1
    names = {type(work).__name__ for work in on_copies}
    assert {"TaskWork", "CheckOfTask"} <= names <= WORK | {"TaskWork", "RangeDigests"}
