"""`fmtkit diff`: planted differences are found and named, and no row that one side dropped is passed over.

TRL's real trainer is the other side where one is needed; axolotl and LLaMA-Factory are in test_diffing_real.py.
"""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("trl")

import fmtkit
from fmtkit import cli
from fmtkit.core.errors import DependencyError, OptionError, SourceError, UnknownNameError
from fmtkit.diffing import environments, recording
from fmtkit.diffing.rules import Judge
from fmtkit.masks.masked import TokenRow, given
from fmtkit.tokenizers import tokens

HERE = Path(__file__).parent / "axolotl"
SCHEMA = json.loads((files("fmtkit.schemas") / "diff.schema.json").read_text())
CHAT = "configs/chat.yaml"
CHATML = (Path(__file__).parents[1] / "templates" / "chatml.jinja").read_text()


@pytest.fixture(autouse=True)
def _beside_the_rows(monkeypatch, tmp_path):
    monkeypatch.chdir(HERE)
    # No environment of the machine's user takes part.
    monkeypatch.setenv("FMTKIT_ENVS", str(tmp_path / "envs"))


def found_by(config=CHAT, other=None, **options):
    found = fmtkit.diff(config, other, **options)
    rows = found.rows
    for side in ("left", "right"):
        assert rows[side] == rows["equal"] + rows["different"] + rows[f"only_{side}"]
        assert sum(getattr(found, f"only_{side}").values()) == rows[f"only_{side}"]
    assert {*found.shares} == {*found.rules}
    jsonschema.validate(json.loads(json.dumps(found.as_dict())), SCHEMA)
    return found


def keys(**more) -> dict:
    """Return the keys of a config over the rows of tests/axolotl."""
    return {
        "base_model": "./tokenizers/ends",
        "sequence_len": 256,
        "output_dir": "./run",
        "chat_template": "tokenizer_default",
        "datasets": [{"path": "rows/chat.jsonl", "type": "chat_template"}],
        **more,
    }


def over(path: Path, rows: list[dict], **more) -> dict:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return keys(datasets=[{"path": str(path), "type": "chat_template"}], **more)


def chat_rows() -> list[dict]:
    return [json.loads(line) for line in Path("rows/chat.jsonl").read_text().splitlines()]


def test_a_config_and_itself_are_the_same_rows():
    found = found_by(keys(), keys())
    assert (found.is_equal, found.exit_code, found.rules) == (True, 0, {})
    assert (found.left.name, found.right.name) == ("left", "right")
    assert found.left.trained_tokens == found.right.trained_tokens > 0


def numbered(count: int) -> list[dict]:
    """Return conversations of two turns that are told apart by their words, each longer than the one before."""
    words = [
        "river",
        "stone",
        "lamp",
        "orange",
        "market",
        "silver",
        "window",
        "garden",
        "candle",
        "harbour",
    ]
    return [
        {
            "messages": [
                {"role": "user", "content": f"Which {words[i % 10]} is number {i}?"},
                {"role": "assistant", "content": f"The {words[(i * 3) % 10]} one. " * (1 + i // 2)},
            ]
        }
        for i in range(count)
    ]


def test_rows_that_only_one_config_leaves_out_do_not_shift_the_others(tmp_path):
    rows = numbered(24)
    every = over(tmp_path / "every.jsonl", rows)
    fewer = over(tmp_path / "fewer.jsonl", [*rows[:5], *rows[6:15], *rows[16:]])
    found = found_by(every, fewer)
    assert (found.rows["equal"], found.only_left, found.rules) == (22, {"absent": 2}, {})
    assert [e.left_row for e in found.examples] == [5, 15]
    again = over(tmp_path / "again.jsonl", [*rows[1:], rows[-1]])
    found = found_by(every, again)
    assert (found.rows["equal"], found.exit_code) == (23, 1)
    short = found_by(every, every | {"sequence_len": 40})
    assert set(short.only_left) == {"sequence_len"}
    assert short.rows["different"] == 0 < short.rows["equal"]


def test_a_length_that_cuts_is_told_between_configs(tmp_path):
    whole = over(tmp_path / "rows.jsonl", numbered(24))
    cut = whole | {"sequence_len": 40, "excess_length_strategy": "truncate-end"}
    found = found_by(whole, cut)
    assert {*found.rules} == {"cut"}
    assert found.rows["only_left"] == found.rows["only_right"] == 0


def test_another_side_of_the_cut_is_told_between_configs_and_not_against_trl(tmp_path):
    whole = over(tmp_path / "rows.jsonl", numbered(24), sequence_len=40)
    start = whole | {"excess_length_strategy": "truncate-start"}
    found = found_by(whole | {"excess_length_strategy": "truncate-end"}, start)
    assert "cut_side" in found.rules
    assert found.exit_code == 1


KIND = (
    "{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    + CHATML
)
"""ChatML with a system prompt where a conversation has none."""


def with_template(tmp_path: Path, text: str, **more) -> dict:
    file = tmp_path / "edited.jinja"
    file.write_text(text, encoding="utf-8")
    return keys(chat_template=str(file), **more)


def test_a_default_system_prompt_of_a_template_is_one(tmp_path):
    own = with_template(tmp_path, KIND)
    found = found_by(keys(), own)
    assert {*found.rules} == {"system"}
    assert "Be kind." in found.examples[0].detail
    assert found.exit_code == 1


def test_another_default_system_prompt_is_one_too(tmp_path):
    judge = judged("ends")
    one, other = (
        row("ends", f"<|im_start|>system\n{text}<|im_end|>\n<|im_start|>user\nhi<|im_end|>")
        for text in ("Be kind.", "Be brief.")
    )
    assert judge.difference(one, other).rules == ("system",)


def judged(name: str, longest: int | None = None) -> Judge:
    return Judge(tokens.load(f"tokenizers/{name}"), longest, ("one", "other"))


def row(name: str, text: str, *, trained: str = "", all_trained: bool = False) -> TokenRow:
    tokenizer = tokens.load(f"tokenizers/{name}")
    ids, labels = [], []
    for i, part in enumerate(text.partition(trained) if trained else (text,)):
        more = tokenizer.encode(part).ids
        ids += more
        labels += more if all_trained or (trained and i == 1) else [-100] * len(more)
    return TokenRow((given(ids, labels),))


REPLY = "<|im_start|>assistant\n{}<|im_end|>\n"
ASKED = "<|im_start|>user\nWhich river?<|im_end|>\n"
CALL = '<tool_call>{{"name": "look", "arguments": {}}}</tool_call>'


@pytest.mark.parametrize(
    ("one", "other", "rule"),
    [
        (ASKED + REPLY.format("<think>\n\n</think>\n\nThe red one."), ASKED + REPLY.format("The red one."), "empty_think"),
        (ASKED + REPLY.format("<think>It is long.</think>The red one."), ASKED + REPLY.format("The red one."), "reasoning"),
        (ASKED + REPLY.format(CALL.format('{"a": 1, "b": 2}')), ASKED + REPLY.format(CALL.format('{"b": 2, "a": 1}')), "key_order"),
        (ASKED + REPLY.format(CALL.format('{"a": "ä"}')), ASKED + REPLY.format(CALL.format('{"a": "\\u00e4"}')), "json_text"),
        (ASKED + REPLY.format("The red one."), ASKED.replace("river", "stone") + REPLY.format("The red one."), "prompt"),
        (ASKED + REPLY.format("The red one."), ASKED + REPLY.format("The blue one."), "content"),
        (ASKED + REPLY.format("Red.") + ASKED + REPLY.format("Blue."), ASKED + REPLY.format("Red."), "turn_lost"),
    ],
)  # fmt: skip
def test_a_planted_difference_has_its_rule_on_either_side(one, other, rule):
    judge = judged("ends")
    rows = row("ends", one, all_trained=True), row("ends", other, all_trained=True)
    for pair in (rows, rows[::-1]):
        found = judge.difference(*pair)
        assert found.rules == (rule,), found.detail
        assert found.trained > 0


def test_rows_cut_at_different_ends_are_told_from_other_replies():
    tokenizer = tokens.load("tokenizers/ends")
    whole = tokenizer.encode(
        ASKED + REPLY.format("The red river is longer than the blue river.")
    ).ids
    for longest in (len(whole) - 5, len(whole) // 3):
        start, end = whole[:longest], whole[-longest:]
        judge = judged("ends", longest)
        pair = TokenRow((given(start, start),)), TokenRow((given(end, end),))
        found = judge.difference(*pair)
        assert found.rules == ("cut_side",)
        assert found.detail == "one keeps the start, other the end"
        assert judge.difference(*pair[::-1]).detail == "other keeps the start, one the end"


def test_a_header_that_one_side_trains_on_is_no_part_of_the_reply():
    judge = judged("ends")
    text = ASKED + REPLY.format("The red one.")
    whole = row("ends", text, trained="<|im_start|>assistant\nThe red one.<|im_end|>")
    content = row("ends", text, trained="The red one.<|im_end|>")
    assert (whole.sequences[0].ids == content.sequences[0].ids).all()
    assert judge.difference(content, whole).rules == ("header_mask",)
    assert judge.difference(whole, content).rules == ("header_mask",)


def test_tokens_of_a_tokenizer_with_other_settings_are_told_from_another_text():
    tokenizer = tokens.load("tokenizers/ends")
    whole, parts = tokenizer.encode("the river").ids, []
    for letter in "the river":
        parts += tokenizer.encode(letter).ids
    pair = TokenRow((given(whole, whole),)), TokenRow((given(parts, parts),))
    alike = Judge(tokenizer, same_settings=False)
    assert alike.difference(*pair).rules == ("tokenizer",)
    assert Judge(tokenizer).difference(*pair).rules == ("tokenization",)


def test_the_share_of_trained_tokens_that_differ_is_told():
    judge = judged("ends")
    one = row("ends", ASKED + REPLY.format("The red one."), trained="The red one.<|im_end|>")
    other = row("ends", ASKED + REPLY.format("The blue one."), trained="The blue one.<|im_end|>")
    found = judge.difference(one, other)
    sides = [row.sequences[0].labels.tolist() for row in (one, other)]
    same = sum(label in sides[1] for label in sides[0] if label != -100)
    assert found.trained == one.trained + other.trained - 2 * same


def test_changed_and_lost_rows_of_a_second_config_are_named(tmp_path):
    rows = chat_rows()
    rows[0]["messages"][-1]["content"] = "The red river, by far."
    rows[2]["messages"] = rows[2]["messages"][:2]
    found = found_by(keys(), over(tmp_path / "rows.jsonl", rows[:-1]))
    assert found.rules == {"content": 1, "turn_lost": 1}
    assert found.only_left == {"absent": 1}
    assert found.rows["equal"] == 3
    assert 0 < found.shares["content"] < 1


def test_rows_that_the_template_of_a_second_config_refuses_are_refused(tmp_path):
    rows = chat_rows()
    refuses = (
        "{%- if 'river' in messages[0].content %}{{ raise_exception('no rivers') }}{% endif %}"
    )
    found = found_by(keys(), with_template(tmp_path, refuses + CHATML))
    count = sum("river" in row["messages"][0]["content"] for row in rows)
    assert 0 < count < len(rows)
    assert (found.only_left, found.rows["equal"]) == ({"refused": count}, len(rows) - count)
    assert f"rows that fmtkit refused for right: template_error {count}" in found.notes


def test_what_is_allowed_does_not_fail_and_is_never_called_equal(tmp_path):
    found = found_by(keys(), over(tmp_path / "rows.jsonl", chat_rows()[:-1]), allow=("absent",))
    assert (found.exit_code, found.is_equal, found.not_allowed) == (0, False, ())
    with pytest.raises(UnknownNameError, match="no rule named 'droped'; did you mean 'dropped'"):
        fmtkit.diff(CHAT, against="trl", allow=("droped",))


def test_the_first_rows_of_each_dataset_are_compared():
    found = found_by(keys(), keys(), rows=2)
    assert found.rows["left"] == 2
    assert "only the first 2 rows of each dataset were compared (--rows)" in found.notes


def test_configs_of_methods_that_take_other_rows_are_refused():
    with pytest.raises(
        OptionError, match=r"trains sft, which takes tokens .* dpo, which takes pref"
    ):
        fmtkit.diff(CHAT, "configs/dpo_chat.yaml")


def test_tokenizers_with_other_vocabularies_are_refused(tmp_path):
    made = tmp_path / "other"
    made.mkdir()
    for file in Path("tokenizers/ends").iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    text = json.loads((made / "tokenizer.json").read_text())
    words = text["model"]["vocab"]
    one, other = [word for word, number in words.items() if number in (300, 301)]
    words[one], words[other] = words[other], words[one]
    (made / "tokenizer.json").write_text(json.dumps(text))
    with pytest.raises(
        OptionError, match=r"the tokenizers differ: .* give both the same tokenizer"
    ):
        fmtkit.diff(keys(), keys(base_model=str(made)))


def test_rows_are_recorded_and_compared_later(tmp_path):
    file = tmp_path / "chat.rows"
    found_by(CHAT, record=file)
    assert found_by(CHAT, against=str(file)).is_equal
    found = found_by(with_template(tmp_path, KIND), against=str(file))
    assert {*found.rules} == {"system"}
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    with pytest.raises(SourceError, match="is not whole"):
        fmtkit.diff(CHAT, against=str(file))
    file.write_text(lines[0] + "{")
    with pytest.raises(SourceError, match=r"chat\.rows:2: no JSON"):
        fmtkit.diff(CHAT, against=str(file))


def test_rows_that_are_recorded_alone_are_compared_with_nothing(tmp_path, monkeypatch, capsys):
    file = tmp_path / "chat.rows"
    monkeypatch.setattr(sys, "argv", ["fmtkit", "diff", CHAT, "--record", str(file)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == 0
    assert said.out == ""
    assert f"wrote  {file}: " in said.err
    assert file.is_file()


FAKE = """#!{python}
import json, sys
request = json.load(open(sys.argv[-1]))
{body}
"""


def fake(tmp_path: Path, body: str) -> str:
    """Return a Python that answers the recorder's request with what it is told to."""
    file = tmp_path / "python"
    file.write_text(FAKE.format(python=sys.executable, body=body), encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def recorded_rows(tmp_path: Path, edit) -> str:
    """Return a fake Python that records our own rows, with an edit of them and of the facts."""
    file = tmp_path / "own.rows"
    fmtkit.diff(CHAT, record=file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines = edit(lines)
    lines[-1] = {"end": sum("ids" in line for line in lines)}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return fake(tmp_path, f"open(request['out'], 'w').write({text!r})")


def test_another_version_that_makes_other_tokens_is_named_with_both_versions(tmp_path):
    def edit(lines):
        lines[0]["facts"]["versions"]["transformers"] = "4.0.0"
        for line in lines[1:-1]:
            line["ids"] = [[*line["ids"][0], 3]]
            line["labels"] = [[*line["labels"][0], 3]]
        return lines

    found = found_by(CHAT, against="trl", python=recorded_rows(tmp_path, edit))
    assert found.rules == {"eos": 6}
    assert any("versions differ" in note and "and 4.0.0" in note for note in found.notes)


def test_a_row_that_the_other_side_refused_is_named_with_what_it_said(tmp_path):
    def edit(lines):
        lines[2] = {"row": 1, "refused": "TemplateError: no \x1b[31msystem role"}
        return lines

    found = found_by(CHAT, against="trl", python=recorded_rows(tmp_path, edit))
    assert found.only_left == {"refused": 1}
    assert found.rows["equal"] == 5
    assert found.refused == {"TemplateError: no \\x1b[31msystem role": 1}
    assert [e.left_row for e in found.examples] == [1]


def test_a_bos_that_is_written_twice_is_one(tmp_path):
    judge = judged("own")
    one, other = row("own", "<|begin_of_text|>hi"), row("own", "<|begin_of_text|>" * 2 + "hi")
    found = judge.difference(one, other)
    assert (found.rules, found.detail) == (("bos",), "BOS 1 times in one, 2 in other")


def test_a_python_that_cannot_do_it_is_one_line_with_what_to_do(tmp_path):
    def refused(error, match, **options):
        with pytest.raises(error, match=match) as caught:
            fmtkit.diff(CHAT, **options)
        assert "\n" not in str(caught.value)

    refused(OptionError, "no such file", against="axolotl", python=str(tmp_path / "none"))
    refused(DependencyError, "`fmtkit env create axolotl`, or name the Python", against="axolotl")
    # This Python has no axolotl.
    refused(DependencyError, "No module named 'axolotl'", against="axolotl", python=sys.executable)
    # Nor this version of TRL: another one does not stand in for it.
    refused(
        DependencyError, r"no environment with trl==0\.1;.*env create trl==0\.1", against="trl==0.1"
    )
    other = recorded_rows(tmp_path, lambda lines: lines)
    refused(OptionError, r"has trl [\d.]+, not 0\.1$", against="trl==0.1", python=other)
    broken = fake(tmp_path, "sys.exit('broken \\x1b[31m')")
    refused(OptionError, r"exit code 1: broken \\x1b", against="trl", python=broken)
    refused(UnknownNameError, "no trainer named 'axolotle'; did you mean", against="axolotle")
    refused(OptionError, "--as-is: trl does not read", against="trl", as_is=True)
    refused(OptionError, "name what to compare with")
    refused(OptionError, "give KEY=VALUE", against="trl", settings=("max_length",))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chat", "dpo_chat", "kto_intel", "reward", "chat_short"])
def test_fmtkit_trains_on_the_tokens_of_trls_own_trainer(name):
    found = found_by(f"configs/{name}.yaml", against="trl")
    assert found.is_equal, found.examples
    assert found.left.trained_tokens > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        (("truncation_mode=keep_end",), {"cut_side": 5}),
        # Of three rows the prompt alone fills that length: TRL drops them.
        (("max_length=20",), {"cut": 2, "dropped": 3}),
    ],
)
def test_settings_of_trls_trainer_that_change_tokens_are_named(settings, rules):
    config = keys(excess_length_strategy="truncate", sequence_len=30)
    found = found_by(config, against="trl", settings=settings)
    assert {**found.rules, **found.only_left} == rules, found.examples
    assert found.exit_code == 1


@pytest.mark.slow
def test_a_trainer_that_trains_on_prompts_too_is_named():
    found = found_by(against="trl", settings=("assistant_only_loss=false",))
    assert found.rules == {"mask": 6, "header_mask": 6, "end_mask": 6}


@pytest.mark.slow
def test_a_template_that_trl_cannot_mask_is_said(tmp_path):
    text = CHATML.replace("{%- generation %}", "").replace("{%- endgeneration %}", "")
    found = found_by(with_template(tmp_path, text), against="trl")
    assert any("no {% generation %} marks" in note for note in found.notes)
    assert found.rules["mask"] == 6


@pytest.mark.slow
def test_the_fmtkit_of_another_python_is_compared_with(tmp_path):
    found = found_by(CHAT, python=sys.executable)
    assert found.is_equal
    assert found.right.name == "fmtkit there"
    assert found.right.versions["fmtkit"]
    # One that trains on prompts too, whatever it is asked.
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@" --set train_on_inputs=true\n')
    other.chmod(0o755)
    found = found_by(CHAT, python=str(other), rows=3)
    assert found.rows["left"] == 3
    assert {*found.rules} == {"mask", "header_mask", "end_mask"}
    with pytest.raises(OptionError, match=r"--python .*: its fmtkit ended: .*"):
        fmtkit.diff(CHAT, python="/bin/false")


@pytest.mark.slow
def test_a_row_that_trl_refuses_is_named_with_what_it_said(tmp_path):
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Which river is number {i}?"}],
            "chosen": [{"role": "assistant", "content": "The red one."}],
            "rejected": [{"role": "assistant", "content": "None."}],
        }
        for i in range(6)
    ]
    # TRL's ORPO trainer takes no prompt that ends with a system prompt; fmtkit and TRL's other trainers do.
    rows[2]["prompt"][0]["role"] = "system"
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    datasets = [{"path": str(file), "type": "passthrough"}]
    found = found_by(keys(datasets=datasets, rl="orpo"), against="trl")
    assert (found.rows["equal"], found.only_left) == (5, {"refused": 1})
    assert found.refused == {"ValueError: Invalid role in the last message: system": 1}
    assert [example.left_row for example in found.examples] == [2]
    assert found_by(keys(datasets=datasets, rl="dpo"), against="trl").is_equal


@pytest.mark.slow
def test_a_row_that_fmtkit_refuses_is_counted_beside_the_equal_ones(tmp_path):
    rows = chat_rows()
    rows[3]["messages"][-1]["content"] = ""
    found = found_by(over(tmp_path / "r.jsonl", rows), against="trl")
    assert found.reasons == {"empty_field": 1}
    assert found.rows["equal"] == found.rows["left"] == len(rows) - 1


def test_the_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['fmtkit', 'diff', '--help']\n"
        "from fmtkit.commands import application\n"
        "try: application.run()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'datasets', 'trl', 'polars'} & {*sys.modules}\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--against" in done.stdout


def made_up(folder: Path, name: str) -> Path:
    """Write the facts of an environment that was made."""
    place = folder / name.replace("==", "-")
    (place / "bin").mkdir(parents=True)
    facts = {
        "name": name, "folder": str(place), "python": str(place / "bin" / "python"),
        "packages": [name], "download_bytes": 1, "disk_bytes": 2, "seconds": 3.0,
    }  # fmt: skip
    (place / "fmtkit-env.json").write_text(json.dumps(facts))
    return place


def test_environments_are_listed_and_removed(tmp_path):
    folder = tmp_path / "e"
    for name in ("trl==1.12.0", "trl==1.16.0", "axolotl==0.19.0"):
        made_up(folder, name)
    (folder / ".making-x").mkdir()
    assert [one.name for one in environments.list_environments(str(folder))] == [
        "axolotl==0.19.0", "trl==1.12.0", "trl==1.16.0",
    ]  # fmt: skip
    assert [one.name for one in environments.remove("trl==1.12.0", str(folder))] == ["trl==1.12.0"]
    assert [one.name for one in environments.remove("trl", str(folder))] == ["trl==1.16.0"]
    with pytest.raises(UnknownNameError, match="no environment named 'trl'"):
        environments.remove("trl", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == [".making-x", "axolotl-0.19.0"]


def test_an_environment_of_another_version_or_half_made_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "envs"
    monkeypatch.setenv("FMTKIT_ENVS", str(folder))
    trainer = environments.trainer_named("axolotl")
    made_up(folder, "axolotl==0.18.0")
    place = made_up(folder, f"axolotl=={trainer.version}")
    assert environments.python_of(trainer) == place / "bin" / "python"
    (place / "fmtkit-env.json").unlink()
    assert environments.python_of(trainer) is None
    with pytest.raises(DependencyError, match="fmtkit env create axolotl"):
        recording.python_of(trainer, None)


def test_an_environment_that_does_not_install_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(
        DependencyError, match=r"pip cannot install it: ERROR.*nothing was kept"
    ) as caught:
        environments.create("llama-factory", str(tmp_path / "envs"))
    assert "--python PATH" in str(caught.value)
    assert [*(tmp_path / "envs").iterdir()] == []
    with pytest.raises(OptionError, match="the version is missing or is none"):
        environments.create("trl==", str(tmp_path / "envs"))
