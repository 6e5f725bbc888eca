"""Trainers that TRL has removed, for the versions that still have them: BCO, PPO, Nash-MD and XPO.

PPO, Nash-MD and XPO take their rewards from a reward model. PPO's trainer expects tokenized prompts, so
they are tokenized here.
"""

from types import SimpleNamespace
from typing import Any

from fmtkit.training.building.build import (
    Parts,
    build_trainer,
    load_class,
    load_model,
    processes_of,
    trainer_inputs,
)
from fmtkit.training.data.rows import rendered
from fmtkit.training.planning.job import Job


def build_bco(job: Job, parts: Parts) -> Any:
    """Make a BCO trainer, which takes rows that are already rendered."""
    parts.train = rendered(parts.train, parts.tokenizer)
    parts.evaluation = rendered(parts.evaluation, parts.tokenizer)
    return build_trainer(job, parts)


def build_online(job: Job, parts: Parts) -> Any:
    """Make a Nash-MD or XPO trainer, whose rewards are the scores of the reward model."""
    trainer_class = load_class(parts.runner.trainer)
    inputs = trainer_inputs(job, parts, trainer_class)
    inputs["model"] = _policy(job, parts)
    parts.arguments.model_init_kwargs = None
    inputs["reward_funcs"] = _reward_model(job)
    if "reward_processing_classes" in trainer_class.__init__.__annotations__:
        inputs["reward_processing_classes"] = parts.tokenizer
    return trainer_class(**inputs)


def build_ppo(job: Job, parts: Parts) -> Any:
    """Make a PPO trainer; its value model is initialized with the weights of the reward model."""
    trainer_class = load_class(parts.runner.trainer)
    arguments = parts.arguments
    if arguments.total_episodes is None and arguments.max_steps > 0:
        batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
        arguments.total_episodes = arguments.max_steps * batch * processes_of(arguments)
    trainer = trainer_class(
        args=arguments,
        processing_class=parts.tokenizer,
        model=_policy(job, parts),
        ref_model=None if parts.peft is not None else load_model(job, parts.runner),
        reward_model=_reward_model(job),
        value_model=_reward_model(job),
        train_dataset=tokenized(parts.train, parts.tokenizer),
        eval_dataset=tokenized(
            parts.train if parts.evaluation is None else parts.evaluation, parts.tokenizer
        ),
        callbacks=parts.callbacks,
        peft_config=parts.peft,
    )
    run_ppo = trainer.train

    def train(resume_from_checkpoint: str | None = None) -> Any:
        """Run PPO's own loop, which returns no loss and cannot resume (`resumes` of its runner)."""
        del resume_from_checkpoint
        run_ppo()
        return SimpleNamespace(training_loss=float("nan"))

    trainer.train = train
    return trainer


def tokenized(rows: Any, tokenizer: Any) -> Any:
    """Return prompts as token ids: text as it is, messages followed by the template's generation prompt."""

    def encode(row: dict[str, Any]) -> dict[str, list[int]]:
        if isinstance(row["prompt"], str):
            return {"input_ids": tokenizer(row["prompt"])["input_ids"]}
        ids = tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return {"input_ids": ids}

    return rows.map(encode, remove_columns=rows.column_names)


def _policy(job: Job, parts: Parts) -> Any:
    return load_model(job, parts.runner) if isinstance(parts.model, str) else parts.model


def _reward_model(job: Job) -> Any:
    """Load the reward model: a sequence classifier with one output."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(
        str(job.setting("reward_model_path")), num_labels=1
    )
