"""docs/from-axolotl.md: every key of a config, and whether it is honoured, a note or a refusal."""

from collections.abc import Iterable

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fmtkit.core import runner
from fmtkit.core.tables import Ranking, table_for
from fmtkit.formats import registry, typenames
from fmtkit.rendering.template_sources import OF_THE_TOKENIZER
from fmtkit.training.config import keys
from fmtkit.training.config.class_arguments import REMOVED
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import arguments_by_name
from fmtkit.training.config.schema import made_from
from fmtkit.training.planning.plugin_entries import REFUSED_PLUGINS, accepted_plugins
from pages.markdown import NOTICE

_HEAD = """# Coming from axolotl

A config that works with axolotl is read as it is: `fmtkit train -c config.yaml --dry-run` plans it without
a network, `fmtkit train -c config.yaml` runs it, `fmtkit inspect -c config.yaml` shows which tokens are
trained on, and `fmtkit convert -c config.yaml` writes its rows. A key has one of three answers:

- **honoured**: it changes what it changes in axolotl. `--dry-run` shows where each key goes, and what set
  each argument.
- **note**: it changes only speed or memory, or has no effect. The plan says so, once.
- **refused**: it changes what is trained, and TRL, PEFT and accelerate cannot do it. All such keys of a
  file are named at once, each with its line, the reason and what to do; the exit code is 2.

A key that is null counts as unset, and so does a switch that is false. An unknown key is an
error that names the closest known one. Mistakes are shown with their line:

```text
fmtkit: config.yaml:4: lora_r: 'many' is not a whole number from 1 [value]
  4 | lora_r: many
    | ^^^^^^
```

## What differs, and why

| axolotl | fmtkit | why |
|---|---|---|
"""

_DIFFERENCES: tuple[tuple[str, str, str], ...] = (
    (
        "`chatml.argilla_chat` and similar types keep a conversation's first question and first answer",
        "all turns before the last reply are the prompt",
        "the conversation that the replies belong to is what is compared",
    ),
    (
        "TRL adds the tokenizer's EOS to a reply of text that ends with the template's own end of turn",
        "a reply ends as the template ends it",
        "a model that learns both writes both",
    ),
    (
        "the end of a turn is trained on where it is the tokenizer's EOS, or among `eot_tokens`",
        "the end that the template writes is trained on",
        "a model that never learns its end does not stop",
    ),
    (
        "`train_on_inputs` of a `chat_template` dataset learns the contents of all turns with their ends",
        "all tokens are trained on, those between the turns too",
        "a model that is to write prompts must begin and end them",
    ),
    (
        "`roles_to_train: []` without `train_on_eos` learns the last reply",
        "nothing is trained on, which is an error",
        "an empty list names no role; leave it out for the replies",
    ),
    (
        "rows are tokenized by its own strategies, with its own masks",
        "rows become messages, and TRL's trainers tokenize and mask them",
        "the text of a row can be looked at (`fmtkit inspect --show-mask`) and used elsewhere",
    ),
    (
        "a row that does not fit a type is dropped, or stops the run",
        "it is quarantined with file, line, code and reason, and counted",
        "no row is lost silently",
    ),
    (
        "a misspelled `type` is read as no type",
        "it is an error that names the closest known type",
        "a run would train on something else",
    ),
    (
        "`val_set_size` takes a share of the rows",
        "the same, of whole prompts: rows with one prompt stay on one side; `split_by: rows` splits rows",
        "an evaluation on prompts that were trained on proves little",
    ),
    (
        "`evals_per_epoch` without rows to evaluate on does nothing",
        "the same, and the plan says so",
        "nothing harmless stops a run",
    ),
    (
        "`lora_target_linear` and `lora_target_modules` are both taken",
        "the same",
        "the linear layers are counted on the model without its weights",
    ),
    (
        "`sample_packing` packs by its own sampler, also for preference pairs",
        "TRL packs `sft`; other methods train their rows unpacked, which is a note",
        "packing changes speed, not what is trained on of a row",
    ),
    (
        "`bf16: true` loads and trains in bfloat16",
        "the same",
        "TRL alone would load float32 weights",
    ),
    (
        "`cosine_min_lr_ratio` belongs to `lr_scheduler: cosine`",
        "transformers' `cosine_with_min_lr` with that floor; the same curve",
        "for other schedules it is a note, as axolotl ignores it there",
    ),
    (
        "kernels (Liger, Cut Cross Entropy, ScatterMoE, LoRA's) replace layers",
        "Liger's where liger-kernel is installed; the others are notes",
        "they compute the same function",
    ),
    (
        "copies of models' chat templates have names",
        f"{', '.join(f'`{name}`' for name in sorted(OF_THE_TOKENIZER))} are those of the tokenizer; the "
        "others are [templates](templates.md) of fmtkit or TRL",
        "a copy may be older than the model",
    ),
    (
        "`~` and variables in paths are left to the shell",
        "`~` and `$VARIABLES` are replaced; one that is not set is an error",
        "a folder named `$HOME` is never meant",
    ),
)

_STYLES = ("", ":chat", ":chatml", ":phi")
TYPES: dict[str, tuple[str, ...]] = {
    "sft": (
        *(f"{name}{style}" for name in ("alpaca", "gpteacher", "oasst") for style in _STYLES),
        *(f"{name}{style}" for name in ("explainchoice", "jeopardy") for style in _STYLES),
        *(f"alpaca_chat.{name}" for name in ("load", "load_camel_ai", "load_concise")),
        *("alpaca_chat.load_no_prompt", "alpaca_chat.load_qa", "alpaca_instruct.load"),
        *("alpaca_instruct.load_no_prompt", "alpaca_w_system.load", "alpaca_w_system.load_chat"),
        *("alpaca_w_system.load_instruct", "alpaca_w_system.load_open_orca"),
        *("alpaca_w_system.load_open_orca_chatml", "chat_template", "completion"),
        *("concisechoice", "context_qa.load", "context_qa.load_404", "context_qa.load_v2"),
        *("creative_acr.load_answer", "creative_acr.load_critique", "creative_acr.load_revise"),
        *("input_output", "llama2_chat", "messages.chat", "metharme", "orcamini", "pretrain"),
        *("pygmalion", "reflection", "summarizetldr", "_synthetic"),
    ),
    "dpo": (
        *("chat_template.argilla_chat", "chat_template.default", "chatml", "chatml.argilla_chat"),
        *("chatml.icr", "chatml.intel", "chatml.prompt_pairs", "chatml.ultra", "llama3"),
        *("llama3.argilla_chat", "llama3.icr", "llama3.intel", "llama3.prompt_pairs"),
        *("llama3.ultra", "passthrough.default", "user_defined.default", "zephyr.nectar"),
    ),
    "kto": (
        *("chatml.argilla", "chatml.argilla_chat", "chatml.intel", "chatml.prompt_pairs"),
        *("chatml.ultra", "llama3.argilla", "llama3.argilla_chat", "llama3.intel"),
        *("llama3.prompt_pairs", "llama3.ultra", "user_defined.default"),
    ),
    "orpo": ("chat_template.argilla",),
    "reward": ("bradley_terry.chat_template", "bradley_terry.llama3.icr"),
    "prm": ("stepwise_supervised",),
    "ebft": (
        *("ebft_chat_multiturn.transform", "ebft_chat_multiturn.transform_all_turns"),
        *("ebft_chat_multiturn.transform_last_turn", "ebft_opencode.transform"),
        *("ebft_reasoning.transform", "ebft_reasoning.transform_answer_only"),
        *("ebft_reasoning.transform_split_thinking", "ebft_reasoning.transform_strided"),
        *("ebft_strided_chat.transform", "ebft_strided_structured.transform"),
    ),
}
"""The types that axolotl's own modules define, by the method that reads them."""

_KEYS_HEAD = "| key | goes to | here | axolotl, where it differs |\n|---|---|---|---|\n"


def text() -> str:
    """Return the whole page."""
    rows = "".join(f"| {theirs} | {ours} | {why} |\n" for theirs, ours, why in _DIFFERENCES)
    table = [*keys.table().values()]
    entries = [*keys.dataset_table().values()]
    honoured = [key for key in table if key.to not in {"nothing", "refused"}]
    notes = [key for key in table if key.to == "nothing"]
    refused = [key for key in table if key.to == "refused"]
    return (
        f"{NOTICE}\n{_HEAD}{rows}\n{_COMPARING}\n## Honoured\n\n"
        "Beside these every argument of the method's config class "
        f"passes by its own name ({len(arguments_by_name())} of them, listed in [config.md](config.md)).\n\n"
        f"{_table(honoured)}\n## Notes\n\n{_table(notes)}\n## Refused\n\n{_table(refused)}\n"
        f"## An entry of `datasets`\n\n{_table(entries)}\n{_types()}\n{_plugins()}\n{_versions()}"
    )


_COMPARING = """## Compare with what axolotl prepared

`fmtkit diff config.yaml --against axolotl` lets axolotl prepare the rows and compares them token by token;
`fmtkit diff config.yaml --against last_run_prepared/HASH` compares with what `axolotl preprocess config.yaml`
has left. Rows are aligned by their content there: axolotl shuffles when it prepares, and packs. Rules and
exit codes are in [Do two trainers train on the same tokens?](diff.md).

"""


def _table(found: Iterable[Key]) -> str:
    return _KEYS_HEAD + "".join(map(_row, sorted(found, key=lambda key: key.name)))


def _row(key: Key) -> str:
    others = f" ({', '.join(f'`{alias}`' for alias in key.aliases)})" if key.aliases else ""
    to = {"nothing": "a note", "refused": "refused"}.get(key.to, key.to)
    asked = key.target not in {"*", key.name.rpartition(".")[2]}
    place = f"{to}: `{key.target}`" if asked else to
    said = "; ".join(f"`{value}`: {note}" for value, note in key.remarks.items())
    here = f"{key.about}; {said}" if said else key.about
    cells = (f"`{key.name}`{others}", place, here, key.axolotl)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n".replace(
        "{", "\\{"
    )


def _types() -> str:
    rows = "".join(
        f"| `{method}` | `{name}` | {_type(name, method)} |\n"
        for method, names in TYPES.items()
        for name in names
    )
    return (
        "## Types\n\nThe types that axolotl's own modules define; their texts and masks are the same but "
        "for what is said here. A mapping as `type` makes the user's own prompt, of the same fields "
        f"([formats](formats.md#user_defineddefault)).\n\n| method | type | here |\n|---|---|---|\n{rows}"
    )


def _type(name: str, method: str) -> str:
    """Say how a type is read, and what differs; or why it is refused."""
    if name in typenames.REFUSED:
        return f"refused: {typenames.REFUSED[name]}"
    # axolotl's `alpaca` is Stanford's prompt text, which has a name of its own here.
    read = typenames.read("alpaca:instruct" if name == "alpaca" else name)
    tables = runner.find(method).tables
    found = [
        one
        for one in registry.converters_named(read.source)
        if table_for(one.table, tables) and (method != "sft" or one.makes is not Ranking)
    ]
    differs = "; ".join(dict.fromkeys(one.differs for one in found if one.differs))
    style = f", style {read.options['style']}" if read.options else ""
    return read.reading.removesuffix(", as messages") + style + (f"; {differs}" if differs else "")


def _plugins() -> str:
    known = "".join(
        f"| `{name}` | {'a note: ' + note if note else 'honoured by its keys'} |\n"
        for name, note in accepted_plugins().items()
    )
    refused = "".join(f"| `{name}` | refused: {why} |\n" for name, why in REFUSED_PLUGINS.items())
    return f"## Plugins\n\n| plugin | answer |\n|---|---|\n{known}{refused}"


def _mark(works: bool) -> str:
    return "yes" if works else "no"


def _versions() -> str:
    """Return what differs between versions of TRL: arguments that are gone, and methods."""
    gone = "".join(f"| `{name}` | {instead} |\n" for name, instead in sorted(REMOVED.items()))
    declared = {one.method: one.variants.get(runner.TRLS_OWN, one).trl for one in runner.shipped()}
    ranges = {method: SpecifierSet(trl) for method, trl in declared.items()}
    ends = (spec for found in ranges.values() for spec in found if "=" in spec.operator)
    versions = sorted({Version(spec.version) for spec in ends})
    head = "".join(f" {version} |" for version in versions)
    methods = "".join(
        f"| `{method}` | {declared[method]} |{''.join(f' {_mark(v in found)} |' for v in versions)}\n"
        for method, found in sorted(ranges.items())
    )
    return (
        f"## Versions of TRL\n\nThe arguments of this page are those of {made_from()}; with another "
        "version they are those of the installed one. The methods, the versions that they declare, and "
        "how that is for each version at which one of them begins or ends:\n\n"
        f"| method | TRL |{head}\n|---|---|{'---|' * len(versions)}\n{methods}\n"
        "Arguments that older versions of TRL or transformers "
        "had; axolotl's keys for them are translated, and inside `trainer_args` they are refused:\n\n"
        f"| argument | instead |\n|---|---|\n{gone}"
    )
