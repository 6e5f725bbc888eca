"""The date that templates write: one for a run, whoever renders, wherever, and however late."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmtkit
from fmtkit.core import moments
from fmtkit.core.errors import OptionError, ResumeError
from fmtkit.core.tables import WIDE_MESSAGE
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.rendering.tracing import Interpreter, Request
from fmtkit.running.conversions import convert_to
from fmtkit.training.data.convert_config import convert_config

DAY = datetime(2026, 7, 26, 23, 59)
DATED = "{% for m in messages %}{{ strftime_now('%d %b %Y') }} {{ m.content }}\n{% endfor %}"
KWARGS = {"bos_token": "<s>", "eos_token": "</s>"}


def writing_the_date() -> list[str]:
    names = template_sources.names()
    found = {name: template_sources.find_model_template(name) for name in names}
    return [name for name, template in found.items() if template.writes_date]


@pytest.fixture
def days(monkeypatch):
    """Let a day pass each time that the clock is asked."""
    numbers = count(1)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return DAY + timedelta(days=next(numbers))

    monkeypatch.setattr(moments, "datetime", Clock)


@pytest.fixture
def source(tmp_path):
    """Return a folder of files of conversations."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for n in range(6):
        rows = [
            [{"role": "user", "content": f"{n} {k}"}, {"role": "assistant", "content": "Yes."}]
            for k in range(40)
        ]
        (folder / f"{n}.jsonl").write_text(
            "".join(json.dumps({"messages": r}) + "\n" for r in rows)
        )
    return folder


@pytest.fixture
def memory():
    """Leave nothing behind in the store of memory."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "dated.jinja"
    path.write_text(DATED)
    return str(path)


def contents(out: str) -> dict[str, bytes]:
    """Return the files of an output but its report, which names seconds."""
    system, place = fsspec.url_to_fs(out)
    files = {name: system.cat_file(name) for name in system.find(place)}
    return {n.rpartition("out")[2]: d for n, d in files.items() if not n.endswith("report.json")}


def by_transformers(monkeypatch, source: str, conversation: list[dict[str, str]]) -> str:
    peer = pytest.importorskip("transformers.utils.chat_template_utils")

    class Clock:
        @staticmethod
        def now() -> datetime:
            return DAY

    with monkeypatch.context() as patch:
        patch.setattr(peer, "datetime", Clock)
        text: str = peer.render_jinja_template([conversation], chat_template=source, **KWARGS)[0][0]
    return text


words = st.text(st.sampled_from("a%YdB \n<"), min_size=1, max_size=6).filter(str.strip)
turns = st.builds(
    lambda system, pairs: (
        [{"role": "system", "content": s} for s in system]
        + [
            {"role": r, "content": c}
            for pair in pairs
            for r, c in zip(("user", "assistant"), pair, strict=True)
        ]
    ),
    st.lists(words, max_size=1),
    st.lists(st.tuples(words, words), min_size=1, max_size=2),
)


@pytest.mark.parametrize("name", writing_the_date())
def test_columns_rows_and_transformers_write_the_same_date(name, monkeypatch):
    template = template_sources.find_model_template(name).with_tokens(KWARGS).at(DAY)

    @settings(max_examples=20, deadline=None)
    @given(st.lists(turns, min_size=1, max_size=3))
    def compare(conversations):
        done = chat.render(template, pa.array(conversations, pa.list_(WIDE_MESSAGE)))
        assert done.difference is None
        assert (done.traced_rows, done.plain_rows) == (len(conversations), 0)
        alone = Interpreter(template.source, template.special_tokens, now=DAY)
        assert done.text.to_pylist() == alone.render(
            [Request(d, None, False) for d in conversations]
        )
        assert done.text.to_pylist() == [
            by_transformers(monkeypatch, template.source, d) for d in conversations
        ]

    compare()


def test_templates_that_write_the_date_are_among_those_that_trl_ships():
    pytest.importorskip("trl")
    assert {"trl:gptoss", "trl:llama3_2"} <= {*writing_the_date()}


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    ("layout", "traced"),
    [
        ("'%Y-%m'", 1),
        ("format='%Y-%m'", 1),
        ("messages[0].content", 0),
        ("'%d' ~ messages[0].content", 0),
    ],
)
def test_a_date_is_constant_unless_a_content_says_its_format(trusted, layout, traced):
    template = ChatTemplate(
        "t", "{{ messages[0].content ~ strftime_now(" + layout + ") }}", trusted=trusted, now=DAY
    )
    done = chat.render(
        template, pa.array([[{"role": "user", "content": "%Y"}]], pa.list_(WIDE_MESSAGE))
    )
    assert done.text[0].as_py().startswith("%Y2" if "'%d" not in layout else "%Y262026")
    assert done.traced_rows == traced


def test_a_row_alone_and_its_spans_have_the_date_of_the_columns():
    marked = (
        "{% generation %}{{ strftime_now('%Y-%m-%d') }}{% endgeneration %}{{ messages[0].content }}"
    )
    for trusted in (True, False):
        alone = RowTemplate(ChatTemplate("t", marked, trusted=trusted, now=DAY))
        rows = [{"role": "user", "content": "x"}]
        assert alone.render(rows) == "2026-07-26x"
        assert alone.render_spans(rows) == ("2026-07-26x", [(0, 10)])


@pytest.mark.parametrize("workers", [1, 4])
def test_a_run_asks_the_clock_once(days, source, template, tmp_path, workers):
    out = tmp_path / "out"
    fmtkit.convert(source, "chat_template", out, chat_template=template, workers=workers)
    date = datetime.fromisoformat(
        json.loads((out / "manifest.json").read_text())["fingerprint"]["date"]
    )
    rows = fmtkit.table(out, "passthrough")["text"].to_pylist()
    assert {row.split(" ", 3)[:3] == date.strftime("%d %b %Y").split() for row in rows} == {True}
    assert len(rows) == 240


@pytest.mark.parametrize("out", ["out", "memory://moments/out"])
@pytest.mark.parametrize("val_size", [None, 30])
def test_a_run_that_is_resumed_another_day_has_the_date_of_its_beginning(
    days, memory, source, template, tmp_path, out, val_size
):
    places = [
        str(tmp_path / name / out) if out == "out" else out.replace("moments", tmp_path.name + name)
        for name in ("a", "b")
    ]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    options = ConvertOptions(
        type="chat_template", chat_template=template, val_size=val_size, workers=1
    )
    convert_to(str(source), places[0], replace(options, begun=DAY))
    seen = []

    def interrupt(done, size, ledger):
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_to(str(source), places[1], replace(options, begun=DAY), watch=interrupt)
    later = ConvertOptions(
        type="chat_template", chat_template=template, val_size=val_size, resume=True
    )
    assert later.now > DAY
    convert_to(str(source), places[1], later)
    assert contents(places[0]) == contents(places[1])
    # And a finished one has nothing left to do.
    convert_to(str(source), places[1], replace(later, begun=DAY + timedelta(days=9)))
    with pytest.raises(ResumeError, match="date changed"):
        convert_to(str(source), places[1], replace(later, date="2020-01-01"))


def test_a_run_without_a_date_in_its_rows_records_none(source, tmp_path):
    fmtkit.convert(source, "chat_template", tmp_path / "out", chat_template="chatml")
    assert "date" not in json.loads((tmp_path / "out" / "manifest.json").read_text())["fingerprint"]


def test_a_replay_writes_the_date_of_its_run(source, template, tmp_path, days):
    path = tmp_path / "rows.jsonl"
    path.write_text((source / "0.jsonl").read_text() + '{"messages": []}\n')
    out = tmp_path / "out.jsonl"
    fmtkit.convert(path, "chat_template", out, chat_template=template)
    before = out.read_text().splitlines()
    (tmp_path / "mend.py").write_text(
        "def mend(row):\n    return {'messages': [{'role': 'user', 'content': 'new'}, {'role': 'assistant', 'content': 'b'}]}\n"
    )
    fmtkit.replay(tmp_path / "out.quarantine.jsonl", fix=str(tmp_path / "mend.mend"))
    after = out.read_text().splitlines()
    assert after[:-1] == before
    assert (
        json.loads(after[-1])["text"].split(" ")[:3] == json.loads(before[0])["text"].split(" ")[:3]
    )


def test_a_config_says_the_date_and_a_flag_another(source, template, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(
        f"rl: sft\nchat_template: {template}\ndate: 2026-07-26\ndatasets:\n  - {{path: {source}, type: chat_template}}\n"
    )
    for date, expected in ((None, "26 Jul 2026 "), ("2020-02-29", "29 Feb 2020 ")):
        out = tmp_path / expected[:2]
        convert_config(str(config), [], out, ConvertOptions(date=date))
        rows = fmtkit.table(out, "passthrough")["text"].to_pylist()
        assert all(row.startswith(expected) for row in rows)


def test_source_date_epoch_is_the_time_in_utc(monkeypatch):
    monkeypatch.setenv(moments.EPOCH, "1700000000")
    assert moments.now() == datetime.fromtimestamp(1_700_000_000, UTC).replace(tzinfo=None)
    assert ConvertOptions().now == moments.now()
    assert ConvertOptions(date="2026-07-26").now == datetime(2026, 7, 26)
    monkeypatch.setenv(moments.EPOCH, "soon")
    with pytest.raises(OptionError, match="SOURCE_DATE_EPOCH=soon: give whole seconds"):
        moments.now()


@pytest.mark.parametrize("value", ["26.07.2026", "", 7, True])
def test_what_is_no_date_is_refused(value):
    with pytest.raises(OptionError, match="--date"):
        ConvertOptions(date=value)


def test_dates_are_texts_of_iso_8601_or_dates():
    given = ["2026-07-26", "2026-07-26T00:00", datetime(2026, 7, 26), datetime(2026, 7, 26).date()]
    assert {ConvertOptions(date=one).date for one in given} == {"2026-07-26T00:00:00"}
