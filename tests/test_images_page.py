"""The worked example of docs/images.md: from LLaVA's rows to two steps of training, as it stands there."""

import re
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("PIL")

import yaml
from image_samples import png

from fmtkit.training.config.config import load
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import process
from fmtkit.training.run import run as training_run

PAGE = Path(__file__).parents[1] / "docs" / "images.md"


def blocks(language: str) -> list[str]:
    """Return the blocks of the example in a language."""
    example = PAGE.read_text(encoding="utf-8").partition("<!-- example -->")[2]
    return re.findall(rf"```{language}\n(.*?)```", example, re.DOTALL)


@pytest.mark.slow
def test_the_example_trains_two_steps(tmp_path, monkeypatch, vision_model, capfd):
    monkeypatch.chdir(tmp_path)
    [rows], [config] = blocks("json"), blocks("yaml")
    Path("llava.jsonl").write_text(rows)
    Path("pictures").mkdir()
    for seed, name in enumerate(re.findall(r'"image": "([^"]+)"', rows)):
        Path(name).write_bytes(png(56, 56, seed=seed))
    keys = yaml.safe_load(config) | {"base_model": vision_model("qwen2_5_vl"), "use_cpu": True}
    Path("llava.yaml").write_text(yaml.safe_dump(keys))
    plan = planning.plan(load("llava.yaml"))
    training_run.prepare(plan, resume=False, rebuild=False)
    assert process.main([str(plan.run)]) == 0, capfd.readouterr().err
    assert list(Path("run/model").glob("*processor*.json"))
