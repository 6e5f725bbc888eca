"""Methods of TRL's experimental namespace train from a configuration; the page of training names all others."""

import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("trl", minversion="1.16")

import tiny_training as tiny

from fmtkit.core.errors import FmtkitError
from fmtkit.core.runner import shipped
from fmtkit.training import train

PAGE = Path(__file__).parents[1] / "docs" / "training.md"
ANSWERS = {"max_completion_length": 4}
REWARDED = {"trl": {"reward_funcs": ["mine.even"], "num_generations": 2, **ANSWERS}}
# Method -> its rows, and its keys.
RUNS = {
    "gmpo": ("prompts", REWARDED),
    "sdpo": ("prompts", REWARDED),
    "sdft": ("prompts", {"trainer_args": {"num_generations": 1, **ANSWERS}}),
    "gold": ("chats", {"trainer_args": ANSWERS}),
    "iw_opd": ("chats", {"trainer_args": ANSWERS}),
}
TYPES = {"prompts": "passthrough", "chats": "chat_template"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with rows, a reward, a model and a teacher."""
    folder = tmp_path_factory.mktemp("experimental")
    tiny.make_model(folder / "model")
    tiny.make_model(folder / "teacher", seed=1)
    (folder / "mine.py").write_text(
        "def even(completions, **_):\n"
        "    return [float(len(c[0]['content']) % 2) for c in completions]\n"
    )
    prompts = [{**row, "privileged_context": "it is red"} for row in tiny.prompt_rows()]
    for name, rows in (("prompts", prompts), ("chats", tiny.conversation_rows())):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", RUNS)
def test_two_steps_are_made_from_a_configuration(folder, method):
    rows, keys = RUNS[method]
    given = {
        **tiny.STEP,
        "base_model": str(folder / "model"),
        "chat_template": "chatml",
        "rl": method,
        "datasets": [{"path": str(folder / f"{rows}.jsonl"), "type": TYPES[rows]}],
        "output_dir": str(folder / method),
        "max_steps": 2,
        **keys,
    }
    if rows == "chats":
        given["teacher_model"] = str(folder / "teacher")
    file = folder / f"{method}.yaml"
    file.write_text(yaml.safe_dump(given), encoding="utf-8")
    outcome = train(file)
    assert outcome.exit_code == 0
    assert outcome.report["steps"] == 2
    assert (folder / method / "model" / "config.json").is_file()


def test_the_page_names_what_is_no_method_here():
    import trl.experimental

    inside = {one.name for one in pkgutil.iter_modules(trl.experimental.__path__)} - {"utils"}
    named = {runner.trainer.partition(":")[0].rpartition(".")[2] for runner in shipped()}
    # Former places of kto and distillation, and what fmtkit's own trainers and variants are derived from.
    ours = named | {"kto", "distillation", "async_grpo", "online_dpo"}
    listed = re.search(r"\| in `trl.experimental` \|.*?\n\n", PAGE.read_text("utf-8"), re.DOTALL)
    left = set(re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\| (.*?) \|", listed.group()))))
    assert inside - ours == left


def test_rows_without_what_the_teacher_is_shown_are_refused_before_training(folder):
    def planned(name: str, rows: list[dict[str, Any]]) -> str:
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        given = {
            **tiny.STEP,
            "base_model": str(folder / "model"),
            "chat_template": "chatml",
            "rl": "sdft",
            "datasets": [{"path": str(file), "type": "passthrough"}],
            "output_dir": str(folder / f"run_{name}"),
            "trainer_args": RUNS["sdft"][1]["trainer_args"],
        }
        with pytest.raises(FmtkitError) as raised:
            train(given, prepare=True)
        return str(raised.value)

    bare = tiny.prompt_rows()
    assert "sdft needs a column `privileged_context`, which" in planned("bare", bare)
    some = [{**row, "privileged_context": None if n else "red"} for n, row in enumerate(bare)]
    said = planned("some", some)
    assert f"sdft needs `privileged_context` in each row, and {len(bare) - 1} have none" in said
