"""Rows of text train as they are; what a conversion says of flags is said in keys of the config."""

import json
from pathlib import Path

import pytest

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.errors import ColumnMismatchError, OptionError, UnknownNameError
from fmtkit.training.config import config_words
from fmtkit.training.data import prerendered as finished_text
from fmtkit.training.planning import plan as planning

TEXTS = {"prompt": "q", "chosen": "a", "rejected": "b"}
MESSAGES = {
    "prompt": [{"role": "user", "content": "q"}],
    "chosen": [{"role": "assistant", "content": "a"}],
    "rejected": [{"role": "assistant", "content": "b"}],
}


def planned(folder: Path, *rows: dict, method: str = "dpo", **keys) -> planning.Plan:
    """Plan a run over files of one row each."""
    files = []
    for number, row in enumerate(rows):
        files.append(folder / f"{number}.jsonl")
        files[-1].write_text(json.dumps(row) + "\n", encoding="utf-8")
    whole = {"base_model": "a/m", "rl": method, "datasets": [{"path": str(f)} for f in files]}
    return planning.plan({**whole, **keys})


def settled(plan: planning.Plan) -> planning.Plan:
    return finished_text.settled(plan, with_hub=False)


def test_texts_of_a_canonical_source_need_no_template(tmp_path):
    plan = settled(planned(tmp_path, TEXTS))
    assert plan.template == ("none", "prerendered text")
    assert [dataset.reading.is_text for dataset in plan.datasets] == [True]


def test_messages_keep_their_template(tmp_path):
    plan = planned(tmp_path, MESSAGES, chat_template="chatml")
    assert settled(plan) is plan


def test_columns_of_other_names_are_looked_up(tmp_path):
    plan = planned(tmp_path, {"q": "q", "chosen": "a", "rejected": "b"})
    assert settled(plan) is plan
    entry = {"path": str(tmp_path / "0.jsonl"), "columns": {"prompt": "q"}}
    plan = planned(tmp_path, {"q": "q", "chosen": "a", "rejected": "b"}, datasets=[entry])
    assert settled(plan).template[0] == "none"


def test_files_are_found_by_data_files_too(tmp_path):
    planned(tmp_path, TEXTS)
    for entry in (
        {"path": str(tmp_path), "data_files": ["0.jsonl"]},
        {"ds_type": "json", "data_files": [str(tmp_path / "0.jsonl")]},
    ):
        plan = planned(tmp_path, TEXTS, datasets=[entry])
        assert settled(plan).template[0] == "none"


def test_a_template_renders_no_text_and_is_saved_with_the_model_which_the_plan_says(tmp_path):
    plan = settled(planned(tmp_path, TEXTS, chat_template="chatml"))
    assert plan.template == ("chatml", "key chat_template")
    assert "chat_template: chatml renders no row, since all are text" in plan.notes[-1]
    plan = settled(planned(tmp_path, TEXTS, chat_template="tokenizer_default"))
    assert plan.template[0] == "none"


@pytest.mark.parametrize("keys", [{}, {"chat_template": "chatml"}])
def test_text_beside_messages_leaves_them_their_template(tmp_path, keys):
    plan = settled(planned(tmp_path, TEXTS, MESSAGES, **keys))
    assert plan.template[0] == keys.get("chat_template", "tokenizer_default")
    assert [dataset.reading.is_text for dataset in plan.datasets] == [True, False]


@pytest.mark.parametrize("keys", [{}, {"chat_template": "chatml"}])
def test_prompts_of_text_need_no_template_but_may_have_one(tmp_path, keys):
    trl = {"reward_funcs": ["rewards.one"], "num_generations": 2}
    plan = planned(tmp_path, {"prompt": "q"}, method="grpo", trl=trl, micro_batch_size=2, **keys)
    assert settled(plan).template[0] == keys.get("chat_template", "none")


def test_steps_need_no_template(tmp_path):
    row = {"prompt": "q", "completions": ["a"], "labels": [True]}
    file = tmp_path / "0.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    for type_ in ({}, {"type": "stepwise_supervised"}):
        plan = planned(tmp_path, row, method="prm", datasets=[{"path": str(file), **type_}])
        assert settled(plan).template[0] == "none"


def test_datasets_that_are_not_here_are_left_to_the_conversion(tmp_path):
    plan = planned(tmp_path, datasets=[{"path": "a/hub-name"}, {"path": "hub-name"}])
    assert settled(plan) is plan


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            "needs column chosen (near: good; map it with --map chosen=good)",
            "needs column chosen (near: good; map it with columns: {chosen: good} next to its type)",
        ),
        ("choose a pair policy, --option pairs=all", "choose a pair policy, options: {pairs: all}"),
        ("no role 'bot'; map it by --option roles", "no role 'bot'; map it by roles next to"),
        ("makes tokens: give --tokenizer", "makes tokens: give tokenizer_config or base_model"),
        ("--val-size 9: only 3 rows", "val_set_size 9: only 3 rows"),
        ("choose one with --method", "choose one with rl"),
        ("--as messages: type m.f makes text; use --as text", "type m.f makes prerendered text"),
        ("nothing of flags", "nothing of flags"),
    ],
)
def test_flags_become_keys(said, meant):
    assert config_words.spoken(said).startswith(meant)


@pytest.mark.parametrize("kind", [ColumnMismatchError, OptionError])
def test_an_error_keeps_its_kind_and_its_exit_code(kind):
    with (
        pytest.raises(kind, match="give tokenizer_config or base_model") as found,
        config_words.advice(),
    ):
        raise kind("give --tokenizer")
    assert found.value.exit_code == 2


def test_an_error_that_names_no_flag_is_the_same_error():
    error = UnknownNameError("type", "intle", ["intel"])
    with pytest.raises(UnknownNameError) as found, config_words.advice():
        raise error
    assert found.value is error


@pytest.mark.parametrize(
    ("row", "replies"),
    [
        ({"text": "a b"}, ["text"]),
        ({"prompt": "q ", "completion": "a"}, ["completion"]),
        ({"prompt": "q ", "chosen": "a", "rejected": "b</s>"}, ["chosen", "rejected"]),
        ({"prompt": "q ", "completion": "a", "label": True}, ["completion"]),
    ],
)
def test_each_reply_of_text_ends_once_where_that_is_asked_for(row, replies):
    import fmtkit

    method = "kto" if "label" in row else "dpo" if "chosen" in row else "sft"
    [made] = fmtkit.table([row], "passthrough", method=method, eos="</s>").to_pylist()
    assert made == row | {name: row[name].removesuffix("</s>") + "</s>" for name in replies}


@pytest.mark.parametrize(
    ("row", "type_", "message"),
    [
        (MESSAGES, "passthrough", "makes a Preference: its template ends them"),
        ({"prompt": "q"}, "passthrough", "makes a Prompt: its rows have no reply of text"),
        ({"text": "t"}, "completion", "makes a Segments: its rows have no reply of text"),
    ],
)
def test_an_end_of_what_does_not_end_as_text_is_refused(row, type_, message):
    import fmtkit

    with pytest.raises(OptionError, match=message):
        fmtkit.table([row], type_, eos="</s>")


def test_a_plan_says_that_text_does_not_end_and_that_its_end_is_added(tmp_path):
    import fmtkit

    model = tiny.make_model(tmp_path / "model")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(TEXTS) + "\n", encoding="utf-8")

    def notes(**entry: object) -> list[str]:
        keys = {"base_model": model, "rl": "dpo", "output_dir": str(tmp_path / "run")}
        plan = fmtkit.train({**keys, "datasets": [{"path": str(file), **entry}]}, dry_run=True).plan
        return [note for note in plan.notes if "replies of text do not end with" in note]

    [said] = notes()
    assert "as TRL's trainer for dpo does" in said
    end = said.partition("do not end with ")[2].partition(":")[0]
    assert notes(eos=end) == []


def test_a_plan_says_that_a_beginning_would_come_twice(tmp_path):
    import fmtkit

    model = tiny.with_beginning(tiny.make_model(tmp_path / "model", bos=True))
    bos = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())["bos_token"]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"text": f"{bos}red"}) + "\n", encoding="utf-8")
    keys = {"base_model": model, "output_dir": str(tmp_path / "run")}
    plan = fmtkit.train({**keys, "datasets": [{"path": str(file)}]}, dry_run=True).plan
    [said] = [note for note in plan.notes if "begin with" in note]
    assert said.startswith("1 of 1 rows of text begin with ")
