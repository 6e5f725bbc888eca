# ruff: noqa: E501 -- the lines are Markdown
"""The written parts of docs/formats.md."""

FORMATS_TOP = """\
# Formats

`fmtkit inspect FILE` names the types that fit a file; `fmtkit types NAME` prints one. All of them, by the table that
they make of a row:
"""

FORMATS_HEAD = """\
`.*` stands for the types of a family; the link leads to the first of them. [`passthrough`](#passthrough) takes rows of any of
these tables as they are.

## Names

A **type** names what a file is: `TYPE = [TEMPLATE.]SOURCE`. The source says which columns a row has and what they mean;
the template, if there is one, says how the result is written as text. Every source goes with every template. Without a
template the result stays messages.

A name is looked up in this order, and what fmtkit ships comes before files: the exact name or alias; the name without
`.transform` or `.load`; after a method prefix (`bradley_terry.`); `TEMPLATE.SOURCE`; `PATH.jinja.SOURCE`; last
`FILE.function`, and that only where a config or `--plugin` names the file. A name never imports a module of the working
directory. An unknown name is an error that says what was probably meant. Bare `chatml`, `llama3` and `zephyr` mean
`<template>.default`.

Where one name has several layouts, the columns of the file choose, and `--method` where the columns leave it open.
"""

KINDS = """
`?` marks a column that only some sources fill. A conversation (`prompt`, `messages`, `chosen`, `rejected`, a Completion's or
Unpaired's `completion`) is a list of messages, or its text once rendered; `messages` is then called `text`. A message is
`{role, content}`, and has `name`, `reasoning_content`, `tool_calls`, `tool_call_id` and `train` only where the source
can carry them. Which of the two is fixed by the type, never by the data. `tool_calls` and `tools` are JSON text with the
numbers as they were written. `fmtkit schema TABLE` prints the JSON Schema.

## Kinds of column

| letter | a value is |
| --- | --- |
| T | text. A number is never made text |
| M | a list of messages `{role, content}`; `M{from, value}` has these names for the two |
| message | one message |
| F | `true`, `false`, 0, 1, 0.0 or 1.0; strings only through `label_map` |
| number | a number |
| L | a list of strings; `L of …` a list of values of that kind |
| R | a list of objects with the fields in braces |
| tools | a list of tool definitions, or its JSON text |
| ? | the column may be absent or null |

Column names are those of the tables below; `--map NEW=OLD` reads a column of another name, with a dotted path where it
is inside another (`--map question=meta.q`). Other columns of the source are ignored unless `--keep` names them.
"""

OPTIONS = """\
## Options of types

Options are given as `--option KEY=VALUE` (`-O`), in a config as keys of the dataset. Beside those in the tables above:

| option | meaning |
| --- | --- |
| `field_COLUMN` | the source's name of a column, as in `field_messages=conversations`; the same as `--map` |
| `message_property_mappings` | JSON: the keys of a message, `{"role": "from", "content": "value"}` |
| `message_field_role`, `message_field_content` | the same, one by one |
| `roles` | JSON: further names of speakers, `{"user": ["human"], "assistant": ["gpt", "bot"]}` |
| `label_map` | JSON: texts that are labels, `{"good": true, "bad": false}` |
"""

USER_FUNCTIONS = """
### Functions of your own

`FILE.function` is a transform as axolotl's GRPO configs name them: `(cfg, **kwargs)` gives a function of a row, or that
function with `{"remove_columns": [...]}`, where `"__all__"` removes all. It runs row by row in worker processes; a row
for which it returns nothing is counted as `filtered`, one for which it raises is quarantined. See
[Converting](converting.md#functions-of-your-own).
"""

TEMPLATES = """\
## Templates

The first part of a type's name is a *text family*: the text itself, without a BOS. `--chat-template`, a config's
`chat_template` and the `chat_template.*` types mean the *model's* template of a name, with its BOS; it is TRL's where TRL
ships one. A `.jinja` file and `tokenizer_default` go wherever a name goes. More in [Templates](templates.md).
"""

WHERE_WE_DIFFER = """
## Where fmtkit differs from axolotl on purpose

Type names, options and bytes are axolotl's where its documented result is right. The differences of single types stand
with the types above. These concern all of them:

- Text: a zephyr reply ends with `</s>`; an empty or null system prompt makes no turn in chatml and llama3.
- Prompt and reply are cut by the structure of the messages, not by searching the rendered text for the answer, which
  cuts at the wrong place for answers such as `a` or `user`.
- Every turn of a conversation is kept, or the row is rejected with a code.
- A `system` column is optional everywhere.
- Bad rows are listed in a quarantine with their line and reason; nothing is skipped without being counted.
- A mistyped `type` is an error that names the near match.
- Any source goes with any template; axolotl has a fixed list of pairs.
- Nothing is imported from the working directory because of a type's name.
"""
