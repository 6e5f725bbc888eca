"""The cases of gpu.py: what one process measures. Models, tokenizers and rows are made on the spot.

A case that has a counterpart in TRL is trained by both, in turns: by fmtkit, and by the script that a user would write
with TRL, on the same rows, model and seed.
"""

import gc
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear"}


class NotRunError(Exception):
    """A case that cannot run here, and why."""


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    hidden: int
    layers: int
    vocabulary: int
    words: int
    """From which texts are made; about a token each."""
    length: int
    batch: int
    answer: int
    steps: int
    online_steps: int
    flex: tuple[int, ...]
    """Lengths of the documents by which both masks are compared."""
    pairs: int
    """Trainings by each side."""
    warm: int
    """Steps at the beginning of each training that do not count."""


WHOLE = Size(768, 12, 8192, 6000, 512, 8, 32, 23, 9, (1024, 4096), 2, 3)
TINY = Size(32, 2, 400, 20, 64, 4, 6, 2, 2, (32, 48), 1, 1)


@dataclass(frozen=True)
class Setting:
    """Where a case runs: its folder, its device and the size of things."""

    folder: Path
    device: str
    size: Size

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"


Result = dict[str, Any]
Run = Callable[[Setting], Result]


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    about: str
    run: Run
    limit: int = 90
    """Seconds after which its process is ended."""
    is_timed: bool = True
    """Whether it measures; of those that do not, several run at once."""


# --- what is made on the spot -------------------------------------------------------------------


def prepare(setting: Setting) -> Result:
    """Write rows, a reward, a tokenizer trained on the rows and a Qwen3 of random weights."""
    generator, size = random.Random(0), setting.size
    letters = "abdeiklmnoprstuv"
    words = [
        "".join(generator.choices(letters, k=generator.randint(2, 9))) for _ in range(size.words)
    ]

    def text(most: int) -> str:
        return " ".join(generator.choices(words, k=generator.randint(most // 2, most)))

    part = size.length // 6
    rows = [
        {"question": text(part), "chosen": text(2 * part), "rejected": text(2 * part)}
        for _ in range(256)
    ]
    for name, lay_out in LAYOUTS.items():
        lines = (json.dumps(line) + "\n" for row in rows for line in lay_out(row))
        (setting.folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    (setting.folder / "gpu_reward.py").write_text(REWARDS, encoding="utf-8")
    _make_model(setting, [" ".join(row.values()) for row in rows])
    return {}


def _asked(row: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"role": "user", "content": row["question"]}]


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _pairs(row: Mapping[str, str]) -> list[Result]:
    sides = {side: _said(row[side]) for side in ("chosen", "rejected")}
    return [{"prompt": _asked(row), **sides}]


def _chats(row: Mapping[str, str]) -> list[Result]:
    return [{"messages": _asked(row) + _said(row["chosen"])}]


def _labels(row: Mapping[str, str]) -> list[Result]:
    labels = {"chosen": True, "rejected": False}
    return [
        {"prompt": _asked(row), "completion": _said(row[side]), "label": label}
        for side, label in labels.items()
    ]


def _prompts(row: Mapping[str, str]) -> list[Result]:
    # What the teacher of sdft is shown; no other method reads it.
    return [{"prompt": _asked(row), "privileged_context": row["chosen"]}]


def _answers(row: Mapping[str, str]) -> list[Result]:
    return [{"input": row["question"], "output": row["chosen"]}]


def _stepwise(row: Mapping[str, str]) -> list[Result]:
    steps = [row["chosen"], row["rejected"]]
    return [{"prompt": row["question"], "completions": steps, "labels": [True, False]}]


LAYOUTS = {
    "pairs": _pairs,
    "chats": _chats,
    "labels": _labels,
    "prompts": _prompts,
    "answers": _answers,
    "stepwise": _stepwise,
}
REWARDS = """
def length(completions, **kwargs):
    return [len(completion[0]["content"]) / 100 for completion in completions]


def vowels(completions, **kwargs):
    return [sum(map(completion[0]["content"].count, "aeiou")) / 100 for completion in completions]
"""


def _make_model(setting: Setting, texts: list[str]) -> None:
    import torch
    from transformers import AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    from fmtkit.training import demo

    size, folder = setting.size, setting.folder / "model"
    template = (ROOT / "templates" / "chatml.jinja").read_text(encoding="utf-8")
    demo.make(folder, texts, vocabulary=size.vocabulary, hidden=8, template=template)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=max(2, size.hidden // 64),
        num_key_value_heads=2,
        head_dim=min(64, size.hidden // 2),
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        **ends,
    )
    for seed, name in enumerate(("model", "teacher")):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        model.generation_config = GenerationConfig(**ends)
        model.to(_dtype(setting)).save_pretrained(setting.folder / name)
    tokenizer.save_pretrained(setting.folder / "teacher")
    _make_judge(folder, setting.folder / "judge")


def _make_judge(model: Path, folder: Path) -> None:
    """Write a reward model that has a model's body."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    judge = AutoModelForSequenceClassification.from_pretrained(model, num_labels=1)
    judge.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def _dtype(setting: Setting) -> Any:
    import torch

    return torch.bfloat16 if setting.on_gpu else torch.float32


# --- a training and its measures ----------------------------------------------------------------


def measured(setting: Setting, train: Callable[[], list[float]]) -> Result:
    """Run a training; return the milliseconds of steps, the peak of memory in MiB, the losses."""
    import torch
    import transformers

    ends: list[float] = []

    class Clock(transformers.TrainerCallback):
        """Takes the time at the end of each step, when the device has nothing left to do."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if setting.on_gpu:
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    plain = transformers.Trainer.train

    def clocked(self: Any, *given: Any, **named: Any) -> Any:
        self.add_callback(Clock())
        return plain(self, *given, **named)

    gc.collect()
    if setting.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    transformers.Trainer.train = clocked
    try:
        losses = train()
    finally:
        transformers.Trainer.train = plain
    if setting.on_gpu:
        memory = torch.cuda.max_memory_allocated() / 2**20
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"steps": _steps(setting, ends), "memory": memory, "losses": losses}


def _steps(setting: Setting, ends: list[float]) -> list[float]:
    """Return the milliseconds between the ends of steps, without those that warm up."""
    steps = [1000 * (after - before) for before, after in pairwise(ends)]
    return steps[setting.size.warm - 1 :]


def compared(ours: list[Result], theirs: list[Result]) -> Result:
    """Return the figures of a row; without trainings by TRL there is nothing to compare."""
    step, memory = _figures(ours)
    out: Result = {"step_ms": step, "memory_mib": memory, "losses": ours[0]["losses"]}
    out["medians"] = [median(training["steps"]) for training in ours]
    if not theirs:
        return out
    their_step, their_memory = _figures(theirs)
    losses = zip(ours[0]["losses"], theirs[0]["losses"], strict=True)
    return out | {
        "trl_step_ms": their_step,
        "trl_memory_mib": their_memory,
        "step_ratio": step / their_step,
        "memory_ratio": memory / their_memory,
        "trl_losses": theirs[0]["losses"],
        "trl_medians": [median(training["steps"]) for training in theirs],
        "largest_difference_of_losses": max(abs(own - other) for own, other in losses),
    }


def _figures(trainings: list[Result]) -> tuple[float, float]:
    """Return the median of all steps, and the largest memory."""
    steps = [step for training in trainings for step in training["steps"]]
    return median(steps), max(training["memory"] for training in trainings)


# --- by fmtkit ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """How a method is trained by both."""

    layout: str
    keys: Mapping[str, Any]
    """Of fmtkit's config."""
    by_hand: Callable[[Setting, bool], Any] | None = None
    """Makes TRL's trainer, with LoRA or of the whole model; None where TRL has none."""
    type: str | None = None
    """Of the dataset, where its columns leave it open."""
    is_online: bool = False
    gpu_keys: Mapping[str, Any] = field(default_factory=dict)
    """Of fmtkit's config where it trains on a GPU, and needs one."""


def config_of(setting: Setting, method: Method, *, lora: bool) -> Result:
    """Return fmtkit's config."""
    size, path = setting.size, str(setting.folder / f"{method.layout}.jsonl")
    adapter = {
        "adapter": "lora",
        "lora_r": LORA["r"],
        "lora_alpha": LORA["lora_alpha"],
        "lora_dropout": LORA["lora_dropout"],
        "lora_target_linear": True,
    }
    return {
        "base_model": str(setting.folder / "model"),
        "datasets": [{"path": path} | ({"type": method.type} if method.type else {})],
        "output_dir": str(setting.folder / "run"),
        "max_steps": size.online_steps if method.is_online else size.steps,
        "micro_batch_size": size.batch,
        "sequence_len": size.length,
        "learning_rate": 1e-5,
        "logging_steps": 1,
        "save_strategy": "no",
        "seed": 0,
        "bf16": setting.on_gpu,
        "use_cpu": not setting.on_gpu,
        **(adapter if lora else {}),
        **method.keys,
        **(method.gpu_keys if setting.on_gpu else {}),
    }


def by_fmtkit(setting: Setting, config: Mapping[str, Any]) -> Callable[[], list[float]]:
    """Convert the rows and return the training, which is that of fmtkit's training process."""
    import fmtkit
    from fmtkit.training.planning import job
    from fmtkit.training.run import process

    run = _fresh(config)
    fmtkit.train(_written(setting, config), prepare=True)

    def train() -> list[float]:
        code = process.train(job.read(run))
        if code:
            raise RuntimeError(f"fmtkit's training ended with {code}")
        return [log["loss"] for log in logs(run) if "loss" in log]

    return train


def _fresh(config: Mapping[str, Any]) -> Path:
    run = Path(config["output_dir"])
    shutil.rmtree(run, ignore_errors=True)
    return run


def _written(setting: Setting, config: Mapping[str, Any]) -> Path:
    """Write a config beside the module of the reward that it names."""
    file = setting.folder / "config.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


def logs(run: Path) -> list[Result]:
    """Return the lines of a run's metrics."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def trained(method: Method, *, lora: bool) -> Run:
    """Return the run of a case that trains a method."""

    def ours(setting: Setting) -> Result:
        config = config_of(setting, method, lora=lora)
        return measured(setting, by_fmtkit(setting, config))

    def theirs(setting: Setting) -> Result:
        assert method.by_hand is not None
        trainer = method.by_hand(setting, lora)

        def train() -> list[float]:
            trainer.train()
            return [log["loss"] for log in trainer.state.log_history if "loss" in log]

        return measured(setting, train)

    def run(setting: Setting) -> Result:
        found: dict[Run, list[Result]] = {ours: [], theirs: []}
        # The first training of a process is slow to its end, whoever makes it.
        first = (ours if method.by_hand is None else theirs)(setting)
        for pair in range(setting.size.pairs):
            for side in (theirs, ours) if pair % 2 else (ours, theirs):
                if side is ours or method.by_hand is not None:
                    found[side].append(side(setting))
        return compared(found[ours], found[theirs]) | {"first_median": median(first["steps"])}

    return run


# --- the scripts by hand ------------------------------------------------------------------------


def _arguments(setting: Setting, steps: int) -> Result:
    return {
        "output_dir": str(setting.folder / "by_hand"),
        "max_steps": steps,
        "per_device_train_batch_size": setting.size.batch,
        "learning_rate": 1e-5,
        "logging_steps": 1,
        "save_strategy": "no",
        "seed": 0,
        "bf16": setting.on_gpu,
        "use_cpu": not setting.on_gpu,
        "report_to": "none",
        "model_init_kwargs": {"dtype": "bfloat16" if setting.on_gpu else "float32"},
        "disable_tqdm": True,
        "gradient_checkpointing": False,
    }


def _offline(setting: Setting) -> Result:
    return {"max_length": setting.size.length, **_arguments(setting, setting.size.steps)}


def _inputs(setting: Setting, layout: str, lora: bool, task: str = "CAUSAL_LM") -> Result:
    import transformers
    from datasets import Dataset
    from peft import LoraConfig

    folder = setting.folder / "model"
    lines = (setting.folder / f"{layout}.jsonl").read_text(encoding="utf-8").splitlines()
    transformers.set_seed(0)
    return {
        # By its path, as fmtkit gives it: the trainer makes a new head on the device.
        "model": str(folder),
        "train_dataset": Dataset.from_list([json.loads(line) for line in lines]),
        "processing_class": transformers.AutoTokenizer.from_pretrained(folder),
        "peft_config": LoraConfig(task_type=task, **LORA) if lora else None,
    }


def sft_by_hand(setting: Setting, lora: bool) -> Any:
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(assistant_only_loss=True, **_offline(setting))
    return SFTTrainer(args=args, **_inputs(setting, "chats", lora))


def dpo_by_hand(setting: Setting, lora: bool) -> Any:
    from trl import DPOConfig, DPOTrainer

    return DPOTrainer(args=DPOConfig(**_offline(setting)), **_inputs(setting, "pairs", lora))


def kto_by_hand(setting: Setting, lora: bool) -> Any:
    from trl import KTOConfig, KTOTrainer

    from fmtkit.training.data.rows import interleaved

    inputs = _inputs(setting, "labels", lora)
    # TRL reads the rows of kto in order, and fmtkit mixes the labels: the same order for both.
    rows = interleaved(inputs.pop("train_dataset"), 0)
    return KTOTrainer(args=KTOConfig(**_offline(setting)), train_dataset=rows, **inputs)


def reward_by_hand(setting: Setting, lora: bool) -> Any:
    from trl import RewardConfig, RewardTrainer

    args = RewardConfig(**_offline(setting))
    return RewardTrainer(args=args, **_inputs(setting, "pairs", lora, "SEQ_CLS"))


def grpo_by_hand(setting: Setting, lora: bool) -> Any:
    from trl import GRPOConfig, GRPOTrainer

    sys.path.insert(0, str(setting.folder))
    from gpu_reward import length

    args = GRPOConfig(
        num_generations=4,
        max_completion_length=setting.size.answer,
        **_arguments(setting, setting.size.online_steps),
    )
    return GRPOTrainer(args=args, reward_funcs=[length], **_inputs(setting, "prompts", lora))


def methods(size: Size) -> dict[str, Method]:
    """Return the methods by name."""
    sampled = {"num_generations": 4, "max_completion_length": size.answer}
    rewarded = {**sampled, "reward_funcs": ["gpu_reward.length"]}
    strided = {"mode": "strided", "stride": 8, "generate_max_len": 8, "n_samples_per_prompt": 4}
    answers, texts = "ebft_opencode.transform", "ebft_strided_structured.transform"
    return {
        "sft": Method("chats", {}, sft_by_hand),
        "dpo": Method("pairs", {"rl": "dpo"}, dpo_by_hand),
        "kto": Method("labels", {"rl": "kto"}, kto_by_hand),
        "reward": Method("pairs", {"reward_model": True}, reward_by_hand),
        "grpo": Method("prompts", {"rl": "grpo", "trl": rewarded}, grpo_by_hand, is_online=True),
        "ebft structured": Method(
            "answers", {"rl": "ebft", "trl": sampled}, type=answers, is_online=True
        ),
        "ebft strided": Method(
            "answers",
            {"rl": "ebft", "ebft": strided},
            gpu_keys={"flex_attention": True},
            type=texts,
            is_online=True,
        ),
    }


# --- FlexAttention and the dense mask -----------------------------------------------------------


def flex(setting: Setting) -> Result:
    """Compare both masks of strided EBFT: log-probabilities, time and memory of a step."""
    import torch

    if not setting.on_gpu:
        # What the CPU compiles takes minutes, and proves nothing of the kernel for GPUs.
        torch.compiler.set_stance("force_eager")
    return {"lengths": [_flex_at(setting, length) for length in setting.size.flex]}


def _flex_at(setting: Setting, length: int) -> Result:
    import torch

    from fmtkit.runners.ebft.block_layout import BlockLayout

    torch.manual_seed(0)
    stride, steps, samples = 8, 8, 4
    anchors = torch.arange(stride, length - steps + 1, stride, device=setting.device)
    layout = BlockLayout(anchors.repeat(1, samples), length, steps)
    found = {name: _attended(setting, layout, name) for name in ("sdpa", "flex_attention")}
    dense, block = found["sdpa"], found["flex_attention"]
    gap = (dense["out"] - block["out"]).abs().max().item()
    out = {
        "length": length,
        "tokens_of_a_row": layout.size,
        "largest_difference": gap,
        # Logits of bf16 have three digits.
        "equal": gap < (0.1 if setting.on_gpu else 1e-3),
    }
    for name, figures in (("dense", dense), ("flex", block)):
        out |= {f"{name}_ms": figures["ms"], f"{name}_memory_mib": figures["memory"]}
    return out


def _attended(setting: Setting, layout: Any, attention: str) -> Result:
    """Run one row of blocks through the model; backward as well on a GPU, since the CPU has none."""
    import torch
    from transformers import AutoModelForCausalLM

    from fmtkit.runners.ebft.block_loss import token_log_probs
    from fmtkit.runners.ebft.block_mask import additive, dense_mask, flex_mask

    model = AutoModelForCausalLM.from_pretrained(
        setting.folder / "model", dtype=_dtype(setting), attn_implementation=attention
    ).to(setting.device)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, model.config.vocab_size, (1, layout.size), generator=generator)
    ids = ids.to(setting.device)

    def step() -> Any:
        # The mask belongs to the step: the trainer makes it anew for each.
        dense = attention == "sdpa"
        mask = additive(dense_mask(layout), model.dtype) if dense else flex_mask(layout)
        with torch.set_grad_enabled(setting.on_gpu):
            logits = model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=layout.position_ids(),
                logits_to_keep=layout.predictors(),
                use_cache=False,
            ).logits
            log_probs = token_log_probs(logits, ids[:, layout.document :], 1.0)
            if setting.on_gpu:
                model.zero_grad(set_to_none=True)
                log_probs.mean().backward()
        return log_probs.detach()

    return _timed(setting, step)


def _timed(setting: Setting, step: Callable[[], Any], repeats: int = 5) -> Result:
    """Return what a step returns, the median of its milliseconds and the peak of memory."""
    import torch

    def wait() -> None:
        if setting.on_gpu:
            torch.cuda.synchronize()

    out = step()
    wait()
    if setting.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        step()
        wait()
        times.append(1000 * (time.perf_counter() - begun))
    memory = torch.cuda.max_memory_allocated() / 2**20 if setting.on_gpu else None
    return {"out": out, "ms": median(times), "memory": memory}


# --- launching and vLLM -------------------------------------------------------------------------


def launched(profile: str, needs: str | None = None) -> Run:
    """Return the run of a case that trains by one of accelerate's profiles."""

    def run(setting: Setting) -> Result:
        need(setting, needs)
        config = config_of(setting, methods(setting.size)["sft"], lora=False)
        flags = ("--accelerate-config", profile, "--num-processes", "1")
        return _by_command(setting, config, *flags)

    return run


def _by_command(
    setting: Setting,
    config: Mapping[str, Any],
    *flags: str,
    server: subprocess.Popen[bytes] | None = None,
) -> Result:
    """Train by the command line; the time of a step is that between two logs.

    Where the server ends before the training, the case ends too: the training would wait for it.
    """
    run, file = _fresh(config), _written(setting, config)
    command = [sys.executable, "-m", "fmtkit", "train", str(file), *flags]
    training = subprocess.Popen(command, cwd=setting.folder)
    while (code := training.poll()) is None:
        if server is not None and server.poll() is not None:
            training.kill()
            training.wait()
            raise RuntimeError(f"the server ended with {server.returncode}")
        time.sleep(0.1)
    if code:
        raise RuntimeError(f"fmtkit train {' '.join(flags)} ended with {code}")
    told = [log for log in logs(run) if "loss" in log]
    steps = _steps(setting, [log["seconds"] for log in told])
    return {"step_ms": median(steps), "losses": [log["loss"] for log in told]}


def vllm_colocated(setting: Setting) -> Result:
    """Train GRPO whose answers vLLM makes in the trainer's own process."""
    need(setting, "vllm")
    config = _vllm_config(setting, {"vllm_mode": "colocate"}, lora=False)
    return compared([measured(setting, by_fmtkit(setting, config))], [])


def vllm_served(keys: Mapping[str, Any], *, lora: bool) -> Run:
    """Return the run of a case that trains GRPO whose answers a server on the same GPU makes.

    The adapter or all weights go to it by files; NCCL wants a GPU for each end.
    """

    def run(setting: Setting) -> Result:
        need(setting, "vllm")
        config = _vllm_config(setting, {"vllm_mode": "server", **keys}, lora=lora)
        command = [sys.executable, "-m", "fmtkit", "vllm-serve", str(_written(setting, config))]
        with _running(command, setting.folder) as server:
            return _by_command(setting, config, server=server)

    return run


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    server = subprocess.Popen(command, cwd=folder)
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def need(setting: Setting, package: str | None) -> None:
    """Raise NotRunError where a package or a GPU is missing."""
    if package is not None and find_spec(package) is None:
        raise NotRunError(f"{package} is not installed")
    if not setting.on_gpu:
        raise NotRunError("it needs CUDA")


def _vllm_config(setting: Setting, keys: Mapping[str, Any], *, lora: bool) -> Result:
    config = config_of(setting, methods(setting.size)["grpo"], lora=lora)
    config["trl"] = {**config["trl"], "use_vllm": True, **keys}
    memory = {"gpu_memory_utilization": 0.3, "max_model_len": 2 * setting.size.length}
    # No graphs of CUDA, where a server makes the answers: to make them takes longer than the steps.
    config["vllm"] = {**memory, "enforce_eager": True}
    # vLLM's own processes are begun anew: they are to find what this one was given.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return config


def cases(size: Size) -> tuple[Case, ...]:
    """Return every case, in the order in which they run."""
    return (
        *(
            Case(
                f"{name}, {'LoRA' if lora else 'full'}",
                f"{name} {'with LoRA' if lora else 'in full'}"
                f"{', beside the script by TRL' if method.by_hand else ''}",
                trained(method, lora=lora),
            )
            for name, method in methods(size).items()
            for lora in (False, True)
        ),
        Case("flex", "FlexAttention beside the dense mask of strided EBFT", flex, 120),
        Case("fsdp2", "sft by accelerate's profile fsdp2", launched("fsdp2")),
        Case("zero2", "sft by accelerate's profile zero2", launched("zero2", "deepspeed")),
        Case("zero3", "sft by accelerate's profile zero3", launched("zero3", "deepspeed")),
        Case("vllm colocate", "grpo with vLLM in the trainer", vllm_colocated, 150),
        Case(
            "vllm server, LoRA",
            "grpo with LoRA, whose adapter goes to a vLLM server on the same GPU",
            vllm_served({"vllm_lora_sync": True}, lora=True),
            200,
        ),
        Case(
            "vllm server, full",
            "grpo whose weights go by files to a vLLM server on the same GPU",
            vllm_served({"vllm_sync": "file"}, lora=False),
            200,
        ),
    )
