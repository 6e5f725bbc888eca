"""Chat templates for tools: one that writes tool calls, and whose replies TRL knows how to read.

TRL decides when its trainer is made, after the rows are converted. The plan decides by the same rules, from
the text of the template and the list of templates in the source of TRL, without importing it.
"""

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core import hub_access
from fmtkit.core.errors import TemplateError
from fmtkit.rendering import row_templates, template_sources
from fmtkit.training.config.problems import Problem
from fmtkit.training.config.trainer_source import Module, module_named
from fmtkit.training.planning.check import check_run

if TYPE_CHECKING:
    from fmtkit.training.planning.check import Run
    from fmtkit.training.planning.run_plan import Plan

KEYS = ("tools", "environment_factory")
"""Keys of `trl` that give the model tools."""
SCHEMAS = ("response_template", "response_schema")
"""Entries of tokenizer_config.json by which a tokenizer reads replies without TRL's help."""
_OWN_TEMPLATE = (
    "use a model that calls tools with its own template (chat_template: tokenizer_default), such as "
    "Qwen3, Llama 3.1 or GLM 4"
)
CANNOT_WRITE = f"the chat template cannot write tool calls; {_OWN_TEMPLATE}"
CANNOT_READ = (
    f"TRL does not know how to read tool calls in this chat template; {_OWN_TEMPLATE}, or set the "
    "tokenizer's response_template"
)
_PARTS = ("tool_a8f3", "argument_b9d4", "value_d6e7", "result_c4f9")
"""Texts of a conversation with a tool, each of which a template has to write."""


def has_tools(run: "Run") -> bool:
    """Return whether the trainer is given tools."""
    return bool(_key(run.plan))


@check_run(
    "tool_template",
    "files",
    "tools with a chat template that cannot write tool calls, or whose replies TRL cannot read",
    concerns=has_tools,
)
def find(run: "Run") -> Problem | None:
    """Return the problem of a template that is at hand and cannot be used with tools."""
    template, config = _template(run.plan)
    if template is None:
        return None
    key = f"trl.{_key(run.plan)}"
    if not writes_calls(template, config):
        return Problem("", f"{key}: {CANNOT_WRITE}", key)
    known = readable()
    if known and template not in known and not any(config.get(name) for name in SCHEMAS):
        return Problem("", f"{key}: {CANNOT_READ}", key)
    return None


def _key(plan: "Plan") -> str:
    return next((key for key in KEYS if plan.arguments.value(key, "rl")), "")


def _template(plan: "Plan") -> tuple[str | None, dict[str, Any]]:
    """Return the text of the run's template, None where it is not at hand, and the tokenizer's config."""
    name = plan.tokenizer or ""
    folder = Path(name).expanduser()
    if not (folder / "tokenizer.json").is_file():
        file = hub_access.cached(name, "tokenizer.json") if name and not folder.exists() else None
        if file is None:
            return None, {}
        folder = file.parent
    from fmtkit.tokenizers import tokens

    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return plan.template_text() or tokens.load(str(folder)).chat_template, config


def writes_calls(source: str, config: dict[str, Any]) -> bool:
    """Return whether every part of a call and of its result is in the text, as TRL asks."""
    name, argument, value, result = _PARTS
    special = {k: v for k, v in config.items() if k.endswith("_token") and isinstance(v, str)}
    template = template_sources.recognised("chat_template", source, special)
    # DeepSeek's templates want the arguments as text.
    for arguments in ({argument: value}, json.dumps({argument: value})):
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        messages: list[Mapping[str, Any]] = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": name, "content": result},
        ]
        try:
            text = row_templates.RowTemplate(template).render(messages)
        except TemplateError:
            continue
        return all(part in text for part in _PARTS)
    return False


@cache
def readable() -> frozenset[str]:
    """Return the templates whose replies the installed TRL can read; none where its source does not say."""
    module = module_named("trl.chat_template_utils")
    function = _function(module, "add_response_schema") if module is not None else None
    if module is None or function is None:
        return frozenset()
    compared = [
        name.id
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("chat_template")
        for side in node.comparators
        for name in ast.walk(side)
        if isinstance(name, ast.Name)
    ]
    texts = [_text(module, name) for name in compared]
    return frozenset() if None in texts else frozenset(filter(None, texts))


def _function(module: Module, name: str) -> ast.FunctionDef | None:
    functions = (n for n in module.tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    return next(functions, None)


def _text(module: Module, name: str) -> str | None:
    """Return the text of the file that a constant of the module reads, or None if it is no file."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            files = [
                part.value
                for part in ast.walk(node.value)
                if isinstance(part, ast.Constant) and str(part.value).endswith(".jinja")
            ]
            path = module.file.parent / "chat_templates" / str(files[0]) if files else None
            return path.read_text(encoding="utf-8") if path and path.is_file() else None
    return None
