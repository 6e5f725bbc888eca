"""Former names of modules, functions and methods: they keep working for one version, with a warning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER = {
    f"{old}.{name}": f"{new}.{name}"
    for old, new, names in (
        (
            "fmtkit",
            "fmtkit.columns",
            "exports instructions kinds problems references transcripts",
        ),
        ("fmtkit", "fmtkit.core", "codes errors plugins runner tables"),
        ("fmtkit", "fmtkit.formats", "registry target_registry"),
        (
            "fmtkit.converting",
            "fmtkit.detection",
            "asked_readings certainty command_paths contradicted_fits detection fits "
            "guessed_labels listed_replies near_misses no_type_advice numbered_replies "
            "other_commands questions rendered_texts spoken_lists suggestions told_answers "
            "unread_columns untyped_sources value_columns value_readings",
        ),
        ("fmtkit.converting", "fmtkit.formats", "map_files type_options typenames"),
        (
            "fmtkit.converting",
            "fmtkit.reading",
            "binding block_parsing bound_column column_kinds column_lines ignoring json_cells "
            "keeping lost_turns row_images table_program where_expression "
            "where_filter",
        ),
        (
            "fmtkit.converting",
            "fmtkit.rows",
            "joined_rows row_functions rows_of_functions user_functions",
        ),
        (
            "fmtkit.converting",
            "fmtkit.running",
            "conversion_run conversions ledger pipeline preparation progress_bar replay "
            "report_text run_report task_work validation",
        ),
        (
            "fmtkit.converting",
            "fmtkit.stages",
            "control_tokens conversion fusing image_loading image_places image_stage pairing "
            "target_images target_stage text_stage token_stage turn_table",
        ),
        ("fmtkit.converting", "fmtkit.work", "engine_choice engines ray_engine tasks"),
        ("fmtkit.converting", "fmtkit.writing", "common_schema splitting"),
        (
            "fmtkit.inspection",
            "fmtkit.findings",
            "advice box_columns cutting directions findings fingerprints image_tally "
            "mask_summary rendered_text reply_checks score_columns scripts secret_texts "
            "source_columns verdicts written_rows",
        ),
        (
            "fmtkit.inspection",
            "fmtkit.masks",
            "masked masking masks origins text_masks token_origins",
        ),
        ("fmtkit.training.rl", "fmtkit.training.online", "failed_samples rewards rollouts"),
        (
            "fmtkit.training.rl.dialogs",
            "fmtkit.training.online.conversations",
            "environment failures naming own_process",
        ),
        ("fmtkit.training.rl.grpo", "fmtkit.runners.grpo", "async_build async_plan"),
        (
            "fmtkit.training.rl.grpo",
            "fmtkit.runners.grpo_features",
            "build dynamic_sampling replay rerolls settings trainer zero_advantage",
        ),
        (
            "fmtkit.training.rl.grpo",
            "fmtkit.training.online",
            "checks group_rule keep_samples plan samples samples_page tool_templates",
        ),
        (
            "fmtkit.training.rl.online",
            "fmtkit.training.online",
            "build checks group_rule keep_samples plan reward_watch samples samples_page "
            "tool_templates",
        ),
        (
            "fmtkit.training.rl.rewards",
            "fmtkit.training.online.rewards",
            "batch call_limits calls entries functions loading needed_columns pool serving "
            "trial trial_outcome trial_rows verdicts",
        ),
        (
            "fmtkit.training.rl.rollouts",
            "fmtkit.training.online.rollouts",
            "contract generation guarded_environments loading producer sync_interval trainer",
        ),
        (
            "fmtkit.training.rl.rollouts",
            "fmtkit.training.vllm",
            "file_sync lifeline lora_sync",
        ),
        ("fmtkit.training.run", "fmtkit.training.building", "build callbacks"),
    )
    for name in names.split()
} | {
    "fmtkit.columns.dialog_pairs": "fmtkit.columns.shared_turns",
    "fmtkit.columns.dialogs": "fmtkit.columns.conversations",
    "fmtkit.columns.messages": "fmtkit.columns.message_rules",
    "fmtkit.columns.turns": "fmtkit.columns.record_turns",
    "fmtkit.turns": "fmtkit.columns.record_turns",
    "fmtkit.converting.soft_labels": "fmtkit.reading.step_labels",
    "fmtkit.training.rl.rollouts.server": "fmtkit.training.vllm.server_state",
    "fmtkit.training.vllm.server": "fmtkit.training.vllm.server_state",
    "fmtkit.columns.tool_pairs": "fmtkit.columns.preference_cut",
    "fmtkit.converting.convert_options": "fmtkit.options.convert_options",
    "fmtkit.converting.known_words": "fmtkit.columns.known_words",
    "fmtkit.core.messages": "fmtkit.core.message_keys",
    "fmtkit.dialogs": "fmtkit.columns.conversations",
    "fmtkit.diffing.diff_options": "fmtkit.options.diff_options",
    "fmtkit.inspection.dialog_checks": "fmtkit.findings.conversation_checks",
    "fmtkit.inspection.dialog_masks": "fmtkit.masks.conversation_masks",
    "fmtkit.inspection.dialog_shapes": "fmtkit.findings.conversation_shapes",
    "fmtkit.inspection.inspect_options": "fmtkit.options.inspect_options",
    "fmtkit.rendering.dialog_columns": "fmtkit.rendering.conversation_columns",
    "fmtkit.tokens": "fmtkit.tokenizers.tokens",
    "fmtkit.training.building.health": "fmtkit.training.building.online_health",
    "fmtkit.training.config.arguments": "fmtkit.training.config.class_arguments",
    "fmtkit.training.config.imports": "fmtkit.training.config.user_objects",
    "fmtkit.training.config.problem": "fmtkit.training.config.problems",
    "fmtkit.training.planning.arguments": "fmtkit.training.planning.types",
    "fmtkit.training.rl.dialogs": "fmtkit.training.online.conversations",
    "fmtkit.training.rl.dialogs.dialog": "fmtkit.training.online.conversations.tokenized_conversation",
    "fmtkit.training.rl.grpo": "fmtkit.training.online",
    "fmtkit.training.rl.grpo.online_dpo": "fmtkit.runners.online_dpo.trainer",
    "fmtkit.training.rl.grpo.rloo": "fmtkit.runners.grpo_features.rloo_trainer",
    "fmtkit.training.rl.http_client": "fmtkit.core.http_client",
    "fmtkit.training.rl.online": "fmtkit.training.online",
    "fmtkit.training.rl.rollouts.dialogs_ahead": "fmtkit.training.online.rollouts.conversations_ahead",
    "fmtkit.training.rl.rollouts.settings": "fmtkit.training.vllm.rollout_settings",
    "fmtkit.training.run.job": "fmtkit.training.planning.job",
    "fmtkit.training.train_options": "fmtkit.options.train_options",
    "fmtkit.writing.encoding": "fmtkit.writing.formats",
    "fmtkit.writing.stitching": "fmtkit.writing.formats",
}
"""Modules that documented extensions import (formats, targets, methods) -> where they are now."""
FORMER_PACKAGES = frozenset({"fmtkit.converting", "fmtkit.training.rl"})
"""Packages of which nothing is left but the former names of their modules."""

FORMER_ATTRIBUTES = {
    "fmtkit.core.tables": {
        "written": "final_rows",
    },
    "fmtkit.formats.target_registry": {
        "Rows": "WrittenColumns",
    },
    "fmtkit.columns.sessions": {
        "Dialog": "ConversationBuilder",
        "dialogs_of": "conversations_of",
    },
    "fmtkit.columns.kinds": {
        "DialogKind": "ConversationKind",
    },
    "fmtkit.columns.problems.Column": {
        "but": "with_value",
        "having": "depending_on",
        "leave": "warn_unread",
        "of": "with_turns",
    },
    "fmtkit.columns.conversations": {
        "dialog": "messages_of",
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
    "fmtkit.columns.instructions": {
        "STANFORD": "STANFORD_SYSTEM_PROMPTS",
        "learnt": "trained_output",
    },
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
        if name in FORMER_PACKAGES:
            return ModuleSpec(name, None, is_package=True)
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
