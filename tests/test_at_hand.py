"""Kernels that a machine lacks are left out, and it is said what computes the same."""

import pytest

from fmtkit.training.planning import at_hand
from fmtkit.training.planning import plan as planning


@pytest.mark.parametrize(
    "attention", ["flash_attention_2", "flash_attention_3", "kernels-community/a"]
)
def test_an_attention_kernel_of_a_gpu_falls_back_to_sdpa_with_a_note(attention):
    said: list[str] = []
    values = at_hand.loading({"attn_implementation": attention}, has_cuda=False, say=said.append)
    assert values == {"attn_implementation": "sdpa"}
    assert said == [
        f"attn_implementation: {attention} needs a GPU; sdpa computes the same function",
    ]


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex_attention", None])
def test_what_is_at_hand_stays_as_it_is(attention):
    said: list[str] = []
    given = {"attn_implementation": attention, "dtype": "float32"}
    assert at_hand.loading(given, has_cuda=False, say=said.append) == given
    assert said == []


def test_what_only_a_gpu_has_is_left_out_and_said():
    said: list[str] = []
    given = {"tf32": True, "activation_offloading": True, "bf16": True}
    assert at_hand.arguments(given, has_cuda=False, say=said.append) == {"bf16": True}
    assert [note.partition(" ")[0] for note in said] == ["tf32", "activation_offloading"]
    assert at_hand.loading({"use_kernels": True}, has_cuda=False, say=said.append) == {}
    assert at_hand.arguments(given, has_cuda=True, say=said.append) == given
    assert len(said) == 3


def test_the_plan_says_what_this_machine_lacks(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = planning.plan({"attn_implementation": "flash_attention_2", "tf32": True}, partial=True)
    assert plan.arguments.model["attn_implementation"].value == "flash_attention_2"
    notes = at_hand.notes(plan.arguments)
    assert [note.partition(" ")[0] for note in notes] == ["attn_implementation:", "tf32"]
