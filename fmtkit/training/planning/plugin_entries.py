"""The entries of `plugins`: files of the user's, and classes of axolotl's that are known, or refused."""

from collections.abc import Iterator, Mapping

from fmtkit.core import section
from fmtkit.core.runner import Runner
from fmtkit.training.config.config import Config
from fmtkit.training.planning.check import note, refuse
from fmtkit.training.planning.run_plan import Plan

ACCEPTED_PLUGINS = {
    "LigerPlugin": "",
    "SwanLabPlugin": "",
    "CutCrossEntropyPlugin": "not needed: the loss is computed without its kernel, with the same result",
    "KernelsPlugin": "not needed: layers are computed without its kernels, with the same result",
}
"""Plugins of axolotl that a config may name, besides those of sections -> the plan's note on it, if any."""
REFUSED_PLUGINS = {
    "ExpertParallelPlugin": "experts are not spread over devices",
    "DiffusionPlugin": "the objective of diffusion language models is not implemented",
    "LLMCompressorPlugin": "weights are not pruned while training",
    "KDPlugin": "use rl: gkd or rl: distillation with a teacher_model",
    "SpectrumPlugin": "name the parameters that train in unfrozen_parameters",
    "GrokfastPlugin": "gradients are not filtered",
    "DenseMixerPlugin": "only the experts that the router selects are trained",
}
"""Plugins of axolotl that change the training -> why they are refused, or what to set instead."""


def plugin_files(config: Config) -> tuple[str, ...]:
    """Return the user's Python files among `plugins`; other entries are classes of axolotl."""
    return tuple(name for name in plugins(config) if name.endswith(".py"))


def plugins(config: Config) -> tuple[str, ...]:
    """Return everything that `plugins` names."""
    named = config.get("plugins")
    return tuple(map(str, named if isinstance(named, list) else [named] if named else []))


def accepted_plugins() -> Mapping[str, str]:
    """Return the plugins of axolotl that a config may name, those of sections too -> the note on each."""
    return ACCEPTED_PLUGINS | {
        n: note for one in section.every() for n, note in one.plugins.items()
    }


@refuse("plugin", "axolotl plugins without a counterpart", keys=("plugins",))
def _missing_plugin(config: Config, _: Runner) -> str | None:
    for plugin in plugins(config):
        name = plugin.rpartition(".")[2]
        if plugin not in plugin_files(config) and name not in accepted_plugins():
            why = REFUSED_PLUGINS.get(
                name, "fmtkit does not know it; to add code of your own, name a FILE.py"
            )
            return f"plugins: {plugin} cannot be honoured: {why}; leave it out"
    return None


@note("plugins")
def _notes(plan: Plan) -> Iterator[str]:
    """Yield a note on each plugin of axolotl that has no effect here."""
    accepted = accepted_plugins()
    for plugin in dict.fromkeys(plugins(plan.config)):
        if why := accepted.get(plugin.rpartition(".")[2]):
            yield f"plugins: {plugin}: {why}"
