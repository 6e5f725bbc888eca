"""Two replies under names that differ in a number or a letter: a pair only where values say which one won."""

import json
import shlex

import polars as pl
import pytest
import runs

import fmtkit
from fmtkit.core.errors import NothingWrittenError
from fmtkit.detection import certainty, detection

ASKED = [
    "How do I get wax out of a rug?",
    "Name two noble gases.",
    "What is one half?",
    "Who am I?",
]
GOOD = ["Iron it through paper.", "Neon and argon.", "A part of two equal ones.", "A user."]
POOR = ["Burn the rug.", "Iron and chlorine.", "It is a full one.", "Nobody at all."]


def rows(names, first_wins, question="prompt", **columns):
    """Return rows with a good and a poor reply, whose columns are `names`; `columns` have values of each row."""
    out = []
    for i, wins in enumerate(first_wins):
        pair = (GOOD[i], POOR[i]) if wins else (POOR[i], GOOD[i])
        beside = {name: held[i] for name, held in columns.items()}
        out.append({question: ASKED[i], **dict(zip(names, pair, strict=True)), **beside})
    return out


NUMBERED, LETTERED = ("response_1", "response_2"), ("response_a", "response_b")
FIRST = (True, False, True)
WON = [
    (LETTERED, {"winner": ["a", "b", "a"]}),
    (LETTERED, {"winner": ["model_a", "model_b", "model_a"]}),
    (LETTERED, {"winner": ["[[A]]", "[[B]]", "[[A]]"]}),
    (LETTERED, {"preference": ["response_a", "response_b", "response_a"]}),
    (("completion_a", "completion_b"), {"judgment": ["A", "B", "A"]}),
    (NUMBERED, {"winner": [1, 2, 1]}),
    (NUMBERED, {"label": [0, 1, 0]}),
    (("response 1", "response 2"), {"label": ["0", "1", "0"]}),
    (("output_1", "output_2"), {"preference": [1.0, 2.0, 1.0]}),
    (("summary0", "summary1"), {"choice": [0, 1, 0]}),
    (("answer_0", "answer_1"), {"winner": ["answer_0", "answer_1", "answer_0"]}),
    (("first_response", "second_response"), {"better": ["first", "second", "first"]}),
    (("answer_left", "answer_right"), {"vote": ["left", "right", "left"]}),
    (
        ("output_1", "output_2"),
        {"model_1": ["m", "x", "m"], "model_2": ["x", "n", "y"], "winner": ["m", "n", "m"]},
    ),
    (
        ("response1", "response2"),
        {"annotator1": [1, 2, 2], "annotator2": [1, 2, 1], "annotator3": [2, 0, 1]},
    ),
    (
        ("reply_1", "reply_2"),
        {"label_1": ["1", "2", "2"], "label_2": ["1", "2", "1"], "label_3": ["2", "2", "1"]},
    ),
]
SCORED = [
    (("answer_0", "answer_1"), {"score_0": [0.5, -1, 2], "score_1": [-0.5, 1, 1.5]}),
    (("response_a", "response_b"), {"rating_a": [5, 1, 2], "rating_b": [4, 3, 1]}),
    (("output1", "output2"), {"reward1": [0.5, -1, 2], "reward2": [-0.5, 1, 1.5]}),
]


CASES = [(kind, *won) for kind in ("jsonl", "csv", "parquet") for won in WON]
CASES += [(kind, *scored) for kind in ("jsonl", "parquet") for scored in SCORED]


@pytest.mark.parametrize(("kind", "names", "columns"), CASES, ids=str)
def test_the_reply_that_won_is_the_chosen_one(tmp_path, capsys, kind, names, columns):
    path = tmp_path / f"rows.{kind}"
    frame = pl.DataFrame(rows(names, FIRST, **columns))
    write = {"jsonl": frame.write_ndjson, "csv": frame.write_csv, "parquet": frame.write_parquet}
    write[kind](path)
    survey = fmtkit.inspect(str(path))
    assert survey.best_guess == "two_replies"
    # Numbers are sides by assumption: 1 may be the second of two, the first, or a yes.
    is_scored = (names, columns) in SCORED
    counted = not is_scored and set("012") & {
        str(value) for held in columns.values() for value in held
    }
    is_exact = names == LETTERED and "winner" in columns
    assert survey.certainty in (
        ("unsure",) if counted else ("sure",) if is_exact else ("likely", "unsure")
    )
    words = shlex.split(
        json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out)["command"]
    )
    out = tmp_path / "out.jsonl"
    done = runs.fmtkit(capsys, *words[1 : words.index("-o")], "-o", str(out))
    assert done.code == 0, done.err
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt"][0]["content"] for row in made] == ASKED[:3]
    assert [row["chosen"][0]["content"] for row in made] == GOOD[:3]
    assert [row["rejected"][0]["content"] for row in made] == POOR[:3]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"winner": ["nobody", "somebody", "anybody"]},
        {"preference": [1.5, 1.25, 1.75]},
        {"preference": [-2, 1, 3]},
        {"label": [1, 2, 3]},
        {"label": ["good", "bad", "good"]},
        {"quality": [1, 2, 1]},
        {"winner_model_1": [1, 0, 1], "winner_model_2": [0, 1, 0]},
        {"winner": [True, False, True]},
        {"score_1": ["high", "low", "low"], "score_2": ["low", "high", "low"]},
    ],
    ids=str,
)
def test_no_pair_is_made_where_no_value_names_a_side(columns):
    sample = rows(NUMBERED, FIRST, **columns)
    assert all(found.converter.name != "two_replies" for found in detection.detect(sample))


def test_a_third_reply_is_no_pair():
    sample = [row | {"response_3": "So."} for row in rows(NUMBERED, FIRST, winner=[1, 2, 1])]
    assert all(found.converter.name != "two_replies" for found in detection.detect(sample))


def test_what_a_judge_wrote_beside_is_named_and_does_not_hide_who_won():
    sample = rows(
        NUMBERED,
        FIRST,
        winner=[1, 2, 1],
        raw_completion=["So it is, by far.", "Well, it is.", "Oh no."],
    )
    best = detection.detect(sample)[0]
    assert (best.converter.name, best.unread) == ("two_replies", ("raw_completion",))
    assert certainty.certainty([best], sample) == "unsure"


def test_a_tie_is_told_where_the_numbers_have_one():
    sample = rows(NUMBERED, (True, False, True, True), winner=[1, 2, 0, 1])
    assert detection.detect(sample)[0].options == {"a": "1", "b": "2", "tie": "0"}


def test_two_models_of_one_name_do_not_tell_who_won(tmp_path):
    path = tmp_path / "rows.jsonl"
    models = {"model_a": ["m"], "model_b": ["m"], "winner": ["m"]}
    path.write_text(json.dumps(rows(LETTERED, (True,), **models)[0]) + "\n")
    with pytest.raises(NothingWrittenError, match="winner names neither reply"):
        fmtkit.convert(str(path), "two_replies", out=tmp_path / "out.jsonl")


def best(made):
    """Return the best guess for some rows, and how sure it is."""
    fits = detection.detect(made)
    return (fits[0], certainty.certainty(fits, made)) if fits else (None, "")


@pytest.mark.parametrize(
    "name", ["least_preferred", "less_chosen", "never_chosen", "loser_vote", "worst_choice", "not_best"]
)  # fmt: skip
def test_a_column_that_names_the_worse_one_is_no_winner(name):
    found, _ = best(rows(LETTERED, FIRST, **{name: ["b", "a", "b"]}))
    assert found is None or found.converter.name != "two_replies"


@pytest.mark.parametrize("name", ["toxicity_score", "error_score", "rank_score", "rank"])
def test_numbers_of_which_the_lower_is_better_make_no_pair(name):
    scores = {f"{name}_a": [0.1, 0.9, 0.2], f"{name}_b": [0.8, 0.1, 0.7]}
    found, _ = best(rows(LETTERED, FIRST, **scores))
    assert found is None or found.converter.name != "two_replies"
    listed = [
        {"prompt": ASKED[i], "responses": [GOOD[i], POOR[i]], f"{name}s": [0.1, 0.9]}
        for i in range(4)
    ]
    found, _ = best(listed)
    assert found is None or found.converter.name != "scored_replies"


def test_a_winner_is_the_model_of_that_name_whatever_its_name_means():
    models = {"model_a": ["Tiefighter"] * 3, "model_b": ["both-sides"] * 3}
    winners = {"winner": ["Tiefighter", "both-sides", "Tiefighter"]}
    made = fmtkit.table(rows(LETTERED, FIRST, **models, **winners), "two_replies")
    assert [row["chosen"][0]["content"] for row in made.to_pylist()] == GOOD[:3]


def test_a_winner_that_is_a_letter_of_one_and_the_name_of_the_other_is_a_bad_row():
    models = {"model_a": ["B"] * 3, "model_b": ["A"] * 3, "winner": ["A", "B", "A"]}
    rejects = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        fmtkit.table(rows(LETTERED, FIRST, **models), "two_replies", rejects=rejects)
    assert {one.code for one in rejects} == {"value_error"}


@pytest.mark.parametrize(
    "winners", [[" a", "b\n", "a"], ["option-a", "option-b", "option-a"], ["[[A]]", "(b)", "A."]]
)
def test_a_winner_is_read_with_blanks_and_marks_around_it(winners):
    made = fmtkit.table(rows(LETTERED, FIRST, winner=winners), "two_replies")
    assert [row["chosen"][0]["content"] for row in made.to_pylist()] == GOOD[:3]


@pytest.mark.parametrize("winner", ["-a", "!a", "~a", '{"a": ""}'])
def test_a_winner_that_negates_or_holds_something_is_none(winner):
    with pytest.warns(fmtkit.RejectedRowsWarning):
        assert fmtkit.table(rows(LETTERED, FIRST, winner=[winner] * 3), "two_replies").num_rows == 0


def test_a_judge_who_left_a_blank_has_no_vote():
    votes = {"winner": ["a", "", "a"], "winner_2": ["", "b", "b"], "winner_3": ["a", "b", ""]}
    rejects = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        made = fmtkit.table(rows(LETTERED, FIRST, **votes), "two_replies", rejects=rejects)
    assert [row["chosen"][0]["content"] for row in made.to_pylist()] == GOOD[:2]
    assert [one.code for one in rejects] == ["no_preference"]


def test_two_columns_of_scores_are_not_taken_one_for_the_other():
    listed = [
        {"prompt": ASKED[i], "responses": [GOOD[i], POOR[i]], "scores": [1, 9], "ratings": [5, 2]}
        for i in range(4)
    ]
    rejects = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        fmtkit.table(listed, "scored_replies", rejects=rejects)
    assert {one.code for one in rejects} == {"ambiguous_fields"}
    found, _ = best(listed)
    assert found is None or found.converter.name != "scored_replies"


@pytest.mark.parametrize(
    "answers",
    [
        [{"text": "one", "score": None, "rating": 5}, {"text": "two", "score": 2, "rating": 1}],
        [{"text": "one", "score": 1}, {"text": "two", "rating": 2}],
        [{"text": "one", "body": "uno", "score": 1}, {"text": "two", "score": 2}],
    ],
)
def test_replies_that_are_scored_or_written_in_two_fields_are_a_bad_row(answers):
    rejects = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        made = fmtkit.table(
            [{"question": ASKED[0], "answers": answers}], "scored_replies", rejects=rejects
        )
    assert (made.num_rows, [one.code for one in rejects]) == (0, ["ambiguous_fields"])


def test_a_preference_from_one_to_five_is_not_one_whose_sign_says_who_won():
    numbers = {"preference": [1, 2, 3]}
    _, sure = best(rows(NUMBERED, FIRST, **numbers))
    assert sure == "unsure"


@pytest.mark.parametrize("names", [("first", "second"), ("left", "right"), ("A", "B")])
def test_replies_may_be_named_by_their_side_alone(names):
    made = rows(names, (True, False, True, True), preferred=[names[0], names[1], *names[:1] * 2])
    fits = detection.detect(made)
    found = fits[0]
    assert found.converter.name == "two_replies"
    assert certainty.certainty(fits, made) == "unsure"
    converted = fmtkit.table(
        made, "two_replies", columns=dict(found.mapping), options=dict(found.options)
    ).to_pylist()
    assert [row["chosen"][0]["content"] for row in converted] == GOOD


def test_the_ids_of_replies_are_no_replies():
    made = rows(("response_a_id", "response_b_id"), (True, False, True), winner=["a", "b", "a"])
    ids = [
        {k: v if k == "winner" else f"r-{n}{k[-4]}" for k, v in row.items()}
        | {"prompt_id": f"p-{n}"}
        for n, row in enumerate(made)
    ]
    assert detection.detect([{k: v for k, v in row.items() if k != "prompt"} for row in ids]) == []


def test_annotations_rate_the_replies_at_their_places():
    made = [
        {
            "instruction": ASKED[i],
            "preference": "style",
            "responses": [{"model": "a", "response": POOR[i]}, {"model": "b", "response": GOOD[i]}],
            "annotations": [{"model": "a", "rating": "2"}, {"model": "b", "rating": "4"}],
        }
        for i in range(4)
    ]
    found, sure = best(made)
    assert (found.converter.name, sure) == ("scored_replies", "unsure")
    converted = fmtkit.table(made, "scored_replies", ignore=["preference"]).to_pylist()
    assert [row["chosen"][0]["content"] for row in converted] == GOOD


def test_annotations_of_other_models_rate_no_reply():
    row = {
        "instruction": ASKED[0],
        "responses": [{"model": "a", "response": POOR[0]}, {"model": "b", "response": GOOD[0]}],
        "annotations": [{"model": "b", "rating": "4"}, {"model": "a", "rating": "2"}],
    }
    rejects = []
    with pytest.warns(fmtkit.RejectedRowsWarning):
        made = fmtkit.table([row], "scored_replies", rejects=rejects)
    assert (made.num_rows, [one.code for one in rejects]) == (0, ["value_error"])


def test_a_pass_rate_in_each_inference_says_which_one_is_better():
    made = [
        {
            "question": ASKED[i],
            "inferences": [
                {"completion": POOR[i], "pass_rate": 0.25},
                {"completion": GOOD[i], "pass_rate": 1.0},
            ],
        }
        for i in range(4)
    ]
    found, _ = best(made)
    assert found.converter.name == "scored_replies"
    converted = fmtkit.table(made, "scored_replies").to_pylist()
    assert [row["chosen"][0]["content"] for row in converted] == GOOD
