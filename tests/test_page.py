"""The page of a survey, in a real browser: hostile content stays text, keys and filters work."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
import sick_rows
from test_inspect_anchors import chats
from test_survey import GOLDENS, tokenizer, write

import fmtkit
from fmtkit.counting.lengths import Tally
from fmtkit.inspection.inspection import run
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.reports import html

__all__ = ["tokenizer"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs ../shared/data/goldens"),
    pytest.mark.skipif(
        chromium.program() is None, reason="needs Chromium: apt-get install chromium"
    ),
]

HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<!-- <script> ]]> {{DATA}} ${window.pwned = 3} \u2028\u2029",
    "\u202eevil\u202c \x1b[31mred\x07 \x00nul [bold]markup[/bold]",
    "javascript:window.pwned=4 \U0001f600 e\u0301 你好 שלום",
)  # fmt: skip


def hostile_rows() -> list[dict[str, Any]]:
    rows, _ = sick_rows.sick()
    for number, text in enumerate(HOSTILE):
        rows[number] = sick_rows.last(rows[number], "chosen", f"{number} {text}")
        rows[number]["chosen"][1] = sick_rows.say("user", f"{text}?")
        rows[number]["rejected"][1] = sick_rows.say("user", f"{text}?")
    return rows


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, tokenizer: str) -> Path:
    folder = tmp_path_factory.mktemp("page")
    source = write(folder / "<b>pairs & co.jsonl", hostile_rows())
    options = InspectOptions(type="ultra", tokenizer=tokenizer)
    html.write(run(str(source), options), folder / "page.html")
    return folder / "page.html"


@pytest.fixture
def browser(tmp_path: Path, page: Path) -> Iterator[chromium.Browser]:
    found = chromium.Browser(tmp_path / "profile")
    found.open(page)
    yield found
    found.close()


def chosen_text(browser: chromium.Browser) -> str:
    browser.settle()
    return str(browser.run("document.getElementById('row').innerText"))


def status(browser: chromium.Browser) -> str:
    browser.settle()
    return str(browser.run("document.getElementById('status').textContent"))


def test_nothing_is_loaded_and_nothing_of_the_data_is_run(browser):
    for number in range(len(HOSTILE)):
        browser.run(f"document.getElementById('list').querySelectorAll('.item')[{number}].click()")
        assert f"{number} " in chosen_text(browser)
    assert browser.run("window.pwned") is None
    assert browser.run("document.querySelectorAll('img, iframe, object, form').length") == 0
    assert (
        browser.run("document.scripts.length")
        == browser.run("document.querySelectorAll('script[type]').length") + 1
    )
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert {url.split(":")[0] for url in asked} <= {"file", "about", "blob"}
    errors = [
        e["params"]
        for e in browser.events
        if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]
    assert errors == []


def test_the_policy_refuses_other_scripts(browser):
    for attempt in (
        "const s = document.createElement('script'); s.append('window.pwned = 9');"
        " document.body.append(s)",
        "document.body.insertAdjacentHTML('beforeend', '<b onclick=x>x</b>')",
        "document.getElementById('row').innerHTML = '<b>x</b>'",
    ):
        refused = f"(() => {{ try {{ {attempt}; return false }} catch {{ return true }} }})()"
        assert browser.run(refused) or "script" in attempt
    assert browser.run("window.pwned") is None


def test_control_characters_are_shown_by_their_numbers(browser):
    browser.run("document.getElementById('list').querySelectorAll('.item')[3].click()")
    text = chosen_text(browser)
    for name in ("U+202E", "U+001B", "U+0007", "U+0000"):
        assert name in text
    assert "[bold]markup[/bold]" in text


def test_tokens_and_trained_spans_spell_the_text(browser):
    for number in (0, 4, 5):
        browser.run(f"document.getElementById('list').querySelectorAll('.item')[{number}].click()")
        chosen_text(browser)
        sides = browser.run(
            "[...document.querySelectorAll('.sides > section')].map(s => ["
            "s.querySelector('h3').textContent, s.querySelector('.text').textContent,"
            "[...s.querySelectorAll('.text > .t')].map(t => t.textContent).join(''),"
            "s.querySelectorAll('.text > span').length])"
        )
        assert [side[0].split()[0] for side in sides] == ["chosen", "rejected"]
        for _, text, trained, tokens in sides:
            assert text.startswith("<|begin_of_text|>")
            assert text.endswith(trained)
            assert trained.endswith("<|eot_id|>")
            assert tokens > 20


def test_a_finding_leads_to_its_row(browser):
    browser.run(
        "[...document.querySelectorAll('.finding')].find(f => f.querySelector('code').textContent === 'unclosed_think')"
        ".querySelector('button').click()"
    )
    text = chosen_text(browser)
    assert "line 60" in text
    assert "unclosed_think" in text
    assert "<think>" in text
    assert status(browser).startswith("1 of")


def test_search_and_filters_narrow_the_rows(browser):
    browser.run("const s = document.getElementById('search'); s.value = 'WINDOW.PWNED = 2';"
                " s.dispatchEvent(new Event('input'))")  # fmt: skip
    assert status(browser) == "1 of 400 shown rows"
    browser.run("document.getElementById('clear').click()")
    assert status(browser) == "400 of 400 shown rows"
    browser.run("const o = document.getElementById('order'); o.value = 'long';"
                " o.dispatchEvent(new Event('input'))")  # fmt: skip
    status(browser)
    sizes = browser.run(
        "[...document.querySelectorAll('#list .meta')].map(m => Math.max(...m.textContent.match("
        "/· (.*) tokens/)[1].split(' / ').map(Number)))"
    )
    assert sizes == sorted(sizes, reverse=True)


def test_the_slider_shows_what_is_cut(browser, page):
    browser.run("const n = document.getElementById('limit-number'); n.value = 60;"
                " n.dispatchEvent(new Event('input'))")  # fmt: skip
    browser.run("document.getElementById('only-cut').click()")
    text = status(browser)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text())[1])
    longer = sum(max((size[0] for size in row[6]), default=0) > 60 for row in data["rows"])
    assert text == f"{longer} of 400 shown rows"
    assert browser.run("document.querySelectorAll('.text .over').length") > 0
    assert browser.run("document.querySelectorAll('svg .bin.over').length") > 0
    caption = browser.run("document.querySelector('figure p').textContent")
    sizes = [row[6][0][0] for row in data["rows"] if row[6]]
    assert caption.startswith(f"prompt+chosen: {sum(size > 60 for size in sizes)} rows")


def test_the_length_box_says_the_longest_length_until_it_is_changed(browser, page):
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text())[1])
    longest = max(size[0] for row in data["rows"] for size in row[6])
    value = "document.getElementById('limit-number').value"
    assert browser.run(value) == str(longest)
    assert browser.run("document.getElementById('limit-text').textContent") == "nothing is cut"


def test_sides_are_drawn_over_each_other_on_one_axis(browser):
    figures = browser.run(
        "[...document.querySelectorAll('figure')].map(f => [f.querySelectorAll('.key').length,"
        " f.querySelectorAll('polyline').length, f.querySelector('svg').getAttribute('aria-label')])"
    )
    assert [figure[:2] for figure in figures] == [[2, 1], [1, 0], [2, 1]]
    assert "prompt+chosen: " in figures[0][2]
    assert "prompt+rejected: " in figures[0][2]


def test_the_rows_stand_before_the_lengths_and_severities_have_words_and_marks(browser):
    order = browser.run("[...document.querySelectorAll('main > section')].map(s => s.id)")
    assert order.index("rows") < order.index("lengths") < order.index("columns")
    badges = browser.run(
        "[...new Set([...document.querySelectorAll('.finding .badge')].map(b => b.textContent))]"
    )
    assert badges == ["✖ bad", "✖ error", "▲ warning"]


@pytest.mark.parametrize("name", ["page", "bare"])
def test_nothing_is_clipped_on_a_phone(browser, tmp_path, page, name):
    if name == "bare":
        page = bare_page(tmp_path)
    browser.window(390, 844)
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    cut = browser.run(
        "[...document.querySelectorAll('main table, main td, .finding, figure, svg, .verdict, .cards dd')]"
        ".filter(e => e.getClientRects().length && (e.getBoundingClientRect().right > 390.5"
        " || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline'))"
        ".map(e => e.outerHTML.slice(0, 200))"
    )
    assert cut == []


@pytest.mark.skipif(not chromium.AXE.is_file(), reason="needs axe-core: make axe (npm)")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(browser, tmp_path, page, width, dark):
    browser.send("Page.setBypassCSP", enabled=True)  # axe is no script of the page
    for shown in (page, bare_page(tmp_path)):
        browser.window(width, dark=dark)
        browser.open(shown)
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.axe() == []
    browser.run("document.getElementById('theme').replaceChildren();"
                " document.getElementById('theme').removeAttribute('aria-label')")  # fmt: skip
    assert [found.split(":")[0] for found in browser.axe()] == ["button-name"]


def test_one_row_is_not_called_rows(browser, tmp_path):
    source = write(tmp_path / "one.jsonl", [{"question": "q", "chosen": "a", "rejected": "b"}])
    html.write(run(str(source), InspectOptions(type="intel")), tmp_path / "one.html")
    browser.open(tmp_path / "one.html")
    text = browser.run("document.body.innerText")
    assert "of 1 row." in text
    assert "1 of 1 shown row" in text
    assert not re.search(r"\b1 (rows|characters|tokens|sequences|findings)\b", text)


def bare_page(folder: Path) -> Path:
    """Write the page of a source that no type fits, with a long name and a long column."""
    rows = [{"a_column_" + "of_a_long_name_" * 6: "text", "n": i} for i in range(30)]
    source = write(folder / f"{'unbroken' * 12}.jsonl", rows)
    html.write(run(str(source), InspectOptions()), folder / "bare.html")
    return folder / "bare.html"


def test_rows_are_reached_by_keys(browser):
    browser.run("document.getElementById('list').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "j"):
        browser.press(key)
    assert "line 3" in chosen_text(browser)
    browser.press("End")
    assert "line 400" in chosen_text(browser)
    selected = browser.run(
        "document.getElementById(document.getElementById('list').getAttribute("
        "'aria-activedescendant')).getAttribute('aria-selected')"
    )
    assert selected == "true"
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"


def test_every_control_has_a_name(browser):
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    roles = {
        "button",
        "textbox",
        "searchbox",
        "slider",
        "combobox",
        "checkbox",
        "spinbutton",
        "listbox",
        "link",
    }
    unnamed = [
        node
        for node in tree
        if node.get("role", {}).get("value") in roles and not node.get("name", {}).get("value")
    ]
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_themes(browser, scheme, page):
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.send("Emulation.setEmulatedMedia", features=feature)
    browser.open(page)
    assert browser.run("document.documentElement.dataset.theme") == scheme
    assert browser.run(CONTRAST) >= 4.5


@pytest.fixture
def windows(tmp_path: Path, tokenizer: str) -> Iterator[chromium.Browser]:
    """A page of tokenised chats, with the windows of strided EBFT."""
    source = write(tmp_path / "chats.jsonl", chats(4))
    options = InspectOptions(
        type="ebft_strided_chat.transform",
        tokenizer=tokenizer,
        max_length=(256,),
        ebft={"stride": 3, "generate_max_len": 4},
    )
    html.write(run(str(source), options), tmp_path / "page.html")
    found = chromium.Browser(tmp_path / "profile")
    found.open(tmp_path / "page.html")
    yield found
    found.close()


def test_windows_begin_at_their_anchors_and_cover_their_tokens(windows, tmp_path):
    survey = json.loads(
        re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text())[1]
    )
    (side,) = (
        fmtkit.inspect(
            tmp_path / "chats.jsonl",
            type="ebft_strided_chat.transform",
            tokenizer=survey["survey"]["tokenizer"],
            max_length=256,
            ebft={"stride": 3, "generate_max_len": 4},
            show_mask=1,
        )
        .shown[0]
        .sides
    )
    places = (
        "[...document.querySelectorAll('.sides .text > .{}')].map(t => Number(t.dataset.token))"
    )
    windows.settle()
    assert windows.run(places.format("a")) == [start for start, _ in side.windows]
    covered = sorted({place for start, end in side.windows for place in range(start, end)})
    assert windows.run(places.format("w")) == covered
    assert windows.run("document.querySelector('.sides .a').title") == (
        f"window 1: tokens {side.windows[0][0]} to {side.windows[0][1] - 1}"
    )
    assert f"{len(side.windows)} windows of 4 tokens" in chosen_text(windows)
    assert "window, from its anchor" in chosen_text(windows)
    summary = windows.run("document.getElementById('masks-body').textContent")
    assert "stride 3, context_length 8, generate_max_len 4, min_completion_prefix 0" in summary
    # The mark of an anchor is drawn, not written: the tokens still spell the text.
    text = windows.run("document.querySelector('.sides .text').textContent")
    assert text == side.text
    assert windows.run(CONTRAST) >= 4.5


CONTRAST = """(() => {
  const linear = (n) => n <= 0.04045 * 255 ? n / 255 / 12.92 : ((n / 255 + 0.055) / 1.055) ** 2.4;
  const light = (c) => { const [r, g, b] = c.match(/\\d+/g).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c } return 'rgb(255, 255, 255)' };
  let least = 21;
  const texts = 'p, td, th, dt, dd, h1, h2, h3, code, button, a, .text span, #list div';
  for (const e of document.querySelectorAll(texts)) {
    if (!e.textContent.trim() || e.closest('.skip') || e.closest('.over')) continue;
    const a = light(getComputedStyle(e).color), b = light(ground(e));
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least })()"""


def test_the_same_survey_gives_the_same_page(page, tokenizer):
    source = next(page.parent.glob("*.jsonl"))
    again = run(str(source), InspectOptions(type="ultra", tokenizer=tokenizer, workers=1))
    assert html.render(again) == page.read_text()


def test_a_curve_says_what_lies_beyond_each_length():
    tally = Tally({3: 2, 5: 1, 9: 4})
    assert html.curve(tally) == [[3, 5, 2 + 24], [5, 4, 16], [9, 0, 0]]
