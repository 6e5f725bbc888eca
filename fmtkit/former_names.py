"""Former names of modules, functions and methods: they keep working for one version, with a warning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER = {
    f"fmtkit.{name}": f"fmtkit.{room}.{name}"
    for room, names in {
        "columns": "dialogs exports instructions kinds problems references transcripts turns",
        "core": "codes errors plugins runner tables",
        "formats": "registry target_registry",
        "tokenizers": "tokens",
    }.items()
    for name in names.split()
} | dict.fromkeys(("fmtkit.writing.encoding", "fmtkit.writing.stitching"), "fmtkit.writing.formats")
FORMER |= {
    "fmtkit.columns.dialog_pairs": "fmtkit.columns.shared_turns",
    "fmtkit.columns.messages": "fmtkit.columns.message_rules",
    "fmtkit.columns.tool_pairs": "fmtkit.columns.preference_cut",
    "fmtkit.core.messages": "fmtkit.core.message_keys",
    "fmtkit.training.building.health": "fmtkit.training.building.online_health",
    "fmtkit.training.config.arguments": "fmtkit.training.config.class_arguments",
    "fmtkit.training.config.imports": "fmtkit.training.config.user_objects",
    "fmtkit.training.config.problem": "fmtkit.training.config.problems",
    "fmtkit.training.planning.arguments": "fmtkit.training.planning.types",
    "fmtkit.training.rl.http_client": "fmtkit.core.http_client",
    "fmtkit.training.rl.rollouts.settings": "fmtkit.training.vllm.rollout_settings",
    "fmtkit.training.run.build": "fmtkit.training.building.build",
    "fmtkit.training.run.callbacks": "fmtkit.training.building.callbacks",
    "fmtkit.training.run.job": "fmtkit.training.planning.job",
}
FORMER |= (
    {
        f"fmtkit.training.rl.grpo{name}": f"fmtkit.{now}{name}"
        for now, names in {
            "training.rl.online": " checks group_rule keep_samples plan samples samples_page tool_templates",
            "runners.grpo_features": "build dynamic_sampling replay rerolls settings trainer zero_advantage",
            "runners.grpo": "async_build async_plan",
        }.items()
        for name in (f".{one}" if one else "" for one in names.split(" "))
    }
    | {
        f"fmtkit.training.rl.rollouts.{name}": f"fmtkit.training.vllm.{name}"
        for name in ["file_sync", "lifeline", "lora_sync", "server"]
    }
    | {
        "fmtkit.training.rl.grpo.rloo": "fmtkit.runners.grpo_features.rloo_trainer",
        "fmtkit.training.rl.grpo.online_dpo": "fmtkit.runners.online_dpo.trainer",
    }
)
"""Modules that documented extensions import (formats, targets, methods) -> where they are now."""

FORMER_ATTRIBUTES = {
    "fmtkit.columns.problems.Column": {
        "but": "with_value",
        "having": "depending_on",
        "leave": "warn_unread",
        "of": "with_turns",
    },
    "fmtkit.columns.dialogs": {
        "answers": "must_hold_question",
        "asks": "must_end_with_prompt",
        "ends_with_reply": "must_end_with_reply",
        "judged": "labelled",
        "speaks": "has_role",
    },
    "fmtkit.columns.exports": {
        "answering": "must_be_one_answer",
        "asking": "must_end_with_prompt",
        "learnable": "must_have_reply",
        "parted": "must_start_apart",
        "single": "must_be_one_message",
    },
    "fmtkit.columns.instructions": {"learnt": "trained_output"},
}
"""Functions and methods that extensions call: their module or class -> former name -> name."""


def attribute(owner: object, place: str, name: str) -> Any:
    """Return an attribute by its former name, with a warning; for `__getattr__` of its owner.

    Args:
        owner: The module or the object that is asked for it.
        place: The owner's name in FORMER_ATTRIBUTES.
        name: The name that it was asked by.

    Raises:
        AttributeError: If it was never the name of anything there.
    """
    new = FORMER_ATTRIBUTES[place].get(name)
    if new is None:
        raise AttributeError(f"{place} has no attribute {name!r}", name=name, obj=owner)
    warnings.warn(
        f"{place}.{name} is now {new}; the former name goes with fmtkit 0.3",
        FutureWarning,
        stacklevel=3,
    )
    return getattr(owner, new)


class _FormerNames:
    """A finder and loader in one, for former names alone."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(name, self) if name in FORMER else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = FORMER[spec.name]
        warnings.warn(
            f"{spec.name} is now {new}; the former name goes with fmtkit 0.3",
            FutureWarning,
            stacklevel=2,
        )
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system gave the module, which has run already, the spec of its former name.
        if module.__spec__ is not None and module.__spec__.name in FORMER:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let former names be imported; once for a process."""
    if not any(isinstance(finder, _FormerNames) for finder in sys.meta_path):
        # First, since a former name may be inside of one that is another package now.
        sys.meta_path.insert(0, _FormerNames())
