"""What values tell of answers: labels that answer an instruction, replies of which some are right, sides of a pair."""

import pytest

import fmtkit
from fmtkit.detection import certainty, detection

ASKED = "Name the cars in this text:\n"


def best_of(rows):
    return next(iter(detection.detect(rows)), None)


def certainty_of(rows):
    return certainty.certainty(detection.detect(rows), rows)


@pytest.mark.parametrize(
    ("asked", "told"), [("input", "label"), ("question", "labels"), ("instruction", "gold_label")]
)
def test_a_label_is_the_answer_to_an_instruction_that_all_rows_share(asked, told):
    rows = [
        {asked: f"{ASKED}I saw {car} today.", told: car} for car in ("a Volvo", "a Saab", "none")
    ]
    best = best_of(rows)
    assert best.mapping == {"question": asked, "answer": told}
    assert best.converter.table == "Completion"
    assert certainty_of(rows) == "unsure"


@pytest.mark.parametrize(
    "labels", [("weather", "music", "news"), ("good", "bad", "good"), (1, 2, 1)]
)
def test_a_class_of_a_text_without_an_instruction_is_no_answer(labels):
    said = (
        "will it rain today in Lund",
        "play some old jazz please",
        "what has happened in the town",
    )
    rows = [{"query": text, "label": label} for text, label in zip(said, labels, strict=True)]
    assert best_of(rows) is None or best_of(rows).converter.table == "Prompt"


def test_praise_and_blame_answer_no_instruction():
    rows = [
        {"input": f"{ASKED}{i}", "label": label} for i, label in enumerate(("good", "bad", "good"))
    ]
    assert best_of(rows) is None or "answer" not in best_of(rows).mapping


@pytest.mark.parametrize("rate", ["passrate", "pass_rate", "accuracy"])
@pytest.mark.parametrize(("asked", "said"), [("prompt", "outputs"), ("problem", "responses")])
def test_replies_of_which_only_some_are_right_leave_a_prompt(asked, said, rate):
    rows = [
        {asked: f"How much is {i} and 2?", said: ["4", "5"], "gold": ["4"], rate: 0.5 * (i % 2)}
        for i in range(4)
    ]
    best = best_of(rows)
    assert (best.converter.table, best.mapping.get("prompt", "prompt")) == ("Prompt", asked)
    assert certainty_of(rows) == "unsure"
    right = [row | {rate: 1.0} for row in rows]
    assert best_of(right).converter.name == "sampled_replies"


@pytest.mark.parametrize("wrong", ["hallucinated_answer", "incorrect_response", "wrong_answer"])
@pytest.mark.parametrize("right", ["right_answer", "correct_answer", "answer"])
def test_a_wrong_answer_is_the_worse_side_beside_a_right_one(right, wrong):
    rows = [
        {"question": f"Where is {i}?", right: f"In {i}.", wrong: f"In {i + 1}."} for i in range(3)
    ]
    best = best_of(rows)
    assert best.converter.table == "Preference"
    assert best.mapping["rejected"] == wrong


@pytest.mark.parametrize("right", ["right_answer", "correct_answer"])
def test_a_right_answer_without_a_wrong_one_is_the_answer(right):
    best = best_of([{"question": f"Where is {i}?", right: f"In {i}."} for i in range(3)])
    assert (best.converter.table, best.mapping) == ("Completion", {"answer": right})


def test_a_wrong_answer_alone_is_none():
    best = best_of([{"question": f"Where is {i}?", "wrong_answer": f"In {i}."} for i in range(3)])
    assert best is None or "wrong_answer" not in best.mapping.values()


@pytest.mark.parametrize("given", ["knowledge", "document", "evidence"])
def test_what_a_question_is_about_is_read_with_it(given):
    about = "The town lies on the coast, and it is very old."
    rows = [
        {given: f"{about} {i}", "question": f"Where is {i}?", "answer": f"In {i}."}
        for i in range(3)
    ]
    assert best_of(rows).mapping == {"context": given}


@pytest.mark.parametrize("stem", ["r1_solution_", "response", "answer-", "output_0"])
def test_replies_in_three_numbered_columns_are_samples(stem):
    rows = [
        {"question": f"How much is {i}?", "topic": "sums"}
        | {f"{stem}{n}": f"It is {i}, {n}." for n in (1, 2, 3)}
        for i in range(3)
    ]
    best = best_of(rows)
    assert best.converter.name == "sampled_replies"
    assert best.mapping == {f"response_{n}": f"{stem}{n}" for n in (1, 2, 3)}
    assert certainty_of(rows) == "unsure"
    assert best_of([row | {"best": 1 + i % 3} for i, row in enumerate(rows)]) is None


def test_replies_in_numbered_columns_with_a_score_each_are_ranked():
    row = {f"answer{n}": f"It is {n}." for n in (1, 2, 3)} | {
        f"answer{n}_score": n for n in (1, 2, 3)
    }
    best = best_of([{"question": f"How much is {i}?"} | row for i in range(3)])
    assert (best.converter.name, best.converter.table) == ("scored_replies", "Ranking")
    assert best.mapping["response_2"] == "answer2"
    assert best.mapping["score_2"] == "answer2_score"


def test_wrong_answers_in_numbered_columns_are_no_samples():
    row = {"correct_answer": "It is here."} | {
        f"incorrect_answer_{n}": f"It is {n}." for n in (1, 2, 3)
    }
    best = best_of([{"question": f"Where is {i}?"} | row for i in range(3)])
    assert best is None or best.converter.name != "sampled_replies"


def test_scores_rank_the_replies_to_one_prompt_and_label_none():
    scored = [
        {"prompt": f"q{i // 2}", "response": f"a{i}", "helpfulness": i % 4, "correctness": 3}
        for i in range(6)
    ]
    assert best_of(scored).converter.name == "helpsteer.pairs"
    apart = [row | {"prompt": f"q{i}"} for i, row in enumerate(scored)]
    best = best_of(apart)
    assert best.converter.table == "Completion"
    assert {one.name for one in best.open} >= {"helpfulness"}
    assert certainty_of(apart) == "unsure"


def test_a_type_that_refuses_many_rows_is_not_likely():
    ask = lambda text: {"role": "user", "content": text}  # noqa: E731 - short for the rows below
    say = lambda text: {"role": "assistant", "content": text}  # noqa: E731
    sound = [{"messages": [ask(f"q{i}"), say(f"a{i}")]} for i in range(6)]
    silent = [{"messages": [ask(f"q{i}")]} for i in range(4)]
    assert certainty_of(sound) == "sure"
    assert certainty_of(sound + silent) == "unsure"
    ties = [
        {"prompt": f"q{i}", "response_a": "a", "response_b": "b", "winner": "tie" if i % 2 else "a"}
        for i in range(6)
    ]
    assert certainty_of(ties) != "unsure"


def test_a_container_called_image_is_no_picture():
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    named = [{"messages": chat, "image": f"docker.io/rebench/sizes:{i}b2c"} for i in range(3)]
    assert best_of(named).converter.name == "openai"
    shown = best_of([row | {"image": f"images/{i}.png"} for i, row in enumerate(named)])
    assert shown.converter.name == "openai"


THOUGHT = "First I look at the words, one by one."


@pytest.mark.parametrize(
    "thought", ["Complex_CoT", "model_reasoning", "thinking_trajectory", "cot"]
)
@pytest.mark.parametrize(
    ("asked", "said"),
    [("question", "answer"), ("Question", "Response"), ("problem", "r1_solution")],
)
def test_what_was_thought_is_the_reasoning_under_any_of_its_names(asked, said, thought):
    rows = [
        {asked: f"Where is {i}?", thought: f"{THOUGHT} {i}", said: f"In {i}."} for i in range(3)
    ]
    best = best_of(rows)
    assert best.mapping["reasoning"] == thought
    assert not best.open


@pytest.mark.parametrize("gold", ["ground_truth_solution", "reference_answer", "expected_output"])
def test_a_result_to_compare_with_is_no_reply_beside_one(gold):
    rows = [
        {
            "question": f"Where is {i}?",
            "model_solution": f"It is in {i}.",
            gold: f"In the town of {i}.",
        }
        for i in range(3)
    ]
    best = best_of(rows)
    assert "model_solution" in best.mapping.values()
    assert gold not in best.mapping.values()
    assert certainty_of(rows) == "unsure"


@pytest.mark.parametrize(
    ("first", "last"), [("original_response", "edited_response"), ("init_answer", "revised_answer")]
)
def test_of_a_reply_and_its_revision_the_revision_is_read_and_neither_is_preferred(first, last):
    rows = [
        {
            "context": [{"role": "user", "content": f"q{i}"}],
            first: f"It was {i}.",
            last: f"It is {i}.",
        }
        for i in range(3)
    ]
    best = best_of(rows)
    assert (best.converter.table, best.mapping["completion"]) == ("Completion", last)
    assert certainty_of(rows) == "unsure"


def test_messages_with_a_reply_are_read_before_columns_beside_them():
    rows = [
        {
            "problem": f"How much is {i} and 2?",
            "solution": f"It is {i} and 2, and so {i + 2}.",
            "answer": f"{i + 2}",
            "messages": [
                {"role": "user", "content": f"How much is {i} and 2?"},
                {"role": "assistant", "content": f"I count to {i + 2}."},
            ],
        }
        for i in range(3)
    ]
    assert best_of(rows).converter.name == "openai"
    assert certainty_of(rows) == "unsure"


@pytest.mark.parametrize("name", ["repo_name", "sponsored", "prompted_by"])
def test_a_name_with_some_of_the_letters_is_no_reply(name):
    rows = [
        {
            "input": f"Where is {i}?",
            "reasoning_content": f"{THOUGHT} {i}",
            "content": f"In the town of {i}.",
            name: f"x {i}",
        }
        for i in range(3)
    ]
    assert best_of(rows).mapping["answer"] == "content"


def test_an_instruction_that_holds_a_conversation_is_not_likely_one():
    said = "Human: Hi\nAssistant: Ho\nHuman: So?\nAssistant:"
    rows = [{"instruction": f"{said} {i}", "input": "", "output": f"a{i}"} for i in range(3)]
    assert certainty_of(rows) == "unsure"


def test_code_beside_a_text_makes_it_no_document():
    rows = [
        {"text": f"Write a function that returns {i}.", "code": f"return {i}"} for i in range(3)
    ]
    best = best_of(rows)
    assert best.converter.table == "Completion"
    assert "code" in best.mapping.values()


@pytest.mark.parametrize("stem", ["op", "choice_", "ans"])
def test_choices_in_columns_of_their_own_are_missed_by_their_places(stem):
    rows = [
        {
            "question": f"How much is {i}?",
            "correct": i % 4,
            "note": f"It is {i}, as one sees at once.",
        }
        | {f"{stem}{letter}": f"{letter} {i}" for letter in "abcd"}
        for i in range(6)
    ]
    assert best_of(rows) is None


@pytest.mark.parametrize("role", ["tool-response", "tool_output", "environment"])
def test_other_names_of_tools_are_read(role):
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "f()"},
        {"role": role, "content": "1"},
        {"role": "assistant", "content": "a"},
    ]
    assert best_of([{"messages": turns, "id": i} for i in range(3)]).converter.name in (
        "openai",
        "swift_agent",
    )


@pytest.mark.parametrize("asked", ["query", "anchor"])
def test_what_a_search_should_find_is_no_better_reply(asked):
    rows = [
        {asked: f"the town of {i}", "positive": f"It lies in {i}.", "negative": "It is a bird."}
        for i in range(3)
    ]
    assert best_of(rows) is None or best_of(rows).converter.table != "Preference"
    told = [
        {"prompt": f"Where is {i}?", "pos_resp": f"In {i}.", "neg_resp": "No."} for i in range(3)
    ]
    assert best_of(told).converter.table == "Preference"


@pytest.mark.parametrize(
    ("said", "right"), [("generations", "correctness"), ("answers", "is_correct")]
)
def test_a_list_that_says_which_replies_are_right_ranks_them(said, right):
    rows = [
        {"problem": f"How much is {i}?", said: [f"It is {i}.", "No."], right: [True, False]}
        for i in range(3)
    ]
    assert (best_of(rows).converter.name, best_of(rows).converter.table) == ("graded", "Ranking")


def test_passages_follow_the_question():
    rows = [
        {
            "question": f"Who painted number {n}?",
            "answer": f"Painter {n}",
            "context": {
                "title": [f"Painter {n}", "Other"],
                "sentences": [[f"He painted {n}.", " It hangs here."], ["Nothing."]],
            },
        }
        for n in range(4)
    ]
    fits = detection.detect(rows)
    assert fits[0].converter.name == "passages"
    [row] = fmtkit.table(rows[1:2], "passages").to_pylist()
    said = "Who painted number 1?\nPainter 1\nHe painted 1. It hangs here.\n\nOther\nNothing."
    assert row["prompt"] == [{"role": "user", "content": said}]
    assert row["completion"] == [{"role": "assistant", "content": "Painter 1"}]


def test_a_verdict_beside_a_long_answer_leaves_open_which_is_meant():
    rows = [
        {
            "question": f"Does cup {n} cool in an hour?",
            "context": {"contexts": [f"Cup {n} was measured.", "The room was warm."]},
            "long_answer": f"Cup {n} does, as the others do.",
            "final_decision": ("yes", "no")[n % 2],
        }
        for n in range(4)
    ]
    fits = detection.detect(rows)
    assert fits[0].converter.name == "passages"
    assert certainty.certainty(fits, rows) == "unsure"


@pytest.mark.parametrize("name", ["contexts", "passages", "retrieved_documents"])
def test_questions_about_a_list_of_passages_are_no_prompts_without_them(name):
    rows = [
        {
            "question": f"Who painted number {n}?",
            name: [f"Painter {n} made it in a small town.", "The other one hangs in the hall."],
            "ground_truth": f"Painter {n}",
        }
        for n in range(4)
    ]
    assert "Prompt" not in {found.converter.table for found in detection.detect(rows)}
    without = [{key: value for key, value in row.items() if key != name} for row in rows]
    assert "Prompt" in {found.converter.table for found in detection.detect(without)}


@pytest.mark.parametrize(("verdicts", "sure"), [({}, "likely"), ({"answerable": 1}, "unsure")])
def test_paragraphs_are_read_and_what_cannot_be_answered_is_named(verdicts, sure):
    rows = [
        {
            "question": f"Who painted number {n}?",
            "paragraphs": [{"title": f"Painter {n}", "paragraph_text": f"He painted {n}."}],
            "answer": f"Painter {n}",
        }
        | {name: n > least for name, least in verdicts.items()}
        for n in range(4)
    ]
    fits = detection.detect(rows)
    assert fits[0].converter.name == "passages"
    assert certainty.certainty(fits, rows) == sure
