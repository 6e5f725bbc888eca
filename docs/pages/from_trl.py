# ruff: noqa: E501 -- the lines are Markdown
"""docs/from-trl.md: how a config of TRL's own scripts is read, key by key, and what differs."""

from collections.abc import Iterator, Mapping

from fmtkit.training.config import keys, trl_defaults, trl_files
from fmtkit.training.config.class_arguments import REMOVED, UNKNOWN, fields_of
from fmtkit.training.config.key import Key
from fmtkit.training.config.schema import made_from
from pages.markdown import NOTICE, code, table

METHODS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")
"""The scripts of TRL: `trl sft`, ..."""
CLASSES = ("trl.scripts.grpo:GRPOScriptArguments", "trl:DatasetMixtureConfig", "trl:ModelConfig")
"""The classes whose fields its scripts read beside the config class of the trainer."""

_HEAD = """
# Coming from TRL

The config of `trl sft|dpo|kto|reward|grpo|rloo|distillation --config FILE` is read as it is:

```sh
fmtkit train config.yaml --method dpo --dry-run   # the plan: where each key goes, and what still differs
fmtkit train config.yaml --method dpo
fmtkit train configs/ --method dpo --dry-run      # a line for each config of a folder
```

| TRL | fmtkit |
|---|---|
| `trl dpo --config dpo.yaml` | `fmtkit train dpo.yaml --method dpo` |
| `trl dpo --config dpo.yaml --learning_rate 1e-6 --use_peft` | `fmtkit train dpo.yaml --method dpo --set learning_rate=1e-6 --set use_peft=true` |
| `trl sft --model_name_or_path M --dataset_name D` | these two as lines of a file, and `fmtkit train FILE --method sft` |
| `accelerate launch --config_file F trl/scripts/dpo.py ...` | `accelerate_config: F` in the file |
| `trl sft --accelerate_config zero2 --num_processes 4` | `accelerate_config: zero2` and `num_processes: 4` in the file |
| `trl vllm-serve --model M` | `fmtkit vllm-serve FILE`, which takes the model of the config |

`fmtkit dpo ...` and `fmtkit trl dpo ...` end with an error that says what to run instead.

A file is TRL's if it has one of {marks} and none of {axolotl}; the plan says so. In such a file the keys and defaults are
those of TRL's scripts; in any other they are those of axolotl and fmtkit ([coming from axolotl](from-axolotl.md)).
`--set KEY=VALUE` takes TRL's keys too. A key that changes what is trained and cannot be honoured is refused by its name.

## Defaults

Every argument of the trainer's config class that is unset has TRL's default. Where fmtkit has another default,
TRL's files keep that of TRL's scripts; the plan shows each as `{origin}`:

"""

_DIFFERENCES = """
## What differs all the same

| TRL's scripts | fmtkit | why |
|---|---|---|
| `bf16` is on, an error on a device without it | on where the device has it | a plan is the same on each machine |
| `trl sft` trains on all tokens of `messages`, unless `assistant_only_loss: true` | on the replies alone, which a note says; `assistant_only_loss: false` trains as TRL does | a model that writes prompts is seldom meant |
| the trainers of ORPO and CPO put BOS and EOS around what a template has written | only around plain text | a reply that a template wrote would end twice |
| rows pass as they are | rows are converted first; one that does not fit is quarantined with its reason | no row is lost silently |
| `test_split_size` holds out rows of `datasets` | prompts with all their rows, also of `dataset_name`; `split_by: rows` holds out rows | an evaluation on prompts that were trained on proves little |
| `output_dir` gets the model and its checkpoints | it is the run folder: `checkpoints/` and `model/` are in it, beside the plan and the metrics | a run can be looked at and resumed |
| `dataset_streaming` streams | the data is converted to files once | the same rows are trained on |
| `fraction` takes the first rows of each dataset | the same number, drawn at random by the seed (`mixture_share`) | the first rows are seldom like the others |
| `env` sets variables for all that TRL does | for the training processes; a secret is refused | the run folder keeps the config |
| `eval_strategy: no` without quotes is an error | the same, with the line to write | YAML reads it as false |
| a former name (`max_seq_length`) ends in an error from accelerate | the error names the line and the present name | |
| a row of images that is longer than `max_length` is cut | left out and counted | the trainer fails at half an image |

## Keys of TRL's scripts

[config.md](config.md) lists the arguments of the config classes. TRL's scripts also read these keys:

"""

_PROBES: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("always", {}),
    ("`eval_steps` or `test_split_size` without `eval_strategy`", {"eval_steps": 1}),
    ("`hub_model_id`", {"hub_model_id": "a/b"}),
    ("several `datasets`", {"datasets": [{}, {}]}),
    ("`load_in_4bit: true`", {"load_in_4bit": True}),
    ("`use_vllm: true`", {"trl.use_vllm": True}),
)


def text() -> str:
    """Return the whole page."""
    head = _HEAD.format(
        marks=_names(trl_files.MARKS), axolotl=_names(trl_files.AXOLOTL), origin=trl_defaults.ORIGIN
    )
    former = sorted({**keys.MEANT, **REMOVED}.items())
    return (
        f"{NOTICE}{head}{table(('the file has', 'methods', 'key', 'value'), _defaults())}{_DIFFERENCES}"
        f"{table(('key', 'default of TRL', 'here'), _keys())}\n"
        "An entry of `datasets` has `path`, `name`, `data_dir`, `data_files` and `split` as in TRL; its list of "
        "`columns` is `select` here, and its `fraction` is `mixture_share`. (In other files, `columns` renames columns, and "
        "`fraction` is a share of one dataset.) As in TRL, `dataset_name` is not read if there are `datasets`.\n\n"
        "A value in quotes is read as TRL's parser reads it: `'{\"min_lr\": 1e-6}'` is a mapping, `'true'` a switch, "
        "`'2e-5'` a number, `'null'` nothing.\n\n"
        "## Former names\n\nKeys of other tools and of former versions end in an error that says what to write:\n\n"
        f"{table(('key', 'answer'), ((code(name), said) for name, said in former))}\n"
        f"The defaults are those of {made_from()}.\n"
    )


def _names(names: frozenset[str]) -> str:
    return ", ".join(code(name) for name in sorted(names))


def _defaults() -> Iterator[tuple[str, str, str, str]]:
    """Yield each default that a file of TRL's keeps, with the methods that have it."""
    always = {method: trl_defaults.of({}, method) for method in METHODS}
    for words, probe in _PROBES:
        found: dict[tuple[str, str], list[str]] = {}
        for method in METHODS:
            for name, value in trl_defaults.of(probe, method).items():
                if not probe or name not in always[method]:
                    found.setdefault((name, _value(value)), []).append(method)
        for (name, value), methods in found.items():
            every = "all" if len(methods) == len(METHODS) else ", ".join(methods)
            yield words, every, code(name), value


def _keys() -> Iterator[tuple[str, str, str]]:
    for named in CLASSES:
        for field in fields_of(named).fields.values():
            shown = "" if field.default in (None, UNKNOWN) else _value(field.default)
            yield code(field.name), shown, _here(field.name)


def _here(name: str) -> str:
    if name in trl_files.TOGETHER:
        return trl_files.TOGETHER[name]
    own = keys.aliases().get(name, name)
    key = keys.find_key(own) or keys.find_key(f"{keys.SECTION}.{name}")
    if key is None:
        raise ValueError(f"TRL's scripts read {name}, which has no answer here")
    return _answer(key, name)


def _answer(key: Key, name: str) -> str:
    said = {"nothing": "only noted: ", "refused": "refused: "}.get(key.to, "")
    other = "" if key.name == name else f"{code(key.name)}: "
    # A file of TRL's has TRL's default, which the table shows.
    about = key.about.partition("; default: ")[0]
    return f"{other}{said}{about}"


def _value(value: object) -> str:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return code(shown)
