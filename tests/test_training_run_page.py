"""The page of a run: verdict first, warnings, curves, settings, data; nothing of a run is run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest

from fmtkit.core.errors import OptionError
from fmtkit.training.run import run_page

HOSTILE = "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
REPORT = {
    "method": "dpo",
    "model": "<b>model</b>",
    "steps": 40,
    "seconds": 1.5,
    "metrics": {"train_loss": 0.6, "loss": 0.5, "rewards/margins": 0.25},
    "first_metrics": {"loss": 0.6931471824, "rewards/margins": 0.0},
    "findings": [f"no learning signal: {HOSTILE}"],
    "data": [{"file": "train.parquet", "rows": 40, "sha256": "ab" * 32}],
    "versions": {"trl": "1.16.0"},
}
PLAN = {
    "method": "dpo",
    "model": "<b>model</b>",
    "arguments": {
        "trainer": {
            "learning_rate": {"value": 0.001, "origin": "key learning_rate"},
            "run_name": {"value": HOSTILE, "origin": "key wandb_name"},
            "max_length": {"value": 1024, "origin": "default of TRL"},
            "max_steps": {"value": 80, "origin": "key max_steps"},
        }
    },
}


def run_folder(folder: Path, *, rate: float = 0.001, rising: bool = True) -> Path:
    """Write what a run of 40 steps leaves that has no report."""
    folder.mkdir(parents=True)
    lines = [
        {
            "step": step,
            "loss": 0.7 - step / 100 if rising else 0.7,
            "rewards/margins": step / 20 if rising else 0.0,
            "learning_rate": rate,
        }
        for step in range(1, 41)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    plan = json.loads(json.dumps(PLAN))
    plan["arguments"]["trainer"]["learning_rate"]["value"] = rate
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    return folder


def data_of(page: Path) -> dict:
    """Return what the page of a run is made of."""
    text = page.read_text(encoding="utf-8")
    block = text.partition('<script type="application/json" id="data">')[2]
    return json.loads(block.partition("</script>")[0])


def test_first_and_last_metrics_settings_and_data_are_there(tmp_path):
    run = run_folder(tmp_path / "run")
    [found] = data_of(run_page.write(run, REPORT))["runs"]
    assert found["metrics"][0] == ["loss", 0.6931471824, 0.5]
    assert ["train_loss", None, 0.6] in found["metrics"]
    assert found["what"] == "dpo of <b>model</b>: 40 steps in 1.5 s"
    assert found["versions"] == "trl 1.16.0"
    assert found["data"] == [["train.parquet", 40, "ab" * 32]]
    assert [key for key, _ in found["settings"]] == [
        "learning_rate",
        "max_steps",
        "wandb_name (run_name)",
    ]
    assert found["verdict"]["state"] == "learned"
    assert found["order"][:2] == ["loss", "rewards/margins"]


def test_a_run_that_was_stopped_has_a_page_of_what_it_logged(tmp_path):
    run = run_folder(tmp_path / "run")
    path, [verdict] = run_page.write_report([run])
    assert path == run / "report.html"
    assert verdict.state == "learned"
    assert "step 40 of 80" in verdict.advice[0]
    [found] = data_of(path)["runs"]
    assert "it logged up to step 40" in found["what"]
    assert found["metrics"][0] == ["loss", 0.69, pytest.approx(0.3)]
    (run / "metrics.jsonl").unlink()
    _, [verdict] = run_page.write_report([run])
    assert verdict.state == "unclear"


def test_a_run_whose_method_is_not_installed_is_not_judged(tmp_path):
    run = run_folder(tmp_path / "run")
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "method": "elsewhere"}))
    path, [verdict] = run_page.write_report([run])
    assert verdict.state == "unclear"
    assert "no method elsewhere is installed" in verdict.text
    assert data_of(path)["runs"][0]["order"]


def test_only_a_run_folder_is_reported(tmp_path):
    with pytest.raises(OptionError, match="is no run folder"):
        run_page.write_report([tmp_path / "none"])
    with pytest.raises(OptionError, match=r"holds no plan\.json"):
        run_page.write_report([tmp_path])
    run = run_folder(tmp_path / "run")
    with pytest.raises(OptionError, match="one run folder, or two"):
        run_page.write_report([run, run, run])


def test_the_command_says_it_and_writes_the_page(tmp_path):
    one = run_folder(tmp_path / "one")
    other = run_folder(tmp_path / "other", rate=0.0, rising=False)
    command = [sys.executable, "-m", "fmtkit", "report", str(one), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(other / "compared.html")
    assert f"{one}: It learned" in done.stderr
    assert f"{other}: Nothing was learned: learning_rate is 0" in done.stderr
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [entry["state"] for entry in found["runs"]] == ["learned", "not_learned"]
    done = subprocess.run(
        [*command[:4], str(tmp_path / "none")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "is no run folder" in done.stderr


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[chromium.Browser]:
    found = chromium.Browser(tmp_path / "profile")
    yield found
    found.close()


needs_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.program() is None, reason="needs Chromium: apt-get install chromium"
    ),
]


def in_a_browser(test):
    for mark in needs_browser:
        test = mark(test)
    return test


@in_a_browser
def test_a_browser_shows_the_page_without_asking_for_anything(tmp_path, browser):
    run = run_folder(tmp_path / "run")
    browser.open(run_page.write(run, REPORT))
    assert browser.run("document.querySelector('.verdict').innerText").startswith("✔ learned")
    assert browser.run("document.querySelector('.note').textContent").startswith("no learning")
    assert browser.run("window.pwned") is None
    assert browser.run("document.querySelectorAll('img, iframe, b').length") == 0
    assert browser.run("document.querySelectorAll('svg.curve').length") == 3
    asked = {
        event["params"]["request"]["url"].split(":")[0]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {"file", "data", "about"}
    errors = [
        event["params"]
        for event in browser.events
        if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]
    assert errors == []


@in_a_browser
def test_a_curve_is_read_by_keys_and_by_pointing(tmp_path, browser):
    run = run_folder(tmp_path / "run")
    browser.open(run_page.write(run, REPORT))
    reading = "document.querySelector('.reading').textContent"
    assert browser.run(reading) == "0.69 → 0.3"
    browser.run("document.querySelector('svg.curve').focus()")
    browser.press("ArrowRight")
    assert browser.run(reading) == "step 1: 0.69"
    browser.press("End")
    assert browser.run(reading) == "step 40: 0.3"
    browser.run(
        "(() => { const svg = document.querySelector('svg.curve'), box = svg.getBoundingClientRect();"
        " svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 1})); })()"
    )
    assert browser.run(reading) == "step 1: 0.69"


@in_a_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_two_runs_stand_beside_each_other_for_everybody(tmp_path, browser, width, dark):
    one = run_folder(tmp_path / "one")
    other = run_folder(tmp_path / "other", rate=0.0, rising=False)
    path, _ = run_page.write_report([one, other])
    browser.window(width, dark=dark)
    browser.open(path)
    states = browser.run("[...document.querySelectorAll('.verdict .badge')].map(b => b.innerText)")
    assert states == ["✔ learned", "✖ did not learn"]
    assert browser.run("document.querySelectorAll('svg.curve path').length") == 6
    assert "1 setting differs" in browser.run("document.getElementById('settings').innerText")
    assert browser.run("document.documentElement.scrollWidth") <= width
    if chromium.AXE.exists():
        assert browser.axe() == []
