"""A configuration is read as its writer meant it, or refused in one line."""

import pytest
import yaml

from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.training.config.config import dumps, load
from fmtkit.training.config.keys import table
from fmtkit.training.config.yaml_file import parse


def test_a_number_with_an_exponent_and_no_point_is_a_number():
    assert load(parse("learning_rate: 1e-5", "x")).get("learning_rate") == 1e-5


def test_a_key_that_stands_twice_is_refused_with_its_line():
    with pytest.raises(OptionError, match=r"x:2: duplicate key 'rl'"):
        parse("rl: dpo\nrl: kto\n", "x")


def test_broken_yaml_names_file_and_line():
    with pytest.raises(OptionError, match=r"^x:2:"):
        parse("rl: dpo\n  - a: b\n", "x")


def test_a_file_that_is_not_there_is_a_source_error(tmp_path):
    with pytest.raises(OptionError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_bytes(b"\xef\xbb\xbfrl: dpo\n")
    assert load(file).method() == "dpo"


def test_merge_keys_and_anchors_work():
    raw = parse("a: &a {path: x}\ndatasets: [{<<: *a, type: chatml.intel}]\n", "x")
    del raw["a"]
    assert load(raw).datasets == ({"path": "x", "type": "chatml.intel"},)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("max_length", "sequence_len"),
        ("cutoff_len", "sequence_len"),
        ("per_device_train_batch_size", "micro_batch_size"),
        ("num_train_epochs", "num_epochs"),
        ("lr", "learning_rate"),
        ("beta", "rl_beta"),
        ("dpo_loss_weights", "loss_weights"),
    ],
)
def test_other_spellings_are_read_as_the_key(written, name):
    value = [1.0] if name == "loss_weights" else 2
    assert load({written: value}).get(name) == value


def test_two_spellings_of_a_key_are_refused():
    with pytest.raises(OptionError, match="max_length and sequence_len are the same key"):
        load({"sequence_len": 3, "max_length": 4})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"lora_rr": 3}, "no key named 'lora_rr'; did you mean 'lora_r'?"),
        ({"trl": {"betta": 1}}, "no key named 'trl.betta'; did you mean 'trl.beta'?"),
        ({"scale_rewards": 3}, "did you mean 'trl.scale_rewards'?"),
        ({"ebft": {"strid": 3}}, "did you mean 'ebft.stride'?"),
        ({"datasets": [{"pth": "x"}]}, "no key of datasets named 'pth'; did you mean 'path'?"),
    ],
)
def test_an_unknown_key_is_refused_with_the_near_one(raw, message):
    with pytest.raises(UnknownNameError) as error:
        load(raw)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"micro_batch_size": 0}, "micro_batch_size: 0 is not a whole number from 1"),
        ({"learning_rate": "a"}, "learning_rate: 'a' is not a number"),
        ({"bf16": "yes"}, "bf16: 'yes' is not true, false or auto"),
        ({"rl": 3}, "rl: 3 is not one of alphapo, bco"),
        ({"trl": {"epsilon": "x"}}, "trl.epsilon: 'x' is not a number"),
        ({"trl": 3}, "trl is a section of keys, not 3"),
        ({"datasets": {"path": "x"}}, "datasets: {'path': 'x'} is not a list of entries"),
        ({"datasets": [{"path": 3}]}, "datasets.0.path: 3 is not a string"),
        ({"datasets": [{"type": {"fild": "x"}}]}, "is not a name, or a mapping of field_"),
        ({"rpo_alpha": 1.0}, "rpo_alpha: 1.0 cannot be honoured: TRL no longer has rpo_alpha"),
        ({"trl": {"max_prompt_length": 9}}, "trl.max_prompt_length: 9 cannot be honoured"),
        ({"quantize_moe_experts": True}, "quantize_moe_experts: True cannot be honoured"),
    ],
)
def test_a_wrong_value_is_refused_with_what_the_key_takes(raw, message):
    with pytest.raises(OptionError) as error:
        load(raw)
    assert message in str(error.value)


def test_a_refused_key_that_asks_for_nothing_passes():
    assert load({"relora": False, "rpo_alpha": None}).get("relora") is False


def test_a_bare_no_is_the_strategy_of_that_name():
    config = load(parse("save_strategy: no", "x"))
    assert table()["save_strategy"].translate(config.get("save_strategy")) == "no"


def test_a_key_without_a_value_counts_as_unset():
    config = load(parse("trl:\n  loss_type: dr_grpo\n  max_completion_length:\n", "x"))
    assert config.get("trl.max_completion_length") is None
    assert config.get("trl.loss_type") == "dr_grpo"


@pytest.mark.parametrize(
    ("raw", "method"),
    [
        ({}, "sft"),
        ({"rl": "orpo"}, "orpo"),
        ({"reward_model": True}, "reward"),
        ({"process_reward_model": True}, "prm"),
        ({"reward_model": False, "rl": "kto"}, "kto"),
    ],
)
def test_the_method_follows_from_rl_or_the_reward_keys(raw, method):
    assert load(raw).method() == method


def test_two_methods_are_refused():
    with pytest.raises(OptionError, match="asks for several methods: dpo, reward"):
        load({"rl": "dpo", "reward_model": True}).method()


def test_a_key_is_set_from_the_command_line_and_knows_it():
    config = load({"learning_rate": 1.0}, ["learning_rate=2e-4", "trl.beta=0.5"])
    assert config.get("learning_rate") == 2e-4
    assert config.settings["trl.beta"].origin == "--set trl.beta"


def test_a_dotted_override_reaches_into_mappings_and_lists():
    raw = {"datasets": [{"path": "a"}, {"path": "b"}], "trainer_args": {"x": 1}}
    config = load(raw, ["datasets.1.path=c", "trainer_args.y=2", "model_init_kwargs.use_cache=no"])
    assert [entry["path"] for entry in config.datasets] == ["a", "c"]
    assert config.get("trainer_args") == {"x": 1, "y": 2}
    assert config.get("model_init_kwargs") == {"use_cache": False}


def test_an_override_that_is_empty_unsets_a_key():
    assert load({"rl_beta": 0.5}, ["rl_beta="]).get("rl_beta") is None


@pytest.mark.parametrize("override", ["rl_beta", "=3", "datasets.7.path=x"])
def test_a_wrong_override_is_refused(override):
    with pytest.raises(OptionError, match="--set"):
        load({"datasets": [{"path": "a"}]}, [override])


def test_a_dataset_name_is_short_for_datasets():
    assert load({"dataset_name": "a/b"}).datasets == ({"path": "a/b"},)


def test_the_written_configuration_is_read_back_as_the_same():
    raw = {"rl": "dpo", "trl": {"beta": 0.1}, "datasets": [{"path": "x", "type": "chatml"}]}
    config = load(raw)
    again = load(yaml.safe_load(dumps(config)))
    assert again.nested() == config.nested()
    assert again.datasets == config.datasets


def test_a_misspelled_method_is_refused_with_the_near_one_and_all_that_are_installed():
    wanted = (
        r"<mapping>: rl: no method named 'dop'; did you mean 'dpo'\?; installed: alphapo, bco, "
    )
    with pytest.raises(UnknownNameError, match=wanted):
        load({"rl": "dop"})


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 5_000 + "]" * 5_000,
        "a: " + "{b: " * 5_000 + "1" + "}" * 5_000,
        "- " * 5_000 + "1",
        "datasets: " + "[" * 150 + "]" * 150,
        "".join(" " * depth + "a:\n" for depth in range(2_000)),
    ],
    ids=["lists", "mappings", "sequence", "150", "indented"],
)
def test_a_deep_configuration_is_refused_in_one_line(text):
    with pytest.raises(OptionError, match=r"f\.yaml: more than 100 mappings or lists"):
        parse(text, "f.yaml")


def test_aliases_that_stand_for_millions_of_values_are_refused():
    nines = [", ".join([f"*a{number - 1}"] * 9) for number in range(12)]
    lines = ["a0: &a0 [1]", *(f"a{n}: &a{n} [{nines[n]}]" for n in range(1, 12))]
    with pytest.raises(OptionError, match="expand to more than 1,000,000 values"):
        parse("\n".join(lines), "f.yaml")


@pytest.mark.parametrize("text", ["2024-07-26", "2024-13-45", "2024-07-26 10:00:00"])
def test_a_date_is_the_string_that_was_written(text):
    assert parse(f"a: {text}", "f.yaml") == {"a": text}


@pytest.mark.parametrize("text", ["a: " + "9" * 5_000, "? [a]\n: 1", "a: !!float x", "a: &a [*a]"])
def test_a_value_that_yaml_cannot_hold_is_refused_in_one_line(text):
    with pytest.raises(OptionError, match=r"f\.yaml") as refused:
        parse(text, "f.yaml")
    assert "\n" not in str(refused.value)
