"""What would stop a run is one line before anything is loaded."""

import json
from pathlib import Path

import pytest

pytest.importorskip("trl")

import tiny_training as tiny

import fmtkit
from fmtkit.core.errors import FmtkitError, OptionError, TokenizerError
from fmtkit.training.planning import checks
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run
from fmtkit.training.planning.job import Source
from fmtkit.training.run import checklist


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Path(tiny.make_model(tmp_path_factory.mktemp("model")))


def planned(model, **keys):
    base = {"base_model": str(model), "rl": "dpo", "chat_template": "chatml"}
    merged = {k: v for k, v in {**base, **keys}.items() if v is not None}
    return planning.plan(merged, partial=True)


def changed(model: Path, folder: Path, file: str, **values) -> Path:
    """Copy a model's configuration with some values changed; None takes one away."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (folder / name).write_bytes((model / name).read_bytes())
    facts = json.loads((folder / file).read_text(encoding="utf-8")) | values
    facts = {k: v for k, v in facts.items() if v is not None}
    (folder / file).write_text(json.dumps(facts), encoding="utf-8")
    return folder


def refused(plan) -> str:
    with pytest.raises(FmtkitError) as error:
        tiny.check(plan)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_sound_model_passes(model):
    tiny.check(planned(model))


@pytest.mark.parametrize("key", ["base_model", "ref_model", "tokenizer_config"])
def test_a_folder_that_does_not_exist_is_named(model, key):
    assert f"{key}: ./nowhere: no such folder" in refused(planned(model, **{key: "./nowhere"}))


def test_a_folder_that_is_no_model_is_named(model, tmp_path):
    assert "has no config.json" in refused(planned(tmp_path, tokenizer_config=str(model)))


def test_an_adapter_folder_without_an_adapter_is_named(model):
    plan = planned(model, adapter="lora", lora_model_dir=str(model))
    assert "has no adapter_config.json" in refused(plan)


def test_a_tokenizer_without_a_pad_token_names_one_that_it_has(model, tmp_path):
    folder = changed(model, tmp_path, "tokenizer_config.json", pad_token=None)
    text = refused(planned(folder))
    assert "no pad token; set special_tokens: {pad_token: '<|pad|>'}" in text
    tiny.check(planned(folder, special_tokens={"pad_token": "<|pad|>"}))


def test_a_missing_chat_template_is_named(model):
    assert "no chat template; set chat_template" in refused(planned(model, chat_template=None))


def test_a_special_token_that_the_vocabulary_lacks_is_named(model):
    text = refused(planned(model, special_tokens={"pad_token": "<nope>"}))
    assert "special_tokens.pad_token: '<nope>' is not in the vocabulary" in text


def test_a_language_model_method_refuses_a_classifier(model, tmp_path):
    folder = changed(model, tmp_path, "config.json", architectures=["LlamaForTokenClassification"])
    assert "dpo trains a language model" in refused(planned(folder))


def test_a_reward_model_with_the_wrong_head_is_named(model, tmp_path):
    folder = changed(
        model,
        tmp_path,
        "config.json",
        architectures=["LlamaForSequenceClassification"],
        id2label={"0": "a", "1": "b"},
    )
    text = refused(planned(folder, rl=None, reward_model=True))
    assert "has a head of 2 outputs; a reward model has 1" in text


def unpaired(tmp_path, labels):
    rows = [
        {**row, "label": label} for row, label in zip(tiny.unpaired_rows(), labels, strict=False)
    ]
    return (Source((str(tiny.write_table("Unpaired", tmp_path / "u.parquet", rows)),)),)


@pytest.mark.parametrize("label", [True, False])
def test_labels_of_one_kind_are_refused_for_kto(model, tmp_path, label):
    with pytest.raises(OptionError, match=f"every label is {str(label).lower()}"):
        tiny.check_rows(planned(model, rl="kto"), unpaired(tmp_path, [label] * 8), ())


def test_labels_of_both_kinds_pass(model, tmp_path):
    tiny.check_rows(planned(model, rl="kto"), unpaired(tmp_path, [True, False] * 4), ())


def test_a_dataset_smaller_than_a_batch_is_refused_for_kto(model, tmp_path):
    plan = planned(model, rl="kto", micro_batch_size=9)
    with pytest.raises(OptionError, match="fewer than a batch of 9"):
        tiny.check_rows(plan, unpaired(tmp_path, [True, False]), ())


def test_no_row_at_all_is_refused(model, tmp_path):
    import pyarrow.parquet as pq

    path = tiny.write_table("Preference", tmp_path / "p.parquet")
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(OptionError, match="no row is left to train on"):
        tiny.check_rows(planned(model), (Source((str(path),)),), ())


def test_the_errors_are_of_their_kind(model):
    with pytest.raises(TokenizerError):
        tiny.check(planned(model, chat_template=None))


@pytest.mark.parametrize("name", ["nobody/no-such-model", "no such model", "one-word-model"])
def test_what_is_neither_a_folder_nor_of_the_hub_is_named(model, name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    plan = planned(name, tokenizer_config=str(model))
    assert f"base_model: {name}: no such folder here, and the hub did not provide" in refused(plan)


def test_a_path_beside_a_folder_is_never_asked_of_the_hub(model, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    text = refused(planned("runs/tiny", tokenizer_config=str(model)))
    assert "base_model: runs/tiny: no such folder" in text


def test_an_end_of_turn_that_is_no_token_is_named(model):
    assert "eot_tokens: '<nope>' is not a token" in refused(planned(model, eot_tokens=["<nope>"]))
    tiny.check(planned(model, eot_tokens=["<|im_end|>"]))


@pytest.mark.parametrize(("end", "count"), [("<|im_end|>", 0), ("", 32)])
def test_finished_text_without_an_end_of_turn_is_remarked(model, tmp_path, end, count):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fmtkit.core.tables import TABLES

    columns = frozenset({"prompt", "chosen", "rejected"})
    rows = [{"prompt": "q", "chosen": f"a{end}", "rejected": f"b{end}"}] * 32
    path = tmp_path / "text.parquet"
    schema = TABLES["Preference"].schema(columns, wide=False, text=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    formats = {"field_prompt": "q", "field_chosen": "a", "field_rejected": "b"}
    plan = planned(model, chat_template=None, datasets=[{"path": str(path), "type": formats}])
    said = checks.remarks(plan, (Source((str(path),)),))
    assert len(said) == bool(count)
    assert all(f"{count} of 32 replies of text do not end with <|im_end|>" in s for s in said)


@pytest.mark.parametrize("key", ["base_model", "ref_model", "lora_model_dir"])
def test_a_misspelt_folder_is_told_by_a_dry_run_with_the_one_that_was_meant(
    model, tmp_path, monkeypatch, key
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-model").mkdir()
    adapter = {"adapter": "lora"} if key == "lora_model_dir" else {}
    for name in ("tiny-modle", "./tiny-modle"):
        plan = planned(model, **{key: name}, **adapter)
        with pytest.raises(
            OptionError, match=f"{key}: {name}: no such folder; did you mean '.*tiny-model'"
        ):
            checklist.check(Run(plan, asks_hub=False), "files")
    nothing_near = planned(model, **{key: "absent"}, **adapter)
    with pytest.raises(
        OptionError, match="absent: no such folder; a model of the hub is written ORG/NAME"
    ):
        checklist.check(Run(nothing_near, asks_hub=False), "files")


@pytest.mark.parametrize(
    "name", ["gpt2", "distilgpt2", "bert-base-uncased", "roberta-large", "t5-small", "a/b"]
)
def test_a_dry_run_asks_no_hub_for_what_may_be_there(model, name):
    checklist.check(Run(planned(name, tokenizer_config=str(model)), asks_hub=False), "files")


def test_an_encoder_decoder_model_is_refused_where_a_language_model_trains(model, tmp_path):
    folder = changed(model, tmp_path, "config.json", is_encoder_decoder=True)
    assert "is an encoder-decoder model; dpo trains language models" in refused(planned(folder))


def test_two_quantizations_are_refused():
    with pytest.raises(OptionError, match="load_in_4bit and load_in_8bit both choose"):
        planning.plan({"load_in_4bit": True, "load_in_8bit": True, "adapter": "lora"}, partial=True)


@pytest.mark.parametrize("datasets", [{}, {"datasets": None}, {"datasets": []}])
def test_a_model_without_data_is_refused_by_a_dry_run(model, datasets):
    keys = {"base_model": str(model), **datasets}
    with pytest.raises(OptionError, match="datasets: needed to train; --dry-run --partial plans"):
        fmtkit.train(keys, dry_run=True)
    assert fmtkit.train(keys, dry_run=True, partial=True).plan.missing == ("datasets",)
