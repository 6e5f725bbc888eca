"""The origins of tokens equal what the package `renderers` says: ids, turns, and which tokens a model samples.

`renderers` writes the conversations of some models without their templates, in code of its own, and says of
each token of which message it is and whether the model would sample it. It is not among our packages, since it
needs openai and tiktoken: FMTKIT_RENDERERS names a folder that it is installed into, as `make test-renderers`
does. What differs on purpose is listed in docs/inspect.md.
"""

import json
import os
import random
import sys
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmtkit.masks.masked import encoded
from fmtkit.masks.origins import CONTENT, END, REASONING, TOOL_CALL
from fmtkit.masks.token_origins import origins_of
from fmtkit.rendering import template_sources
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.tokenizers import tokens

ROOT = Path(__file__).parents[2]
PLACE = os.environ.get("FMTKIT_RENDERERS")
if not PLACE:
    pytest.skip("needs FMTKIT_RENDERERS: make test-renderers", allow_module_level=True)

SPECIAL = {
    "qwen3": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    "llama3_2": [
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
    ],
}
ADDED = {
    "qwen3": [
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<think>",
        "</think>",
    ],
    "llama3_2": [],
}
ENDS = {"qwen3": "<|im_end|>", "llama3_2": "<|eot_id|>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds é.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]


def tokenizer_of(folder: Path, model: str) -> None:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = tokenizers.Tokenizer.from_file(str(ROOT / "fixtures/tokenizer/tokenizer.json"))
    backend.add_special_tokens(SPECIAL[model])
    backend.add_tokens([tokenizers.AddedToken(t, normalized=False) for t in ADDED[model]])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=ENDS[model])
    if model == "llama3_2":
        made.bos_token = "<|begin_of_text|>"
    made.save_pretrained(folder)


WITH_TURN = (CONTENT, REASONING, TOOL_CALL, END)
WORDS = [
    "Hi",
    "two\nlines",
    "  trimmed? ",
    "café 你好 🙂",
    "<b>x</b>",
    "1 + 1 = 2",
    "a" * 40,
    "\n\nafter",
    "end\n",
]


def conversations(model: str, count: int) -> list[dict[str, Any]]:
    """Draw conversations with and without system prompts, reasoning, calls of tools."""
    draw = random.Random(35)
    rows = []
    for _ in range(count):
        said: list[dict[str, Any]] = []
        if draw.random() < 0.4:
            said.append({"role": "system", "content": draw.choice(WORDS)})
        tools = draw.random() < 0.4
        for _ in range(draw.randint(1, 3)):
            said.append({"role": "user", "content": draw.choice(WORDS)})
            if tools and draw.random() < 0.6:
                call = {
                    "type": "function",
                    "function": {
                        "name": "add",
                        "arguments": {"a": draw.randint(0, 99), "b": "é\n"},
                    },
                }
                calls = [call] * (draw.randint(1, 2) if model == "qwen3" else 1)
                said.append(
                    {
                        "role": "assistant",
                        "content": draw.choice(["", "I add."]) if model == "qwen3" else "",
                        "tool_calls": calls,
                    }
                )
                if model == "qwen3" and draw.random() < 0.5:
                    said[-1]["reasoning_content"] = draw.choice(["use add", "because\nof"])
                said += [{"role": "tool", "content": draw.choice(WORDS)} for _ in calls]
            reply = {"role": "assistant", "content": draw.choice(WORDS)}
            if model == "qwen3" and draw.random() < 0.5:
                reply["reasoning_content"] = draw.choice(["think", "so\n\nthat"])
            said.append(reply)
        rows.append({"messages": said, "tools": TOOLS if tools else None})
    return rows


def renderer_of(model: str, folder: Path) -> Any:
    # Behind what is installed here: both use one transformers and one tokenizers.
    sys.path.append(str(PLACE))
    from renderers import configs
    from renderers.llama_3 import Llama3Renderer
    from renderers.qwen3 import Qwen3Renderer
    from transformers import AutoTokenizer

    peer = AutoTokenizer.from_pretrained(folder)
    if model == "qwen3":
        return Qwen3Renderer(peer, configs.Qwen3RendererConfig())
    return Llama3Renderer(peer, configs.Llama3RendererConfig())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen3", "llama3_2"])
def test_ids_turns_and_sampled_tokens_are_those_of_renderers(model, tmp_path):
    tokenizer_of(tmp_path, model)
    peer = renderer_of(model, tmp_path)
    own = tokens.load(tmp_path)
    family = template_sources.find_family(model).with_tokens(own.special_tokens)
    # The template that the model itself has, not TRL's variant for training; with the date of renderers.
    template = RowTemplate(replace(family, training=None).at(datetime(2024, 7, 26)))
    seen: Counter[str] = Counter()
    for row in conversations(model, 150):
        messages = [
            {**m, "tool_calls": json.dumps(m["tool_calls"])} if "tool_calls" in m else m
            for m in row["messages"]
        ]
        tools = json.dumps(row["tools"]) if row["tools"] else None
        one = encoded(template.render(messages, tools), own, "everything")
        origins = origins_of(one, messages, tools, own, template)
        theirs = peer.render(row["messages"], tools=row["tools"])
        assert origins.by == "trace"
        if one.ids.tolist() != theirs.token_ids:
            # renderers tokenizes a reply apart from its header: "\n" and "\n\nafter" are no "\n\n\n".
            assert one.text == own.backend.decode(theirs.token_ids, skip_special_tokens=False)
            assert "assistant\n\n" in one.text
            seen["a line break at the beginning of a reply"] += 1
            continue
        sampled, turns = np.array(theirs.sampled_mask), np.array(theirs.message_indices)
        different = np.flatnonzero(origins.sampled != sampled)
        if len(origins.blocks):
            # An empty block for reasoning counts as sampled there: here the template wrote it.
            assert sampled[origins.blocks].all()
            assert not origins.sampled[origins.blocks].any()
            different = np.setdiff1d(different, np.flatnonzero(origins.blocks))
            seen["empty blocks"] += 1
        assert not len(different), (row, [one.text[slice(*one.offsets[i])] for i in different])
        other = np.flatnonzero((origins.messages != turns) & np.isin(origins.kinds, WITH_TURN))
        assert not len(other), (row, [one.text[slice(*one.offsets[i])] for i in other])
        seen["equal"] += 1
    assert seen["equal"] > 130
