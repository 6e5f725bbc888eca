"""Any layout is found under any file name, or a command stands there that was tried."""

import json
import random
import shlex
from pathlib import Path

import polars as pl
import pytest
import runs
from fixture_cases import Case, cases, read_lines

import fmtkit
from fmtkit.core.errors import OptionError
from fmtkit.detection import certainty, detection
from fmtkit.detection.near_misses import likeness
from fmtkit.formats import registry
from fmtkit.inspection.type_guesses import guess
from fmtkit.running import preparation
from fmtkit.sources.opening import open_sources

USER, BOT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
PAIR = {"chosen": "a", "rejected": "b"}
ONLY_BY_NAMES = {
    "judged_replies/lower": "that the lowest rank is best",
    "message_rows/named": "rows that are in the fixture's one column, and in a file are its rows",
}
"""Cases of which a random name hides what is meant, and what that is."""
SAME = {
    "chat_template.argilla": {"ultra"},
    "icr": {"bradley_terry.chat_template"},
    "implicit_prompt": {"chat_template.argilla_chat"},
    "passthrough/completion": {"completion"},
    "passthrough/conversation": {"openai"},
    "passthrough": {"prompt_pairs"},
    "passthrough/stepwise": {"stepwise_supervised"},
    "passthrough/unpaired": {"prompt_pairs"},
    "ultra/unpaired": {"prompt_pairs"},
    "user_defined.default/swapped": {"prompt_pairs"},
    "jeopardy": {"question_answer"},
    "jeopardy/style": {"question_answer"},
    "ebft_opencode.transform": {"question_answer"},
}
"""Cases whose rows another type reads just as well: columns do not tell them apart."""
TOLD = {
    "chosen_reply/from_one",
    "chat_template.default/mapped",
    "messages_label/label_map",
    "passthrough/prompt",
    "user_defined.default",
    "user_defined.default/unpaired",
}
"""Cases whose options say what their columns mean: nobody could know."""
CASES = [case for case in cases() if str(case) not in TOLD]


def renamed(rows: list[bytes], folder: Path) -> str:
    path = folder / f"{random.Random(len(rows)).randrange(16**8):08x}.jsonl"
    path.write_bytes(b"\n".join(rows) + b"\n")
    return str(path)


def written(rows: list[dict[str, object]], folder: Path) -> str:
    return renamed([json.dumps(row).encode() for row in rows], folder)


def guessed(path: str):
    [source] = open_sources(path)
    return guess(preparation.sample_of(source), paths=[path])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_layout_of_a_fixture_is_found_under_a_random_name(case: Case, tmp_path: Path) -> None:
    bad = {reject["line"] for reject in case.lines("quarantine.jsonl")}
    rows = [line for number, line in enumerate(read_lines(case.source), 1) if number not in bad]
    found = guessed(renamed(rows, tmp_path))
    if str(case) == "user_defined.default/instruction":
        # Columns q, more and a, all of text: q and a alone would lose the others.
        assert (found[0].type, found[0].certainty) == ("question_answer", "unsure")
        return
    if str(case) in ONLY_BY_NAMES:
        assert all(one.certainty == "unsure" for one in found)
        return
    best = found[0]
    wanted = {case.name} | SAME.get(str(case), set())
    if "ebft" in case.name and case.name != "ebft_opencode.transform":
        wanted.add("openai")
    assert best.type in wanted or read_alike(case.name, best.type, rows)


def read_alike(name: str, other: str, rows: list[bytes]) -> bool:
    """Return whether two types read the same columns of rows: then only a user can tell which is meant."""
    there = {column for row in rows for column in json.loads(row)}
    ours, theirs = (
        {
            frozenset(one.path(column).partition(".")[0] for column in one.columns) & there
            for one in registry.converters_named(kind)
        }
        for kind in (name, other)
    )
    return not ours.isdisjoint(theirs)


@pytest.mark.parametrize(
    ("row", "type", "columns"),
    [
        ({"questions": "q"} | PAIR, "intel", {"question": "questions"}),
        ({"user_question": "q"} | PAIR, "intel", {"question": "user_question"}),
        ({"meta": {"question": "q"}} | PAIR, "intel", {"question": "meta.question"}),
        ({"conversation": [USER, BOT]}, "openai", {"messages": "conversation"}),
        ({"convo": [USER, BOT], "id": "x"}, "openai", {"messages": "convo"}),
        ({"question": {"text": "q"}} | PAIR, "intel", {"question": "question.text"}),
        ({"body": {"messages": [USER, BOT]}}, "openai", {"messages": "body.messages"}),
        ({"systemPrompt": "s", "messages": [USER, BOT]}, "openai", {"system": "systemPrompt"}),
        ({"messages": [USER, BOT], "functions": [{"name": "f"}]}, "openai", {"tools": "functions"}),
        (
            {"document": "long", "highlights": "short"},
            "alpaca",
            {"instruction": "document", "response": "highlights"},
        ),
        (
            {"inputs": "q", "targets": "a"},
            "alpaca",
            {"instruction": "inputs", "response": "targets"},
        ),
        (
            {"passage": "a", "question": "q", "answer": "b"},
            "question_answer",
            {"context": "passage"},
        ),
        (
            {"Question": "q", "Answer": "a"},
            "question_answer",
            {"question": "Question", "answer": "Answer"},
        ),
        (
            {"messages": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
            "sharegpt",
            {"conversations": "messages"},
        ),
        ({"q": "q", "a": "a"}, "question_answer", {"question": "q", "answer": "a"}),
        ({"Q": "q", "A": "a"}, "question_answer", {"question": "Q", "answer": "A"}),
        ({"ques": "q", "ans": "a"}, "question_answer", {"question": "ques", "answer": "ans"}),
        ({"src": "q", "tgt": "a"}, "alpaca", {"instruction": "src", "response": "tgt"}),
        ({"goal": "q", "target": "a"}, "alpaca", {"instruction": "goal", "response": "target"}),
        (
            {"prompt": "q", "pos_resp": "a", "neg_resp": "b", "pos_type": "x", "neg_type": "y"},
            "prompt_pairs",
            {"chosen": "pos_resp", "rejected": "neg_resp"},
        ),
        (
            {"prompt": "q", "positive_response": "a", "negative_response": "b"},
            "prompt_pairs",
            {"chosen": "positive_response", "rejected": "negative_response"},
        ),
        ({"prompt": "q", "selected": "a", "rejected": "b"}, "prompt_pairs", {"chosen": "selected"}),
        ({"prompt": "q", "picked": "a", "rejected": "b"}, "prompt_pairs", {"chosen": "picked"}),
        (
            {"prompt": "q", "text": "a"},
            "alpaca",
            {"instruction": "prompt", "response": "text"},
        ),
        (
            {"text": "Add two numbers, please.", "code": "def add(a, b):\n    return a + b"},
            "alpaca",
            {"instruction": "text", "response": "code"},
        ),
    ],
)
def test_a_near_miss_becomes_a_map_that_was_tried(tmp_path, capsys, row, type, columns):
    path = written([row] * 3, tmp_path)
    guesses = guessed(path)
    found = {guess.type: guess for guess in guesses}
    # By other names a reading is at most likely.
    assert guesses[0].certainty in ("likely", "unsure")
    assert dict(found[type].columns) == columns
    assert guesses[0].type == type
    command = shlex.split(found[type].command or "")
    out = str(tmp_path / "out.jsonl")
    done = runs.fmtkit(capsys, *command[1:-1], out)
    assert done.code == 0, done.err
    assert len(Path(out).read_text().splitlines()) == 3


WORKED = {"solution": "Three and four make seven, as every child knows.", "answer": "seven"}
SCORED = [{"text": "a", "score": 1}, {"text": "b", "score": 2}]
SUMMARIES = [{"text": "a", "policy": "x"}, {"text": "b", "policy": "y"}]
SENT = {"sender": "assistant", "text": "a"}
ASKED, SAID = (
    {"message": {"author": {"role": role}, "content": {"content_type": "text", "parts": [role]}}}
    | ({"parent": "u"} if role == "assistant" else {})
    for role in ("user", "assistant")
)
RESULTS = {"generated_solution": WORKED["solution"], "expected_answer": "seven"}


@pytest.mark.parametrize(
    ("row", "type", "certainty"),
    [
        ({"problem": "3 + 4?"} | WORKED, "worked_answer", "sure"),
        ({"question": "3 + 4?", "id": 1} | WORKED, "worked_answer", "sure"),
        (
            {"Problem": "3 + 4?", "Solution": WORKED["solution"], "Answer": "seven"},
            "worked_answer",
            "likely",
        ),
        ({"problem": "3 + 4?"} | RESULTS, "worked_answer", "likely"),
        (
            {"input": "q", "output": "<think>hm</think>the code", "solution": "the code"},
            "worked_answer",
            "sure",
        ),
        ({"real": [USER, BOT], "generated": [USER, {**BOT, "content": "b"}]}, "spin", "sure"),
        ({"question": "q", "answers": SCORED}, "scored_replies", "sure"),
        (
            {"prompt": "q", "responses": [{"response": "a", "rating": 1}] * 2},
            "scored_replies",
            "sure",
        ),
        ({"post": "q", "comments": [{"body": "a", "upvotes": 1}] * 2}, "scored_replies", "sure"),
        (
            {"instruction": "q", "generations": ["a", "b"], "ratings": [1, 2]},
            "scored_replies",
            "sure",
        ),
        ({"prompt": "q", "responses": ["a", "b"], "rewards": [1, 2]}, "scored_replies", "sure"),
        ({"query": "q", "completions": ["a", "b"], "scores": [0.1, 0.2]}, "scored_replies", "sure"),
        (
            {"body": "Seven apples.", "question": "How many?", "answer": "7"},
            "word_problem",
            "likely",
        ),
        (
            {"Body": "Seven apples.", "Question": "How many?", "Answer": "7"},
            "word_problem",
            "likely",
        ),
        ({"body": "Seven apples.", "ques": "How many?", "ans": "7"}, "word_problem", "likely"),
        ({"post": "q", "summaries": SUMMARIES, "choice": 0}, "chosen_reply", "sure"),
        ({"info": {"post": "q"}, "summaries": SUMMARIES, "choice": 0}, "chosen_reply", "likely"),
        ({"query": "q", "responses": SUMMARIES, "best": 0}, "chosen_reply", "likely"),
        ({"instruction": "q", "candidates": ["a", "b"], "choice": 0}, "chosen_reply", "sure"),
        (
            {"prompt": "q", "candidates": ["a", "b"], "annotation": {"best": 0}},
            "chosen_reply",
            "likely",
        ),
        ({"task": "q", "candidates": ["a", "b"], "best": 0}, "chosen_reply", "likely"),
        ({"prompt": "q", "chosen": ["a"], "rejected": ["b", "c"]}, "chosen_reply", "sure"),
        ({"task": "q", "chosen": ["a"], "rejected": ["b", "c"]}, "chosen_reply", "likely"),
        ({"prompt": "q", "accepted": ["a"], "rejected": ["b", "c"]}, "chosen_reply", "likely"),
        (
            {"question": "q", "responses": [{"response": "a"}, {"response": "b"}]},
            "sampled_replies",
            "unsure",
        ),
        ({"instruction": "q", "input": "", "output": ["a", "b"]}, "sampled_replies", "unsure"),
        ({"problem": "q", "generations": ["a", "b"]}, "sampled_replies", "unsure"),
        ({"chat_messages": [{"sender": "human", "text": "q"}, SENT]}, "claude_ai", "sure"),
        ({"mapping": {"u": ASKED, "a": SAID}, "title": "t"}, "chatgpt", "sure"),
        (
            {"messages": [{"type": "human", "content": "q"}, {"type": "ai", "content": "a"}]},
            "langchain",
            "sure",
        ),
    ],
)
def test_a_layout_is_found_under_the_names_that_public_files_have(tmp_path, row, type, certainty):
    best = guessed(written([row] * 3, tmp_path))[0]
    assert (best.type, best.certainty) == (type, certainty)


QUESTIONS = ["Write a post on rugs.", "Name two noble gases.", "Add three and four."]
CHOICES = ["A) 3 B) 7", "A) Neon B) Iron C) Tin", "A) 1 B) 2"]
SPOKEN = "Customer: Hi.\nAgent: Ho."


@pytest.mark.parametrize("beside", [{}, {"category": "writing"}, {"question_id": 8}])
def test_lists_of_two_texts_that_ask_are_prompts_and_no_conversations(tmp_path, beside):
    rows = [beside | {"turns": [asked, "Now rewrite it."]} for asked in QUESTIONS]
    best = guessed(written(rows, tmp_path))[0]
    assert (best.type, best.table, best.certainty) == ("mt_bench", "Prompt", "unsure")


@pytest.mark.parametrize("path", ["body", "request", "payload"])
def test_messages_to_which_nobody_replied_are_prompts_wherever_they_are(tmp_path, path):
    rows = [
        {"custom_id": "r", path: {"model": "m", "messages": [{**USER, "content": q}]}}
        for q in QUESTIONS
    ]
    best = guessed(written(rows, tmp_path))[0]
    assert (best.type, best.table, best.certainty) == ("passthrough", "Prompt", "unsure")
    assert dict(best.columns) == {"prompt": f"{path}.messages"}


@pytest.mark.parametrize(
    ("names", "letters"),
    [
        (("question", "options", "Answer"), "BAA"),
        (("problem", "choices", "answer"), ["(b)", "(a)", "(a)"]),
        (("query", "选项", "response"), ["B.", "A.", "A."]),
    ],
)
def test_a_letter_of_choices_that_nobody_reads_is_no_answer(tmp_path, names, letters):
    rows = [
        dict(zip(names, row, strict=True)) for row in zip(QUESTIONS, CHOICES, letters, strict=True)
    ]
    path = written(rows, tmp_path)
    assert not guessed(path)
    with pytest.raises(OptionError, match=f"{names[2]} holds letters of the choices in {names[1]}"):
        fmtkit.convert(path, None)


@pytest.mark.parametrize(
    "beside",
    [
        {"options": ["three", "seven"]},
        {"choices": {"A": "three", "B": "seven"}},
        {"A": "three", "B": "seven"},
    ],
)
def test_a_letter_of_listed_choices_is_no_answer(tmp_path, beside):
    rows = [{"question": q, "answer": a} | beside for q, a in zip(QUESTIONS, "BAB", strict=True)]
    assert not guessed(written(rows, tmp_path))


@pytest.mark.parametrize(
    "beside",
    [
        {"train_messages": [[USER, BOT]]},
        {"turns": [USER, BOT]},
        {"chat": [USER, BOT]},
    ],
)
def test_an_object_that_holds_turns_is_not_read_for_two_of_its_fields(tmp_path, beside):
    row = {"win": True, "generation": {"query": "q", "final_answer": "a"} | beside}
    assert all(guess.type != "question_answer" for guess in guessed(written([row] * 3, tmp_path)))
    bare = {"win": True, "generation": {"query": "q", "final_answer": "a"}}
    assert dict(guessed(written([bare] * 3, tmp_path))[0].columns).keys() == {"query", "answer"}


@pytest.mark.parametrize("name", ["messages_display", "input", "对话"])
def test_a_conversation_as_text_is_read_by_its_marks_and_else_named(tmp_path, name):
    texts = ["USER: Hi\nASSISTANT: Ho", "USER: So\nASSISTANT: No", "USER: A\nASSISTANT: B"]
    best = guessed(written([{name: text} for text in texts], tmp_path))[0]
    assert (best.type, [*dict(best.columns).values()]) == ("transcript", [name])
    path = written([{name: f"{SPOKEN}\nCustomer: {i} rugs are here."} for i in range(3)], tmp_path)
    assert not guessed(path)
    with pytest.raises(OptionError, match=f"{name} holds whole conversations as text"):
        fmtkit.convert(path, None)


@pytest.mark.parametrize(
    ("column", "role", "content"),
    [("dialogue", "role", "text"), ("chat", "speaker", "utterance"), ("talk", "author", "content")],
)
def test_speakers_of_whom_nobody_is_the_model_are_named(tmp_path, column, role, content):
    said = [{role: name, content: "Hello."} for name in ("Penny", "Leonard")]
    with pytest.raises(OptionError, match=f"the speakers of {column} are Leonard, Penny") as error:
        fmtkit.convert(written([{column: said}] * 3, tmp_path), None)
    told = [word for word in shlex.split(str(error.value).partition("; `")[0]) if "=" in word]
    assert told[0] == f"messages={column}"
    assert ("message_field_content=" in told[1]) is (content != "content")


def test_two_answers_of_about_one_length_are_not_taken_for_a_solution_and_its_result(tmp_path):
    row = {"problem": "3 + 4?", "solution": "It is seven.", "answer": "Eight it is."}
    assert not guessed(written([row] * 3, tmp_path))


def test_a_word_of_praise_in_every_row_is_no_answer(tmp_path):
    rows = [{"text": f"Name fruit {i}, please.", "answer": "accept"} for i in range(3)]
    assert all(guess.table != "Completion" for guess in guessed(written(rows, tmp_path)))


@pytest.mark.parametrize(
    ("column", "messages", "type", "options"),
    [
        (
            "messages",
            [("role", "human", "content"), ("role", "ai", "content")],
            "openai",
            {"roles"},
        ),
        (
            "messages",
            [("author", "user", "text"), ("author", "model", "text")],
            "openai",
            {"message_field_role", "message_field_content", "roles"},
        ),
        (
            "conversations",
            [("role", "user", "value"), ("role", "assistant", "value")],
            "sharegpt",
            {"message_field_role"},
        ),
        (
            "chat",
            [("speaker", "Customer", "utterance"), ("speaker", "Agent", "utterance")],
            "openai",
            {"message_field_role", "message_field_content", "roles"},
        ),
    ],
)
def test_messages_that_are_spelled_otherwise_are_read_by_options_that_were_tried(
    tmp_path, capsys, column, messages, type, options
):
    row = {column: [{role: name, content: "words"} for role, name, content in messages]}
    path = written([row] * 3, tmp_path)
    best = guessed(path)[0]
    assert (best.type, set(best.options)) == (type, options)
    command = shlex.split(best.command or "")
    out = str(tmp_path / "out.jsonl")
    assert runs.fmtkit(capsys, *command[1:-1], out).code == 0
    made = [json.loads(line) for line in Path(out).read_text().splitlines()]
    said = [[(m["role"], m["content"]) for m in row["messages"]] for row in made]
    assert said == [[("user", "words"), ("assistant", "words")]] * 3
    assert fmtkit.inspect(path).rows == 3


def test_a_speaker_whom_nobody_knows_is_no_guess(tmp_path):
    row = {"messages": [{"role": "narrator", "content": "q"}, {"role": "ai", "content": "a"}]}
    assert not guessed(written([row] * 3, tmp_path))


def test_a_type_that_writes_its_own_prompt_comes_after_one_that_makes_messages(tmp_path):
    rows = [{"system_prompt": "", "question": f"q{i}", "response": "a"} for i in range(3)]
    assert guessed(written(rows, tmp_path))[0].type == "question_answer"


@pytest.mark.parametrize(
    ("name", "path", "alike"),
    [
        ("question", "Questions", True),
        ("chosen_response", "chosenResponse", True),
        ("prompt", "prompt_id", False),
        ("chosen", "rejected_response", False),
        ("prompt", "system_prompt", False),
        ("system", "system_prompt", True),
        ("system", "systemPrompt", True),
        ("tools", "functions", True),
        ("context", "article", True),
        ("response", "rejected_response", False),
        ("rejected", "meta.rejected", True),
    ],
)
def test_names_are_alike_that_mean_the_same(name, path, alike):
    assert (likeness(name, path) > 0.7) is alike


def test_two_columns_that_are_as_near_are_no_suggestion():
    row = {"prompt": "q", "response_x": "a", "response_y": "b"}
    fits = detection.detect([row] * 3)
    assert not any(found.mapping for found in fits)
    assert fits[0].converter.name == "passthrough"
    assert certainty.certainty(fits, [row]) == "unsure"


@pytest.mark.parametrize(
    ("row", "type", "certainty"),
    [
        ({"question": "q"} | PAIR, "intel", "sure"),
        ({"question": "q", "answer": "a #### 4"}, "gsm8k", "likely"),
        ({"input": "q", "output": "a"}, "question_answer", "sure"),
        ({"messages": [USER, BOT]}, "openai", "sure"),
        ({"query": "q", "response": "a", "original_query": "o"}, "question_answer", "unsure"),
    ],
)
def test_a_guess_says_how_sure_it_is(tmp_path, row, type, certainty):
    best = guessed(written([row] * 3, tmp_path))[0]
    assert (best.type, best.certainty) == (type, certainty)


def test_a_type_that_reads_the_label_comes_before_one_that_does_not():
    liked = [{"prompt": "q", "completion": "a", "label": bool(i % 2)} for i in range(4)]
    bad = [{"prompt": "q", "completion": "a", "label": "?"}] * 5
    assert detection.detect(liked + bad)[0].converter.table == "Unpaired"


@pytest.mark.parametrize(
    "row",
    [
        {"a": 1, "b": [1, 2]},
        {"note": "some text"},
        {"prompt": "q", "response_0": "a", "response_1": "b"},
        {"input_ids": [1, 2], "labels": [1, 2]},
        {"question": {"deep": {"er": 1}}},
    ],
)
def test_inspect_shows_columns_and_rows_whatever_the_type(tmp_path, row):
    survey = fmtkit.inspect(written([row] * 5, tmp_path))
    assert [column.name for column in survey.columns] == list(row)
    assert [json.loads(shown) for shown in survey.first_rows] == [row] * 3
    texts = {name for name, value in row.items() if isinstance(value, str)}
    assert survey.type is not None or {figures.name for figures in survey.lengths} >= texts


def test_a_conversion_without_a_type_says_what_the_file_is_and_how_to_go_on(tmp_path):
    path = written([{"question": "q", "answer": "a #### 4"}] * 3, tmp_path)
    with pytest.raises(OptionError) as error:
        fmtkit.convert(path, None)
    for words in ("gsm8k -> Prompt (likely", "question_answer -> Completion", f"convert {path} -t"):
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>", "chatml"),
        ("<s>[INST] Hi [/INST] Ho</s>", "mistral"),
        ("<start_of_turn>user\nHi<end_of_turn>\n", "gemma"),
        ("<|system|>\n</s>\n<|user|>\nHi</s>\n<|assistant|>\nHo</s>", "zephyr"),
        ("What does <|im_end|> mean?", None),
        ("Plain text with a < b and [c].", None),
    ],
)
def test_text_that_was_rendered_already_is_a_finding_that_names_the_template(
    tmp_path, text, template
):
    survey = fmtkit.inspect(written([{"text": f"{text} {i}"} for i in range(5)], tmp_path))
    found = [f for f in survey.findings if f.code == "rendered_text"]
    assert [dict(f.details) for f in found] == ([{"text": template}] if template else [])
    assert [f.count for f in found] == ([5] if template else [])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_what_fmtkit_rendered_is_no_error_until_it_is_to_be_rendered_again(tmp_path, suffix):
    chat = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    tools = [
        {"name": "find", "description": "Find.", "parameters": {"type": "object", "properties": {}}}
    ]
    source = written([{"conversations": chat, "tools": tools}] * 3, tmp_path)
    made = tmp_path / f"made.{suffix}"
    fmtkit.convert(source, "qwen3.sharegpt", out=made)
    survey = fmtkit.inspect(made)
    assert [f.code for f in survey.findings] == []
    assert (
        "fmtkit rendered these texts as qwen3.sharegpt: train on them as they are" in survey.notes
    )
    again = fmtkit.inspect(made, type="chatml.text")
    assert "rendered_text" in [f.code for f in again.findings]
    assert not [note for note in again.notes if "rendered these" in note]


@pytest.mark.parametrize(
    ("row", "column", "marks"),
    [
        ({"text": "USER: Hi\nASSISTANT: Ho\nUSER: So"}, "text", "USER: ASSISTANT:"),
        ({"text": "### Human: Hi### Assistant: Ho"}, "text", "### Human: ### Assistant:"),
        (
            {
                "messages": [
                    {"role": "user", "content": "Human: Hi\n\nAssistant: Ho\n\nHuman: So"},
                    BOT,
                ]
            },
            "messages",
            "Human: Assistant:",
        ),
        (
            {"conversations": [{"from": "human", "value": "USER: Hi\nASSISTANT: Ho"}]},
            "conversations",
            "USER: ASSISTANT:",
        ),
        ({"messages": [USER, {"role": "assistant", "content": "USER: Hi\nASSISTANT: Ho"}]}, "", ""),
        ({"text": "The label USER: stands before what users say."}, "", ""),
    ],
)
def test_a_transcript_inside_of_a_text_is_a_finding_with_a_command(
    tmp_path, capsys, row, column, marks
):
    survey = fmtkit.inspect(written([row] * 3, tmp_path))
    found = [f for f in survey.findings if f.code == "transcript"]
    assert [f.details.get(column) for f in found] == ([marks] if marks else [])
    if marks and column != "conversations":
        command = shlex.split(found[0].details["command"])
        out = str(tmp_path / "out.jsonl")
        assert runs.fmtkit(capsys, *command[1:-1], out).code == 0
        made = [json.loads(line)["messages"] for line in Path(out).read_text().splitlines()]
        assert [m["content"] for m in made[0]][:2] == ["Hi", "Ho"]


@pytest.mark.parametrize(
    ("said", "certainty"), [("Human: Hi\n\nAssistant: Ho\n\nHuman: So", "likely"), ("Hi", "sure")]
)
def test_a_type_of_messages_is_not_sure_of_turns_that_hold_a_transcript(tmp_path, said, certainty):
    row = {"messages": [{"role": "user", "content": said}, BOT]}
    survey = fmtkit.inspect(written([row] * 3, tmp_path))
    assert (survey.best_guess, survey.certainty) == ("openai", certainty)
    assert survey.sources[0].types[0].certainty == certainty


def test_sources_of_different_types_are_not_converted_to_one(tmp_path):
    one = written([{"question": "q"} | PAIR], tmp_path)
    other = written([{"messages": [USER, BOT]}] * 2, tmp_path)
    with pytest.raises(OptionError, match="intel -> Preference, openai -> Conversation"):
        fmtkit.convert([one, other], None)


MIXED = [{"question": "q"} | PAIR] * 3 + [{"messages": [USER, BOT]}] * 3


def test_a_file_of_two_layouts_is_told_and_not_converted_to_one(tmp_path):
    path = written(MIXED, tmp_path)
    with pytest.raises(OptionError, match=r"two layouts \(.* 50%, .* 50%\)") as error:
        fmtkit.convert(path, None)
    for words in ("intel -> Preference", "openai -> Conversation", "--type"):
        assert words in str(error.value)
    [found] = [f for f in fmtkit.inspect(path).findings if f.code == "mixed_layouts"]
    assert set(found.details.values()) == {0.5}


def test_a_few_bad_rows_are_no_second_layout(tmp_path):
    rows = [{"question": f"q{i}"} | PAIR for i in range(98)] + [{"question": None} | PAIR] * 2
    survey = fmtkit.inspect(written(rows, tmp_path))
    assert not [f for f in survey.findings if f.code == "mixed_layouts"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no rows"]),
        ("null\n", ["no row could be read", "not_an_object"]),
        ('{"a": 1}\n', ["columns are a", "--map question=COLUMN", "--plugin FILE.py"]),
        ('{"audio": ["x.wav"], "b": 1}\n', ["the rows have audio, in a form that no type reads"]),
        ('{"images": ["x.png"], "b": 1}\n', ["columns are images, b", "--map question=COLUMN"]),
        ('[{"role": "user", "content": "q"}]\n', ["each row is a single message"]),
        (
            '{"messages": [{"role": "narrator", "content": "q"}]}\n',
            ["openai has the columns", "no role 'narrator'"],
        ),
        (
            '{"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}\n',
            ["openai has the columns", "tool_result"],
        ),
    ],
)
def test_where_nothing_fits_an_inspection_says_what_to_write(tmp_path, text, words):
    path = tmp_path / "zq.jsonl"
    path.write_text(text)
    [note] = fmtkit.inspect(str(path)).notes
    assert all(word in note for word in words)


MESSAGES = json.dumps([{"role": "assistant", "content": "It is eight, since four and four are."}])


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": MESSAGES, "rejected": MESSAGES.replace("eight", "nine")},
        {"question": "Why is it so?", "answer": MESSAGES},
        {"prompt": "Why is it so?", "completion": MESSAGES},
        {"question": "Why?", "response_a": MESSAGES, "response_b": MESSAGES + " ", "winner": "a"},
    ],
)
def test_json_text_of_messages_is_never_taken_for_what_somebody_wrote(row):
    made = [
        {name: value.replace("eight", f"eight {n}") for name, value in row.items()}
        for n in range(4)
    ]
    for found in detection.detect(made):
        converted = fmtkit.table(
            made, found.converter.name, columns=dict(found.mapping), options=dict(found.options)
        )
        assert "role" not in str(converted.to_pylist()[0]).replace("'role':", "")


def test_a_solution_that_misses_its_result_is_a_guess_without_certainty():
    made = [
        {
            "question": f"What is {n} and {n}?",
            "solution": f"4{n}",
            "output": "Let me think. " * 5 + "It is 0.",
        }
        for n in range(1, 6)
    ]
    fits = detection.detect(made)
    assert certainty.certainty(fits, made) == "unsure"
    assert "does not hold the shorter one" in fits[0].reason


def test_places_that_count_from_one_are_no_guess():
    rows = [{"prompt": "q", "candidates": ["a", "b", "c"], "best": best} for best in (1, 2, 2, 1)]
    assert not [f for f in detection.detect(rows) if f.converter.name == "chosen_reply"]


@pytest.mark.parametrize("name", ["reasoning", "thinking"])
def test_a_mode_is_no_reasoning(name):
    row = {"input": [USER], "output": "a", "system_prompt": "Be brief."}
    rows = [row | {name: mode} for mode in ("on", "off", "on")]
    assert detection.detect(rows)[0].mapping["system"] == "system_prompt"
    thought = [row | {name: f"I think of {n} things."} for n in range(3)]
    found = detection.detect(thought)
    assert all(f.unread or name in {*f.mapping.values(), *f.converter.columns} for f in found)


def best_of(rows: list[dict[str, object]]) -> detection.Fit | None:
    return next(iter(detection.detect(rows)), None)


QUESTIONS_ALONE = [{"id": i, "task": f"Plan a walk of {i} miles."} for i in range(3)]
ADDRESSES = [f"https://example.org/{i}.wav" for i in range(3)]


@pytest.mark.parametrize("name", ["instruction", "prompt_text", "Question"])
def test_a_question_without_any_answer_is_a_prompt(name):
    rows = [{"id": row["id"], name: row["task"]} for row in QUESTIONS_ALONE]
    found = best_of(rows)
    assert found
    assert (found.converter.table, dict(found.mapping)) == ("Prompt", {"prompt": name})
    # A number is a result to compare a reply with; a short answer is one.
    assert best_of([row | {"target": i} for i, row in enumerate(rows)]).converter.table == "Prompt"
    for beside in ({"answer_that_matches": "A"}, {"system_prompt": "You are a nurse."}):
        found = best_of([row | beside for row in rows])
        assert found is None or found.converter.table != "Prompt" or "system" in str(beside)


@pytest.mark.parametrize("name", ["system_prompt", "scene", "character"])
def test_a_text_that_asks_nothing_is_no_prompt(name):
    found = best_of([{name: row["task"]} for row in QUESTIONS_ALONE])
    assert found is None or found.converter.table != "Prompt"


@pytest.mark.parametrize(
    "names", [("source", "target"), ("input", "output"), ("question", "answer")]
)
def test_addresses_and_files_of_media_are_no_turns(names):
    asked, said = names
    rows = [{asked: address, said: f"They say it is {i}."} for i, address in enumerate(ADDRESSES)]
    assert best_of(rows) is None


@pytest.mark.parametrize(
    "names", [("pos", "neg"), ("positive", "negative"), ("positives", "negatives")]
)
def test_lists_of_passages_that_a_search_should_find_are_no_replies(names):
    found, not_found = names
    rows = [{"query": "egg", found: ["Boil it long."], not_found: ["A hen.", "A pan."]}] * 3
    assert not [f for f in detection.detect(rows) if f.converter.name == "chosen_reply"]


@pytest.mark.parametrize("name", ["reference_answer", "expected_output", "gold.answer"])
def test_what_a_reply_is_compared_with_is_none(name):
    outer, _, inner = name.partition(".")
    answer = {inner: "24"} if inner else "24"
    found = best_of([{"messages": [USER], outer: answer}] * 3)
    assert found
    assert found.converter.table == "Prompt"


CASES_AND_FINDINGS = {
    "case": "Illness: a cough.\nSince when: two weeks, and it grows worse at night.",
    "finding": "It is a cold.\nRest, and drink tea.",
}


def test_a_second_column_of_sentences_is_no_title_of_a_text():
    assert best_of([CASES_AND_FINDINGS | {"id": i} for i in range(3)]) is None
    titled = [
        {"article": CASES_AND_FINDINGS["case"], "headline": "A cough", "id": i} for i in range(3)
    ]
    assert best_of(titled)


def test_a_question_is_not_read_without_its_choices():
    row = {"question": "How much is it?", "options": ["A) 3 m", "B) 4 m"], "correct": "A"}
    rows = [row | {"rationale": f"Three and {i}, so A."} for i in range(3)]
    assert best_of(rows) is None
    told = [r | {"question": "How much is it? A) 3 m B) 4 m", "answer": "A"} for r in rows]
    assert best_of(
        [{k: v for k, v in r.items() if k not in ("rationale", "correct")} for r in told]
    )


@pytest.mark.parametrize(
    ("good", "bad"), [(1, -1), ("thumbs_up", "thumbs_down"), ("👍", "👎"), ("gut", "schlecht")]
)
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_column_whose_values_say_good_and_bad_is_the_label(tmp_path, capsys, good, bad, kind):
    rows = [
        {
            "ts": f"2026-01-0{i} 10:00",
            "user_message": f"What is {i}?",
            "bot_reply": f"It is {i}.",
            "vote": vote,
        }
        for i, vote in enumerate((good, bad, good), 1)
    ]
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    best = guessed(str(path))[0]
    assert best.table == "Unpaired"
    assert best.certainty == "unsure"
    out = tmp_path / "out.jsonl"
    assert runs.fmtkit(capsys, *shlex.split(best.command)[1:-1], str(out)).code == 0
    assert [json.loads(line)["label"] for line in out.read_text().splitlines()] == [
        True,
        False,
        True,
    ]


def test_scores_in_a_csv_are_numbers(tmp_path):
    path = tmp_path / "a.csv"
    rows = [
        {"prompt": "q", "response_a": "x", "response_b": "y", "score_a": a, "score_b": b}
        for a, b in ((1, 2.5), (-3, "1e1"), (4, "none"))
    ]
    pl.DataFrame([{k: str(v) for k, v in row.items()} for row in rows]).write_csv(path)
    report = fmtkit.convert(str(path), "two_replies", out=tmp_path / "out.jsonl")
    assert (report.converted, report.reasons) == (2, {"type_error": 1})
    chosen = [
        json.loads(line)["chosen"][0]["content"]
        for line in (tmp_path / "out.jsonl").read_text().splitlines()
    ]
    assert chosen == ["y", "y"]


def test_the_lists_of_messages_that_python_wrote_are_no_text():
    text = str([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}])
    assert best_of([{"chosen": text, "rejected": text.replace("So", "No")}] * 3) is None


def test_an_object_of_texts_is_no_list_of_choices():
    rows = [{"info": {"post": "q", "title": "t"}, "batch": "B", "answer": "It is."}] * 3
    assert detection.detect(rows)


@pytest.mark.parametrize("lowest", [-1, 0])
def test_a_step_rated_zero_is_neutral_only_where_others_are_below(lowest):
    rated = ((1, "Add one"), (0, "Look at it"), (lowest, "Take two"))
    steps = [{"step": f"{words}.", "rating": rating} for rating, words in rated]
    rows = [{"problem": f"What is {n} + 1?", "steps": steps} for n in range(4)]
    found = [fit.converter.name for fit in detection.detect(rows)]
    assert ("rated_steps" in found) == (lowest < 0)
    if lowest < 0:
        assert fmtkit.table(rows, "rated_steps").to_pylist()[0]["labels"] == [True, True, False]


def test_the_steps_before_a_better_and_a_worse_one_are_in_both_replies():
    row = {"prompt": "What is 3 * 4 + 5?", "initial_reason_steps": "3 * 4 is 12.\n", "answer": "17"}
    rows = [row | {"chosen": "It is 17.", "rejected": f"It is {n}."} for n in range(3)]
    found = best_of(rows)
    assert found is not None
    assert found.converter.name == "step_dpo"
    converted = fmtkit.table(rows, found.converter.name).to_pylist()[0]
    assert [converted[side][0]["content"] for side in ("chosen", "rejected")] == [
        "3 * 4 is 12.\nIt is 17.",
        "3 * 4 is 12.\nIt is 0.",
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("запрос", "лучший_ответ", "худший_ответ"),
        ("質問", "良い回答", "悪い回答"),
        ("pregunta", "mejor_respuesta", "peor_respuesta"),
        ("问题", "更好的回答", "更差的回答"),
    ],
)
def test_names_of_columns_are_known_in_other_languages(names):
    texts = ("What is {n}?", "It is {n}.", "It is not {n}.")
    rows = [{k: t.format(n=n) for k, t in zip(names, texts, strict=True)} for n in range(4)]
    found = best_of(rows)
    assert found is not None
    converted = fmtkit.table(
        rows, found.converter.name, columns=dict(found.mapping), options=dict(found.options)
    ).to_pylist()[1]
    said = {side: converted[side][-1]["content"] for side in ("chosen", "rejected")}
    assert said == {"chosen": "It is 1.", "rejected": "It is not 1."}


@pytest.mark.parametrize(
    ("name", "is_label"),
    [
        ("accepted_by_user", True),
        ("is_safe", True),
        ("not_accepted", False),
        ("prompt_is_safe", False),
        ("is_long", False),
    ],
)
def test_yes_is_good_where_a_name_praises(name, is_label):
    rows = [
        {"prompt": f"What is {n}?", "completion": f"It is {n}.", name: ("yes", "no")[n % 2]}
        for n in range(6)
    ]
    found = best_of(rows)
    assert found is not None
    assert (found.converter.table == "Unpaired") == is_label
    assert certainty.certainty([found], rows) == "unsure" or not is_label


@pytest.mark.parametrize(
    ("other", "is_label"), [({"violence": True, "theft": False}, True), ("violence", False)]
)
def test_an_object_of_flags_beside_a_label_is_none_itself(other, is_label):
    rows = [
        {"prompt": f"What is {n}?", "response": f"It is {n}.", "is_safe": n % 2 == 0}
        | {"category": other if isinstance(other, dict) or n % 2 else "none"}
        for n in range(6)
    ]
    found = best_of(rows)
    assert found is not None
    assert (found.converter.table == "Unpaired") == is_label
    assert certainty.certainty([found], rows) == "unsure"


def test_conversations_with_thumbs_are_labelled_and_those_without_any_are_no_fault():
    thumbs = ("up", "down", "up", None, "down", "up")
    rows = [
        {"conversation": [USER | {"content": f"q{n}"}, BOT], "thumb": thumb}
        for n, thumb in enumerate(thumbs)
    ]
    found = best_of(rows)
    assert found is not None
    assert found.converter.table == "Unpaired"
