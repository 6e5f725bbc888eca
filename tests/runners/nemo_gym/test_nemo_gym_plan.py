"""The keys of NeMo Gym in a plan: its datasets, its reward's names, and what no run can do."""

import json
import re
from pathlib import Path

import pytest

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.runners.nemo_gym import keys
from fmtkit.runners.nemo_gym import run as gym_run
from fmtkit.runners.nemo_gym.settings import GymSettings, read_settings
from fmtkit.training.online.conversations import naming
from fmtkit.training.online.conversations.environment import EnvReward
from fmtkit.training.planning import plan as planning

VERIFY = "axolotl.integrations.nemo_gym.rewards.reward_nemo_gym_verify"
PLAYED = "axolotl.integrations.nemo_gym.rewards.reward_env"
GYM = {
    "base_model": "m",
    "rl": "grpo",
    "micro_batch_size": 4,
    "nemo_gym_enabled": True,
    "nemo_gym_auto_start": False,
    "nemo_gym_datasets": [{"path": "a.jsonl", "server_name": "math"}],
    "trl": {"num_generations": 4},
}


def plan(**more):
    trl = {**GYM["trl"], **more.pop("trl", {})}
    return planning.plan({**GYM, "trl": trl, **more}, partial=True)


def test_the_datasets_of_the_gym_are_those_of_the_run(tmp_path):
    made = plan(
        nemo_gym_dir=str(tmp_path),
        nemo_gym_datasets=[
            {"path": "data/a.jsonl", "server_name": "math", "max_samples": 10},
            {"path": str(tmp_path / "b.jsonl")},
        ],
    )
    assert [dataset.entry for dataset in made.datasets] == [
        {
            "path": str(tmp_path / "data/a.jsonl"),
            "type": "nemo_gym",
            "options": {"server_name": "math"},
            "max_samples": 10,
        },
        {"path": str(tmp_path / "b.jsonl"), "type": "nemo_gym"},
    ]
    assert [dataset.reading.options for dataset in made.datasets] == [{"server_name": "math"}, {}]


def test_a_path_is_looked_for_among_the_packages_of_the_gym(tmp_path):
    packages = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages"
    (packages / "resources_servers").mkdir(parents=True)
    (packages / "resources_servers" / "a.jsonl").touch()
    made = plan(
        nemo_gym_dir=str(tmp_path), nemo_gym_datasets=[{"path": "resources_servers/a.jsonl"}]
    )
    assert made.datasets[0].entry["path"] == str(packages / "resources_servers" / "a.jsonl")


@pytest.mark.parametrize("path", ["~/Gym/data/a.jsonl", "data/a.jsonl"])
def test_the_entry_that_the_peer_needs_beside_is_the_same_file(path):
    made = plan(
        nemo_gym_datasets=[{"path": "data/a.jsonl", "server_name": "math"}],
        datasets=[
            {
                "path": path,
                "type": "chat_template",
                "field_messages": "responses_create_params.input",
                "message_field_content": "content",
                "message_field_role": "role",
            }
        ],
    )
    assert len(made.datasets) == 1
    assert made.datasets[0].reading.type == "nemo_gym"


def test_keys_that_are_unset_have_the_defaults_of_the_documents():
    assert read_settings({}, "org/model") == GymSettings(
        enabled=False,
        dir="~/Gym",
        auto_start=True,
        config_paths=(),
        head_port=11000,
        server_timeout=360,
        verify_timeout=30,
        run_timeout=300,
        model_name="org/model",
        multi_turn=False,
        max_turns=10,
    )


def test_a_gym_that_is_not_enabled_says_that_its_keys_change_nothing():
    keys = {"base_model": "m", "nemo_gym_head_port": 1, "datasets": [{"path": "x"}]}
    made = planning.plan({**keys, "rl": "grpo"}, partial=True)
    assert "nemo_gym_enabled is not true: nemo_gym_head_port change nothing" in made.notes
    made = planning.plan({**keys, "rl": "dpo"}, partial=True)
    assert "dpo does not use nemo_gym_head_port" in made.notes


def test_what_a_gym_still_needs_is_missing():
    assert plan(nemo_gym_datasets=None).missing == ("nemo_gym_datasets",)
    assert plan(nemo_gym_auto_start=None).missing == (
        "nemo_gym_config_paths (or nemo_gym_auto_start: false)",
    )
    assert plan().missing == ()


REFUSED = [
    ({"nemo_gym_auto_clone": True}, "nemo_gym_auto_clone: .*pip install nemo-gym"),
    ({"nemo_gym_datasets": [{"server_name": "x"}]}, "write path, and server_name where"),
    ({"nemo_gym_datasets": [{"path": "a", "serve": "x"}]}, "no key 'serve'; did you mean 'serv"),
    ({"nemo_gym_datasets": [{"path": "a", "max_samples": 0}]}, "max_samples: 0: takes a whole"),
    ({"nemo_gym_head_port": 70000}, "nemo_gym_head_port: 70000: takes a port"),
    (
        {"nemo_gym_verify_timeout": 0},
        "nemo_gym_verify_timeout: 0: give a number of seconds above 0",
    ),
    ({"datasets": [{"path": "other.jsonl", "type": "nemo_gym"}]}, "datasets: other.jsonl: with a"),
    (
        {"rl": "dpo", "trl": {"num_generations": None}},
        "nemo_gym_enabled: dpo has no use for it; it is for gdpo, grpo and rloo",
    ),
    (
        {"trl": {"backend": "async", "num_generations": None}},
        "nemo_gym_enabled: the trainer of trl.backend: async has no use for it; leave one of the two",
    ),
    ({"rl": "rloo", "nemo_gym_multi_turn": True}, "conversations are for gdpo and grpo"),
    ({"trl": {"rollout_func": "a.b"}, "nemo_gym_multi_turn": True}, "leave out trl.rollout_func"),
    (
        {"trl": {"use_vllm": True, "vllm_mode": "colocate"}, "nemo_gym_multi_turn": True},
        "the agent asks a server for the model's turns",
    ),
    ({"trl": {"reward_funcs": [PLAYED]}}, "nemo_gym_multi_turn: false is for single answers"),
    (
        {"trl": {"reward_funcs": [VERIFY]}, "nemo_gym_multi_turn": True},
        "nemo_gym_multi_turn: true is for entire conversations",
    ),
    ({"trl": {"reward_funcs": [VERIFY, "nemo_gym_verify"]}}, "are the same reward; name it once"),
    ({"trl": {"reward_weights": [1.0, 2.0]}}, "2 numbers for 1 rewards: the Gym's is one of them"),
]


@pytest.mark.parametrize(("keys", "words"), REFUSED)
def test_what_no_run_can_do_is_refused_by_name(keys, words):
    with pytest.raises(FmtkitError, match=words):
        plan(**keys)


def test_the_reward_of_a_gym_without_one_is_refused():
    with pytest.raises(OptionError, match="is the reward of an environment; set nemo_gym_enabled"):
        plan(nemo_gym_enabled=None, trl={"reward_funcs": [VERIFY]}, datasets=[{"path": "a.jsonl"}])


def test_the_reward_stands_where_it_is_named_and_else_last():
    assert naming.with_ours([VERIFY, "mine.f"], "OURS") == ["OURS", "mine.f"]
    assert naming.with_ours(["mine.f", "nemo_gym_verify"], "OURS") == ["mine.f", "OURS"]
    assert naming.with_ours("mine.f", "OURS") == ["mine.f", "OURS"]
    assert naming.with_ours(None, "OURS") == ["OURS"]
    assert naming.others([VERIFY, "mine.f", {"mine.g": {"a": 1}}]) == [
        "mine.f",
        {"mine.g": {"a": 1}},
    ]


def test_conversations_without_a_server_of_the_trainer_are_noted():
    notes = " ".join(plan(nemo_gym_multi_turn=True).notes)
    assert "nothing sends the trained weights to the server that the agent calls" in notes


def test_a_gym_that_is_started_is_told_where_the_trained_model_answers():
    made = plan(
        nemo_gym_multi_turn=True,
        nemo_gym_model_name="policy",
        trl={"use_vllm": True, "vllm_server_port": 8001},
    )
    assert gym_run.policy(made) == {
        "policy_base_url": "http://127.0.0.1:8001/v1",
        "policy_api_key": "EMPTY",
        "policy_model_name": "policy",
    }
    assert gym_run.policy(plan()) == {}


def test_a_dataset_that_is_not_there_is_told_before_anything_is_converted(tmp_path):
    made = plan(nemo_gym_dir=str(tmp_path))
    with pytest.raises(OptionError, match=r"a\.jsonl: no such file; relative paths start from"):
        gym_run.check(made)


def test_a_head_server_that_does_not_answer_is_told_before_anything_is_converted(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({}), encoding="utf-8")
    made = plan(nemo_gym_dir=str(tmp_path), nemo_gym_head_port=1)
    with pytest.raises(OptionError, match=r"nemo_gym_head_port: no server at .*start the Gym"):
        gym_run.check(made)


def test_every_key_and_metric_is_in_the_page():
    root = Path(__file__).parents[3]
    page = (root / "runners" / "nemo_gym" / "README.md").read_text(encoding="utf-8")
    for key in keys.KEYS:
        if key.name.startswith("nemo_gym_"):
            assert f"| `{key.name}` |" in page, key.name
    code = "".join(
        file.read_text(encoding="utf-8") for file in (root / "runners" / "nemo_gym").glob("*.py")
    )
    metrics = set(re.findall(r'log_metric\("(\S+?)"', code))
    EnvReward(5, "nemo_gym", "")(log_metric=lambda name, _: metrics.add(name))
    assert len(metrics) >= 7
    for metric in metrics:
        assert f"| `{metric}` |" in page, metric
