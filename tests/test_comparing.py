"""`fmtkit compare` on folders that axolotl's own strategies made (tests/axolotl), and on damaged ones."""

import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest
import yaml

pytest.importorskip("trl")

import fmtkit
from fmtkit.core.errors import OptionError, SourceError
from fmtkit.diffing.rules import ONLY, RULES, Judge
from fmtkit.diffing.spool import Spool
from fmtkit.masks.masked import TokenRow, digest_of, given
from fmtkit.tokenizers import tokens

HERE = Path(__file__).parent / "axolotl"
SCHEMA = json.loads((files("fmtkit.schemas") / "diff.schema.json").read_text())


@pytest.fixture(autouse=True)
def _beside_the_rows(monkeypatch):
    monkeypatch.chdir(HERE)


def compared(name: str, against: str | Path | None = None, *overrides: str):
    found = fmtkit.compare(
        f"configs/{name}.yaml", against or f"prepared/{name}", overrides=list(overrides)
    )
    rows = found.rows
    for side in ("left", "right"):
        assert rows[side] == rows["equal"] + rows["different"] + rows[f"only_{side}"]
        assert sum(getattr(found, f"only_{side}").values()) == rows[f"only_{side}"]
    assert {*found.rules} <= {*RULES}
    assert {*found.only_left, *found.only_right} <= {*ONLY}
    jsonschema.validate(json.loads(json.dumps(found.as_dict())), SCHEMA)
    return found


EQUAL = [
    "alpaca",
    "alpaca_own",
    "chat",
    "chat_eos_all",
    "chat_eos_last",
    "chat_flags",
    "chat_packed",
    "chat_roles",
    "chat_short",
    "completion",
    "dpo_argilla_template",
    "dpo_chat",
    "dpo_intel",
    "input_output",
    "kto_intel",
    "orpo_argilla",
    "reward",
    "steps",
]


@pytest.mark.parametrize("name", EQUAL)
def test_what_axolotl_prepared_is_what_fmtkit_trains_on(name):
    found = compared(name)
    assert found.is_equal, found.examples
    assert found.rows["right"] > 0
    assert found.exit_code == 0


def test_every_folder_is_compared():
    told = {*EQUAL, "chat_inputs", "chat_legacy", "chat_own"}
    told |= {"dpo_argilla_chat", "dpo_intel_own"}
    assert told == {path.name for path in (HERE / "prepared").iterdir()}
    assert told == {path.stem for path in (HERE / "configs").iterdir()}


def test_a_pair_of_several_turns_of_which_axolotl_keeps_the_first_exchange_has_lost_turns():
    found = compared("dpo_argilla_chat")
    assert found.rules == {"turn_lost": 1}
    (example,) = found.examples
    assert "axolotl lacks 2" in example.detail
    assert "And fire?" in example.detail
    assert example.left_row == 0
    assert found.exit_code == 1


def test_an_eos_behind_the_end_that_the_template_writes_is_told():
    found = compared("dpo_intel_own")
    assert found.rules == {"eos": 3}
    assert {e.detail for e in found.examples} == {"EOS 0 times in fmtkit, 1 in axolotl"}


def test_ends_of_turns_that_are_no_eos_are_trained_on_by_fmtkit_alone():
    found = compared("chat_own")
    assert found.rules == {"end_mask": 6}
    assert "[<|im_end|>" in found.examples[0].left
    assert "[" not in found.examples[0].right


def test_prompts_that_are_trained_on_with_their_headers_differ_by_their_masks():
    assert compared("chat_inputs").rules == {"header_mask": 6, "end_mask": 6}


def test_a_config_with_another_mask_than_axolotl_was_given_differs_by_it():
    found = compared("chat", "prepared/chat_eos_last")
    assert {*found.rules} == {"end_mask"}
    assert found.rows["different"] == 2, "the dialogs of several turns"


def test_rows_are_found_though_their_template_is_another(tmp_path):
    found = compared("chat", None, "chat_template=zephyr")
    assert found.rows["different"] == 6
    assert found.rules.get("template") or found.rules.get("content")
    # The same conversation, whatever stands around it.
    rows = [json.loads(line) for line in (HERE / "rows" / "chat.jsonl").read_text().splitlines()]
    for example in found.examples:
        messages = rows[example.left_row]["messages"]
        text = "".join(m["content"] for m in messages)
        words = [w for w in example.left.split() if w.isalpha() and len(w) > 4]
        assert any(word in text for word in words) or not words


def test_rows_of_one_side_are_counted_with_the_reason(tmp_path):
    rows = (HERE / "rows" / "chat.jsonl").read_text().splitlines(keepends=True)
    more = tmp_path / "more.jsonl"
    new = json.dumps(
        {
            "messages": [
                {"role": "user", "content": "Quite another thing?"},
                {"role": "assistant", "content": "Nothing like that was prepared."},
            ]
        }
    )
    more.write_text("".join([*rows[1:], rows[1], new + "\n", "{\n"]))
    found = compared("chat", None, f"datasets.0.path={more}")
    assert found.rows == {
        "left": 7, "right": 6, "equal": 5, "different": 0, "only_left": 2, "only_right": 1
    }  # fmt: skip
    assert found.only_right == {"refused": 1}
    assert found.only_left == {"absent": 1, "duplicate": 1}
    assert found.reasons == {"json_syntax": 1}
    assert found.ledger["quarantined"] == 1


def test_rows_that_are_too_long_for_one_side_are_told_so():
    found = compared("chat_short", "prepared/chat")
    assert found.only_right == {"sequence_len": 3}
    cut = compared("chat_short", "prepared/chat", "excess_length_strategy=truncate")
    assert cut.rules["cut"] == 3
    assert cut.rows["different"] == 3


def test_the_held_out_rows_are_compared_too_and_order_does_not_count():
    found = compared("chat", None, "val_set_size=2")
    assert found.is_equal
    assert found.moved > 0
    assert any("different order" in note for note in found.notes)


def test_rows_that_were_packed_into_one_are_taken_apart(tmp_path):
    from datasets import Dataset, load_from_disk

    whole = load_from_disk("prepared/chat")
    ids, labels, mask, places = [], [], [], []
    for number, row in enumerate(whole, 1):
        ids += row["input_ids"]
        labels += row["labels"]
        mask += [number] * len(row["input_ids"])
        places += range(len(row["input_ids"]))
    by_mask = {
        "input_ids": [*ids, 0, 0],
        "labels": [*labels, -100, -100],
        "attention_mask": [*mask, 0, 0],
    }
    by_place = {"input_ids": ids, "labels": labels, "position_ids": places}
    for name, packed in (("mask", by_mask), ("places", by_place)):
        Dataset.from_list([packed]).save_to_disk(tmp_path / name)
        found = compared("chat", tmp_path / name)
        assert found.is_equal
        assert found.rows["right"] == 6


@pytest.mark.slow
def test_a_large_dataset_is_aligned_whatever_its_order_and_beginnings(tmp_path):
    """Hundreds of rows with one system prompt and like words: each finds its own."""
    import random

    from datasets import Dataset

    generator = random.Random(1)
    words = ["river", "stone", "apple", "water", "fire", "red", "blue", "green"]
    rows = []
    for _ in range(400):
        text = " ".join(generator.choice(words) for _ in range(generator.randint(8, 20)))
        rows.append(
            [{"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}]
        )
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"messages": m}) + "\n" for m in rows))
    tokenizer = tokens.load("tokenizers/ends")
    prepared = []
    for messages in rows:
        text = str(fmtkit.render(messages, "chatml"))
        ids = tokenizer.encode(text).ids
        # Nothing is trained, and a token stands before: no hash is the same.
        prepared.append({"input_ids": ids[3:], "labels": [-100] * (len(ids) - 3)})
    order = [*range(400)]
    generator.shuffle(order)
    Dataset.from_list([prepared[i] for i in order]).save_to_disk(tmp_path / "prepared")
    found = fmtkit.compare(
        "configs/chat.yaml",
        tmp_path / "prepared",
        rows=400,
        overrides=[f"datasets.0.path={source}"],
    )
    assert found.rows["different"] == 400
    met = {e.right_row: e.left_row for e in found.examples}
    right = sum(order[a] == b for a, b in met.items())
    assert right >= 0.99 * len(met)


@pytest.mark.parametrize(
    ("theirs", "ours", "rule"),
    [
        ("<|begin_of_text|><|begin_of_text|>hi", "<|begin_of_text|>hi", "bos"),
        ("hi<|end_of_text|>", "hi", "eos"),
        ("hi there\n", "hi there", "whitespace"),
        ("hi  there you", "hi there you", "whitespace"),
        ("the river runs", "the river runs past the stone", "cut"),
    ],
)
def test_a_difference_has_the_rule_that_made_it(theirs, ours, rule):
    tokenizer = tokens.load("tokenizers/own")
    rows = []
    for text in (theirs, ours):
        ids = tokenizer.encode(text).ids
        rows.append(TokenRow((given(ids, ids),)))
    assert Judge(tokenizer).difference(*rows).rules == (rule,)


def test_other_tokens_of_the_same_text_are_told_from_another_text():
    tokenizer = tokens.load("tokenizers/ends")
    whole, parts = tokenizer.encode("the river").ids, []
    for letter in "the river":
        parts += tokenizer.encode(letter).ids
    assert Judge(tokenizer).difference(
        TokenRow((given(parts, parts),)), TokenRow((given(whole, whole),))
    ).rules == ("tokenization",)
    liked, disliked = (TokenRow((given(whole, whole),), label=flag) for flag in (True, False))
    assert Judge(tokenizer).difference(liked, disliked).rules == ("label",)


def sequence(text: str, *, trained: str = "") -> TokenRow:
    """Return a row of a text, of which one part is trained on."""
    tokenizer = tokens.load("tokenizers/ends")
    ids, labels = [], []
    for i, part in enumerate(text.partition(trained) if trained else (text,)):
        more = tokenizer.encode(part).ids
        ids += more
        labels += more if i == 1 else [-100] * len(more)
    return TokenRow((given(ids, labels),))


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>"


TALK = turn("user", "And the stone?") + turn("assistant", "It stays.")


@pytest.mark.parametrize(
    ("role", "rule"), [("system", "system"), ("user", "turn_lost"), ("assistant", "turn_lost")]
)
def test_only_a_missing_system_prompt_is_one(role, rule):
    judge = Judge(tokens.load("tokenizers/ends"))
    both = sequence(TALK), sequence(turn(role, "The river runs.") + TALK)
    found = judge.difference(*both)
    assert (found.rules, found.detail[:15]) == ((rule,), "fmtkit lacks 1:")
    assert judge.difference(*both[::-1]).rules == (rule,)


def test_prompts_that_differ_without_a_trained_token_are_no_other_replies():
    judge = Judge(tokens.load("tokenizers/ends"))
    other = TALK.replace("stone", "river")
    found = judge.difference(sequence(TALK), sequence(other))
    assert found.rules == ("prompt",)
    assert "stone?' in fmtkit" in found.detail
    found = judge.difference(sequence(TALK, trained="It stays."), sequence(other))
    assert found.rules == ("prompt", "mask")
    trained = [sequence(text, trained="It stays.") for text in (TALK, other)]
    assert judge.difference(*trained).rules == ("prompt",)
    assert judge.difference(*trained).trained == 0
    replied = TALK.replace("stays", "runs")
    differing = judge.difference(trained[0], sequence(replied, trained="It runs."))
    assert (differing.rules, differing.detail) == (("content",), "the replies differ")
    assert differing.trained > 0


def test_text_around_turns_that_are_the_same_is_the_template_and_in_a_turn_it_is_the_prompt():
    judge = Judge(tokens.load("tokenizers/ends"))
    around = TALK.replace("And the stone?", "Question: And the stone?")
    marks = TALK.replace("<|im_start|>", "#")
    for one, other, rule in ((TALK, around, "prompt"), (marks, TALK, "template")):
        pair = [sequence(text, trained="It stays.") for text in (one, other)]
        assert judge.difference(*pair).rules == (rule,)


def test_a_spool_gives_back_any_row(tmp_path):
    rows = [
        TokenRow((given([n, n + 1], [-100, n + 1]), given([n], [1])), n % 2 == 0, n)
        for n in range(1100)
    ]
    spool = Spool.write(tmp_path / "rows.arrow", rows)
    assert len(spool) == 1100
    for number in (0, 511, 512, 1099):
        read, row = spool[number], rows[number]
        assert (read.label, read.number) == (row.label, row.number)
        assert digest_of(read.sequences) == digest_of(row.sequences)
        assert read.sequences[0].labels.tolist() == [-100, number + 1]
        assert read.sequences[1].steps == (None if number == 1 else (1.0,))


def test_a_turn_that_ends_with_a_character_of_several_tokens_is_trained_on_to_its_end():
    """An emoji is four tokens: its first alone was trained, and the end of the turn was not found."""
    from fmtkit.masks.masking import Masking
    from fmtkit.masks.masks import mask_row
    from fmtkit.rendering import template_sources
    from fmtkit.rendering.row_templates import RowTemplate
    from fmtkit.tokenizers.turn_rule import TurnRule

    tokenizer = tokens.load("tokenizers/ends")
    template = RowTemplate(template_sources.find_family("chatml"))
    row = {
        "messages": [
            {"role": "user", "content": "apple 🍎"},
            {"role": "assistant", "content": "yes"},
        ]
    }
    masking = Masking(turns=TurnRule(("user", "assistant")))
    (made,) = mask_row(row, "Conversation", tokenizer, template, masking)
    trained = tokenizer.backend.decode(made.ids[made.trained].tolist(), skip_special_tokens=False)
    assert trained.startswith("apple 🍎<|im_end|>yes<|im_end|>")


def copied(tmp_path: Path, name: str = "chat") -> Path:
    return Path(shutil.copytree(HERE / "prepared" / name, tmp_path / name))


def refused(error: type[Exception], told: str, folder: Path | str, name: str = "chat") -> None:
    with pytest.raises(error, match=told) as caught:
        fmtkit.compare(f"configs/{name}.yaml", folder)
    assert "\n" not in str(caught.value)


def test_a_folder_that_holds_no_dataset_is_one_line(tmp_path):
    refused(SourceError, "no such folder", tmp_path / "nowhere")
    refused(SourceError, "no state.json", tmp_path)
    copied(tmp_path)
    refused(SourceError, "name one: chat", tmp_path)
    (tmp_path / "chat" / "state.json").write_text("{")
    refused(SourceError, "state.json cannot be read", tmp_path / "chat")


@pytest.mark.parametrize("kept", [0, 100, 3000])
def test_an_arrow_file_that_is_cut_is_one_line(tmp_path, kept):
    folder = copied(tmp_path)
    (file,) = folder.glob("*.arrow")
    file.write_bytes(file.read_bytes()[:kept])
    refused(SourceError, "cannot be read", folder)
    file.unlink()
    refused(SourceError, "missing, though state.json names it", folder)


def test_a_dataset_of_another_method_or_form_is_refused_by_name(tmp_path):
    from datasets import Dataset

    refused(OptionError, "holds preference pairs .* trains sft", HERE / "prepared" / "dpo_chat")
    refused(OptionError, "trains dpo", HERE / "prepared" / "chat", "dpo_chat")
    refused(OptionError, "single replies", HERE / "prepared" / "kto_intel", "dpo_chat")
    Dataset.from_list([{"messages": "x"}]).save_to_disk(tmp_path / "raw")
    refused(OptionError, "holds the columns messages", tmp_path / "raw")
    Dataset.from_list([{"input_ids": [1], "labels": [1]}]).select([]).save_to_disk(
        tmp_path / "none"
    )
    refused(OptionError, "holds no rows", tmp_path / "none")


def test_another_tokenizer_is_seen(tmp_path):
    from datasets import Dataset

    far = [{"input_ids": [1, 99_999], "labels": [1, 1]}]
    Dataset.from_list(far).save_to_disk(tmp_path / "far")
    refused(OptionError, "token id 99,999, .* different tokenizer", tmp_path / "far")
    gibberish = [{"input_ids": [300 - i, 20 + i, 150], "labels": [1, 1, 1]} for i in range(9)]
    Dataset.from_list(gibberish).save_to_disk(tmp_path / "other")
    refused(OptionError, "none of its 9 rows resembles", tmp_path / "other")


def test_methods_that_sample_have_nothing_to_compare(tmp_path):
    keys = yaml.safe_load(Path("configs/dpo_chat.yaml").read_text())
    keys |= {
        "rl": "grpo",
        "trl": {"reward_funcs": ["fmtkit.rewards.accuracy"], "num_generations": 2},
    }
    keys["datasets"] = [{"path": "rows/chat.jsonl", "type": "gsm8k"}]
    with pytest.raises(OptionError, match="trains on replies that it samples"):
        fmtkit.compare(keys, "prepared/dpo_chat")


@pytest.mark.slow
def test_the_command_tells_rules_and_exits_by_what_it_found(tmp_path):
    def ran(*arguments: str):
        command = [sys.executable, "-m", "fmtkit", "compare", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = ran("configs/dpo_argilla_chat.yaml", "--against", "prepared/dpo_argilla_chat")
    assert done.returncode == 1, done.stderr
    assert "turn_lost" in done.stdout
    assert "axolotl row" in done.stdout
    same = ran("configs/dpo_intel.yaml", "--against", "prepared/dpo_intel", "--json")
    assert same.returncode == 0
    assert json.loads(same.stdout)["equal"] is True
    for folder, code in (("nowhere", 3), ("prepared/chat", 2)):
        failed = ran("configs/dpo_intel.yaml", "--against", folder)
        assert (failed.returncode, failed.stdout) == (code, "")
        assert len([x for x in failed.stderr.splitlines() if x.startswith("fmtkit:")]) == 1


def test_control_bytes_of_rows_never_reach_the_terminal(tmp_path, capsys):
    from datasets import Dataset

    from fmtkit.commands.diff_listings import print_diff
    from fmtkit.diffing.diffing import compare

    tokenizer = tokens.load("tokenizers/ends")
    evil = "\x1b]0;owned\x07 Which river is longer\x1b[31m"
    messages = [{"role": "user", "content": evil}, {"role": "assistant", "content": "none"}]
    source = tmp_path / "evil.jsonl"
    source.write_text(json.dumps({"messages": messages}) + "\n")
    ids = tokenizer.encode(str(fmtkit.render(messages, "chatml"))).ids
    Dataset.from_list([{"input_ids": ids, "labels": ids}]).save_to_disk(tmp_path / "p")
    found = compare("configs/chat.yaml", tmp_path / "p", overrides=[f"datasets.0.path={source}"])
    print_diff(found, as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b" in shown


def test_the_prepared_files_are_arrow_streams_as_save_to_disk_writes_them():
    for file in (HERE / "prepared").glob("*/*.arrow"):
        with pa.memory_map(str(file)) as opened:
            assert pa.ipc.open_stream(opened).read_all().num_rows > 0
