"""What agents are served: the adapter of now, under the one name that the Gym's configuration knows."""

import pytest

pytest.importorskip("trl")

import scripted_rollouts as scripted
import vllm_stub as vllm
from peft import LoraConfig

from fmtkit.runners.nemo_gym.settings import GymSettings
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import process
from fmtkit.training.vllm.rollout_settings import RolloutSettings


def test_agents_find_each_version_of_the_adapter_under_one_name(model, tmp_path):
    process.quiet()
    stub = vllm.Stub(model)
    with vllm.serving(stub) as port:
        client = vllm.Client(f"http://127.0.0.1:{port}", "fmtkit-policy")

        def rollout(prompts, trainer):
            # An agent asks for the name that it was started with, whatever the trainer knows.
            ids = [trainer.processing_class(scripted.text_of(p))["input_ids"] for p in prompts]
            answer = client.generate(ids)
            logprobs = [[p[0] for p in token] for token in answer["logprobs"]]
            return {
                "prompt_ids": ids,
                "completion_ids": answer["completion_ids"],
                "logprobs": logprobs,
            }

        trainer = scripted.make_trainer(
            model,
            tmp_path,
            rollout=rollout,
            rollouts=RolloutSettings(
                vllm_lora_sync=True, folder=tmp_path / "adapters", lora_name="fmtkit-policy"
            ),
            more={"peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj"])},
            vllm_server_port=port,
            vllm_server_host="127.0.0.1",
            max_steps=2,
        )
        vllm.attach(trainer, vllm.Client(f"http://127.0.0.1:{port}", model))
        trainer.train()
    once = ["load_lora_adapter fmtkit-policy", "reset_prefix_cache None"]
    # Unloaded before its files go: a server that has evicted it would end when it is asked for it.
    rounds = [*once, "completions fmtkit-policy"] * 2
    assert stub.posts() == [*rounds, "unload_lora_adapter fmtkit-policy"]
    paths = [body["lora_path"] for path, body in stub.calls if path.endswith("/load_lora_adapter")]
    assert len(set(paths)) == 2


def test_the_adapter_never_has_the_name_of_its_base():
    settings = GymSettings(model_name="org/base")
    assert settings.policy_name("org/base", is_adapter=False) == "org/base"
    assert settings.policy_name("org/base", is_adapter=True) == "fmtkit-policy"
    own = GymSettings(model_name="mine")
    assert own.policy_name("org/base", is_adapter=True) == "mine"


def test_a_gym_that_the_user_starts_must_ask_for_that_name():
    made = planning.plan(
        {
            "base_model": "m",
            "rl": "grpo",
            "adapter": "lora",
            "lora_r": 8,
            "micro_batch_size": 4,
            "nemo_gym_enabled": True,
            "nemo_gym_auto_start": False,
            "nemo_gym_multi_turn": True,
            "nemo_gym_datasets": [{"path": "a.jsonl", "server_name": "math"}],
            "trl": {
                "num_generations": 4,
                "use_vllm": True,
                "vllm_mode": "server",
                "vllm_lora_sync": True,
                "top_k": 20,
            },
        },
        partial=True,
    )
    notes = " ".join(made.notes)
    assert "start the Gym with policy_model_name=fmtkit-policy" in notes
    assert "requests carry temperature and top_p alone; top_k belong into extra_body" in notes
