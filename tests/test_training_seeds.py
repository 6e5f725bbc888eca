"""Every YAML block of the documents that fmtkit was asked for plans, or is refused by name.

Most of the documents lost the indentation of their YAML; tests/seed_yaml.py gives it back.
"""

import re
from pathlib import Path

import pytest
import seed_yaml
import yaml
from seed_yaml import Found

pytest.importorskip("trl")

from fmtkit.training.config.problems import RefusalError
from fmtkit.training.config.yaml_file import parse
from fmtkit.training.planning import plan as planning

SEEDS = Path(__file__).parent.parent.parent / "shared" / "seeds"

pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not here")

REFUSED = {"000:2866": "context_parallel", "001:865": "context_parallel"}
"""What no run can honour: block -> the name of its refusal. Every other block plans."""

OTHER = {"004:2990": "a configuration of accelerate, of which a page kept half"}
"""YAML that is no configuration of a run."""

METHODS = {
    "sft_config.yaml": "",
    "dpo_config.yaml": "rl: dpo\n",
    "reward_config.yaml": "reward_model: true\n",
}
"""TRL names the method in its command, `trl dpo --config dpo_config.yaml`; fmtkit in the file."""


LIKE_YAML = re.compile(r"^\s*(#.*|- .+|[a-z_]\w*:(\s.*)?)$")
FIRST = (
    "rl:",
    "trl:",
    "base_model:",
    "datasets:",
    "adapter:",
    "fsdp:",
    "deepspeed:",
    "rl_adapter_ref_model:",
)
"""Keys by which a block of the guide is told from a list in its text."""


def documents(*numbers: str) -> list[Path]:
    return [path for number in numbers for path in sorted(SEEDS.glob(f"{number}_*"))]


def blocks() -> list[Found]:
    """Return the fenced YAML blocks."""
    return [
        block
        for path in documents("000", "002", "003", "004")
        for block in seed_yaml.fenced(path, "yaml", "yml")
        if block.name not in OTHER
    ]


def guide() -> list[Found]:
    """Return the blocks of the guide, which has kept its indentation and lost its fences."""
    out: list[Found] = []
    for path in documents("001"):
        block: list[str] = []
        for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), "END."], 1):
            if LIKE_YAML.match(line) or (not line.strip() and block):
                block.append(line)
                continue
            if any(part.startswith(FIRST) for part in block):
                out.append(Found(path.name, number - len(block), "\n".join(block)))
            block = []
    return out


def outcome(text: str, *, partial: bool = True) -> str:
    """Return the method that a block plans, or the refusal that it ends in."""
    try:
        return planning.plan(parse(text, "block"), partial=partial).method
    except RefusalError as error:
        return error.name


def expected_method(values: dict[str, object]) -> str:
    """Return the method that a block asks for in words of its own."""
    if values.get("reward_model"):
        return "reward"
    if values.get("process_reward_model"):
        return "prm"
    if "rl" in values:
        return str(values["rl"])
    if "trl" in values:
        return "grpo"
    return "dpo" if "rl_adapter_ref_model" in values or _is_pairs(values) else "sft"


def _is_pairs(values: dict[str, object]) -> bool:
    return "chatml.intel" in str(values.get("datasets"))


def with_method(block: Found) -> str:
    """Return a block's YAML, the method of its command in it."""
    text = seed_yaml.indented(block.text)
    named = text.partition("\n")[0].removeprefix("# ")
    return METHODS.get(named, "") + text


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.name)
def test_a_block_plans_or_ends_in_the_refusal_that_is_expected(block):
    text = with_method(block)
    values = yaml.safe_load(text)
    assert outcome(text) == REFUSED.get(block.name, expected_method(values)), text


@pytest.mark.parametrize(
    "setting",
    [one for path in documents("000", "002", "003") for one in seed_yaml.settings(path)],
    ids=lambda one: one.name,
)
def test_a_setting_that_a_sentence_names_plans(setting):
    assert outcome(setting.text) == expected_method(yaml.safe_load(setting.text))


def test_every_block_of_the_indented_guide_plans_or_is_refused():
    found = guide()
    assert len(found) > 25
    for block in found:
        values = yaml.safe_load(block.text)
        assert outcome(block.text) == REFUSED.get(block.name, expected_method(values)), block.name


def test_a_whole_configuration_needs_no_guess():
    whole = [
        with_method(block)
        for block in blocks()
        if {"base_model", "rl", "datasets"} <= yaml.safe_load(with_method(block)).keys()
    ]
    assert len(whole) >= 6
    for text in whole:
        assert outcome(text, partial=False) == yaml.safe_load(text)["rl"]


def test_indentation_is_found_again_wherever_it_is_known():
    for block in guide():
        flat = "\n".join(line.strip() for line in block.text.splitlines() if line.strip())
        assert yaml.safe_load(seed_yaml.indented(flat)) == yaml.safe_load(block.text), block.name


def test_the_documents_hold_what_they_are_known_to_hold():
    assert len(blocks()) > 45
    assert {block.file[:3] for block in blocks()} == {"000", "003", "004"}
    everything = [one for path in documents("004") for one in seed_yaml.fenced(path, "yaml")]
    assert {one.name for one in everything} - {one.name for one in blocks()} == set(OTHER)
