"""What values tell of answers: labels that answer an instruction, replies of which some are right, sides of a pair."""

import pytest

from fmtkit.converting import certainty, detection

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
    assert best_of([row | {"image": f"images/{i}.png"} for i, row in enumerate(named)]) is None
