"""Callbacks of a configuration: found by their named paths, checked by the plan, and run."""

import json
import re
import textwrap
from dataclasses import replace
from importlib.util import find_spec

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.errors import DependencyError, FmtkitError
from fmtkit.training import train
from fmtkit.training.planning import extensions
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.run_plan import Plan

MERGE = "trl.experimental.merge_model_callback.MergeModelCallback"
OWN = """
    import json
    from pathlib import Path

    import torch
    from transformers import TrainerCallback


    class Steps(TrainerCallback):
        def __init__(self, file, each=1):
            self.file, self.each = Path(file), each

        def on_step_end(self, args, state, control, **_):
            with self.file.open("a") as file:
                file.write(f"{state.global_step * self.each}\\n")


    class Failing(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 2:
                raise KeyError("no such step")


    class Bare(TrainerCallback):
        pass


    class NoCallback:
        pass


    class Slow(torch.optim.SGD):
        def __init__(self, params, lr, factor=1.0):
            super().__init__(params, lr=lr * factor)


    class Weightless:
        def __init__(self, model):
            pass


    def shape(predictions):
        return {"rows": len(predictions.predictions)}


    def scored(predictions):
        return 1 / 0


    def two(predictions, labels):
        return {}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def write(tmp_path, model):
    """Return a function that writes a configuration beside a module `mine`."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(OWN), encoding="utf-8")
    pairs = [
        {
            "question": row["prompt"][0]["content"],
            "chosen": row["chosen"][0]["content"],
            "rejected": row["rejected"][0]["content"],
        }
        for row in tiny.preference_rows()
    ]
    rows = tmp_path / "pairs.jsonl"
    rows.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")

    def write(**keys):
        given = {
            **tiny.STEP,
            "base_model": model,
            "rl": "dpo",
            "output_dir": str(tmp_path / "run"),
            "datasets": [{"path": str(rows), "type": "chatml.intel"}],
            "max_steps": 2,
        }
        file = tmp_path / "run.yaml"
        file.write_text(yaml.safe_dump({**given, **keys}), encoding="utf-8")
        return file

    return write


def planned(file) -> Plan:
    return planning.plan(file)


WRONG = {
    "mine.Steps": "mine.Steps needs the argument file",
    "mine.NoCallback": "mine.NoCallback is no TrainerCallback",
    "nowhere.Steps": "no nowhere.py in",
}
WRONG_ARGUMENTS = {
    ("mine.Steps", "eahc"): "takes no argument 'eahc'; did you mean 'each'?",
    ("mine.Bare", "each"): "takes no argument 'each'; it takes no argument",
    ("trl.BEMACallback", "update_frq"): "did you mean 'update_freq'?",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_callback_that_cannot_be_is_refused_before_the_run(write, name):
    with pytest.raises(FmtkitError) as error:
        train(write(callbacks=[name]))
    assert error.value.exit_code == 2
    assert WRONG[name] in str(error.value)


@pytest.mark.parametrize(("name", "argument"), WRONG_ARGUMENTS)
def test_arguments_that_a_callback_does_not_take_are_refused_by_the_plan(write, name, argument):
    entry = {
        "class": name,
        "kwargs": {"file": "x", argument: 1} if "Steps" in name else {argument: 1},
    }
    with pytest.raises(FmtkitError) as error:
        planned(write(callbacks=[entry]))
    assert WRONG_ARGUMENTS[name, argument] in str(error.value)


def test_an_object_among_the_arguments_is_checked_as_well(write):
    inner = {"class": "mine.Steps", "kwargs": {"fiel": "x"}}
    entry = {"class": "mine.Steps", "kwargs": {"file": inner}}
    with pytest.raises(FmtkitError, match="did you mean 'file'"):
        planned(write(callbacks=[entry]))


def test_callbacks_are_in_the_plan(write):
    lines = planned(write(callbacks=["trl.BEMACallback"])).groups()["set by you"]
    assert [value for name, value, _ in lines if name == "callbacks"] == ['["trl.BEMACallback"]']


WRONG_OPTIMIZERS = {
    (
        "mine.Slow",
        "{factr: 2}",
    ): "optim_args: mine.Slow takes no argument 'factr'; did you mean 'factor'?",
    (
        "mine.Slow",
        "factr=2",
    ): "optim_args: mine.Slow takes no argument 'factr'; did you mean 'factor'?",
    ("mine.Slow", "factor"): "optim_args: 'factor': write NAME=VALUE",
    ("torch.optim.SGD", "{momntum: 0.5}"): "did you mean 'momentum'?",
    ("mine.Weightless", "{model: 1}"): "takes no argument 'params'",
}
WRONG_METRICS = {
    ("dpo", "mine.two", 4): "mine.two takes predictions, labels; it is called with one",
    ("dpo", "mine.shape", None): "there is nothing to evaluate on",
    ("gdpo", "mine.shape", 4): "TRL's trainer for gdpo takes none; it is for",
}


@pytest.mark.parametrize(("name", "given"), WRONG_OPTIMIZERS)
def test_arguments_that_an_optimizer_does_not_take_are_refused_by_the_plan(write, name, given):
    with pytest.raises(FmtkitError) as error:
        planned(write(optimizer=name, optim_args=yaml.safe_load(given)))
    assert WRONG_OPTIMIZERS[name, given] in str(error.value)


def test_an_optimizer_among_the_arguments_of_the_trainer_is_read_as_one(write):
    with pytest.raises(FmtkitError, match=r"trainer_args.optim: 'mine.Slow' is not one of adamw"):
        planned(write(trainer_args={"optim": "mine.Slow"}))
    own = planned(write(optimizer="mine.Slow", trainer_args={"optim_args": "factor=0.5"})).arguments
    assert own.own["optim_args"].value == {"factor": 0.5}
    assert own.own["optim_args"].origin == "key trainer_args.optim_args"


@pytest.mark.parametrize(("method", "name", "held_out"), WRONG_METRICS)
def test_metrics_that_cannot_be_computed_are_refused_by_the_plan(write, method, name, held_out):
    with pytest.raises(FmtkitError) as error:
        planned(write(rl=method, compute_metrics=name, val_set_size=held_out))
    assert WRONG_METRICS[method, name, held_out] in str(error.value)


def test_an_optimizer_is_refused_by_the_plan_where_the_trainer_makes_its_own(
    write, tmp_path, monkeypatch
):
    """So did the trainer of ppo, which newer versions of TRL do not have."""
    (tmp_path / "former_trl").mkdir()
    (tmp_path / "former_trl" / "__init__.py").write_text(
        "class Trainer:\n"
        "    def __init__(self, model):\n"
        "        self.create_optimizer_and_scheduler(num_training_steps=1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = planned(write(optimizer="mine.Slow", optim_args={"factor": 2}))
    assert list(extensions.find_optimizer(plan)) == []
    former = replace(plan, runner=replace(plan.runner, trainer="former_trl:Trainer"))
    (said,) = extensions.find_optimizer(former)
    assert said.startswith("optimizer: the trainer of dpo makes its optimizer itself")


def test_an_optimizer_that_does_not_exist_is_refused_before_the_run(write):
    with pytest.raises(FmtkitError, match="did you mean 'Slow'"):
        train(write(optimizer="mine.Slwo"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", "sft"])
def test_an_optimizer_of_the_user_trains_and_a_metric_is_logged(write, tmp_path, method):
    frozen = {"optimizer": "mine.Slow", "optim_args": {"factor": 0.0}}
    trial = {
        "compute_metrics": "mine.shape",
        "val_set_size": 4,
        "eval_strategy": "steps",
        "eval_steps": 1,
    }
    more = {"rl": None, "chat_template": "chatml"} if method == "sft" else {}
    if method == "sft":
        rows = [{"messages": row["messages"]} for row in tiny.conversation_rows()]
        file = tmp_path / "chats.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        more["datasets"] = [{"path": str(file), "type": "chat_template"}]
    assert train(write(**frozen, **trial, **more)).exit_code == 0
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    losses = [line["eval_loss"] for line in lines if "eval_loss" in line]
    # The factor is zero: steps of this optimizer change nothing.
    assert len(losses) == 2
    assert losses[0] == losses[1]
    assert [line["eval_rows"] for line in lines if "eval_rows" in line] == [4, 4]


@pytest.mark.slow
def test_a_metric_that_raises_is_named_with_its_line(write, capfd):
    keys = {"compute_metrics": "mine.scored", "val_set_size": 4, "eval_steps": 1}
    assert train(write(**keys)).exit_code == 1
    said = capfd.readouterr().err
    assert "compute_metrics: mine.scored: ZeroDivisionError: division by zero (mine.py:" in said


def test_names_of_adapters_need_an_adapter_that_is_loaded(write):
    with pytest.raises(FmtkitError, match="ref_adapter_name: it names an adapter that is loaded"):
        planned(write(ref_adapter_name="reference", adapter="lora"))
    with pytest.raises(FmtkitError, match="ref_adapter_name: orpo has no reference"):
        planned(write(rl="orpo", ref_adapter_name="reference", adapter="lora"))


@pytest.mark.slow
def test_the_reference_of_a_loaded_adapter_is_its_first_state(write, tmp_path):
    lora = {"adapter": "lora", "lora_r": 4, "lora_target_linear": True, "learning_rate": 0.02}
    assert train(write(**lora)).exit_code == 0
    (tmp_path / "run").rename(tmp_path / "first")
    names = {"model_adapter_name": "train", "ref_adapter_name": "reference"}
    again = write(**lora, **names, lora_model_dir=str(tmp_path / "first" / "model"))
    assert sum("changes nothing: TRL trains" in note for note in planned(again).notes) == 2
    assert train(again).exit_code == 0
    logs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    margins = [log["rewards/margins"] for log in logs if "rewards/margins" in log]
    # Before its first step the adapter is its own reference; the base model would not be.
    assert margins[0] == pytest.approx(0, abs=1e-6)
    assert abs(margins[1]) > 1e-6


@pytest.mark.slow
def test_callbacks_of_the_user_and_of_trl_run(write, tmp_path):
    steps = {"class": "mine.Steps", "kwargs": {"file": str(tmp_path / "steps"), "each": 10}}
    bema = {"class": "trl.BEMACallback", "kwargs": {"update_freq": 1, "lag": 1}}
    names = [steps, bema, "trl.RichProgressCallback", "trl.trainer.callbacks.SyncRefModelCallback"]
    file = write(callbacks=names)
    assert train(file).exit_code == 0
    assert (tmp_path / "steps").read_text() == "10\n20\n"
    # What BEMACallback makes is saved by itself.
    assert list((tmp_path / "run").rglob("bema/*.safetensors"))


def test_a_callback_of_trl_that_lacks_a_package_is_named_before_the_run(write):
    for name, package, given in (
        (MERGE, "mergekit", {}),
        ("trl.WeaveCallback", "weave", {"project_name": "p"}),
    ):
        if find_spec(package) is not None:
            continue
        keys = {"val_set_size": 4, "eval_steps": 1, "save_strategy": "steps"}
        keys["callbacks"] = [{"class": name, "kwargs": given}]
        with pytest.raises(DependencyError, match=f"{name} needs {package}: pip install"):
            train(write(**keys))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (
            {"callbacks": [MERGE], "save_strategy": "no"},
            "save_strategy: no writes none; write steps",
        ),
        ({"callbacks": [MERGE], "save_strategy": "steps", "adapter": "lora"}, "leave adapter out"),
        (
            {"callbacks": ["trl.WeaveCallback"], "val_set_size": 4, "eval_steps": 1},
            "kwargs: {project_name: NAME}, or use_wandb: true",
        ),
    ],
)
def test_what_a_callback_of_trl_needs_of_the_run_is_said_by_the_plan(write, keys, why):
    with pytest.raises(FmtkitError, match=re.escape(why)):
        planned(write(**keys))


@pytest.mark.slow
@pytest.mark.parametrize("package", ["mergekit", "weave"])
def test_callbacks_of_trl_run_where_their_package_is(write, tmp_path, monkeypatch, package):
    pytest.importorskip(package)
    monkeypatch.setenv("WEAVE_DISABLED", "true")
    if package == "mergekit":
        keys = {"callbacks": [MERGE], "save_strategy": "steps", "save_steps": 1}
    else:
        weave = {"class": "trl.WeaveCallback", "kwargs": {"project_name": "p"}}
        keys = {"callbacks": [weave], "val_set_size": 4, "eval_steps": 1}
    assert train(write(**keys, max_steps=2)).exit_code == 0
    merged = tmp_path / "run" / "checkpoints" / "checkpoint-2" / "merged" / "model.safetensors"
    assert merged.is_file() == (package == "mergekit")


@pytest.mark.parametrize("name", ["LogCompletionsCallback", "WeaveCallback"])
def test_a_callback_that_answers_evaluation_rows_needs_some(write, name):
    with pytest.raises(FmtkitError, match=f"trl.{name} answers prompts of the evaluation rows"):
        planned(write(callbacks=[f"trl.{name}"]))


@pytest.mark.slow
def test_a_reference_that_a_callback_synchronises_is_the_model(write, tmp_path):
    """By a share of one at every step, so that each step begins without a margin."""
    keys = {"callbacks": ["trl.trainer.callbacks.SyncRefModelCallback"], "learning_rate": 0.05}
    given = {"ref_model_sync_steps": 1, "ref_model_mixup_alpha": 1.0}
    assert train(write(**keys, trainer_args=given, max_steps=3)).exit_code == 0
    logs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    margins = [log["rewards/margins"] for log in logs if "rewards/margins" in log]
    assert margins == pytest.approx([0, 0, 0], abs=1e-6)


@pytest.mark.slow
def test_a_callback_that_changes_the_reference_gets_it(write, tmp_path):
    given = {"update_freq": 1, "update_ref_model": True, "ref_model_update_freq": 1, "lag": 1}
    bema = {"class": "trl.experimental.bema_for_ref_model.BEMACallback", "kwargs": given}
    assert train(write(callbacks=[bema], learning_rate=0.05, max_steps=3)).exit_code == 0
    assert list((tmp_path / "run").rglob("bema/*.safetensors"))


@pytest.mark.slow
def test_completions_are_logged_at_the_evaluation_rows(write, tmp_path, capfd):
    """TRL's callback answers prompts of rows that have them; of others it says what they lack."""
    config = {"class": "transformers.GenerationConfig", "kwargs": {"max_new_tokens": 2}}
    given = {"num_prompts": 2, "freq": 1, "generation_config": config}
    completions = {"class": "trl.LogCompletionsCallback", "kwargs": given}
    keys = {"callbacks": [completions], "val_set_size": 4, "eval_steps": 1, "rl": "grpo"}
    rows = [{"prompt": row["prompt"]} for row in tiny.prompt_rows()]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "scores.py").write_text(
        "def one(completions, **_):\n    return [1.0] * len(completions)\n"
    )
    keys |= {
        "chat_template": "chatml",
        "datasets": [{"path": str(file), "type": "passthrough"}],
        "trl": {"reward_funcs": "scores.one", "num_generations": 2, "max_completion_length": 4},
    }
    assert train(write(**keys)).exit_code == 0, capfd.readouterr().err


@pytest.mark.slow
def test_a_callback_that_raises_is_named_and_the_steps_before_are_kept(write, tmp_path, capfd):
    assert train(write(callbacks=["mine.Failing"], max_steps=4)).exit_code == 1
    said = capfd.readouterr().err
    assert "callbacks: mine.Failing: on_step_end: KeyError: 'no such step' (mine.py:" in said
    assert "--resume continues from there" in said
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("checkpoint-*")
    assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == 2
