"""Comparing a trained model with its base: what both answer, and how both score replies and steps."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.records import read_json
from fmtkit.core.tables import STEP_SEPARATOR, final_rows
from fmtkit.options.convert_options import RowOptions
from fmtkit.options.train_options import TryOptions
from fmtkit.running.conversions import RowStream
from fmtkit.training.planning.job import WITHOUT
from fmtkit.training.trained import answering, best_of, judging, trained_model
from fmtkit.training.trained.pictured_rows import Inputs, Pictures
from fmtkit.training.trained.trained_model import TrainedModel

if TYPE_CHECKING:
    from fmtkit.masks.masked import Masked

Kind = Literal["answers", "pairs", "replies", "steps"]
KINDS: Mapping[str, Kind] = {
    "Preference": "pairs",
    "Unpaired": "replies",
    "Stepwise": "steps",
    "Conversation": "answers",
    "Completion": "answers",
    "Prompt": "answers",
}
"""Table -> what is done with its rows."""
_ROW = frozenset({"messages", "prompt", "completion", "tools", IMAGES})
"""Columns of a row that are what is asked and answered."""
_TAKES: Mapping[str, frozenset[Kind]] = {
    "causal": frozenset({"answers", "pairs", "replies"}),
    "score": frozenset({"pairs", "replies"}),
    "steps": frozenset({"steps"}),
}
"""Head of a model -> the kinds that it can be tried on."""


@dataclass(frozen=True)
class Item:
    """A row that is tried, with the results of the base model and of the trained one.

    `base` and `trained` hold `answer`, and with a reward the `reward` of the best and the `rewards` of all;
    or of each side (chosen, rejected, completion) its `score` or `logps`, the sum of the log-probabilities of
    its tokens; or `right`, a probability for each step.
    """

    row: int
    prompt: str
    expected: Any
    """The reference answer, the label of a reply or the labels of the steps; None where there is none."""
    base: Mapping[str, Any]
    trained: Mapping[str, Any]
    reward: Mapping[str, float] | None = None
    """For a method with a reference model: the implicit reward of each side, beta times the log-probability
    gained over the base model."""


@dataclass(frozen=True)
class Trial:
    """What was tried, on which weights, and with which result."""

    kind: Kind
    base: str
    trained: str
    method: str
    items: tuple[Item, ...]
    summary: Mapping[str, Mapping[str, float]]
    """For `base`, `trained` and `implicit_reward` with a reference model: accuracy, margins, means."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self) | {
            "items": [asdict(item) for item in self.items],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class _Row:
    """A row as it reaches the models: a context to continue from, or complete sequences."""

    prompt: str
    expected: Any
    context: list[int]
    sequences: Sequence["Masked"] = ()
    asked: Any = None
    """What is answered: text or messages, as a reward function gets it."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of the source, for a reward."""
    inputs: Inputs | None = None
    """What the models get of a row with images, instead of `context` and `sequences`."""


def try_run(run: str | Path, options: TryOptions) -> Trial:
    """Compare what a run has trained with its base model; see `fmtkit.try_run`."""
    run_model = trained_model.of_run(run, checkpoint=options.checkpoint, model=options.model)
    if bool(options.prompt) == (options.data is not None):
        raise OptionError("give either --prompt TEXT or --data FILE")
    assert run_model.job is not None
    ask = _judge(run_model, options)
    scorer = _scorer(run_model, options)
    tokenizer = trained_model.load_tokenizer(run_model)
    notes = list(run_model.notes)
    if options.data is None:
        kind, rows = (
            _checked(run_model, "answers", "--prompt"),
            _prompts(run_model, tokenizer, options),
        )
    else:
        kind, rows = _data(run_model, tokenizer, options, notes)
    if not rows:
        raise OptionError(f"--data {options.data}: no row to try")
    if scorer is not None:
        if kind != "answers":
            raise OptionError(
                f"{best_of.FLAG}: only answers have one; the rows of --data are {kind}"
            )
        scorer.check_columns([name for row in rows for name in row.columns])
    if ask is not None:
        _check_judged(run, kind, rows, options)
    make = _making(kind, run_model, tokenizer, options, scorer)
    outputs: dict[str, list[dict[str, Any]]] = {}
    for name, model in _models(run_model, tokenizer, options.seed, notes):
        outputs[name] = [make(model, row, number) for number, row in enumerate(rows)]
    beta = _beta(run_model) if kind in ("pairs", "replies") else None
    pairs = zip(rows, outputs["base"], outputs["trained"], strict=True)
    items = tuple(
        Item(n, row.prompt, row.expected, base, trained, _reward(base, trained, beta))
        for n, (row, base, trained) in enumerate(pairs)
    )
    summary = _summary(kind, items)
    if ask is not None:
        summary = {**summary, **_judged(items, ask, options)}
    return Trial(
        kind,
        run_model.base,
        str(run_model.folder),
        run_model.job.method,
        items,
        summary,
        tuple(notes),
    )


def _scorer(run_model: TrainedModel, options: TryOptions) -> best_of.Scorer | None:
    """Return what picks the best of n answers; None where one is asked for."""
    if options.reward is None:
        if options.n != 1:
            raise OptionError(f"--n {options.n}: name what picks the best answer by {best_of.FLAG}")
        return None
    if options.n < 2 or not options.temperature:
        raise OptionError(
            f"{best_of.FLAG} {options.reward}: it picks among different answers; give --n 2 or more and "
            "a --temperature above 0"
        )
    assert run_model.job is not None
    return best_of.load(options.reward, [Path.cwd(), *map(Path, run_model.job.places)])


def _judge(run_model: TrainedModel, options: TryOptions) -> judging.Ask | None:
    """Return the judge that is named, if any; raise OptionError for flags of one where there is none."""
    if options.judge is None:
        if options.judge_model or options.against != "base":
            raise OptionError("--against and --judge-model are for a judge; give --judge")
        return None
    assert run_model.job is not None
    places = [Path.cwd(), *(Path(place) for place in run_model.job.places)]
    return judging.load(options.judge, places, options.judge_model)


def _check_judged(run: str | Path, kind: Kind, rows: Sequence[_Row], options: TryOptions) -> None:
    """Raise OptionError for what cannot be judged, before any answer is made."""
    if kind != "answers":
        raise OptionError(f"{judging.KEY}: only answers are judged; the rows of --data are {kind}")
    if options.against == "references":
        if any(row.expected is None for row in rows):
            raise OptionError("--against references: the rows have no reply to compare with")
    elif options.against != "base":
        if Path(options.against).resolve() == Path(run).resolve():
            raise OptionError(f"--against {options.against}: that is the run itself")
        trained_model.of_run(options.against)


def _judged(
    items: Sequence[Item],
    ask: judging.Ask,
    options: TryOptions,
) -> dict[str, dict[str, float]]:
    """Return the summary of a judge's verdicts on the trained model's answers."""
    if options.against == "base":
        others = [item.base["answer"] for item in items]
    elif options.against == "references":
        others = [item.expected for item in items]
    else:
        other = try_run(
            options.against,
            replace(
                options, judge=None, judge_model=None, against="base", checkpoint=None, model=None
            ),
        )
        others = [item.trained["answer"] for item in other.items]
    pairs = [
        (item.prompt, str(item.trained["answer"]), str(theirs))
        for item, theirs in zip(items, others, strict=True)
    ]
    verdicts = judging.judged(str(options.judge), ask, pairs)
    return {f"judged against {options.against}": verdicts.figures()}


def _checked(trained: TrainedModel, kind: Kind, what: str) -> Kind:
    if kind in _TAKES[trained.head]:
        return kind
    does = {
        "causal": "it answers prompts, and scores pairs and single replies",
        "score": "a reward model scores pairs and single replies: give them by --data",
        "steps": "a process reward model scores the steps of solutions: give them by --data",
    }[trained.head]
    raise OptionError(f"{what}: this model cannot be tried on it; {does}")


def _prompts(trained: TrainedModel, tokenizer: Any, options: TryOptions) -> list[_Row]:
    is_plain = _is_plain(trained)
    rows = []
    for text in options.prompt[: options.limit]:
        messages = [{"role": "user", "content": text}]
        ids = _begun(trained, tokenizer, text) if is_plain else _context(tokenizer, messages)
        rows.append(_Row(text, None, ids, asked=text if is_plain else messages))
    return rows


def _is_plain(trained: TrainedModel) -> bool:
    """Return whether the rows of the run are text, though its tokenizer may have a template."""
    from fmtkit.training.data.rows import holds_text

    assert trained.job is not None
    files = [source.files for source in trained.job.train]
    are_here = files and all(Path(file).is_file() for part in files for file in part)
    return trained.job.template == WITHOUT or bool(are_here and all(map(holds_text, files)))


def _begun(trained: TrainedModel, tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a prompt of text, with the BOS that it had in the training."""
    from fmtkit.core.runner import text_ends_of
    from fmtkit.tokenizers.text_ends import begun
    from fmtkit.training.building import build
    from fmtkit.training.data.tokenized_rows import adapted

    assert trained.job is not None
    tables = build.runner_of(trained.job).tables
    ends = text_ends_of(trained.job.method, "Prompt" if "Prompt" in tables else "")
    return begun(text, adapted(tokenizer), ends)


def _context(tokenizer: Any, messages: Any, tools: Any = None) -> list[int]:
    more = {"tools": json.loads(tools)} if isinstance(tools, str) else {}
    text = answering.rendered(tokenizer, messages, add_generation_prompt=True, **more)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _data(
    trained: TrainedModel, tokenizer: Any, options: TryOptions, notes: list[str]
) -> tuple[Kind, list[_Row]]:
    """Read the rows of a source by the type of the run's dataset, or by the one that was given."""
    assert trained.job is not None
    stream = RowStream(options.data, _row_options(trained, options))
    table = stream.job.table.name()
    if table not in KINDS:
        raise OptionError(f"--data {options.data}: rows of a {table} table cannot be tried")
    kind = _checked(trained, KINDS[table], f"--data {options.data} ({table})")
    encode = _encoding(trained, tokenizer, table, kind, options.data)
    rows: list[_Row] = []
    for piece in stream:
        rows += map(encode, final_rows(piece.table).to_pylist())
    refused = stream.ledger.quarantined + stream.ledger.no_pair
    if refused:
        codes = ", ".join(f"{code} {n:,}" for code, n in stream.ledger.reasons.most_common())
        notes.append(f"{refused:,} of {stream.ledger.rows_read:,} rows were refused: {codes}")
    return kind, rows


def _row_options(trained: TrainedModel, options: TryOptions) -> RowOptions:
    assert trained.job is not None
    planned = read_json(Path(trained.job.run) / "plan.json").get("datasets") or [{}]
    entry = planned[0] if isinstance(planned, list) and isinstance(planned[0], dict) else {}
    type_ = options.type or entry.get("type")
    given = entry.get("options") if options.type is None else None
    if not type_:
        raise OptionError("--data: the run's config has no type of dataset; give it by --type")
    as_made = str(type_).partition(".")[0] == "passthrough"
    return RowOptions(
        type=str(type_),
        method=trained.job.method if trained.head != "causal" else None,
        options=given if isinstance(given, Mapping) else {},
        limit=options.limit,
        keep=("all",) if options.reward is not None else (),
        as_made=as_made,
        as_=None if as_made or _is_plain(trained) else "messages",
    )


def _encoding(
    trained: TrainedModel, tokenizer: Any, table: str, kind: Kind, source: object
) -> Callable[[Mapping[str, Any]], _Row]:
    """Return the function that makes ids of a row, the same as in its training."""
    from fmtkit.masks.masking import Masking
    from fmtkit.masks.masks import mask_row
    from fmtkit.masks.text_masks import is_prerendered
    from fmtkit.rendering import template_sources
    from fmtkit.rendering.row_templates import RowTemplate
    from fmtkit.training.data.tokenized_rows import adapted

    assert trained.job is not None
    own, template = adapted(tokenizer), None
    if tokenizer.chat_template is not None:
        text = tokenizer.chat_template
        template = RowTemplate(template_sources.recognised("template", text, own.special_tokens))
    type_options = trained.job.settings.get("type_options")
    given = type_options if isinstance(type_options, dict) else {}
    separator = given.get("step_separator", STEP_SEPARATOR)
    method = trained.job.method if kind != "answers" else None
    masking = Masking(method, step_separator=str(separator))
    pictures = Pictures(trained)

    def answered(row: Mapping[str, Any]) -> _Row:
        columns = {name: value for name, value in row.items() if name not in _ROW}
        if is_prerendered(row, table):
            if row.get("prompt") is None:
                raise OptionError(
                    f"--data {source}: its rows are text without a prompt; give --prompt TEXT"
                )
            said, reference = row["prompt"], row.get("completion")
            context = _begun(trained, tokenizer, said)
            return _Row(said, reference, context, asked=said, columns=columns)
        messages, reference = _asked(row)
        if row.get(IMAGES):
            inputs = pictures.asked(messages, row[IMAGES])
            context = inputs.tensors["input_ids"][0].tolist()
            return _Row(_said(messages), reference, context, (), messages, columns, inputs)
        context = _context(tokenizer, messages, row.get("tools"))
        return _Row(_said(messages), reference, context, asked=messages, columns=columns)

    def scored(row: Mapping[str, Any]) -> _Row:
        expected = row.get("label", row.get("labels"))
        if row.get(IMAGES):
            if trained.head != "causal":
                raise OptionError(
                    f"--data {source}: {trained.head} of rows with images is not known"
                )
            return _Row(_said(row["prompt"]), expected, [], inputs=pictures.scored(row, kind))
        sequences = mask_row(row, table, own, template, masking)
        return _Row(_said(row["prompt"]), expected, [], sequences)

    return answered if kind == "answers" else scored


def _asked(row: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Return the messages before the last reply, and that reply."""
    messages = [*(row.get("messages") or row["prompt"]), *(row.get("completion") or ())]
    kept = [{k: v for k, v in m.items() if v is not None and k != "train"} for m in messages]
    if kept and kept[-1]["role"] == "assistant":
        return kept[:-1], _said(kept) or None
    return kept, None


def _said(prompt: Any) -> str:
    if isinstance(prompt, str) or not prompt:
        return prompt or ""
    content = prompt[-1].get("content") or ""
    if isinstance(content, list):
        return " ".join(str(part.get("text") or f"[{part['type']}]") for part in content)
    return str(content)


def _models(
    trained: TrainedModel, tokenizer: Any, seed: int, notes: list[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the base model, then the trained one; only one is in memory at a time."""
    import torch
    from transformers import set_seed

    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if trained.job is not None and trained.job.uses_cpu:
        device = torch.device("cpu")
    set_seed(seed)
    base = trained_model.load_base(trained, tokenizer).to(device).eval()
    if trained.head != "causal" and not _has_head(base, trained):
        notes.append(
            "the base model has no scoring head: its scores come from a newly initialized one"
        )
    base.config.pad_token_id = tokenizer.pad_token_id
    yield "base", base
    if trained.is_adapter:
        yield "trained", trained_model.with_adapter(trained, base).eval()
        return
    del base
    yield "trained", trained_model.load_whole(trained).to(device).eval()


def _has_head(base: Any, trained: TrainedModel) -> bool:
    """Return whether the base model was saved with such a head."""
    named = getattr(base.config, "architectures", None) or []
    wanted = "ForSequenceClassification" if trained.head == "score" else "ForTokenClassification"
    return any(str(name).endswith(wanted) for name in named)


def _making(
    kind: Kind,
    trained: TrainedModel,
    tokenizer: Any,
    options: TryOptions,
    scorer: best_of.Scorer | None,
) -> Callable[[Any, _Row, int], dict[str, Any]]:
    """Return the function that gives a model's result for a row."""
    import torch

    ends = answering.ends_of(tokenizer) if kind == "answers" else []

    def answer(model: Any, row: _Row, number: int) -> dict[str, Any]:
        torch.manual_seed(options.seed + number)
        if scorer is None:
            return one(model, row)[0]
        answers = [one(model, row) for _ in range(options.n)]
        return scorer.best(row.asked, answers, row.columns)

    def one(model: Any, row: _Row) -> tuple[dict[str, Any], list[int]]:
        made = answering.answer(
            model,
            tokenizer,
            row.context,
            ends,
            most=options.max_new_tokens,
            temperature=options.temperature,
            inputs=None if row.inputs is None else row.inputs.on(model.device),
        )
        values = {"answer": made.text, "tokens": len(made.ids), "finished": made.is_finished}
        return values, made.ids

    def score(model: Any, row: _Row, _: int) -> dict[str, Any]:
        return {one.side or "completion": _score(model, one) for one in row.sequences}

    def likelihood(model: Any, row: _Row, _: int) -> dict[str, Any]:
        if row.inputs is not None:
            return _logps_of_sides(model, row.inputs)
        return {one.side or "completion": _logps(model, one) for one in row.sequences}

    def steps(model: Any, row: _Row, _: int) -> dict[str, Any]:
        (one,) = row.sequences
        chances = _logits(model, one).softmax(-1)[:, 1]
        return {"right": [chances[i].item() for i in one.trained.nonzero()[0]]}

    if kind in ("answers", "steps"):
        return answer if kind == "answers" else steps
    return score if trained.head == "score" else likelihood


def _logits(model: Any, one: "Masked") -> Any:
    import torch

    ids = torch.tensor([one.ids.tolist()], device=model.device)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].float()


def _score(model: Any, one: "Masked") -> dict[str, float]:
    return {"score": float(_logits(model, one).reshape(-1)[-1])}


def _logps(model: Any, one: "Masked") -> dict[str, float]:
    import torch

    logps = _logits(model, one)[:-1].log_softmax(-1)
    ids = torch.tensor(one.ids[1:].tolist(), device=logps.device)
    taken = logps.gather(1, ids[:, None])[:, 0]
    trained = torch.tensor(one.trained[1:].tolist(), device=logps.device)
    return {"logps": float(taken[trained].sum()), "tokens": int(trained.sum())}


def _logps_of_sides(model: Any, inputs: Inputs) -> dict[str, dict[str, float]]:
    import torch

    given = inputs.on(model.device)
    with torch.no_grad():
        logps = model(**given).logits.float()[:, :-1].log_softmax(-1)
    taken = logps.gather(2, given["input_ids"][:, 1:, None])[..., 0]
    reply = inputs.trained[:, 1:].to(model.device)
    return {
        side: {"logps": float(one[mask].sum()), "tokens": int(mask.sum())}
        for side, one, mask in zip(inputs.sides, taken, reply, strict=True)
    }


def _beta(trained: TrainedModel) -> float | None:
    """Return beta where the method has a reference model, else None."""
    from fmtkit.training.building import build

    assert trained.job is not None
    runner = build.runner_of(trained.job)
    if "reference" not in runner.needs or trained.head != "causal":
        return None
    default = build.load_class(runner.config).__dataclass_fields__.get("beta")
    value = trained.job.trainer.get("beta", getattr(default, "default", None))
    return float(value) if isinstance(value, int | float) else None


def _reward(
    base: Mapping[str, Any], trained: Mapping[str, Any], beta: float | None
) -> dict[str, float] | None:
    if beta is None:
        return None
    return {side: beta * (trained[side]["logps"] - base[side]["logps"]) for side in trained}


def _summary(kind: Kind, items: Sequence[Item]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = {}
    for name in ("base", "trained"):
        values = [getattr(item, name) for item in items]
        if kind == "answers":
            out[name] = {
                "tokens": fmean(v["tokens"] for v in values),
                "finished": fmean(v["finished"] for v in values),
                **(best_of.figures(values) if "rewards" in values[0] else {}),
            }
        elif kind == "steps":
            out[name] = _of_steps(values, items)
        else:
            numbers = [{s: n.get("score", n.get("logps")) for s, n in v.items()} for v in values]
            out[name] = _of_sides(numbers, items)
    if any(item.reward is not None for item in items):
        out["implicit_reward"] = _of_sides([item.reward or {} for item in items], items)
    return out


def _of_steps(values: Sequence[Mapping[str, Any]], items: Sequence[Item]) -> dict[str, float]:
    right = [
        (chance >= 0.5) == (float(label) >= 0.5)
        for value, item in zip(values, items, strict=True)
        for chance, label in zip(value["right"], item.expected, strict=False)
    ]
    return {"accuracy": fmean(right) if right else 0.0}


def _of_sides(values: Sequence[Mapping[str, float]], items: Sequence[Item]) -> dict[str, float]:
    if "chosen" in values[0]:
        margins = [value["chosen"] - value["rejected"] for value in values]
        return {
            "accuracy": fmean(margin > 0 for margin in margins),
            "margin": fmean(margins),
            "chosen": fmean(value["chosen"] for value in values),
            "rejected": fmean(value["rejected"] for value in values),
        }
    out = {}
    for name, label in (("desirable", True), ("undesirable", False)):
        of_label = [
            value["completion"]
            for value, item in zip(values, items, strict=True)
            if item.expected is label
        ]
        if of_label:
            out[name] = fmean(of_label)
    if len(out) == 2:
        out["margin"] = out["desirable"] - out["undesirable"]
    return out
