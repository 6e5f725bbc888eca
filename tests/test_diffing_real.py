"""`fmtkit diff` against the real axolotl, LLaMA-Factory and another TRL: `make test-diff` makes their environments."""

import os

import pytest

pytest.importorskip("trl")

from test_diffing import CHAT, HERE, found_by, keys

import fmtkit
from fmtkit.diffing import environments

ENVS = os.environ.get("FMTKIT_DIFF")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        ENVS is None, reason="needs FMTKIT_DIFF, the environments of `make test-diff`"
    ),
]


@pytest.fixture(autouse=True)
def _environments(monkeypatch):
    monkeypatch.chdir(HERE)
    monkeypatch.setenv("FMTKIT_ENVS", str(ENVS))


def test_the_environments_hold_what_is_pinned():
    there = {one.name: one for one in environments.list_environments()}
    for name in ("axolotl", "llama-factory"):
        trainer = environments.trainer_named(name)
        made = there[f"{name}=={trainer.version}"]
        assert made.packages == (trainer.package, *trainer.needs)
        assert made.disk_bytes > made.download_bytes >= 0


OLDER = "1.15.0"
"""A version of TRL that is not the one installed here."""


def test_another_version_of_trl_has_an_environment_of_its_own():
    found = found_by(CHAT, against=f"trl=={OLDER}")
    assert found.is_equal, found.examples
    assert found.right.versions["trl"] == OLDER
    assert any("versions differ: " in note and OLDER in note for note in found.notes)


def test_a_python_that_has_the_trainer_is_taken():
    python = environments.python_of(environments.trainer_named(f"trl=={OLDER}"))
    found = found_by("configs/dpo_chat.yaml", against="trl", python=str(python))
    assert found.is_equal, found.examples
    assert found.right.versions["trl"] == OLDER
    # axolotl's environment has a TRL too, of the version that it pins.
    other = environments.python_of(environments.trainer_named("axolotl"))
    found = found_by(CHAT, against="trl", python=str(other))
    assert found.is_equal, found.examples
    assert found.right.versions["trl"] not in (OLDER, found.left.versions["trl"])


@pytest.mark.parametrize("name", ["chat", "dpo_chat", "chat_eos_all", "chat_roles"])
def test_axolotl_trains_on_the_same_tokens(name):
    found = found_by(f"configs/{name}.yaml", against="axolotl")
    assert found.is_equal, found.examples
    assert found.right.versions["axolotl"] == environments.trainer_named("axolotl").version
    assert found.right.trained_tokens > 0


@pytest.mark.parametrize("name", ["alpaca", "dpo_intel", "kto_intel", "chat_packed"])
def test_axolotl_reads_the_config_itself(name):
    found = found_by(f"configs/{name}.yaml", against="axolotl", as_is=True)
    assert found.is_equal, found.examples
    assert any("by itself" in note for note in found.notes)


def test_turns_that_axolotls_own_type_loses_are_named():
    found = found_by("configs/dpo_argilla_chat.yaml", against="axolotl", as_is=True)
    assert found.rules == {"turn_lost": 1}


def test_an_end_that_axolotl_does_not_train_on_is_named():
    assert found_by("configs/chat_own.yaml", against="axolotl").rules == {"end_mask": 6}


def test_a_setting_of_axolotls_own_is_named():
    found = found_by(CHAT, against="axolotl", settings=("train_on_inputs=true",))
    assert {*found.rules} == {"mask", "end_mask"}


def test_llama_factory_takes_a_template_apart_and_loses_line_ends():
    found = found_by(CHAT, against="llama-factory")
    assert found.rules == {"whitespace": 3}
    assert any("took apart the chat template" in note for note in found.notes)
    assert found.rows["right"] == 6


def test_llama_factorys_own_template_has_a_default_system_prompt():
    found = found_by(CHAT, against="llama-factory", settings=("template=qwen",))
    assert "system" in found.rules
    assert found.rows["right"] == 6


def test_pairs_and_replies_go_through_llama_factorys_stages():
    for name in ("dpo_chat", "kto_intel"):
        found = found_by(f"configs/{name}.yaml", against="llama-factory")
        assert {*found.rules} <= {"whitespace"}
        assert found.rows["left"] == found.rows["right"]


def test_rows_that_axolotl_drops_are_not_passed_over():
    found = found_by(CHAT, against="axolotl", settings=("sequence_len=36",))
    assert found.only_left["dropped"] > 0
    assert found.rows["equal"] > 0
    assert (found.rules, found.is_equal, found.exit_code) == ({}, False, 1)


def test_keys_that_axolotl_refuses_are_one_line():
    with pytest.raises(fmtkit.FmtkitError, match="it refuses the rows or the settings") as caught:
        fmtkit.diff(keys(), against="axolotl", settings=("sequence_len=many",))
    assert "\n" not in str(caught.value)
