# ruff: noqa: E501 -- the lines are Markdown
"""docs/targets.md: the layouts that --to writes, what each holds, and a row of each."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import fmtkit
from fmtkit.formats import target_registry
from fmtkit.formats.target_registry import LOSSES, Target
from pages.markdown import NOTICE, code, table

HEAD = f"""\
{NOTICE}
# Targets: layouts that fmtkit writes

```sh
fmtkit convert chats.jsonl --type sharegpt --to openai -o chats.openai.jsonl
fmtkit convert OUT --to alpaca -o rows.jsonl
```

`--to` writes rows in the layout of another tool. The source may have any type, or be an output of fmtkit, for which
`--type` may be omitted. OUT must hold messages: convert with a type without a template (`intel`, not `chatml.intel`,
which writes rendered text). Everything else works as for any output: shards in a folder, `--resume`, quarantine, report,
manifest.
In the library it is `fmtkit.convert(source, type, out, to="openai")`, and `fmtkit.table(source, type, to="openai")`.

## Nothing is lost unnoticed

A row is written only if reading it back, with the type in the second column, gives an equal row. Otherwise it is
quarantined with the code `no_place`, and the message names the field that the layout cannot hold. `--allow-loss FIELD`
writes such rows without the field, and counts them. `losses` and `no_place` in the report and the manifest count rows by
field. Text that contains a separator of the layout (`\\n\\nHuman:` in HH-RLHF), white space that its reader strips, and an
empty system prompt in a layout that cannot hold one are `no_place` too.

"""

NOTES = """
A target that takes Conversation rows also writes Completion rows: their earlier replies are marked as not trained on, or
the row is quarantined for the field `train` if the layout cannot mark them. A target that takes Completion rows also
writes conversations of one exchange. A ranking is written as its pairs (`--option pairs=…`).

Tool calls: `openai`, `openai-preference` and `axolotl` write their arguments as JSON text (field `arguments`); `sharegpt`
and `llama-factory` write a turn `function_call` that holds only the functions (fields `tool_call_id` and `content`). `--to
trl` writes them as the values that chat templates render, so that a trainer can take `load_dataset("parquet",
data_dir="OUT/data")` unchanged; `fmtkit.to_trl(table)` does the same with a table in memory.

`llama-factory` writes `dataset_info.json` next to the rows of a folder, and `axolotl` the lines of `datasets:`. For a single
file, both are printed and are in the report as `beside`.

"""

OWN = """
## Add a target

A target is a function that takes a canonical table and returns the columns of the written rows, as expressions over whole
columns. This file, `quiz.py`, adds the target `quiz` and the type that reads its rows back:

```python
\"\"\"Quizzes: a question, its answer, and the rules before them.\"\"\"

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.conversations import completion, messages_of
from fmtkit.columns.exports import question, system_text, text_of_reply
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter
from fmtkit.formats.target_registry import WrittenColumns, target


@converter()
def read(ask: Text, say: Text, rules: Text = ABSENT) -> Completion:
    \"\"\"https://example.org/quizzes.\"\"\"
    return completion(messages_of(system=rules, user=ask), messages_of(assistant=say))


@target(reads="quiz", holds=("system",), system="first")
def write(table: Completion) -> WrittenColumns:
    \"\"\"https://example.org/quizzes.\"\"\"
    return {
        "ask": question(table.prompt),
        "say": text_of_reply(table.completion),
        "rules": system_text(table.prompt),
    }
```

`fmtkit convert rows.jsonl --type alpaca --plugin quiz.py --to quiz -o quiz.jsonl` writes such rows. The target is named
after its file. An installed package adds it by an entry point of the group `fmtkit.targets`, whose value is the module.
fmtkit calls the function after it has quarantined the rows that the layout cannot hold, or dropped the fields that
`--allow-loss` names; the keywords of `@target(...)` (also `fmtkit.target`) declare what it can hold:

| keyword | meaning |
| --- | --- |
| `reads` | the type that reads the rows back |
| `holds` | the fields that the layout can hold, by the names under [Dropped fields](#dropped-fields), and `developer` for turns of this role |
| `system` | where system prompts may be: in any turn (`turns`), or only a non-empty one as the first turn (`first`) |
| `json` | dotted paths of columns that hold JSON text and are written as values |
| `calls` | how tool calls are written: `any` way, with arguments as JSON `text`, or as a `bare` list of functions |
| `images` | where images are, if it holds them: `stored` in a column as `datasets` has them, beside contents in parts; in a column of `texts` (paths or data URIs) or of `paths` only, beside contents with `<image>`; in `parts` of the contents |
| `image_part` | for `parts`, a function that makes the part of a path or a data URI |
| `formats` | formats of the written files, the default first |
| `keeps` | whether columns of `--keep` are written too |
| `text` | whether the function takes conversations that are rendered to text |
| `beside` | a function that makes the file next to the rows: (name of OUT, path of the rows, columns) → (name, text) |
| `name` | the target's name, if it is not that of the file |

If the function has a parameter `wide`, it is told whether messages may have more keys than role and content. WrittenColumns that
only their values show to be impossible are refused by a `Problem` (`no_place` in `fmtkit.columns.exports`), as in a
[converter](add-a-format.md#the-body). A layout with names of its own for roles has them as a dict: `role_name(NAMES)` is what
it calls each, and `must_have_names(messages, NAMES)` refuses turns of others, whose name would be null.

In fmtkit itself a target is one file in `fmtkit/targets/` with fixtures in `fixtures/targets/NAME/`: `TABLE.source.jsonl`
has canonical rows of a table that it takes, the difficult ones too (a system prompt, tools, two exchanges). `make fixtures
NAME=targets/quiz` prints what is written of them (`TABLE.written.jsonl`) and what is rejected, with the reason
(`TABLE.rejected.jsonl`); with `WRITE=1` it writes these files. `pytest tests/test_targets.py -k quiz` compares them, and
writes random rows and reads them back; `make docs` adds the target to this page.
"""

CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tea?"},
        {"role": "assistant", "content": "Yes."},
    ]
}
PAIR = {
    "prompt": [{"role": "user", "content": "Tea?"}],
    "chosen": [{"role": "assistant", "content": "Yes."}],
    "rejected": [{"role": "assistant", "content": "No."}],
}
ONE = {"prompt": PAIR["prompt"], "completion": PAIR["chosen"]}
ROWS = {
    "Conversation": (CHAT, "sft"),
    "Completion": (ONE, "sft"),
    "Preference": (PAIR, "dpo"),
    "Unpaired": (ONE | {"label": True}, "kto"),
    "Prompt": ({"prompt": PAIR["prompt"]}, "grpo"),
}


def text() -> str:
    """Return the page."""
    every = [found for found in target_registry.targets() if not found.text]
    held = table(
        ["target", "read back by", "rows", "files", "fields"],
        (
            [code(t.name), code(t.reads), t.takes.name(), " ".join(t.formats), _held(t)]
            for t in every
        ),
    )
    lost = table(
        ["field", "what is dropped"], ([code(n), dropped] for n, dropped in LOSSES.items())
    )
    parts = [HEAD, held, "\n## Dropped fields\n\n", lost, NOTES, "\n## A row of each\n"]
    for name in target_registry.names():
        found = [t for t in every if t.name == name]
        parts.append(f"\n### {name}\n\n{found[0].summary}.\n")
        parts += [_example(t) for t in found if t.takes.name() in ROWS]
    return "".join([*parts, OWN])


def _held(found: Target) -> str:
    names = [code(name) for name in LOSSES if name in found.holds]
    return ", ".join([*names, *(["columns of `--keep`"] if found.keeps else [])])


def _example(found: Target) -> str:
    row, method = ROWS[found.takes.name()]
    link = f"[{found.takes.name()}]({found.url})" if found.url else found.takes.name()
    return f"\n{link}:\n\n```json\n{_line(found, row, method)}\n```\n"


def _line(found: Target, row: object, method: str) -> str:
    """Return a row as a line of JSON, also of a target in Parquet."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / f"row.{found.formats[0]}"
        options = {"method": method, "to": found.name, "allow_loss": "system"}
        fmtkit.convert([row], "passthrough", out, **options)
        if out.suffix == ".jsonl":
            return out.read_text(encoding="utf-8").strip()
        import pyarrow.parquet as pq

        (read,) = pq.read_table(out).to_pylist()
        return json.dumps(_without_nulls(read), ensure_ascii=False, separators=(",", ":"))


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
