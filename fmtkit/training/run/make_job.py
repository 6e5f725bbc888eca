"""From a plan whose datasets are converted to the job that the training processes read."""

from fmtkit.core.runner import SECTIONS
from fmtkit.training.config.keys import find_key
from fmtkit.training.planning.plan import Plan
from fmtkit.training.rl.imports import places_of
from fmtkit.training.run import launch
from fmtkit.training.run.job import Job, Source


def job_of(
    plan: Plan,
    train: tuple[Source, ...],
    evaluation: tuple[Source, ...],
    template_text: str | None,
    resume: str | None = None,
) -> Job:
    """Return the job of a plan whose datasets are converted."""
    resolution, config = plan.resolution, plan.config
    values = {group: {a.name: a.value for a in resolution.of(group).values()} for group in _GROUPS}
    adapter = config.get("adapter")
    model = plan.model or ""
    fmtkit_keys = {name: s.value for name, s in config.settings.items() if _is_ours(name)}
    if plan.datasets:
        fmtkit_keys["type_options"] = dict(plan.datasets[0].reading.options)
    return Job(
        run=str(plan.run),
        method=plan.method,
        variant=str(config.get(plan.runner.variant_key) or "") if plan.runner.variant_key else "",
        model=model,
        tokenizer=config.text("tokenizer_config") or model,
        trainer=values["trainer"],
        own={a.name: a.value for a in resolution.own.values()},
        model_arguments=values["model"],
        peft=values["peft"] if adapter else None,
        quantization=values["quantization"] or None,
        teacher=config.text("teacher_model"),
        teacher_arguments=values["teacher"],
        template=plan.template[0],
        template_text=template_text,
        train=train,
        evaluation=evaluation,
        settings=fmtkit_keys,
        sections={s: values[s] for s in SECTIONS if values[s]},
        places=tuple(str(place) for place in places_of(config.source)),
        resume=resume,
        needs_cuda=plan.launch.needs_cuda or plan.runner.needs_cuda or resolution.is_quantized,
        processes=launch.processes_of(config, plan.launch),
    )


_GROUPS = ("trainer", "model", "peft", "quantization", "teacher", *SECTIONS)


def _is_ours(name: str) -> bool:
    key = find_key(name)
    return key is not None and key.to == "fmtkit"
