"""`fmtkit try`: answers and scores of a trained model beside its base, as by hand."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

import tiny_training as tiny

import fmtkit
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.training.run import process

LORA = {"adapter": "lora", "lora_r": 4, "lora_target_linear": True, "learning_rate": 0.02}
TABLE = {
    "dpo": "Preference",
    "kto": "Unpaired",
    "sft": "Conversation",
    "reward": "Preference",
    "prm": "Stepwise",
}
TYPE = {"prm": "stepwise_supervised", "sft": "openai"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def runs(model, tmp_path_factory):
    """Train a run of each method once, when it is first asked for."""
    made: dict[str, Path] = {}

    def run(method: str) -> Path:
        if method not in made:
            made[method] = trained(tmp_path_factory.mktemp(method) / "run", model, method, LORA)
        return made[method]

    return run


def trained(folder: Path, model: str, method: str, more: dict) -> Path:
    work = tiny.make_job(folder, model, method, TABLE[method], more)
    work.write()
    plan = {"datasets": [{"type": "passthrough", "options": {}}]}
    (folder / "plan.json").write_text(json.dumps(plan))
    assert process.train(work) == 0
    return folder


def both(run: Path, model: str, auto: str):
    import transformers
    from peft import PeftModel

    made = getattr(transformers, auto)
    labels = {} if "Causal" in auto else {"num_labels": 1}
    base, under = (made.from_pretrained(model, **labels).eval() for _ in range(2))
    return base, PeftModel.from_pretrained(under, run / "model").eval()


def rows_of(run: Path) -> Path:
    return run / "rows.parquet"


def test_prompts_are_answered_by_base_and_trained_as_generate_answers(runs, model):
    import torch
    from transformers import AutoTokenizer

    trial = fmtkit.try_run(runs("sft"), prompt=["the red river", "a stone"], max_new_tokens=8)
    assert trial.kind == "answers"
    tokenizer = AutoTokenizer.from_pretrained(runs("sft") / "model")
    for name, one in zip(
        ("base", "trained"), both(runs("sft"), model, "AutoModelForCausalLM"), strict=True
    ):
        for item in trial.items:
            ids = tokenizer.apply_chat_template(
                [{"role": "user", "content": item.prompt}],
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )
            with torch.no_grad():
                out = one.generate(**ids, max_new_tokens=8, do_sample=False)[0]
            told = tokenizer.decode(out[ids["input_ids"].shape[1] :]).removesuffix("<|im_end|>")
            assert getattr(item, name)["answer"] == told
    assert any(item.base["answer"] != item.trained["answer"] for item in trial.items)


def test_sampling_repeats_with_its_seed_alone(runs):
    def sampled(seed: int, prompts: list[str]) -> list[str]:
        trial = fmtkit.try_run(
            runs("sft"), prompt=prompts, temperature=1.5, seed=seed, max_new_tokens=12
        )
        return [item.trained["answer"] for item in trial.items]

    once = sampled(1, ["red", "blue"])
    assert sampled(1, ["red", "blue"]) == once
    assert sampled(1, ["red"]) == once[:1]
    assert sampled(2, ["red", "blue"]) != once


def test_rows_of_conversations_are_answered_from_their_last_prompt(runs):
    trial = fmtkit.try_run(runs("sft"), data=rows_of(runs("sft")), limit=3, max_new_tokens=4)
    rows = tiny.conversation_rows()[:3]
    assert [item.prompt for item in trial.items] == [r["messages"][0]["content"] for r in rows]
    assert [item.expected for item in trial.items] == [r["messages"][1]["content"] for r in rows]


def test_pairs_of_a_run_against_a_reference_have_its_implicit_rewards(runs, model):
    """The rewards are those of TRL's trainer: beta times the gain in log-probability of the reply."""
    import torch
    from transformers import AutoTokenizer

    trial = fmtkit.try_run(runs("dpo"), data=rows_of(runs("dpo")))
    assert (trial.kind, len(trial.items)) == ("pairs", 16)
    tokenizer = AutoTokenizer.from_pretrained(runs("dpo") / "model")
    base, adapted = both(runs("dpo"), model, "AutoModelForCausalLM")

    def logps(one, row, side):
        prompt = tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, return_dict=False
        )
        whole = tokenizer.apply_chat_template(row["prompt"] + row[side], return_dict=False)
        with torch.no_grad():
            out = one(torch.tensor([whole])).logits[0, :-1].log_softmax(-1)
        return sum(out[i - 1, whole[i]].item() for i in range(len(prompt), len(whole)))

    for row, item in list(zip(tiny.preference_rows(), trial.items, strict=True))[:3]:
        for side in ("chosen", "rejected"):
            gain = logps(adapted, row, side) - logps(base, row, side)
            assert item.reward[side] == pytest.approx(0.1 * gain, abs=1e-4)
            assert item.base[side]["logps"] == pytest.approx(logps(base, row, side), abs=1e-3)
    margins = [item.reward["chosen"] - item.reward["rejected"] for item in trial.items]
    assert trial.summary["implicit_reward"]["margin"] == pytest.approx(sum(margins) / 16)
    assert trial.summary["implicit_reward"]["accuracy"] == sum(m > 0 for m in margins) / 16
    assert trial.summary["implicit_reward"]["accuracy"] > 0.5, "three steps at this rate teach it"


def test_single_replies_have_the_mean_reward_of_each_label(runs):
    trial = fmtkit.try_run(runs("kto"), data=rows_of(runs("kto")), limit=32)
    liked = [item.reward["completion"] for item in trial.items if item.expected is True]
    assert len(liked) == 16
    reward = trial.summary["implicit_reward"]
    assert reward["desirable"] == pytest.approx(sum(liked) / 16)
    assert reward["margin"] == pytest.approx(reward["desirable"] - reward["undesirable"])


def test_a_reward_model_scores_pairs_by_its_head(runs, model):
    import torch

    from fmtkit.training.trained import trained_model

    trial = fmtkit.try_run(runs("reward"), data=rows_of(runs("reward")))
    assert trial.summary["trained"]["accuracy"] > 0.5
    assert not any(item.reward for item in trial.items)
    assert any("newly initialized" in note for note in trial.notes)
    found = trained_model.of_run(runs("reward"))
    tokenizer = trained_model.load_tokenizer(found)
    _, adapted = both(runs("reward"), model, "AutoModelForSequenceClassification")
    adapted.config.pad_token_id = tokenizer.pad_token_id
    row = tiny.preference_rows()[0]
    ids = tokenizer.apply_chat_template(row["prompt"] + row["chosen"], return_dict=False)
    with torch.no_grad():
        own = adapted(torch.tensor([ids])).logits.item()
    assert trial.items[0].trained["chosen"]["score"] == pytest.approx(own, abs=1e-4)


def test_a_process_reward_model_judges_each_step(runs):
    trial = fmtkit.try_run(runs("prm"), data=rows_of(runs("prm")), type="stepwise_supervised")
    assert trial.kind == "steps"
    for item, row in zip(trial.items, tiny.stepwise_rows(), strict=True):
        assert item.expected == row["labels"]
        assert len(item.trained["right"]) == len(row["completions"])
        assert all(0 <= chance <= 1 for chance in item.trained["right"])
    told = [
        (chance >= 0.5) == label
        for item in trial.items
        for chance, label in zip(item.trained["right"], item.expected, strict=True)
    ]
    assert trial.summary["trained"]["accuracy"] == sum(told) / len(told)


def test_a_run_of_all_weights_and_its_checkpoints_are_tried_too(model, tmp_path):
    keys = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 0.01}
    run = trained(tmp_path / "run", model, "dpo", keys)
    last = fmtkit.try_run(run, data=rows_of(run), limit=2)
    first = fmtkit.try_run(run, data=rows_of(run), limit=2, checkpoint="1")
    assert first.trained.endswith("checkpoint-1")
    assert first.items[0].base == last.items[0].base
    assert first.items[0].trained != last.items[0].trained
    shutil.rmtree(run / "model")
    newest = fmtkit.try_run(run, data=rows_of(run), limit=2)
    assert newest.trained.endswith("checkpoint-3")
    assert newest.items == last.items
    with pytest.raises(UnknownNameError, match="checkpoint-1"):
        fmtkit.try_run(run, prompt="red", checkpoint="checkpoint-11")


def test_what_a_model_cannot_be_tried_on_is_refused_by_name(runs, tmp_path):
    with pytest.raises(OptionError, match="a reward model scores pairs"):
        fmtkit.try_run(runs("reward"), prompt="red")
    with pytest.raises(OptionError, match="scores the steps"):
        fmtkit.try_run(runs("prm"), prompt="red")
    with pytest.raises(OptionError, match=r"Stepwise.*: this model cannot be tried on it"):
        fmtkit.try_run(runs("dpo"), data=rows_of(runs("prm")))
    with pytest.raises(fmtkit.FmtkitError, match="needs columns completions, labels"):
        fmtkit.try_run(runs("prm"), data=rows_of(runs("dpo")))
    with pytest.raises(OptionError, match="give either"):
        fmtkit.try_run(runs("sft"))
    with pytest.raises(OptionError, match="no such folder"):
        fmtkit.try_run(tmp_path / "nowhere", prompt="red")
    with pytest.raises(OptionError, match="--temperature"):
        fmtkit.try_run(runs("sft"), prompt="red", temperature=-1)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    with pytest.raises((OptionError, fmtkit.FmtkitError)):
        fmtkit.try_run(runs("sft"), data=bad, type="openai")


def test_rows_that_are_refused_are_counted(runs, tmp_path):
    file = tmp_path / "pairs.jsonl"
    good = {"question": "red?", "chosen": "good", "rejected": "bad"}
    file.write_text(json.dumps(good) + "\n" + json.dumps(good | {"chosen": 1}) + "\n")
    trial = fmtkit.try_run(runs("dpo"), data=file, type="intel")
    assert len(trial.items) == 1
    assert any("1 of 2 rows were refused" in note for note in trial.notes)


def ran(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fmtkit", "try", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_lines_on_stdin_are_prompts_and_json_holds_all(runs):
    done = ran(str(runs("sft")), "--max-new-tokens", "4", "--json", given="red\n\nblue\n")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [item["prompt"] for item in told["items"]] == ["red", "blue"]
    assert {*told["items"][0]["base"]} == {"answer", "tokens", "finished"}
    shown = ran(str(runs("dpo")), "--data", str(rows_of(runs("dpo"))), "--limit", "2")
    assert shown.returncode == 0, shown.stderr
    assert "reward" in shown.stdout
    assert "accuracy" in shown.stdout


@pytest.mark.slow
def test_without_prompts_on_a_terminal_the_command_says_what_it_takes(runs):
    main, side = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit", "try", str(runs("sft"))],
        stdin=side,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(main)
    os.close(side)
    assert done.returncode == 2
    assert done.stderr == "fmtkit: give --prompt TEXT, --data FILE, or lines on stdin\n"
    assert ran(str(runs("sft")), given="\n").returncode == 2


def test_control_bytes_of_an_answer_never_reach_the_terminal(capsys):
    from fmtkit.commands.run_listings import print_trial
    from fmtkit.training.trained.trying import Item, Trial

    evil = "\x1b]0;owned\x07 \x9b31m"
    answer = {"answer": evil, "tokens": 3, "finished": True}
    items = (Item(0, evil, evil, answer, answer),)
    print_trial(Trial("answers", "b", "t", "sft", items, {}), as_json=False)
    scored = {"chosen": {"score": 1.0}, "rejected": {"score": 0.0}}
    items = (Item(0, evil, None, scored, scored),)
    print_trial(Trial("pairs", "b", "t", "dpo", items, {}), as_json=False)
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & {*shown}
    assert shown.count("owned") == 5


JUDGES = """
def shorter(prompt, first, second):
    return "tie" if len(first) == len(second) else int(len(second) < len(first))
"""


def test_a_judge_compares_with_base_references_and_another_run(runs, tmp_path, monkeypatch):
    (tmp_path / "my_judge.py").write_text(JUDGES)
    monkeypatch.chdir(tmp_path)
    given = {"data": str(rows_of(runs("sft"))), "limit": 4, "max_new_tokens": 4}
    other = shutil.copytree(runs("sft"), tmp_path / "other")
    for against in ("base", "references", str(other)):
        trial = fmtkit.try_run(runs("sft"), judge="my_judge.shorter", against=against, **given)
        figures = trial.summary[f"judged against {against}"]
        theirs = {
            "base": [item.base["answer"] for item in trial.items],
            "references": [item.expected for item in trial.items],
        }.get(against, [item.trained["answer"] for item in trial.items])
        ours = [item.trained["answer"] for item in trial.items]
        assert figures["wins"] == sum(len(a) < len(b) for a, b in zip(ours, theirs, strict=True))
        assert figures["ties"] == sum(len(a) == len(b) for a, b in zip(ours, theirs, strict=True))
        assert figures["wins"] + figures["ties"] + figures["losses"] == 4
    # A copy of the run answers the same.
    assert figures["win_rate"] == 0.5


def test_scores_are_not_judged(runs, tmp_path, monkeypatch):
    (tmp_path / "my_judge.py").write_text(JUDGES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="only answers are judged"):
        fmtkit.try_run(
            runs("dpo"), judge="my_judge.shorter", data=str(rows_of(runs("dpo"))), limit=2
        )


REWARDS = """
def letters(completions, **columns):
    return [float(len(one[0]["content"])) for one in completions]


def near(completions, wanted, **columns):
    found = zip(completions, wanted, strict=True)
    return [None if w is None else -abs(len(c[0]["content"]) - w) for c, w in found]
"""


def test_the_best_of_n_answers_is_what_the_reward_prefers(runs, tmp_path, monkeypatch, capsys):
    from fmtkit.commands.run_listings import print_trial

    (tmp_path / "my_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    given = {"prompt": ["the red river", "a stone"], "temperature": 1.5, "max_new_tokens": 8}
    trial = fmtkit.try_run(runs("sft"), reward="my_rewards.letters", n=4, **given)
    for item in trial.items:
        for made in (item.base, item.trained):
            assert made["reward"] == max(made["rewards"]) == len(made["answer"])
            assert len(made["rewards"]) == 4
    assert any(len(set(item.trained["rewards"])) > 1 for item in trial.items)
    figures = trial.summary["trained"]
    assert figures["best_reward"] == sum(i.trained["reward"] for i in trial.items) / 2
    assert figures["mean_reward"] == sum(sum(i.trained["rewards"]) for i in trial.items) / 8
    print_trial(trial, as_json=False)
    assert "trained rewards" in capsys.readouterr().out
    # The first of them is what one answer is.
    alone = fmtkit.try_run(runs("sft"), **given)
    firsts = [len(item.trained["answer"]) for item in alone.items]
    assert [item.trained["rewards"][0] for item in trial.items] == firsts


def test_a_reward_of_best_of_n_gets_the_columns_of_its_rows(runs, tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    rows = [
        {"messages": row["messages"], "wanted": wanted}
        for row, wanted in zip(tiny.conversation_rows(), (3, None), strict=False)
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"n": 3, "temperature": 1.5, "max_new_tokens": 8, "type": "openai", "data": str(data)}
    trial = fmtkit.try_run(runs("sft"), reward="my_rewards.near", **given)
    first, second = trial.items
    assert first.trained["reward"] == -abs(len(first.trained["answer"]) - 3)
    assert (second.trained["reward"], second.trained["rewards"]) == (None, [None] * 3)
    assert trial.summary["trained"]["without_reward"] == 1
    without = given | {"data": str(rows_of(runs("sft")))}
    with pytest.raises(OptionError, match="wanted"):
        fmtkit.try_run(runs("sft"), reward="my_rewards.near", **without)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 4}, "--n 4: name what picks the best answer by --reward"),
        ({"reward": "my_rewards.letters", "n": 4}, "a --temperature above 0"),
        ({"reward": "my_rewards.letters", "temperature": 1.0}, "--n 2 or more"),
        ({"reward": "my_rewards.longest", "n": 2, "temperature": 1.0}, "longest"),
        ({"reward": "models/judge", "n": 2, "temperature": 1.0}, "only a trainer runs"),
    ],
)
def test_what_cannot_pick_the_best_answer_is_refused(runs, given, message, tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=message):
        fmtkit.try_run(runs("sft"), prompt=["a stone"], **given)


def test_scores_have_no_best_of_n(runs):
    given = {"reward": "fmtkit.rewards.accuracy", "n": 2, "temperature": 1.0}
    with pytest.raises(OptionError, match="only answers have one"):
        fmtkit.try_run(runs("dpo"), data=str(rows_of(runs("dpo"))), limit=2, **given)
