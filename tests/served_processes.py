"""Started by torchrun: each process trains against the stub whose port is given; the first writes what came.

`python served_processes.py MODEL FOLDER PORT AHEAD` with AHEAD 0 or 1.
"""

import json
import sys
from pathlib import Path

import scripted_rollouts as scripted
import vllm_stub as vllm
from peft import LoraConfig

from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer
from fmtkit.training.building.callbacks import TrainingError, saving
from fmtkit.training.run import process
from fmtkit.training.vllm.rollout_settings import RolloutSettings


def main(model: str, folder: Path, port: int, ahead: bool) -> None:
    process.quiet()
    seen = []

    def scored(completion_ids, prompts, **_):
        seen.extend(zip([p[-1]["content"] for p in prompts], completion_ids, strict=True))
        return [float(sum(ids) % 7) for ids in completion_ids]

    trainer = scripted.make_trainer(
        model,
        folder,
        kind=FmtkitGRPOTrainer,
        rollouts=RolloutSettings(
            async_prefetch=ahead, vllm_lora_sync=True, folder=folder / "adapters"
        ),
        more={"peft_config": LoraConfig(r=4, target_modules=["q_proj"])},
        vllm_server_host="127.0.0.1",
        vllm_server_port=port,
        vllm_server_timeout=0,
        per_device_train_batch_size=2,
    )
    trainer.reward_funcs = [scored]
    vllm.attach(trainer, vllm.Client(f"http://127.0.0.1:{port}", model))
    rank = trainer.accelerator.process_index
    told = ""
    try:
        with saving(trainer):
            trainer.train()
    except TrainingError as error:
        told = str(error)
    found = {"seen": seen, "losses": scripted.losses(trainer), "told": told}
    (folder / f"found-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
    process.CONNECTED.append(None)
    process.leave(0)
