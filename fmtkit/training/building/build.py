"""From a job to a TRL trainer: tokenizer, datasets, model, arguments; in a training process."""

import copy
import os
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, OptionError, TokenizerError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.runner import Head, Runner, find
from fmtkit.training.building import extensions, image_lengths, on_demand, processors, vision_parts
from fmtkit.training.config.class_arguments import FORMER_NAMES
from fmtkit.training.data import image_rows, tokenized_rows
from fmtkit.training.data.loss_rules import LossRule
from fmtkit.training.planning import at_hand, freezing, image_facts
from fmtkit.training.planning.job import ALL_LINEAR, BY_DEVICE, WITHOUT, Job
from fmtkit.training.planning.types import LABELS

_TASKS = {"causal": "CAUSAL_LM", "score": "SEQ_CLS", "steps": "TOKEN_CLS"}
_AUTO = {
    "causal": "AutoModelForCausalLM",
    "score": "AutoModelForSequenceClassification",
    "steps": "AutoModelForTokenClassification",
}


@dataclass
class Parts:
    """The inputs of every trainer; `model` is a path wherever TRL can load it itself."""

    runner: Runner
    tokenizer: Any
    train: Any
    evaluation: Any
    arguments: Any
    model: Any
    peft: Any = None
    quantization: Any = None
    callbacks: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Rows that were left out."""
    are_rendered: bool = False
    """Whether the conversations are rendered text, though the trainer takes only messages."""
    first_rows: Any = ()
    """The first rows to evaluate on, or else to train on, as they were before anything was tokenized."""
    on_demand: bool = False
    """Whether rows to train on are prepared when a step draws them."""
    tokenize: Callable[[Any], Any] | None = None
    """What tokenizes rows on demand before the trainer sees them; None where the trainer does."""
    processor: Any = None
    """What makes model inputs of images and text, with the tokenizer in it; None for rows without images."""

    @property
    def processing_class(self) -> Any:
        """Return what the trainer makes model inputs with."""
        return self.tokenizer if self.processor is None else self.processor


def runner_of(job: Job) -> Runner:
    """Return the runner of a job, in the variant that its configuration chose."""
    runner = find(job.method)
    return runner.variant(job.variant) if job.variant else runner


def load_class(path: str) -> Any:
    """Return the class or function that a runner names ("trl:DPOTrainer")."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise DependencyError(f"{path} needs {error.name}: pip install {error.name}") from error


def build_trainer(job: Job, parts: Parts) -> Any:
    """Make the trainer of a runner from the arguments that its class takes."""
    trainer_class = load_class(parts.runner.trainer)
    if parts.on_demand:
        trainer_class = on_demand.preparing_on_demand(trainer_class, parts.train, parts.tokenize)
    trainer = trainer_class(**trainer_inputs(job, parts, trainer_class))
    if parts.are_rendered:
        # Its collator renders what is rendered already; the tokenizer that is saved keeps its template.
        trainer.data_collator.tokenizer = copy.deepcopy(parts.tokenizer)
        trainer.data_collator.tokenizer.chat_template = tokenized_rows.identity_source()
    return trainer


def trainer_inputs(job: Job, parts: Parts, trainer_class: Any) -> dict[str, Any]:
    """Return the keyword arguments of a trainer's class for these parts."""
    takes = _parameters(trainer_class)
    inputs: dict[str, Any] = {
        "model": parts.model,
        "args": parts.arguments,
        "train_dataset": parts.train,
        "eval_dataset": parts.evaluation,
        "processing_class": parts.processing_class,
        "callbacks": parts.callbacks,
    }
    if parts.peft is not None:
        inputs["peft_config"] = parts.peft
    if parts.quantization is not None and isinstance(parts.model, str):
        if "quantization_config" in takes:
            inputs["quantization_config"] = parts.quantization
        else:
            loading = parts.arguments.model_init_kwargs or {}
            parts.arguments.model_init_kwargs = {
                **loading,
                "quantization_config": parts.quantization,
            }
    if "ref_model" in takes:
        reference = reference_model(job)
        if reference is not None:
            inputs["ref_model"] = reference
    metrics = extensions.metrics_of(job) if "compute_metrics" in takes else None
    if metrics is not None:
        inputs["compute_metrics"] = metrics
    if "teacher_model" in takes and job.teacher:
        inputs["teacher_model"] = job.teacher
    return inputs


def _parameters(class_: type) -> set[str]:
    """Return the names of a constructor's parameters; with ** also those of its bases."""
    names: set[str] = set()
    for one in class_.__mro__:
        if "__init__" not in vars(one):
            continue
        parameters = signature(vars(one)["__init__"]).parameters
        names |= parameters.keys()
        if all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in parameters.values()):
            break
    return names


def processes_of(arguments: Any) -> int:
    """Return how many processes train together, by a TrainingArguments before its trainer is made.

    Not arguments.world_size: PPOConfig (TRL 1.12) has a field of that name, None until the trainer
    sets it.
    """
    return int(arguments.distributed_state.num_processes)


def make_trainer(job: Job, parts: Parts) -> Any:
    """Make the trainer that the runner names.

    Raises OptionError if the runner's function makes one of a different class.
    """
    trainer = load_class(parts.runner.builder)(job, parts)
    if not isinstance(trainer, load_class(parts.runner.trainer)):
        raise OptionError(
            f"{parts.runner.method}: {parts.runner.builder} made a {type(trainer).__name__}, which is "
            f"no {parts.runner.trainer}; a runner names the class that trains"
        )
    return trainer


def parts_of(job: Job, callbacks: list[Any]) -> Parts:
    """Load and make everything that the job's trainer needs."""
    from fmtkit.training.data.rows import load_rows

    runner = runner_of(job)
    has_images = image_facts.are_in((*job.train, *job.evaluation))
    processor = load_processor(job, runner) if has_images else None
    tokenizer = load_tokenizer(job) if processor is None else processor.tokenizer
    notes: list[str] = []
    loaded, evaluation = load_rows(job, runner, notes.append, tokenizer)
    for rows in filter(None, (loaded, evaluation)):
        tokenized_rows.check_end(rows, runner, tokenizer)
    if processor is None:
        loaded, evaluation = map(image_rows.without_column, (loaded, evaluation))
    are_rendered = runner.whole_conversations and any(
        rows is not None and tokenized_rows.has_text_rows(rows) for rows in (loaded, evaluation)
    )
    both = [rows for rows in (loaded, evaluation) if rows is not None]
    tokenizing = _tokenizing(job, both, tokenizer) if processor is None else None
    prepare = partial(
        _prepared, tokenizer=tokenizer, are_rendered=are_rendered, tokenize=tokenizing
    )
    if processor is not None:
        for rows in filter(None, (loaded, evaluation)):
            image_rows.check(rows, runner)
        loaded, evaluation = (
            image_lengths.within(rows, job, processor, notes.append)
            for rows in (loaded, evaluation)
        )
        prepare = partial(image_rows.for_trainer, size=image_rows.ImageSize.of(job))
    # TRL prepares no row that has images before a batch draws it.
    waits = processor is None and (
        job.on_demand_from is not None and len(loaded) >= job.on_demand_from
    )
    tokenize = tokenizing if waits else None
    train = loaded if tokenize is not None else prepare(loaded)
    columns = train.column_names if tokenize is None else tokenized_rows.TOKENIZED
    arguments = make_arguments(job, runner, columns)
    model, peft = make_model(job, runner, tokenizer)
    return Parts(
        runner=runner,
        tokenizer=tokenizer,
        train=train,
        evaluation=prepare(evaluation),
        arguments=arguments,
        model=model,
        peft=peft,
        quantization=make_quantization(job),
        callbacks=callbacks,
        notes=notes,
        are_rendered=are_rendered,
        first_rows=_first_rows(loaded if evaluation is None else evaluation),
        on_demand=waits,
        tokenize=tokenize,
        processor=processor,
    )


_FIRST = 512


def _first_rows(rows: Any) -> Any:
    return rows.select(range(min(_FIRST, len(rows))))


def _prepared(
    rows: Any, *, tokenizer: Any, are_rendered: bool, tokenize: Callable[[Any], Any] | None
) -> Any:
    """Tokenize conversations that TRL cannot mask; others get contents as their template reads them."""
    from fmtkit.training.data.rows import in_parts, rendered_conversations

    if rows is None:
        return rows
    if are_rendered:
        return rendered_conversations(rows, tokenizer)
    if tokenize is not None:
        return tokenize(rows)
    return rows if tokenizer.chat_template is None else in_parts(rows, tokenizer)


def _tokenizing(job: Job, datasets: Sequence[Any], tokenizer: Any) -> Callable[[Any], Any] | None:
    """Return what tokenizes conversations that TRL cannot mask; None for rows that TRL tokenizes.

    Rows to evaluate on are masked as those to train on are: both are tokenized here, or none.
    """
    loss = LossRule.of_job(job)
    is_sft = runner_of(job).mask == "completion"
    needs = any(tokenized_rows.needs_marks(rows, tokenizer, loss) for rows in datasets)
    if not is_sft or not needs:
        return None
    masking = loss.masking(job.method, job.max_length)
    return partial(tokenized_rows.tokenized, tokenizer=tokenizer, usual=masking)


def load_processor(job: Job, runner: Runner) -> Any:
    """Load the model's processor; its tokenizer has the run's special tokens and chat template.

    Raises OptionError for a method whose trainer makes nothing of images.
    """
    if not runner.takes_images:
        raise OptionError(image_facts.no_path(runner))
    named = job.setting("processor_kwargs")
    processor = processors.load(
        job.model,
        kind=str(job.setting("processor_type") or "AutoProcessor"),
        revision=str(job.model_arguments.get("revision", "main")),
        trusted=job.trusts_code,
        given=named if isinstance(named, Mapping) else {},
    )
    if processor.tokenizer.chat_template is None:
        processor.tokenizer.chat_template = processor.chat_template
    prepare_tokenizer(job, processor.tokenizer)
    processor.chat_template = processor.tokenizer.chat_template
    if "Prompt" in runner.tables:
        # As TRL loads it: answers are written behind their prompts.
        processor.tokenizer.padding_side = processor.tokenizer.truncation_side = "left"
    return processor


def load_tokenizer(job: Job) -> Any:
    """Load the tokenizer with the run's special tokens and the run's chat template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        job.tokenizer,
        revision=job.model_arguments.get("revision", "main")
        if job.tokenizer == job.model
        else "main",
        trust_remote_code=job.trusts_code,
    )
    prepare_tokenizer(job, tokenizer)
    return tokenizer


def prepare_tokenizer(job: Job, tokenizer: Any) -> None:
    """Give a tokenizer the run's special tokens and the run's chat template.

    Raises TokenizerError where it has no pad token, or no template for rows that need one.
    """
    special = job.setting("special_tokens")
    if isinstance(special, Mapping):
        tokenizer.add_special_tokens({str(k): v for k, v in special.items()})
    tokens = job.setting("tokens")
    if isinstance(tokens, list):
        tokenizer.add_tokens([str(token) for token in tokens])
    if tokenizer.pad_token is None:
        raise TokenizerError(
            f"{job.tokenizer}: the tokenizer has no pad token; set special_tokens.pad_token"
        )
    if job.template_text is not None:
        tokenizer.chat_template = job.template_text
    needs_one = runner_of(job).head != "steps" and job.template != WITHOUT
    if tokenizer.chat_template is None and needs_one:
        raise TokenizerError(
            f"{job.tokenizer}: the tokenizer has no chat template; set chat_template"
        )


def _named_as_here(values: dict[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return the arguments by the names of the installed transformers."""
    former = {new: old for new, old in FORMER_NAMES.items() if new not in names and old in names}
    return {former.get(name, name): value for name, value in values.items()}


def make_arguments(job: Job, runner: Runner, columns: Sequence[str]) -> Any:
    """Make the config object of the trainer; the device decides on values left to `auto`."""
    import torch

    values = at_hand.arguments(job.trainer, has_cuda=torch.cuda.is_available(), say=_say_once)
    if values.get("bf16") == "auto":
        values["bf16"] = _has_bfloat16()
    elif values.get("bf16") is True and not torch.cuda.is_available():
        # TRL refuses bf16 on a machine without a device unless it is told to use the CPU.
        values.setdefault("use_cpu", True)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not _has_devices():
        # Without a device accelerate joins processes where it is told to use the CPU, and nowhere else.
        values.setdefault("use_cpu", True)
    # Pinned memory is useful only with a device; torch warns without one.
    values.setdefault("dataloader_pin_memory", torch.cuda.is_available())
    if runner.mask == "completion":
        _mask_replies(job, values, columns)
    config_class = load_class(runner.config)
    names = config_class.__dataclass_fields__
    if "padding_value" in names or "is_encoder_decoder" in names:
        # Their collator reads columns that no forward pass takes; they set this too, and warn.
        values.setdefault("remove_unused_columns", False)
    if "model_init_kwargs" in names:
        values["model_init_kwargs"] = loading_arguments(job, runner)
    if "teacher_model_init_kwargs" in names and job.teacher:
        values["teacher_model_init_kwargs"] = {"dtype": "float32", **job.teacher_arguments}
    if "teacher_model_name_or_path" in names and job.teacher:
        values["teacher_model_name_or_path"] = job.teacher
    values["output_dir"] = str(Path(job.run) / "checkpoints")
    # Trackers would invent a name; users look for that of the folder.
    values.setdefault("run_name", Path(job.run).name)
    # The progress bar and the metrics are fmtkit's; the filter would hide a NaN loss, and
    # look at the loss on the device at every step.
    values |= {"disable_tqdm": True, "logging_nan_inf_filter": False}
    try:
        return config_class(**_named_as_here(values, names))
    except (TypeError, ValueError) as error:
        raise OptionError(f"{config_class.__name__}: {error}") from error


def _mask_replies(job: Job, values: dict[str, Any], columns: Sequence[str]) -> None:
    """Train on a conversation where its template says that the assistant turn is."""
    if "input_ids" in columns:
        # The labels say what is trained on; TRL takes the argument for rows of messages alone.
        values["assistant_only_loss"] = False
    if "messages" not in columns:
        return
    values.setdefault("assistant_only_loss", job.setting("train_on_inputs") is not True)
    if IMAGES in columns:
        # The collator of rows with images refuses it for messages; that of others ignores it.
        values["completion_only_loss"] = False


def _has_devices() -> bool:
    """Return whether there are devices on which several processes can train together."""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type != "mps"


def _model_arguments(job: Job) -> dict[str, Any]:
    """Return the arguments of from_pretrained; the device decides on a dtype left open."""
    import torch

    values = at_hand.loading(job.model_arguments, has_cuda=torch.cuda.is_available(), say=_say_once)
    if values.get("dtype") == BY_DEVICE:
        values["dtype"] = "bfloat16" if _has_bfloat16() else "float32"
    return values


@cache
def _say_once(note: str) -> None:
    """Print once, from one process, what this machine lacks."""
    if os.environ.get("RANK", "0") == "0":
        print(f"note: {note}", file=sys.stderr)  # noqa: T201


def _has_bfloat16() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def loading_arguments(job: Job, runner: Runner) -> dict[str, Any]:
    """Return the arguments of from_pretrained; weights stay where the trainer puts them."""
    values = _model_arguments(job)
    if ".experimental." in runner.config:
        # These trainers would ask for device_map="auto", which breaks data parallel training.
        values.setdefault("device_map", None)
    return values


def make_model(job: Job, runner: Runner, tokenizer: Any) -> tuple[Any, Any]:
    """Return the model (its path, if it needs no preparation) and the new adapter, if any."""
    peft = make_peft(job, runner)
    adapter = job.setting("lora_model_dir")
    touched = job.setting("unfrozen_parameters") or job.setting("tokens") or adapter
    touched = touched or (peft is None and vision_parts.are_frozen(job))
    if not touched and "model_init_kwargs" in load_class(runner.config).__dataclass_fields__:
        return job.model, peft
    model = load_model(job, runner)
    if job.setting("tokens"):
        _grow(model, tokenizer, job)
    if adapter:
        from peft import PeftModel

        return PeftModel.from_pretrained(model, str(adapter), is_trainable=True), None
    patterns = job.setting("unfrozen_parameters")
    if isinstance(patterns, list):
        freezing.freeze(model, patterns, job.model)
    if peft is None:
        vision_parts.freeze(model, job)
    return model, peft


def load_model(job: Job, runner: Runner) -> Any:
    """Load the model with the head that the method trains."""
    import torch

    values = _model_arguments(job)
    if values.get("dtype") not in {None, "auto"}:
        values["dtype"] = getattr(torch, str(values["dtype"]))
    quantization = make_quantization(job)
    if quantization is not None:
        values["quantization_config"] = quantization
    return pretrained(job.model, runner.head, trusted=job.trusts_code, **values)


def pretrained(
    name: str, head: Head, *, trusted: bool = False, labels: int | None = None, **values: Any
) -> Any:
    """Load a model with a head; `labels` are the outputs of a head that is not the language model's."""
    import transformers

    if head != "causal":
        values["num_labels"] = labels or LABELS[head]
        # A new head is expected here; the report on it would read like an error.
        speak: Any = transformers.utils.logging
        speak.set_verbosity_error()
    revision = {"revision": values["revision"]} if "revision" in values else {}
    auto: Any = transformers.AutoConfig
    config = auto.from_pretrained(name, trust_remote_code=trusted, **revision)
    return auto_class(config, head).from_pretrained(name, trust_remote_code=trusted, **values)


def auto_class(config: Any, head: Head) -> Any:
    """Return the class of transformers that loads a model of this config with a head."""
    import transformers

    is_vision = head == "causal" and vision_parts.is_vision_config(config)
    return getattr(transformers, "AutoModelForImageTextToText" if is_vision else _AUTO[head])


def reference_model(job: Job) -> Any:
    """Load a separate reference model if one is configured; otherwise TRL makes one or needs none."""
    named = job.setting("ref_model")
    if not named and not (job.setting("rl_adapter_ref_model") and job.peft is not None):
        return None
    import torch

    dtype = _model_arguments(job).get("dtype")
    return pretrained(
        str(named or job.model),
        "causal",
        dtype="auto" if dtype == "auto" else getattr(torch, str(dtype)),
    )


def make_peft(job: Job, runner: Runner) -> Any:
    """Return the configuration of a new adapter, or None."""
    if job.peft is None or job.setting("lora_model_dir"):
        return None
    from peft import LoftQConfig, LoraConfig

    values: dict[str, Any] = dict(job.peft)
    targets = values.get("target_modules")
    if isinstance(targets, list) and ALL_LINEAR in targets:
        named = {str(name) for name in targets} - {ALL_LINEAR}
        values["target_modules"] = sorted(named | _linear_layers(_without_weights(job, runner)))
    if runner.head == "causal" and vision_parts.is_vision_config(model_config_of(job)):
        # PEFT knows no targets of most vision-language models, and those of a text model are in all parts.
        values.setdefault("target_modules", ALL_LINEAR)
        if targets is None or targets == ALL_LINEAR or not isinstance(targets, str):
            values = vision_parts.exclusion(_without_weights(job, runner), job) | values
    if "loftq_config" in values:
        # With peft's own defaults: it reads a mapping as it is, and fails where a setting is missing.
        values["loftq_config"] = vars(LoftQConfig(**values["loftq_config"]))
    if runner.head == "steps":
        # peft leaves the head out of "all-linear" for every task but this one.
        values.setdefault("exclude_modules", ["score", "classifier"])
    return LoraConfig(task_type=_TASKS[runner.head], **values)


def _without_weights(job: Job, runner: Runner) -> Any:
    """Return the model of a job as its config describes it; no weights are loaded."""
    import torch

    config = model_config_of(job)
    with torch.device("meta"):
        return auto_class(config, runner.head).from_config(
            config, trust_remote_code=job.trusts_code
        )


def model_config_of(job: Job) -> Any:
    """Return the configuration of the run's model, as it is loaded."""
    from transformers import AutoConfig

    settings = {k: v for k, v in job.model_arguments.items() if k == "revision"}
    auto: Any = AutoConfig
    return auto.from_pretrained(job.model, trust_remote_code=job.trusts_code, **settings)


def _linear_layers(model: Any) -> set[str]:
    """Return the names of the linear layers but the head."""
    import torch

    heads = {"score", "classifier"}
    head = model.get_output_embeddings()
    return {
        name.rpartition(".")[2]
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer is not head
    } - heads


def make_quantization(job: Job) -> Any:
    """Return the quantization of the base model, or None; it needs bitsandbytes."""
    if job.quantization is None:
        return None
    named = job.quantization.get("config_class")
    if named is not None:
        import transformers

        inside = {k: v for k, v in job.quantization.items() if k != "config_class"}
        return getattr(transformers, str(named))(**inside)
    from importlib.util import find_spec

    if find_spec("bitsandbytes") is None:
        raise DependencyError(
            "quantized weights need bitsandbytes: pip install bitsandbytes (CUDA)"
        )
    import torch
    from transformers import BitsAndBytesConfig

    values = dict(job.quantization)
    if "bnb_4bit_compute_dtype" in values:
        values["bnb_4bit_compute_dtype"] = getattr(torch, str(values["bnb_4bit_compute_dtype"]))
    class_: Any = BitsAndBytesConfig
    return class_(**values)


def _grow(model: Any, tokenizer: Any, job: Job) -> None:
    if len(tokenizer) <= model.get_input_embeddings().num_embeddings:
        return
    model.resize_token_embeddings(
        len(tokenizer),
        pad_to_multiple_of=32 if job.setting("resize_token_embeddings_to_32x") else None,
        mean_resizing=job.setting("mean_resizing_embeddings") is not False,
    )
