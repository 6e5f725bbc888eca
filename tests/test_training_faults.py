"""`--dry-run` refuses what would fail later, tells all of it at once, and says in which line it stands."""

import contextlib
import importlib
import subprocess
import sys
from dataclasses import MISSING, fields

import pytest

pytest.importorskip("trl")

import runs
import tiny_training as tiny

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.runner import find, shipped
from fmtkit.training import config_page, train
from fmtkit.training.config import keys
from fmtkit.training.config.class_arguments import fields_of, has_class
from fmtkit.training.config.config import load
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.config.trainer_source import UNKNOWN, find_class, installed
from fmtkit.training.config.yaml_file import parse
from fmtkit.training.planning import interpreter
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import NEEDS, advice, of_config, of_run
from fmtkit.training.run import checklist, run_lock

# What no run can do -> what is said of it. Each of these was planned once, and failed later.
FAULTS = {
    "rl: grpo\ntrl: {loss_type: foo}": "'foo' is not one of grpo, dr_grpo, dapo",
    "rl: grpo\ntrl: {multi_objective_aggregation: foo}": "'foo' is not one of sum_then_normalize",
    "rl: grpo\ntrl: {scale_rewards: foo}": "'foo' is not one of batch, group, none",
    "rl: grpo\ntrl: {vllm_importance_sampling_mode: foo}": "is not one of sequence_mask",
    "rl: grpo\ntrl: {temperature: -1}": "trl.temperature: -1 is not a number above 0",
    "rl: grpo\ntrl: {top_p: 2}": "trl.top_p: 2 is not a number from 0 to 1",
    "rl: grpo\ntrl: {num_generations: -2}": "-2 is not a whole number from 1",
    "rl: grpo\ntrl: {reward_funcs: [a.b, c.d], reward_weights: [1.0]}": "1 numbers for 2",
    "rl: dpo\ngroup_by_length: true": "group_by_length: the rows of dpo",
    "rl: reward\ngroup_by_length: true": "group_by_length: the rows of reward",
    "rl: dpo\nloss_type: [sigmoid, foo]": "'foo' is not one of sigmoid",
    "rl: dpo\nrl_beta: -0.1": "rl_beta: -0.1 is not a number from 0",
    "rl: cpo\nloss_type: foo": "'foo' is not one of",
    "rl: simpo\nloss_type: ipo": "method simpo sets it to 'simpo'",
    "lr_scheduler: rex": "'rex' is not one of linear, cosine",
    "attn_implementation: sdpaa": "has no 'sdpaa'; did you mean 'sdpa'?",
    "lr_scheduler: cosin": "did you mean 'cosine'?",
    "optimizer: muon": "'muon' is not one of adamw_torch",
    "hub_strategy: often": "'often' is not one of end, every_save",
    "packing_strategy: first": "'first' is not one of bfd",
    "val_set_size: -0.1": "val_set_size: -0.1 is not a number from 0",
    "weight_decay: .nan": "weight_decay: nan is not a number",
    "learning_rate: .inf": "learning_rate: inf is not a number",
    "report_to: wandbb": "did you mean 'wandb'?",
    "special_tokens: {pad: x}": "special_tokens.pad: there is no special token of that name",
    "chat_template: no_such_template": "no template named 'no_such_template'",
    "chat_template: jinja": "the template's text is missing",
    "chat_template_jinja: '{% for %}'": "chat_template_jinja: line 1",
    "datasets: [{path: a/b, split: ../x}]": "split: '../x': write a name, or a slice",
    "datasets: [{path: a/b, split: 'train[9:2]'}]": "ends before or where it begins",
    "datasets: [{path: a/b, shards: 2, shards_idx: 2}]": "2 shards are counted from 0",
    "datasets: [{path: a/b, shards_idx: 2}]": "set shards",
    "datasets: [{path: a/b, fraction: 0}]": "fraction: 0: no row is left",
    "base_model: a/m\ndatasets: [{path: ./nope.jsonl}]": "./nope.jsonl: no such file or folder",
    "base_model: a/m\ndatasets: [{path: json}]": "no file is named; set data_files",
    "rl: dpo\ndatasets: [{path: a/b, type: {prompt_format: '{nope}'}}]": "not a placeholder",
    "rl: dpo\ndatasets: [{path: a/b, type: intel, options: {nope: 1}}]": "no option of type intel",
    "rl: dpo\ndatasets: [{path: a/b, type: intel, columns: {nope: x}}]": "no column of type intel",
    "base_model: a/m\ndatasets: [{path: a/b}]\nrl: grpo\nuse_cpu: true\nmicro_batch_size: 2\n"
    "trl: {reward_funcs: a/r, use_vllm: true, vllm_mode: sever, num_generations: 2}": (
        "'sever' is not one of server, colocate"
    ),
}
WHOLE = "base_model: a/m\ndatasets: [{path: a/b}]\n"
# The same for what TRL and transformers refuse in their own source, whose text is theirs.
RULES = {
    "logging_steps: 2.5": "logging_steps",
    "dataloader_prefetch_factor: 2": "prefetch_factor",
    "lr_scheduler: reduce_lr_on_plateau": "requires an eval strategy",
    "val_set_size: 0.1\nload_best_model_at_end: true\nsave_strategy: steps": "load_best_model_at_end",
    "rl: dpo\nloss_type: aot\nf_divergence_type: js_divergence": "f_divergence_type",
    "rl: dpo\nloss_type: aot\ndpo_use_weighting: true": "aot",
    "rl: grpo\nauto_find_batch_size: true\ntrl: {reward_funcs: a/r}": "auto_find_batch_size",
    "rl: grpo\ntrl: {reward_funcs: a/r, vllm_importance_sampling_clip_min: 9}": "clip_min",
    "rl: gkd\nteacher_model: a/t\nrl_beta: 2": "beta must be in",
}


def refusal(text: str) -> str:
    with pytest.raises(FmtkitError) as error:
        planning.plan(parse(text, "x"), partial=True)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value), "one fault, one line"
    return str(error.value)


@pytest.mark.parametrize("text", FAULTS)
def test_what_fails_later_is_refused_by_the_plan(text):
    assert FAULTS[text] in refusal(text)


@pytest.mark.parametrize("text", RULES)
def test_what_the_trainer_itself_refuses_is_refused_by_the_plan(text):
    told = refusal(WHOLE + text)
    assert RULES[text] in told
    assert told.endswith("[trainer_rule]")


def test_all_problems_are_told_at_once_each_with_its_line(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(
        "base_model: a/m\nlr: 1e-4\n\noptimizer: muon\nrl: grpo\ndatasets:\n"
        "  - path: a/b\n    split: ../x\ntrl:\n  loss_type: foo\n  reward_funcs: a/r\n"
        "gradient_accumulation_steps: 8\nmicro_batch_size: 8\n",
        encoding="utf-8",
    )
    with pytest.raises(RefusalError) as error:
        planning.plan(file)
    lines = str(error.value).splitlines()
    assert lines[0] == f"{file}: 3 problems"
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [
        f"{file}:4",
        f"{file}:8",
        f"{file}:10",
    ]
    assert [problem.code for problem in error.value.problems] == ["argument", "split", "loss_type"]


def test_the_command_prints_a_line_for_each_problem(tmp_path, capsys):
    file = tmp_path / "c.yaml"
    file.write_text("rl: dpo\nlr_schedulr: x\noptimizer: muon\n", encoding="utf-8")
    done = runs.fmtkit(capsys, "train", file, "--dry-run")
    assert done.code == 2
    first, *lines = done.err.splitlines()
    assert first == f"fmtkit: {file}: 2 problems"
    told = [line.strip() for line in lines if str(file) in line]
    assert [line.partition(": ")[0] for line in told] == [f"{file}:2", f"{file}:3"]


def test_unknown_keys_and_wrong_values_are_told_at_once(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("sequence_len: x\nlora_rr: 3\nrpo_alpha: 1\n", encoding="utf-8")
    with pytest.raises(RefusalError) as error:
        load(file)
    assert [problem.code for problem in error.value.problems] == [
        "value",
        "unknown_key",
        "refused_key",
    ]
    assert f"{file}:2: no key named 'lora_rr'; did you mean 'lora_r'? [unknown_key]" in str(
        error.value
    )


def test_a_key_that_is_set_from_the_command_line_has_no_line(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("rl: dpo\noptimizer: sgd\n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"c\.yaml: --set optimizer: 'muon' is not one of"):
        planning.plan(file, ["optimizer=muon"], partial=True)


def test_an_empty_key_that_nobody_knows_is_a_note():
    config = load({"no_such_key": None})
    assert any("no_such_key" in note for note in config.notes)


METHODS = [runner for runner in shipped() if has_class(runner.config)]


@pytest.mark.parametrize("runner", METHODS, ids=lambda runner: runner.method)
def test_the_defaults_of_every_class_break_none_of_its_rules(runner):
    found = fields_of(runner.config, runner.trainer).fields
    values = {name: field.default for name, field in found.items()} | {"output_dir": "x"}
    # Online groups need more than one row, and the machine decides on the precision.
    values |= {"bf16": False, "use_cpu": True, "world_size": 1}
    config, trainer = find_class(runner.config), find_class(runner.trainer)
    assert config is not None
    assert interpreter.failures(config, values, trainer) == ()


@pytest.mark.parametrize("config", sorted({runner.config for runner in METHODS}))
def test_the_defaults_that_are_read_are_those_of_the_real_class(config):
    module, _, name = config.partition(":")
    real = {f.name: f for f in fields(getattr(importlib.import_module(module), name))}
    for found in fields_of(config).fields.values():
        if found.default is UNKNOWN:
            continue
        true = real[found.name]
        default = true.default if true.default_factory is MISSING else true.default_factory()
        assert found.default == getattr(default, "value", default), found.name


@pytest.mark.parametrize("config", sorted({runner.config for runner in METHODS}))
def test_a_default_is_among_the_choices_that_are_read(config):
    for found in fields_of(config).fields.values():
        assert found.problem(found.default) is None or found.default is UNKNOWN


def test_an_unknown_value_breaks_no_rule():
    config, trainer = find_class("trl:SFTConfig"), find_class("trl:SFTTrainer")
    assert config is not None
    names = fields_of("trl:SFTConfig").fields
    assert interpreter.failures(config, dict.fromkeys(names, UNKNOWN), trainer) == ()


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("rl: grpo\ntrl: {top_entropy_quantile: 0.2}", "top_entropy_quantile", 0.2),
        ("label_smoothing_factor: 0.1", "label_smoothing_factor", 0.1),
        ("rl: dpo\nuse_weighting: true", "use_weighting", True),
        ("dataloader_persistent_workers: false", "dataloader_persistent_workers", False),
    ],
)
def test_an_argument_of_the_trainer_passes_by_its_own_name(text, name, value):
    plan = planning.plan(parse(text, "x"), partial=True)
    assert plan.arguments.trainer[name].value == value


def test_no_key_of_the_table_is_a_mere_copy_of_an_argument():
    assert not set(keys.arguments_by_name()) & set(keys.table())


def test_without_trl_a_plan_is_made_and_says_that_arguments_pass_unchecked():
    code = (
        "import sys\n"
        "import fmtkit\n"
        "HIDDEN = ('trl', 'transformers')\n"
        "class Without:\n"
        "    def __init__(self, finder):\n"
        "        self.finder = finder\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        hidden = name.partition('.')[0] in HIDDEN\n"
        "        return None if hidden else self.finder.find_spec(name, path, target)\n"
        "    def find_distributions(self, *given):\n"
        "        found = getattr(self.finder, 'find_distributions', lambda *_: ())(*given)\n"
        "        return (one for one in found if one.metadata['Name'] not in HIDDEN)\n"
        "sys.meta_path[:] = map(Without, sys.meta_path)\n"
        "from fmtkit.training.planning import plan as planning\n"
        "raw = {'rl': 'grpo', 'trl': {'temperature': 0.5}, 'weight_decay': 0.1}\n"
        "plan = planning.plan(raw, partial=True)\n"
        "print(plan.arguments.trainer['temperature'].value, plan.package, *plan.notes)\n"
        "own = {'trl': {'replay_buffer_size': 4}, 'compute_metrics': 'a.b', 'val_set_size': 4}\n"
        "planning.plan({'rl': 'grpo', **own}, partial=True)\n"
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0.5 trl, which is not installed" in done.stdout
    assert "the arguments of GRPOConfig pass unchecked" in done.stdout


def test_every_check_has_a_code_of_its_own_and_says_what_it_finds():
    checks = checklist.every()
    assert len({check.code for check in checks}) == len(checks)
    assert all(check.about for check in checks)
    # The parts of one that is declared in several say the same of it.
    declared = of_config()
    assert len({check.about for check in declared}) == len({check.code for check in declared})


def test_the_order_of_checks_is_that_of_their_needs_and_codes_whatever_was_imported_first():
    listed = [(list(NEEDS).index(check.needs), check.code) for check in of_run()]
    assert listed == sorted(listed)
    shared = [(one.code, one.words) for one in advice(find("sft"))]
    assert shared
    assert shared == sorted(shared)
    of_dpo = {check.code for check in of_config(find("dpo"))}
    assert (
        of_dpo < {check.code for check in of_config(find("grpo"))} <= {c.code for c in of_config()}
    )


def test_the_schema_says_from_which_trl_it_was_made():
    from fmtkit.formats import resources

    assert f"trl {installed('trl')}" in resources.schema("config")["description"]


def test_a_dry_run_looks_at_the_model_that_is_here(tmp_path):
    model = tiny.make_model(tmp_path / "model", template=tiny.TEMPLATE)
    data = tmp_path / "rows.jsonl"
    data.write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n', encoding="utf-8")
    raw = {
        "base_model": str(model),
        "rl": "dpo",
        "datasets": [{"path": str(data), "type": "chatml.intel"}],
        "special_tokens": {"pad_token": "<no such>"},
    }
    with pytest.raises(FmtkitError, match="is not in the vocabulary"):
        train(raw, dry_run=True)
    with pytest.raises(OptionError, match=r"base_model: \./nowhere: no such folder"):
        train({**raw, "base_model": "./nowhere"}, dry_run=True)


WRONG = ("no such value", -7, 3.7, True, [], {}, float("nan"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "dpo", "grpo", "ebft"])
def test_no_value_of_any_key_ends_in_anything_but_one_of_our_errors(method):
    names = [*keys.table(), *keys.arguments_by_name()]
    for name in names:
        for value in WRONG:
            section, _, last = name.rpartition(".")
            raw = {section: {last: value}} if section else {name: value}
            # Whatever else is raised fails the test.
            with contextlib.suppress(FmtkitError):
                planning.plan({"rl": method, **raw}, partial=True)


@pytest.mark.parametrize("key", ["qat", "quantize_moe_experts", "expert_parallel_size"])
def test_a_key_of_axolotl_that_cannot_be_done_is_refused_by_name(key):
    with pytest.raises(OptionError, match=rf"{key}: 2 cannot be honoured: \w+"):
        load({key: 2})
    assert load({key: None}).get(key) is None


def test_a_key_of_axolotl_that_changes_no_result_is_a_note():
    plan = planning.plan({"use_otel_metrics": True, "use_scattermoe": True}, partial=True)
    assert sum("changes nothing" in note for note in plan.notes) == 2


def run_of(tmp_path, **keys):
    """Return a whole configuration over one preference row and a tiny model."""
    data = tmp_path / "rows.jsonl"
    data.write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n', encoding="utf-8")
    model = tiny.make_model(tmp_path / "model", template=tiny.TEMPLATE)
    return {
        "base_model": str(model),
        "rl": "dpo",
        "datasets": [{"path": str(data), "type": "chatml.intel"}],
        "output_dir": str(tmp_path / "run"),
        **keys,
    }


def test_a_dry_run_tells_all_problems_of_the_files_at_once(tmp_path):
    raw = run_of(tmp_path, special_tokens={"pad_token": "<no such>"}, ref_model="./nowhere")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").mkdir()
    (tmp_path / "run" / "model" / "mine").write_text("x")
    for settings in ({"dry_run": True}, {"prepare": True}):
        with pytest.raises(RefusalError) as error:
            train(raw, **settings)
        codes = {problem.code for problem in error.value.problems}
        assert codes == {"run_folder", "model", "weights", "tokenizer"}
    assert not list((tmp_path / "run").glob("data"))


def test_a_plan_names_the_checks_that_wait_for_the_data(tmp_path):
    waiting = train(run_of(tmp_path), dry_run=True).plan.waiting
    assert [code for code, *_ in waiting] == ["no_rows"]
    raw = run_of(tmp_path, rl="kto", micro_batch_size=2)
    plan = train(raw, dry_run=True).plan
    assert [code for code, *_ in plan.waiting] == ["labels", "no_rows"]
    assert "when the rows are converted" in str(plan)
    assert plan.to_json()["waiting"][0]["check"] == "labels"
    with pytest.raises(OptionError, match=r"fewer than one batch of 9, .* \[full_batch\]"):
        train({**raw, "micro_batch_size": 9}, dry_run=True)


def test_every_check_that_is_run_is_in_the_list_with_what_it_needs():
    page = config_page.text()
    for check in checklist.every():
        assert f"| `{check.code}` | {check.needs} | {check.about} |" in page
    assert {check.needs for check in checklist.every()} == set(NEEDS)


def test_weights_that_are_not_there_are_told_where_they_would_be_read(tmp_path):
    raw = run_of(tmp_path)
    (tmp_path / "model" / "model.safetensors").unlink()
    assert train(raw, dry_run=True).exit_code == 0
    with pytest.raises(OptionError, match=r"it holds no file of weights.*\[weights\]"):
        train(raw)


@pytest.mark.parametrize(
    "setting", [{"dry_run": True}, {"prepare": True}, {"dry_run": True, "resume": True}]
)
def test_a_run_that_cannot_go_on_is_refused_before_anything_is_converted(tmp_path, setting):
    named = {} if setting.get("resume") else {"resume_from_checkpoint": "nowhere"}
    with pytest.raises(FmtkitError, match=r"no such folder|holds no checkpoint"):
        train(run_of(tmp_path, **named), **setting)
    assert not (tmp_path / "run").exists()


def test_a_new_run_reads_no_job_of_an_earlier_one(tmp_path):
    raw = run_of(tmp_path)
    assert train(raw, prepare=True).exit_code == 0
    (tmp_path / "run" / "job.json").write_text("{}")
    assert train(raw, prepare=True).exit_code == 0


def test_nothing_is_written_where_another_run_goes_on(tmp_path):
    raw, run = run_of(tmp_path), tmp_path / "run"
    with run_lock.hold(run):
        there = sorted(run.iterdir())
        with pytest.raises(FmtkitError, match="still uses this folder; wait for its end"):
            train(raw, prepare=True)
        assert sorted(run.iterdir()) == there
    assert train(raw, prepare=True).exit_code == 0


@pytest.mark.parametrize("place", ["rows.jsonl", "rows.jsonl/run"])
def test_a_run_folder_in_a_file_is_refused_by_the_plan(tmp_path, place):
    raw = run_of(tmp_path, output_dir=str(tmp_path / place))
    with pytest.raises(FmtkitError, match=r"rows.jsonl is a file.*\[run_folder\]"):
        train(raw, dry_run=True)


@pytest.mark.parametrize(
    ("key", "other", "value"),
    [
        ("vllm_request_timeout", "use_vllm", 5),
        ("vllm_gpu_memory_utilization", "use_vllm", 0.5),
        ("reroll_max_groups", "reroll_start_fraction", 2),
        ("replay_recompute_logps", "replay_buffer_size", True),
    ],
)
def test_a_key_that_does_nothing_without_another_is_a_note(key, other, value):
    def notes(**trl) -> str:
        raw = {"rl": "grpo", "trl": {"reward_funcs": ["fmtkit.rewards.accuracy"], **trl}}
        return "\n".join(planning.plan(raw, partial=True).notes)

    said = f"trl.{key} changes nothing without trl.{other}"
    assert said in notes(**{key: value})
    on = {"use_vllm": True, "replay_buffer_size": 4, "reroll_start_fraction": 0.5}
    assert said not in notes(**{key: value, other: on.get(other, True), "use_vllm": True})


def test_a_plan_is_grouped_by_what_was_set_what_follows_and_what_is_checked_later(tmp_path):
    plan = train(run_of(tmp_path, learning_rate=1e-3), dry_run=True).plan
    groups = plan.groups()
    assert list(groups)[1:4] == ["set by you", "follows from it", "checked later"]
    assert all(origin.startswith("key ") for *_, origin in groups["set by you"])
    assert ("trainer: learning_rate", "0.001", "key learning_rate") in groups["set by you"]
    assert groups["checked later"] == [
        ("check", "when the rows are converted", "there are rows to train on")
    ]
    assert "no rows" not in str(plan)
    assert plan.lines() == [line for lines in groups.values() for line in lines]


def test_every_key_that_was_set_is_listed_once_also_one_that_fmtkit_itself_honours(tmp_path):
    keys = {
        "val_set_size": 2,
        "split_by": "rows",
        "seed": 3,
        "shuffle_merged_datasets": False,
        "saves_per_epoch": 2,
        "save_strategy": None,
        "early_stopping_patience": 2,
        "adapter": "lora",
        "lora_r": 4,
        "lora_target_linear": True,
        "lora_target_modules": ["q_proj"],
        "trainer_args": {"warmup_steps": 1, "neftune_noise_alpha": 5},
        "special_tokens": {"pad_token": "<|im_end|>"},
        "flash_attention": False,
        "hub_model_id": "me/mine",
    }
    raw = run_of(tmp_path, **keys)
    raw["datasets"] = [{**raw["datasets"][0], "split": "train[:90%]"}]
    plan = planning.plan(raw)
    listed = [origin.removeprefix("key ") for *_, origin in plan.groups()["set by you"]]
    given = {name for name, value in raw.items() if value is not None}
    parts = {"trainer_args.warmup_steps", "trainer_args.neftune_noise_alpha"}
    assert sorted(listed) == sorted(
        given - {"datasets", "trainer_args"} | parts | {"datasets.0.split"}
    )
    follows = {name for name, *_ in plan.groups()["follows from it"]}
    assert {
        "trainer: save_steps",
        "trainer: metric_for_best_model",
        "peft: target_modules",
    } <= follows
