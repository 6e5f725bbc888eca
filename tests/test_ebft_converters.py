"""References and tokens: the ebft types on the conformance samples and on hand-made rows."""

import json
from pathlib import Path

import pytest

from fmtkit.core.errors import ColumnMismatchError, OptionError
from fmtkit.core.tables import final_rows
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.pipeline import stream
from fmtkit.running.preparation import prepare
from fmtkit.sources.opening import open_sources
from fmtkit.work.engines import Threads

GOLDENS = Path(__file__).parents[2] / "shared" / "data" / "goldens"
WORDS = "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} <|end|> {% endfor %}"
TEMPLATE = WORDS + "{% if add_generation_prompt %}<|assistant|> {% endif %}"
U, A = "user", "assistant"


def turns(*contents: str, first: str = U) -> list[dict[str, str]]:
    other = {U: A, A: U}
    roles = [first if i % 2 == 0 else other[first] for i in range(len(contents))]
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]


def converted(folder: Path, rows: list[dict], type: str, **request: object):
    """Return rows, codes of rejects and counts of warnings."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    job = prepare(open_sources([str(path)]), RowOptions(type=type, **request))
    out, codes, warnings = [], [], {}
    for piece in stream(job, engine=Threads(1)):
        out += final_rows(piece.table).to_pylist()
        codes += [reject.code for reject in piece.rejects]
        warnings.update(piece.counts.warnings)
    for row in out:
        if "prompt" in row:
            row["prompt"] = [{k: v for k, v in m.items() if v is not None} for m in row["prompt"]]
    return out, codes, warnings


# --- references ---------------------------------------------------------------------------------


def test_opencode_is_a_question_and_its_answer(tmp_path: Path) -> None:
    rows = [{"input": "add", "output": "a + b", "id": "x"}, {"input": "add", "output": " "}]
    out, codes, _ = converted(tmp_path, rows, "ebft_opencode.transform")
    assert out == [{"prompt": turns("add"), "ground_truth": "a + b"}]
    assert codes == ["empty_field"]


def test_the_first_reply_keeps_the_turns_after_it(tmp_path: Path) -> None:
    rows = [{"messages": turns("u1", "a1", "u2", "a2", "u3")}, {"messages": turns("u1", "a1")}]
    out, _, warnings = converted(tmp_path, rows, "ebft_chat_multiturn.transform")
    assert out[0] == {
        "prompt": turns("u1"),
        "ground_truth": "a1",
        "remaining_turns": turns("u2", "a2"),
    }
    assert out[1]["remaining_turns"] == []
    assert warnings == {"trailing_user_turn": 1}


def test_the_last_reply_has_the_whole_history(tmp_path: Path) -> None:
    rows = [{"messages": turns("u1", "a1", "u2", "a2", "u3")}]
    out, _, _ = converted(tmp_path, rows, "ebft_chat_multiturn.transform_last_turn")
    assert out == [{"prompt": turns("u1", "a1", "u2"), "ground_truth": "a2"}]


def test_every_reply_is_a_row(tmp_path: Path) -> None:
    rows = [
        {"messages": turns("u1", "a1", "u2", "a2")},
        {"messages": turns("u1")},
        {"messages": turns("hi", "u1", "a1", first=A)},
        {"messages": turns("u9", "a9")},
    ]
    out, codes, _ = converted(tmp_path, rows, "ebft_chat_multiturn.transform_all_turns")
    assert [(len(row["prompt"]), row["ground_truth"]) for row in out] == [
        (1, "a1"),
        (3, "a2"),
        (2, "a1"),
        (1, "a9"),
    ]
    assert out[1]["prompt"] == turns("u1", "a1", "u2")
    assert out[2]["prompt"] == turns("hi", "u1", first=A)
    assert codes == ["no_assistant_turn"]


def test_a_greeting_before_any_question_is_no_target(tmp_path: Path) -> None:
    rows = [{"messages": turns("hi", first=A)}, {"messages": turns("hi", "u", "a", first=A)}]
    out, codes, warnings = converted(tmp_path, rows, "ebft_chat_multiturn.transform")
    assert [row["ground_truth"] for row in out] == ["a"]
    assert codes == ["no_assistant_turn"]
    assert warnings["role_order"] >= 1


def test_sharegpt_speakers_are_known(tmp_path: Path) -> None:
    rows = [{"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]}]
    out, _, _ = converted(tmp_path, rows, "ebft_chat_multiturn.transform_last_turn")
    assert out == [{"prompt": turns("u"), "ground_truth": "a"}]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>r</think> a", "a"),
        ("<reasoning>r</reasoning>a<reasoning>s</reasoning>b", "ab"),
        ("<|begin_of_thought|>r\nr<|end_of_thought|>\n a \n", "a"),
        ("r</think>a", "a"),
        ("a", "a"),
        ("<think>r", None),
        ("<think>r</think>", None),
    ],
)
def test_the_answer_alone_is_what_follows_the_thinking(tmp_path: Path, text, answer) -> None:
    rows = [{"messages": turns("u", text)}, {"messages": turns("u", "b")}]
    out, codes, _ = converted(tmp_path, rows, "ebft_reasoning.transform_answer_only")
    assert [row["ground_truth"] for row in out] == ([answer] if answer else []) + ["b"]
    assert codes == ([] if answer else ["empty_answer_after_think"])


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("<think>\n r \n</think>\n\n a", "r", "a"),
        (" <reasoning>r</reasoning>a", "r", "a"),
        ("<think>r</think>a<think>s</think>b", "r", "a<think>s</think>b"),
        ("<think></think>a", "", "a"),
        ("a</think><think>b", "", "a</think><think>b"),
        ("\n a ", "", "\n a "),
    ],
)
def test_thinking_is_told_apart_at_the_start_of_a_turn(tmp_path: Path, text, thought, said) -> None:
    rows = [{"messages": turns("u", text, "v", text)}]
    out, _, _ = converted(tmp_path, rows, "ebft_reasoning.transform_split_thinking")
    assert out[0]["prompt"] == [
        {"role": U, "content": "u", "reasoning_content": ""},
        {"role": A, "content": said, "reasoning_content": thought},
        {"role": U, "content": "v", "reasoning_content": ""},
    ]
    whole = f"<think>\n{thought}\n</think>\n\n{said}" if thought else said
    assert out[0]["ground_truth"] == whole


def test_thinking_that_has_its_own_key_wins(tmp_path: Path) -> None:
    rows = [{"messages": [*turns("u"), {"role": A, "content": "a", "reasoning_content": "r"}]}]
    out, _, _ = converted(tmp_path, rows, "ebft_reasoning.transform_split_thinking")
    assert out[0]["ground_truth"] == "<think>\nr\n</think>\n\na"


# --- tokens -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> dict[str, object]:
    """Make the word tokenizer of the worked example, with its template."""
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    marks = "<pad> <unk> <bos> <|end|> <|user|> <|assistant|> <|system|> <think> </think> <x>"
    listed = marks.split() + [f"w{i}" for i in range(1, 9)]
    vocabulary = {word: i for i, word in enumerate(listed)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("words")
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<|end|>", chat_template=TEMPLATE
    ).save_pretrained(folder)
    return {"tokenizer": str(folder), "max_length": 24}


WORKED = [{"messages": turns("w1 w2", "w3", "w4", "<think> w5 </think> w6")}]
IDS = [4, 10, 11, 3, 5, 12, 3, 4, 13, 3, 5, 7, 14, 8, 15, 3] + [0] * 8


@pytest.mark.parametrize(
    ("type", "options", "trained", "prompt", "anchors"),
    [
        ("ebft_strided_chat.transform", {}, [5, 6, *range(11, 16)], 5, [5, 6, *range(11, 16)]),
        ("ebft_reasoning.transform_strided", {}, [*range(11, 16)], 11, [*range(11, 16)]),
        (
            "ebft_reasoning.transform_strided",
            {"mask_thinking_ce": True},
            [14, 15],
            11,
            [*range(11, 16)],
        ),
    ],
)
def test_the_worked_token_example_holds(
    tmp_path: Path, words, type, options, trained, prompt, anchors
) -> None:
    out, _, _ = converted(tmp_path, WORKED, type, options=options, **words)
    row = out[0]
    assert row["input_ids"] == IDS
    assert row["attention_mask"] == [1] * 16 + [0] * 8
    assert [i for i, label in enumerate(row["labels"]) if label != -100] == trained
    assert all(row["labels"][i] == IDS[i] for i in trained)
    assert row["prompt_length"] == prompt
    assert [i for i, inside in enumerate(row["anchor_mask"]) if inside] == anchors


def test_a_text_and_its_continuation_become_one_row(tmp_path: Path, words) -> None:
    rows = [
        {"input": "w1 w2", "output": "w3"},
        {"question": "w1", "answer": " ".join(["w2"] * 30)},
        {"prompt": " ".join(["w1"] * 24), "completion": "w2"},
    ]
    out, codes, _ = converted(tmp_path, rows, "ebft_strided_structured.transform", **words)
    assert out[0]["input_ids"][:4] == [10, 11, 12, 0]
    assert out[0]["labels"][:4] == [-100, -100, 12, -100]
    assert out[0]["prompt_length"] == 2
    assert out[0]["anchor_mask"][:4] == [0, 0, 1, 0]
    assert out[1]["attention_mask"] == [1] * 24
    assert codes == ["too_long"]


def test_a_prompt_of_messages_is_written_by_the_template(tmp_path: Path, words) -> None:
    asked = [{"role": "system", "content": "w8"}, {"role": "user", "content": "w1 w2"}]
    answered = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2"}]
    rows = [
        {"prompt": asked, "completion": "w3 w4"},
        {"prompt": [], "completion": "w3"},
        {"prompt": answered, "completion": "w3"},
        {"prompt": asked, "completion": " "},
        {"prompt": [{**asked[1], "content": " ".join(["w1"] * 24)}], "completion": "w2"},
        {"prompt": asked, "completion": " ".join(["w5"] * 30)},
    ]
    out, codes, _ = converted(tmp_path, rows, "ebft_strided_structured.transform", **words)
    assert out[0]["input_ids"][:10] == [6, 17, 3, 4, 10, 11, 3, 5, 12, 13]
    assert out[0]["labels"][:11] == [-100] * 8 + [12, 13, -100]
    assert out[0]["prompt_length"] == 8
    assert out[0]["anchor_mask"][:11] == [0] * 8 + [1, 1, 0]
    assert out[1]["attention_mask"] == [1] * 24
    assert sorted(codes) == ["empty_field", "empty_field", "role_order", "too_long"]


@pytest.mark.parametrize("name", ["question", "prompt", "input"])
def test_messages_stand_under_each_name_of_a_prompt(tmp_path: Path, words, name: str) -> None:
    rows = [{name: [{"role": "user", "content": "w1"}], "output": "w2"}]
    out, _, _ = converted(tmp_path, rows, "ebft_strided_structured.transform", **words)
    assert out[0]["input_ids"][:5] == [4, 10, 3, 5, 11]


def test_the_answer_must_fit_in_the_length(tmp_path: Path, words) -> None:
    rows = [{"messages": turns(" ".join(["w1"] * 30), "w2")}, {"messages": turns("w1", "w2")}]
    out, codes, _ = converted(tmp_path, rows, "ebft_strided_chat.transform", **words)
    assert len(out) == 1
    assert codes == ["too_long"]


@pytest.mark.parametrize("missing", ["tokenizer", "max_length"])
def test_tokens_need_a_tokenizer_and_a_length(tmp_path: Path, words, missing: str) -> None:
    given = {name: value for name, value in words.items() if name != missing}
    with pytest.raises(OptionError, match="tokenizer" if missing == "tokenizer" else "max-length"):
        converted(tmp_path, WORKED, "ebft_strided_chat.transform", **given)


# --- conformance samples ------------------------------------------------------------------------


def samples() -> list[dict]:
    if not GOLDENS.exists():
        return []
    lines = (GOLDENS / "types.jsonl").read_text(encoding="utf-8").strip().split("\n")
    return [case for line in lines if (case := json.loads(line))["method"] == "ebft"]


def expected_rows(case: dict) -> list[dict]:
    if "rows" not in case:
        return [case["expected"]]
    return [
        dict(zip(case["expected"], v, strict=True))
        for v in zip(*case["expected"].values(), strict=True)
    ]


@pytest.fixture(scope="session")
def golden_tokenizers(tmp_path_factory) -> dict[str, str]:
    pytest.importorskip("transformers")
    from transformers import PreTrainedTokenizerFast

    variants = json.loads((GOLDENS / "tokenizer" / "variants.json").read_text())
    out = {}
    for name, special in variants.items():
        folder = tmp_path_factory.mktemp(name)
        PreTrainedTokenizerFast(
            tokenizer_file=str(GOLDENS / "tokenizer" / "tokenizer.json"), **special
        ).save_pretrained(folder)
        out[name] = str(folder)
    return out


@pytest.mark.skipif(not GOLDENS.exists(), reason="../shared is not there")
@pytest.mark.parametrize("case", samples(), ids=lambda case: case["id"])
def test_the_conformance_samples_behave_as_their_readme_says(
    tmp_path, case, golden_tokenizers
) -> None:
    rows = (
        [case["row"]]
        if "row" in case
        else [
            dict(zip(case["rows"], v, strict=True))
            for v in zip(*case["rows"].values(), strict=True)
        ]
    )
    request = {}
    if "tokenizer" in case:
        variant = case["tokenizer"]["variant"]
        template = variant.partition("_")[0]
        request = {
            "tokenizer": golden_tokenizers[variant],
            "chat_template": f"trl:{template}" if template == "llama3" else template,
            "max_length": case["config"]["sequence_len"],
        }
    right = case.get("right")
    if right is not None and right.get("reason_class", "").startswith("missing_field:input"):
        # A column that no row of a file has is an error of usage, before any row is read.
        with pytest.raises(ColumnMismatchError, match="or input"):
            converted(tmp_path, rows, case["type"], **request)
        return
    out, codes, warnings = converted(tmp_path, rows, case["type"], **request)
    if right is None:
        check_equal(out, expected_rows(case))
    elif right["action"] == "reject" and right.get("alternative", {}).get("action") != "convert":
        assert codes == [right["reason_class"].partition(":")[0]]
    else:
        assert out
        assert right.get("warn", "trailing_user_turn") in {*warnings, "trailing_user_turn"}
        for name, value in right.get("output", {}).items():
            assert out[0][name] == value


def check_equal(out: list[dict], expected: list[dict]) -> None:
    assert len(out) == len(expected)
    for row, wanted in zip(out, expected, strict=True):
        if "input_ids" not in wanted:
            assert {name: row[name] for name in wanted} == wanted
            continue
        # "A newline after the final end token is optional"; ours has none.
        length = sum(row["attention_mask"])
        assert sum(wanted["attention_mask"]) - length in (0, 1)
        for name in ("input_ids", "labels"):
            assert row[name][:length] == wanted[name][:length]
        assert row["prompt_length"] == wanted["prompt_length"]
        assert len(row["input_ids"]) == len(wanted["input_ids"])
