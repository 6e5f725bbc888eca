"""Two replies under names that differ in a number or a letter: a pair only where values say which one won."""

import json
import shlex

import polars as pl
import pytest
import runs

import fmtkit
from fmtkit.converting import detection
from fmtkit.core.errors import NothingWrittenError

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
    assert detection.certainty([best], sample) == "unsure"


def test_a_tie_is_told_where_the_numbers_have_one():
    sample = rows(NUMBERED, (True, False, True, True), winner=[1, 2, 0, 1])
    assert detection.detect(sample)[0].options == {"a": "1", "b": "2", "tie": "0"}


def test_two_models_of_one_name_do_not_tell_who_won(tmp_path):
    path = tmp_path / "rows.jsonl"
    models = {"model_a": ["m"], "model_b": ["m"], "winner": ["m"]}
    path.write_text(json.dumps(rows(LETTERED, (True,), **models)[0]) + "\n")
    with pytest.raises(NothingWrittenError, match="winner names neither reply"):
        fmtkit.convert(str(path), "two_replies", out=tmp_path / "out.jsonl")
