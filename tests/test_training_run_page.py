"""The page of a run: figures first and last, warnings, nothing that is loaded or run."""

import json
from pathlib import Path

import chromium
import pytest

from fmtkit.training.run import curves, run_page

REPORT = {
    "method": "dpo",
    "model": "<b>model</b>",
    "steps": 2,
    "seconds": 1.5,
    "metrics": {"train_loss": 0.6, "loss": 0.5, "rewards/margins": 0.25},
    "first_metrics": {"loss": 0.6931471824, "rewards/margins": 0.0},
    "findings": ["no learning signal: <script>window.pwned = 1</script>"],
    "data": [{"file": "train.parquet", "rows": 40, "sha256": "ab" * 32}],
    "versions": {"trl": "1.16.0"},
}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    lines = ({"step": step, "loss": 1 / (step + 1)} for step in range(3))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    curves.draw(tmp_path)
    return run_page.write(tmp_path, REPORT)


def test_first_and_last_metrics_stand_side_by_side(page):
    text = page.read_text(encoding="utf-8")
    assert '<tr><td>loss</td><td class="n">0.693147</td><td class="n">0.5</td></tr>' in text
    assert '<tr><td>train_loss</td><td class="n"></td><td class="n">0.6</td></tr>' in text
    assert text.index(">loss<") < text.index(">rewards/margins<")
    assert "dpo of &lt;b&gt;model&lt;/b&gt;: 2 steps in 1.5 s" in text
    assert "trl 1.16.0" in text
    assert "ab" * 32 in text


def test_nothing_of_the_run_is_run(page):
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;window.pwned" in text


def test_a_run_without_curves_has_a_page(tmp_path):
    text = run_page.write(tmp_path, {"method": "sft"}).read_text(encoding="utf-8")
    assert "<img" not in text


@pytest.mark.slow
@pytest.mark.skipif(chromium.program() is None, reason="needs Chromium: apt-get install chromium")
def test_a_browser_shows_the_page_without_asking_for_anything(page, tmp_path):
    pytest.importorskip("matplotlib")
    browser = chromium.Browser(tmp_path / "profile")
    try:
        browser.send("Page.navigate", url=page.as_uri())
        browser.run(
            "new Promise(done => document.readyState === 'complete'"
            " ? done(1) : addEventListener('load', () => done(1)))"
        )
        assert browser.run("document.images[0].naturalWidth") > 100
        assert browser.run("document.querySelector('.note').textContent").startswith("no learning")
        assert browser.run("window.pwned") is None
        asked = [
            event["params"]["request"]["url"].split(":")[0]
            for event in browser.events
            if event["method"] == "Network.requestWillBeSent"
        ]
        assert set(asked) <= {"file", "data", "about"}
    finally:
        browser.close()
