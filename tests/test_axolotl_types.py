"""The types of axolotl's own modules: each is converted, or refused by its name with the way out."""

import json
import sys
from pathlib import Path

import pytest

from fmtkit import convert
from fmtkit.core.errors import FmtkitError, OptionError, UnknownNameError
from fmtkit.formats import typenames
from fmtkit.training.planning import plan as planning

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from pages.from_axolotl import TYPES

NAMED = [(method, name) for method, names in TYPES.items() for name in names]
CONVERTED = [(m, n) for m, n in NAMED if n not in typenames.REFUSED]


def planned(method: str, name: str) -> planning.Plan:
    kinds = {"reward": {"reward_model": True}, "prm": {"process_reward_model": True}, "sft": {}}
    datasets = [{"path": "nobody/nothing", "type": name}]
    keys = kinds.get(method, {"rl": method})
    return planning.plan({"datasets": datasets, "sequence_len": 64, **keys}, partial=True)


@pytest.mark.parametrize(("method", "name"), CONVERTED)
def test_a_type_of_axolotl_is_read_by_its_method(method, name):
    if name.startswith("ebft_strided"):
        pytest.skip("needs the keys of EBFT's strided mode, which its own tests have")
    assert planned(method, name).datasets[0].table


@pytest.mark.parametrize("name", sorted(typenames.REFUSED))
def test_a_type_that_is_not_converted_says_what_to_write_instead(name, tmp_path):
    with pytest.raises(FmtkitError, match=f"type {name} is not converted: .*(write|name|give)"):
        planned("sft", name)
    with pytest.raises(OptionError, match=f"type {name} is not converted"):
        convert([{"text": "a"}], name, tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("style", "asked"),
    [
        ("", "### Instruction:\nq\n\n### Input:\nc\n\n### Response:\n"),
        (":instruct", "### Instruction:\nq\n\n### Input:\nc\n\n### Response:\n"),
        (":chat", "USER: q\nc\nASSISTANT:"),
        (":chatml", "<|im_start|>user\nq\nc<|im_end|>\n<|im_start|>assistant\n"),
        (":phi", "<|user|>\nq<|end|>c<|assistant|>"),
    ],
)
def test_a_style_behind_a_colon_writes_the_prompt_in_it(style, asked, tmp_path):
    out = tmp_path / "out.jsonl"
    convert([{"question": "q", "category": "c", "answer": "a"}], f"jeopardy{style}", out)
    first, second = json.loads(out.read_text())["segments"]
    assert first["text"].endswith(asked)
    assert second == {"text": "what is a", "label": True}


def test_a_style_that_nobody_knows_has_a_hint_and_a_type_without_styles_says_so():
    with pytest.raises(UnknownNameError, match="no style named 'chatm'; did you mean 'chatml'"):
        typenames.read("jeopardy:chatm")
    with pytest.raises(OptionError, match="summarizetldr has no styles"):
        typenames.read("summarizetldr:chat")
