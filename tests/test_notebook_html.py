"""What notebooks show: escaped, small, with words for severities and no colours of its own."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fmtkit
from fmtkit.core.notebook_html import LONGEST, MOST, card, table, text

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31m\u202e &amp;"
ROWS = [
    {"question": HOSTILE, "chosen": "a", "rejected": "b"},
    {"question": "q", "chosen": "a", "rejected": HOSTILE},
    {"question": "q", "chosen": None, "rejected": "r"},
]


class Tags(HTMLParser):
    """Collect the tags, and that each is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def results():
    report = fmtkit.convert([{**row, HOSTILE: 1} for row in ROWS], "intel")
    yield "report", report
    yield "findings", fmtkit.validate(ROWS, "intel")
    yield "survey", fmtkit.inspect([{**row, HOSTILE: 1} for row in ROWS], "intel")
    yield "bare survey", fmtkit.inspect([{HOSTILE: HOSTILE}])


@pytest.mark.parametrize(("name", "result"), results())
def test_a_result_is_html_of_which_the_data_is_text(name, result):
    page = result._repr_html_()
    tags = Tags(page)
    assert tags.open == []
    assert tags.names <= {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert tags.attributes <= {"style", "scope"}
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert len(page) < 20_000
    # Neither theme is assumed: a colour of ours would be lost in one of them.
    assert "color" not in page.replace("\\", "")


def test_a_result_says_what_it_comes_to():
    found = dict(results())
    assert "✖ error: 2 of 3 rows convert (1 bad)" in found["survey"]._repr_html_()
    assert "✖ error: 2 of 3 rows sound" in found["findings"]._repr_html_()
    report = found["report"]._repr_html_()
    assert re.search(r"quarantined</th><td[^>]*>1</td>", report)
    assert "null_field" in report


def test_a_plan_says_what_is_missing_and_every_argument(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n')
    config = {
        "rl": "dpo",
        "datasets": [{"path": str(tmp_path / "a.jsonl"), "type": "chatml.intel"}],
        "output_dir": str(tmp_path / "<b>out"),
        "rl_beta": 0.25,
    }
    outcome = fmtkit.train(config, dry_run=True, partial=True)
    page = outcome._repr_html_()
    assert page == outcome.plan._repr_html_()
    assert Tags(page).open == []
    assert "trainer: beta" in page
    assert "0.25" in page
    assert "✖ error: dpo: missing base_model" in page
    assert "<b>" not in page


def test_long_tables_and_long_texts_are_cut_and_counted():
    assert table(["a"], []) == ""
    page = table(["a"], ([i] for i in range(MOST + 5)))
    assert page.count("<tr>") == MOST + 1
    assert "and 5 more" in page
    assert len(text("x" * 5000)) == LONGEST
    assert card("<b>", severity="note").startswith("<div><p><strong>● note: &lt;b&gt;")


@pytest.mark.slow
def test_a_notebook_shows_them(tmp_path):
    nbformat = pytest.importorskip(
        "nbformat", reason="needs nbformat: pip install nbclient ipykernel"
    )
    nbclient = pytest.importorskip(
        "nbclient", reason="needs nbclient: pip install nbclient ipykernel"
    )
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install nbclient ipykernel")
    cells = [
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "import fmtkit\nrows = [{'question': 'q', 'chosen': 'a', 'rejected': 'b'}]",
        "fmtkit.convert(rows, 'intel')",
        "fmtkit.inspect(rows)",
        "fmtkit.validate(rows, 'intel')",
        "print(fmtkit.convert(rows, 'intel'))",
        "fmtkit.render([{'role': 'user', 'content': 'Hi'}], 'chatml')",
        "fmtkit.convert([], 'intel').rows_read",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "language": "python",
        "display_name": sys.version,
    }
    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": tmp_path}}
    ).execute()
    printed, rendered, read = (cell.outputs[-1] for cell in notebook.cells[-3:])
    assert "rows written" in printed["text"]
    assert "{" not in printed["text"]
    assert "<|im_start|>user" in rendered["data"]["text/plain"]
    assert read["data"]["text/plain"] == "0"
    shown = [cell.outputs[-1]["data"]["text/html"] for cell in notebook.cells[1:4]]
    assert "rows written" in shown[0]
    assert "✔ fine: the one row converts" in shown[1]
    assert "1 of 1 row sound" in shown[2]
