"""What EBFT costs: steps of both modes, against the length of documents and the samples.

    python benchmarks/ebft.py [steps|lengths|samples|whitening]

Models are made from a config (Llama, 2 layers); nothing is downloaded. What
needs a GPU is in gpu.py.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ebft_toys import tiny_model, word_tokenizer

from fmtkit.runners.ebft.block_layout import BlockLayout
from fmtkit.runners.ebft.energy_reward import Weights, energy
from fmtkit.runners.ebft.feature_network import copied_network
from fmtkit.runners.ebft.settings import read_settings

VOCABULARY = 96


def seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Return the median of several runs after one to warm up: CPU time, or wall time on a GPU.

    CPU time of the one thread does not depend on what else the machine does.
    """
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    run()
    times = []
    for _ in range(repeats):
        _wait()
        start = clock()
        run()
        _wait()
        times.append(clock() - start)
    return sorted(times)[len(times) // 2]


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def strided_step(length: int, samples: int, attention: str = "sdpa", device: str = "cpu"):
    """Return a function that makes one training step of one document."""
    from transformers import TrainingArguments

    from fmtkit.runners.ebft.strided import StridedTrainer

    model = tiny_model(VOCABULARY, hidden=64).to(device)
    network = copied_network(model, device=device)
    ids = torch.randint(3, VOCABULARY, (length,)).tolist()
    trainer = StridedTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            use_cpu=device == "cpu",
            report_to=[],
            remove_unused_columns=False,
        ),
        train_dataset=[{"input_ids": ids, "labels": ids, "prompt_length": 0}],
        settings=read_settings({"mode": "strided", "n_samples_per_prompt": samples}),
        network=network,
        attention=attention,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = trainer.data_collator(trainer.train_dataset)
    batch = {name: tensor.to(device) for name, tensor in batch.items()}

    def step() -> None:
        optimizer.zero_grad()
        trainer.compute_loss(model, batch).backward()
        optimizer.step()

    return step


def structured_steps() -> float:
    """Return the seconds of two steps of structured mode, without the trainer's construction."""
    from datasets import Dataset
    from trl import GRPOConfig

    from fmtkit.runners.ebft.structured import EBFTTrainer

    rows = [{"prompt": f"w{i} w{i + 1}", "ground_truth": f"w{i + 2} w{i + 3}"} for i in range(1, 9)]
    model = tiny_model(VOCABULARY, hidden=64)
    trainer = EBFTTrainer(
        model=model,
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=16,
            max_steps=2,
            disable_tqdm=True,
            save_strategy="no",
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=word_tokenizer(80),
        settings=read_settings({}),
        network=copied_network(model),
    )
    start = time.process_time()
    trainer.train()
    return time.process_time() - start


def steps() -> None:
    print(f"structured, 2 steps, G=4, 8 sequences: {structured_steps():.2f} s (at most 1.5)")
    print(
        f"strided step, S=256 B=1 N=4 stride 8: {seconds(strided_step(256, 4)):.3f} s (at most 0.3)"
    )


def lengths() -> None:
    print("S      blocks  tokens of a row  s/step")
    for length in (128, 256, 512, 1024):
        layout = BlockLayout(
            torch.ones(1, 4 * ((length - 16) // 8 + 1), dtype=torch.long), length, 8
        )
        took = seconds(strided_step(length, 4), 3)
        print(f"{length:<6} {layout.blocks:<7} {layout.size:<16} {took:.3f}")


def samples() -> None:
    print("N      tokens of a row  s/step")
    for count in (2, 4, 8):
        layout = BlockLayout(torch.ones(1, 31 * count, dtype=torch.long), 256, 8)
        print(f"{count:<6} {layout.size:<16} {seconds(strided_step(256, count), 3):.3f}")


def whitening() -> None:
    """Measure each size in a process of its own: the peak of memory belongs to a process."""
    print("n     D        s       MiB allocated in all, MiB of the samples")
    for n, size in ((4, 12_288), (4, 122_880), (16, 122_880), (64, 122_880)):
        command = [sys.executable, __file__, "whiten", str(n), str(size)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def whiten(n: int, size: int) -> None:
    energy(torch.randn(4, 64), torch.randn(64), Weights(whitening="feature"))
    group, reference = torch.randn(n, size), torch.randn(size)
    start = time.process_time()
    energy(group, reference, Weights(whitening="feature"))
    took = time.process_time() - start
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        energy(group, reference, Weights(whitening="feature"))
    allocated = sum(max(e.self_cpu_memory_usage, 0) for e in profiled.events()) / 2**20
    print(f"{n:<5} {size:<8} {took:.4f}  {allocated:.1f}  {n * size * 4 / 2**20:.1f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["whiten"]:
        whiten(int(sys.argv[2]), int(sys.argv[3]))
    else:
        parts = {
            "steps": steps,
            "lengths": lengths,
            "samples": samples,
            "whitening": whitening,
        }
        for name in sys.argv[1:] or parts:
            parts[name]()
