"""Small tables, a small model and jobs over them, for the tests that train."""

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fmtkit.core.tables import TABLES
from fmtkit.training import demo
from fmtkit.training.config.class_arguments import FORMER_NAMES, fields_of
from fmtkit.training.planning import job
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run
from fmtkit.training.run import checklist, run

WORDS = [
    "red",
    "blue",
    "green",
    "apple",
    "river",
    "stone",
    "the",
    "a",
    "of",
    "big",
    "small",
    "warm",
]
TEMPLATES = Path(__file__).parent.parent / "templates"
TEMPLATE = (TEMPLATES / "chatml.jinja").read_text(encoding="utf-8")
STEP = {
    "max_steps": 3,
    "micro_batch_size": 2,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "sequence_len": 128,
}
_OF_TRL = fields_of("trl:DPOConfig").fields
ALL_ACTIVATIONS = {
    name: False
    for name in ("activation_checkpointing", FORMER_NAMES["activation_checkpointing"])
    if name in _OF_TRL
}
"""The argument of a trainer that keeps all activations, by the name that it has here."""
TYPES = {"prm": "stepwise_supervised", "sft": "openai", "gkd": "openai", "distillation": "gsm8k"}


def sentence(count: int, generator: random.Random) -> str:
    return " ".join(generator.choice(WORDS) for _ in range(count))


def preference_rows(count: int = 16) -> list[dict]:
    generator = random.Random(0)
    return [
        {
            "prompt": [{"role": "user", "content": sentence(5, generator)}],
            "chosen": [{"role": "assistant", "content": "good " + sentence(4, generator)}],
            "rejected": [{"role": "assistant", "content": "bad " + sentence(6, generator)}],
        }
        for _ in range(count)
    ]


def unpaired_rows() -> list[dict]:
    pairs = preference_rows()
    liked = [{"prompt": r["prompt"], "completion": r["chosen"], "label": True} for r in pairs]
    return liked + [
        {"prompt": r["prompt"], "completion": r["rejected"], "label": False} for r in pairs
    ]


def conversation_rows() -> list[dict]:
    return [{"messages": r["prompt"] + r["chosen"]} for r in preference_rows()]


def completion_rows() -> list[dict]:
    return [{"prompt": r["prompt"], "completion": r["chosen"]} for r in preference_rows()]


def prompt_rows() -> list[dict]:
    return [{"prompt": r["prompt"]} for r in preference_rows()]


def stepwise_rows() -> list[dict]:
    generator = random.Random(1)
    return [
        {
            "prompt": sentence(4, generator),
            "completions": [sentence(3, generator), sentence(2, generator)],
            "labels": [True, bool(index % 2)],
        }
        for index in range(8)
    ]


ROWS = {
    "Preference": preference_rows,
    "Unpaired": unpaired_rows,
    "Conversation": conversation_rows,
    "Completion": completion_rows,
    "Prompt": prompt_rows,
    "Stepwise": stepwise_rows,
}


def write_table(
    name: str, path: Path, rows: list[dict] | None = None, *, wide: bool = False
) -> Path:
    rows = rows if rows is not None else ROWS[name]()
    present = frozenset(rows[0])
    schema = TABLES[name].schema(present, wide=wide, text=False)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def with_template(model: str, folder: Path, template: str, **entries: Any) -> str:
    """Copy a model with another template of its own."""
    copied = Path(shutil.copytree(model, folder / "model"))
    (copied / "chat_template.jinja").write_text(template, encoding="utf-8")
    file = copied / "tokenizer_config.json"
    told = json.loads(file.read_text()) | entries
    told.pop("chat_template", None)
    file.write_text(json.dumps(told))
    return str(copied)


def make_model(
    folder: Path, *, bos: bool = False, seed: int = 0, template: str | None = None
) -> str:
    texts = [sentence(400, random.Random(2)) + " good bad user assistant system"]
    return str(demo.make(folder, texts, bos=bos, seed=seed, template=template))


def with_beginning(model: str, *, end: bool = False) -> str:
    """Let the tokenizer of a model put its BOS before every text, as Llama's does; with `end` EOS behind it."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    config = json.loads((Path(model) / "tokenizer_config.json").read_text())
    file = str(Path(model) / "tokenizer.json")
    loaded = Tokenizer.from_file(file)
    bos, eos = (config[f"{name}_token"] for name in ("bos", "eos"))
    special = [(token, loaded.token_to_id(token)) for token in (bos, eos)]
    single = f"{bos} $A {eos}" if end else f"{bos} $A"
    loaded.post_processor = TemplateProcessing(single=single, special_tokens=special)
    loaded.save(file)
    return model


def make_job(
    folder: Path,
    model: str,
    method: str,
    table: str,
    more: Mapping[str, object] | None = None,
    *,
    wide: bool = False,
) -> job.Job:
    """Write a table and the job of a run over it, as `fmtkit train` does after converting."""
    folder.mkdir(parents=True, exist_ok=True)
    file = write_table(table, folder / "rows.parquet", wide=wide)
    keys: dict[str, object] = {
        "base_model": model,
        "output_dir": str(folder),
        **STEP,
        **(more or {}),
    }
    keys |= {
        "reward": {"reward_model": True},
        "prm": {"process_reward_model": True},
        "sft": {},
    }.get(method, {"rl": method})
    plan = planning.plan(keys, partial=True)
    return run.job_of(plan, (job.Source((str(file),)),), (), TEMPLATE)


def check(plan: planning.Plan) -> None:
    """Make every check of a run that needs neither a server nor data."""
    checklist.check(Run(plan), "files", "modules", "device")


def check_rows(plan: planning.Plan, train: tuple, evaluation: tuple) -> None:
    """Make every check of converted rows."""
    checklist.check(Run(plan, train=train, evaluation=evaluation), "data")
