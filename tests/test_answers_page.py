"""The page of a run's answers, in a real browser: hostile text stays text, search and filters work."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest

pytest.importorskip("trl")

from fmtkit.training.online import samples_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.program() is None, reason="needs Chromium: apt-get install chromium"
    ),
]

HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<!-- <script> ]]> {{DATA}} {{SCRIPT}} ${window.pwned = 3} \u2028\u2029",
    "\u202eevil\u202c \x1b[31mred\x07 \x00nul \ud800 alone",
)
GROUP = 4


def answer(step: int, number: int) -> dict[str, Any]:
    """Return one of GROUP answers of a step; the last one failed, every second one was cut."""
    failed = number == GROUP - 1
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"Question {step}? {HOSTILE[step % len(HOSTILE)]}"},
    ]
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": step}}}
    said = [
        {"role": "assistant", "content": f"Thinking about {step}-{number}.", "tool_calls": [call]},
        {"role": "tool", "content": "42", "name": "add"},
        {"role": "assistant", "content": f"needle-{step}-{number} {HOSTILE[number]}"},
    ]
    return {
        "step": step,
        "prompt": json.dumps(prompt),
        "completion": json.dumps(said),
        "reward": None if failed else number / 2,
        "reward/right": None if failed else float(number),
        "reward/<b>form": None if failed else -0.5 * number,
        "advantage": 0.0 if failed else number - 1.0,
        "tokens": 10 * step + number,
        "cut": bool(number % 2),
        "masked": "the environment raised <b>TimeoutError</b>" if failed else None,
        "extra/note": f"note <i>{number}</i>",
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "<b>run & co"
    run.mkdir()
    rows = [answer(step, number) for step in range(1, 61) for number in range(GROUP)]
    samples_page.write(run, rows, "of the 8 newest logs, and of 52 before them")
    return run / samples_page.PAGE


@pytest.fixture
def browser(tmp_path: Path, page: Path) -> Iterator[chromium.Browser]:
    found = chromium.Browser(tmp_path / "profile")
    found.open(page)
    yield found
    found.close()


def shown(browser: chromium.Browser) -> str:
    browser.settle()
    return str(browser.run("document.getElementById('row').innerText"))


def status(browser: chromium.Browser) -> str:
    browser.settle()
    return str(browser.run("document.getElementById('status').textContent"))


def fill(browser: chromium.Browser, **values: object) -> str:
    """Set controls by their ids (`at_least` is at-least) and return what the page says then."""
    for name, value in values.items():
        control = f"document.getElementById('{name.replace('_', '-')}')"
        browser.run(
            f"{control}.value = {json.dumps(str(value))}; {control}.dispatchEvent(new Event('input'))"
        )
    return status(browser)


def metas(browser: chromium.Browser) -> list[str]:
    return browser.run("[...document.querySelectorAll('#list .meta')].map(m => m.textContent)")


def test_an_answer_is_shown_with_all_that_is_known_of_it(browser):
    text = shown(browser)
    assert "Step 60, answer 1 of 4 to this prompt" in text
    assert "Be brief." in text
    assert "needle-60-0" in text
    assert '[{"type": "function"' in text
    assert "note <i>0</i>" in text
    roles = browser.run("[...document.querySelectorAll('#row h4')].map(r => r.textContent)")
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    rewards = browser.run("[...document.querySelectorAll('#row td')].map(c => c.textContent)")
    assert rewards == ["right", "0", "<b>form", "0"]
    browser.run("document.querySelectorAll('#row .places button')[3].click()")
    text = shown(browser)
    assert "answer 4 of 4" in text
    assert "masked: the environment raised <b>TimeoutError</b>, cut off" in text
    assert "none" in text


def test_nothing_is_loaded_and_nothing_of_the_answers_is_run(browser):
    for number in range(12):
        browser.run(f"document.querySelectorAll('#list .item')[{number}].click()")
        assert "needle-" in shown(browser)
    assert browser.run("window.pwned") is None
    assert browser.run("document.querySelectorAll('img, iframe, b, i, form').length") == 0
    asked = {
        event["params"]["request"]["url"].split(":")[0]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {"file", "about", "blob"}
    errors = [
        event["params"]
        for event in browser.events
        if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]
    assert errors == []
    for name in ("U+202E", "U+001B", "U+0000"):
        assert any(name in shown_of(browser, number) for number in range(12))


def shown_of(browser: chromium.Browser, number: int) -> str:
    browser.run(f"document.querySelectorAll('#list .item')[{number}].click()")
    return shown(browser)


def test_search_reads_prompts_and_answers(browser):
    assert status(browser) == "240 of 240 answers"
    assert fill(browser, search="NEEDLE-17-2") == "1 of 240 answers"
    assert fill(browser, search="question 17?") == "4 of 240 answers"
    assert fill(browser, search="no such words") == "0 of 240 answers"
    assert "No row is left" in shown(browser)
    browser.run("document.getElementById('clear').click()")
    assert status(browser) == "240 of 240 answers"


def test_filters_narrow_by_value_step_and_state(browser):
    assert fill(browser, state="masked") == "60 of 240 answers"
    assert all(meta.endswith("masked, cut off") for meta in metas(browser))
    assert fill(browser, state="cut") == "120 of 240 answers"
    assert fill(browser, state="none") == "120 of 240 answers"
    assert fill(browser, state="signal") == "120 of 240 answers"
    fill(browser, state="", **{"from": 10, "to": 19})
    assert status(browser) == "40 of 240 answers"
    assert fill(browser, at_least=0.5) == "20 of 240 answers"
    assert fill(browser, at_most=0.9) == "10 of 240 answers"
    names = browser.run("[...document.getElementById('value').options].map(o => o.textContent)")
    assert names == [
        "reward",
        "reward right",
        "reward <b>form",
        "advantage",
        "size of the advantage",
        "length in tokens",
    ]
    assert fill(browser, at_least=101, at_most=110, value=5) == "4 of 240 answers"


def test_answers_are_put_in_order_and_those_without_the_value_come_last(browser):
    fill(browser, **{"from": 3, "to": 3, "order": "highest"})
    rewards = [meta.split("reward ")[1].split(" ")[0] for meta in metas(browser)]
    assert rewards == ["1", "0.5", "0", "none"]
    fill(browser, order="lowest")
    rewards = [meta.split("reward ")[1].split(" ")[0] for meta in metas(browser)]
    assert rewards == ["0", "0.5", "1", "none"]
    fill(browser, **{"from": "", "to": "", "order": "oldest"})
    assert metas(browser)[0].startswith("step 1 ")
    fill(browser, order="newest")
    assert metas(browser)[0].startswith("step 60 ")


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_clipped_on_a_phone(browser, page, dark):
    browser.window(390, 844, dark=dark)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert "needle-60-0" in shown(browser)


@pytest.mark.skipif(not chromium.AXE.is_file(), reason="needs axe-core: make axe (npm)")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(browser, page, width, dark):
    browser.send("Page.setBypassCSP", enabled=True)  # axe is no script of the page
    browser.window(width, dark=dark)
    browser.open(page)
    browser.run("document.querySelectorAll('#row .places button')[3].click()")
    browser.settle()
    assert browser.axe() == []


def test_answers_are_reached_by_keys(browser):
    browser.run("document.getElementById('list').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "j"):
        browser.press(key)
    assert "answer 3 of 4" in shown(browser)
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"


def test_a_long_answer_is_cut_and_a_run_without_token_counts_has_characters(browser, tmp_path):
    text = "x" * (samples_page.TEXT_SHOWN + 1)
    rows = [{"step": 1, "prompt": "[plain", "completion": text, "reward": 1.0, "reward/a": 1.0}]
    samples_page.write(tmp_path, rows, "of one log")
    browser.open(tmp_path / samples_page.PAGE)
    assert "1 more character is in completions.parquet alone" in shown(browser)
    assert "[plain" in shown(browser)
    assert f"{len(text):,} characters" in shown(browser)
    assert browser.run("document.querySelectorAll('#row .places, #row table').length") == 0
    assert status(browser) == "1 of 1 answer"


def test_the_same_answers_give_the_same_page(page):
    rows = [answer(step, number) for step in range(1, 61) for number in range(GROUP)]
    again = samples_page.render("<b>run & co", rows, "of the 8 newest logs, and of 52 before them")
    assert again == page.read_text(encoding="utf-8")


def test_samples_that_nothing_rewards_speak_of_no_reward(browser, tmp_path):
    sample = {"step": 2, "prompt": "red", "completion": "apple", "tokens": 2, "cut": True}
    rows = [sample | {"extra/reference": "river"}] * 2
    run = tmp_path / "run"
    run.mkdir()
    samples_page.write(run, rows, "of one log")
    browser.open(run / samples_page.PAGE)
    assert "river" in shown(browser)
    assert "reward" not in browser.run("document.body.innerText")
    texts = "[...document.querySelectorAll('#value option, #state option')].map(o => o.textContent)"
    assert browser.run(texts) == ["length in tokens", "all", "cut off"]
    assert fill(browser, state="cut").startswith("2 of 2")
