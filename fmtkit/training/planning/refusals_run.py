"""Refusals about the run: batches, schedules, evaluation and plugins."""

from collections.abc import Callable

from fmtkit.core.runner import Runner
from fmtkit.training.config.config import Config
from fmtkit.training.planning.datatypes import plugin_files, plugins

PLUGINS = {
    "NemoGymPlugin": "",
    "LigerPlugin": "",
    "SwanLabPlugin": "",
    "CutCrossEntropyPlugin": "the loss is computed without its kernel: the same function",
    "KernelsPlugin": "layers are computed without its kernels: the same function",
}
"""Plugins of axolotl that are known, and what the plan says of them; their keys say the rest."""
PLUGINS_THAT_TRAIN = {
    "ExpertParallelPlugin": "experts are not spread over devices",
    "DiffusionPlugin": "diffusion language models have another objective",
    "LLMCompressorPlugin": "weights are not pruned while training",
    "KDPlugin": "use rl: gkd or rl: distillation with a teacher_model",
    "SpectrumPlugin": "name the parameters that train in unfrozen_parameters",
    "GrokfastPlugin": "gradients are not filtered",
    "DenseMixerPlugin": "the experts that train are those that the model chooses",
}
"""Plugins that change what is trained, and why that cannot be done or what does it."""


def _batch(config: Config, _: Runner) -> str | None:
    whole, micro = config.get("batch_size"), config.get("micro_batch_size")
    if not isinstance(whole, int):
        return None
    if config.get("gradient_accumulation_steps") is not None:
        return "batch_size sets gradient_accumulation_steps; keep one"
    if not isinstance(micro, int):
        return "batch_size needs micro_batch_size beside it"
    processes = config.get("num_processes")
    step = micro * (processes if isinstance(processes, int) else 1)
    if whole % step:
        return f"batch_size: {whole} is no multiple of {step} rows that all processes take at once"
    return None


def _evaluation(config: Config, _: Runner) -> str | None:
    if config.get("val_set_size") or config.test_datasets:
        return None
    for name in ("load_best_model_at_end", "early_stopping_patience"):
        if config.get(name):
            return f"{name}: there is nothing to evaluate on; set val_set_size or test_datasets"
    return None


def _missing_plugin(config: Config, _: Runner) -> str | None:
    for plugin in plugins(config):
        name = plugin.rpartition(".")[2]
        if plugin not in plugin_files(config) and name not in PLUGINS:
            why = PLUGINS_THAT_TRAIN.get(
                name, "it is not known here; a FILE.py of yours may be named"
            )
            return f"plugins: {plugin} cannot be honoured: {why}; leave it out"
    return None


def _steps(config: Config, _: Runner) -> str | None:
    for name in ("eval", "save"):
        if config.get(f"{name}s_per_epoch") and config.get(f"{name}_steps"):
            return f"{name}s_per_epoch sets {name}_steps; keep one"
    if config.get("warmup_ratio") and config.get("warmup_steps"):
        return "warmup_ratio and warmup_steps both set the warm-up; keep one"
    return None


def plugin_notes(config: Config) -> list[str]:
    """Return what the plan says of axolotl's plugins that need not be there."""
    named = {plugin: PLUGINS.get(plugin.rpartition(".")[2]) for plugin in plugins(config)}
    return [f"plugins: {plugin}: {note}" for plugin, note in named.items() if note]


RULES: tuple[tuple[str, str, Callable[[Config, Runner], str | None]], ...] = (
    ("batch_size", "a batch that is no multiple of what the processes take", _batch),
    ("nothing_to_evaluate", "evaluation without data to evaluate on", _evaluation),
    ("plugin", "plugins of axolotl without a counterpart", _missing_plugin),
    ("two_schedules", "two keys that set one schedule", _steps),
)
"""Code, what it looks for, and what finds the reason why a configuration cannot be honoured."""
