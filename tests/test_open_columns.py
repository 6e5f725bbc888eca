"""A guess accounts for every column: each is read, harmless by what it holds, or open."""

import json
import re
import shlex

import polars as pl
import pytest
import runs
from fixture_cases import cases, read_lines, run

import fmtkit
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.detection import certainty, detection
from fmtkit.formats import registry

ASKED = [
    "Name a fruit that grows on trees",
    "What is the capital of France?",
    "How many legs has a spider?",
]
SAID = [
    "An apple is one of these.",
    "Go away, I am busy.",
    "A spider has eight legs, and two feelers.",
]


def rows(**columns):
    """Return rows of a question and its answer with these columns beside."""
    return [
        {"prompt": asked, "response": said, **{name: held[i] for name, held in columns.items()}}
        for i, (asked, said) in enumerate(zip(ASKED, SAID, strict=True))
    ]


def certainty_of(sample):
    return certainty.certainty(detection.detect(sample), sample)


def open_names(sample):
    return [one.name for one in detection.detect(sample)[0].open]


LABELS = (
    ["up", "down", "up"],
    ["👍", "👎", "👍"],
    [5, 1, 4],
    [True, False, True],
    ["好", "差", "好"],
)


@pytest.mark.parametrize("held", LABELS, ids=str)
@pytest.mark.parametrize("name", ["thumbs", "评分", "bewertung"])
def test_a_label_of_any_name_in_any_language_is_open(name, held):
    sample = rows(**{name: held})
    best = detection.detect(sample)[0]
    # Where the values, or yes and no with the name, say which is good, the column is read as the label that
    # it seems to be.
    is_told = isinstance(held[0], str) or (name == "thumbs" and held[0] is True)
    assert (best.mapping.get("label") == name) == is_told
    assert [one.name for one in best.open] == ([] if is_told else [name])
    assert certainty_of(sample) in (("unsure", "likely") if is_told else ("unsure",))


PASSAGES = [
    "The city lies on a river in the north.",
    "It was built long ago by sailors.",
    "A spider is no insect.",
]
TOOLS = [[{"name": f"f{i}", "description": "does it", "parameters": {}}] for i in range(3)]


@pytest.mark.parametrize("held", [PASSAGES, TOOLS], ids=["text", "tools"])
@pytest.mark.parametrize("name", ["apis", "persona", "原文"])
def test_a_context_or_tools_of_any_name_are_open(name, held):
    sample = rows(**{name: held})
    assert (open_names(sample), certainty_of(sample)) == ([name], "unsure")


@pytest.mark.parametrize("name", ["parent_id", "vorgänger", "上级"])
def test_rows_that_follow_others_are_no_guess_and_the_column_that_says_so_is_named(tmp_path, name):
    sample = rows(key=["m1", "m2", "m3"], **{name: [None, "m1", "m2"]})
    assert detection.detect(sample) == []
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in sample))
    with pytest.raises(OptionError, match=f"{name} names the row that a row follows"):
        fmtkit.convert(str(path), None)


@pytest.mark.parametrize("names", [("frage", "antwort"), ("问题", "回答"), ("col1", "col2")])
def test_columns_of_any_name_are_questions_and_answers_where_one_of_two_asks(names):
    sample = [dict(zip(names, row, strict=True)) for row in zip(ASKED, SAID, strict=True)]
    best = detection.detect(sample)[0]
    # Words for them in other languages are known; other names tell nothing without a question.
    is_known = names[0] != "col1"
    sureness = "likely" if is_known else "unsure"
    assert (best.converter.name, certainty_of(sample)) == ("question_answer", sureness)
    assert best.mapping == {"question": names[0], "answer": names[1]}
    nested = [{"a.b": row[names[0]], names[1]: row[names[1]]} for row in sample]
    beside = [row | {"c": text} for row, text in zip(sample, PASSAGES, strict=True)]
    told = [{names[0]: said, names[1]: text} for said, text in zip(SAID, PASSAGES, strict=True)]
    assert detection.detect(nested) == []
    assert bool(detection.detect(told)) == is_known
    assert (
        [open_names(beside), certainty_of(beside)] == [["c"], "unsure"]
        if is_known
        else (detection.detect(beside) == [])
    )


@pytest.mark.parametrize("name", ["summary", "response", "answer"])
def test_a_short_text_that_is_named_as_a_reply_is_no_title_of_a_text(name):
    sample = [{"text": asked * 9, name: said} for asked, said in zip(ASKED, SAID, strict=True)]
    assert all(found.converter.required != {"text"} for found in detection.detect(sample))


@pytest.mark.parametrize("held", [[None, 2, 1], [None, 42, 40], ["", "b", "c"]], ids=str)
def test_numbers_that_are_also_those_of_rows_refuse_nothing(held):
    assert detection.detect(rows(id=[40, 41, 42], rating=held))


@pytest.mark.parametrize("name", ["parent_id", "vorgänger", "上级"])
def test_a_column_that_names_other_rows_in_every_row_is_open(name):
    sample = rows(key=["m1", "m2", "m3"], **{name: ["m2", "m1", "m2"]})
    assert (open_names(sample), certainty_of(sample)) == ([name], "unsure")


@pytest.mark.parametrize("name", ["code", "erklärung", "说明"])
@pytest.mark.parametrize("nested", [False, True])
def test_text_is_no_guess_beside_what_could_be_turns(name, nested):
    held = [[{"id": 0, "text": said}] if nested else said for said in SAID]
    sample = [{"text": asked, name: one} for asked, one in zip(ASKED, held, strict=True)]
    assert all(found.converter.required != {"text"} for found in detection.detect(sample))


@pytest.mark.parametrize("name", ["question", "user_question", "Prompt"])
def test_a_question_alone_is_no_text_to_train_on(name):
    sample = [{name: asked, "matching": " (A)", "other": " (B)"} for asked in ASKED]
    assert all(found.converter.required != {"text"} for found in detection.detect(sample))


HARMLESS = {
    "ids": ["a1", "b2", "c7"],
    "urls": ["https://a.org/1", "https://a.org/2", "http://b.org"],
    "dates": ["2024-01-02", "2024-02-03T10:00:00Z", "2023-11-30"],
    "models": ["gpt-4", "meta-llama/Llama-3-8B", "gpt-4"],
    "languages": ["en", "de", "en"],
    "lengths": [len(said) for said in SAID],
    "equal": ["web", "web", "web"],
    "copies": SAID,
    "nothing": [None, "", None],
}


@pytest.mark.parametrize("held", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("name", ["meta", "herkunft", "来源"])
def test_what_is_harmless_by_its_contents_leaves_a_guess_sure(name, held):
    sample = rows(**{name: held})
    assert (open_names(sample), certainty_of(sample)) == ([], "sure")


@pytest.mark.parametrize("answers", [("answer", "solution"), ("answer", "choice_answer")])
def test_no_pair_is_made_of_columns_that_say_nothing_of_preference(answers):
    sample = [{"problem": q, answers[0]: str(i), answers[1]: SAID[i]} for i, q in enumerate(ASKED)]
    assert all(found.converter.table != "Preference" for found in detection.detect(sample))


def test_two_prompts_in_a_list_are_no_sure_conversation():
    sample = [{"turns": [asked, "Now rewrite it."]} for asked in ASKED]
    assert certainty_of(sample) == "unsure"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_inspect_names_the_column_and_its_kto_command_works(tmp_path, capsys, kind):
    path = tmp_path / f"rows.{kind}"
    frame = pl.DataFrame(rows(rating=[5, 1, 4]))
    {"jsonl": frame.write_ndjson, "csv": frame.write_csv, "parquet": frame.write_parquet}[kind](
        path
    )
    survey = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out)
    assert survey["verdict"]["text"].startswith("not read: rating could be a score")
    assert "open_columns" in [found["code"] for found in survey["findings"]]
    command = next(r["command"] for r in survey["readings"] if "KTO" in r["meaning"])
    words = shlex.split(command)
    out = tmp_path / "kto.jsonl"
    done = runs.fmtkit(capsys, *words[1 : words.index("-o")], "-o", str(out))
    assert done.code == 0, done.err
    assert [json.loads(line)["label"] for line in out.read_text().splitlines()] == [
        True,
        False,
        True,
    ]


def test_convert_counts_an_open_column_unless_it_is_ignored(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    pl.DataFrame(rows(thumbs=["up", "down", "up"])).write_ndjson(path)
    argv = ("convert", str(path), "-t", "question_answer", "--json", "-o")
    report = json.loads(runs.fmtkit(capsys, *argv, str(tmp_path / "a.jsonl")).out)
    assert (report["unread_columns"], report["warnings"]["open_columns"]) == ({"thumbs": 3}, 3)
    done = runs.fmtkit(capsys, *argv, str(tmp_path / "b.jsonl"), "--ignore", "thumbs")
    assert (json.loads(done.out)["unread_columns"], json.loads(done.out)["warnings"]) == ({}, {})
    wrong = runs.fmtkit(capsys, *argv, str(tmp_path / "c.jsonl"), "--ignore", "thumb")
    assert (wrong.code, "did you mean 'thumbs'" in wrong.err) == (2, True)


@pytest.mark.parametrize("name", ["ground_truth", "gold", "参考答案"])
def test_messages_to_which_nobody_replies_are_prompts(tmp_path, capsys, name):
    asked = [[{"role": "user", "content": text}] for text in ASKED]
    sample = [
        {"messages": held, name: said, "id": f"k{i}"}
        for i, (held, said) in enumerate(zip(asked, SAID, strict=True))
    ]
    fits = detection.detect(sample)
    assert (fits[0].converter.table, certainty.certainty(fits, sample)) == ("Prompt", "unsure")
    path = tmp_path / "asked.jsonl"
    pl.DataFrame(sample).write_ndjson(path)
    survey = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out)
    assert "nothing was found" not in survey["verdict"]["text"]
    words = [*shlex.split(survey["command"])[1:-1], str(tmp_path / "out.jsonl"), "--as", "messages"]
    assert runs.fmtkit(capsys, *words).code == 0
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert first["prompt"] == asked[0]
    assert SAID[0] in first.values()


@pytest.mark.parametrize("beside", ["reference", "category"])
@pytest.mark.parametrize("turns", ["turns", "tours"])
def test_two_prompts_in_a_list_are_never_sure_nor_without_a_word(tmp_path, capsys, turns, beside):
    held = [[asked, "Now rewrite it for a child."] for asked in ASKED]
    sample = [{turns: two, beside: SAID[i]} for i, two in enumerate(held)]
    path = tmp_path / "asked.jsonl"
    pl.DataFrame(sample).write_ndjson(path)
    survey = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out)
    assert survey["certainty"] in (None, "unsure")
    assert "nothing was found" not in survey["verdict"]["text"]


@pytest.mark.parametrize("held", [[True, False, True], [5, 1, 4], [0, 1, 0]], ids=str)
def test_convert_without_a_type_prints_every_command_that_inspect_prints(tmp_path, capsys, held):
    path = tmp_path / "rows.jsonl"
    pl.DataFrame(rows(bewertung=held)).write_ndjson(path)
    survey = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out)
    asked = runs.fmtkit(capsys, "convert", str(path))
    assert (asked.code, asked.err.count("\n")) == (2, 1)
    assert len(survey["readings"]) == 3
    for one in survey["readings"]:
        assert f"; or with {one['meaning']}: {one['command']}" in asked.err


def chats(**keys):
    """Return conversations whose replies have these keys; a function makes one of the row and the turn."""
    return [
        {
            "messages": [
                {"role": role, "content": text, **{k: made(i, turn) for k, made in keys.items()}}
                for turn, (role, text) in enumerate((("user", asked), ("assistant", said)))
            ]
        }
        for i, (asked, said) in enumerate(zip(ASKED, SAID, strict=True))
    ]


OF_REPLIES = {
    "numbers": lambda i, turn: [5, 1, 4][i] if turn else None,
    "words": lambda i, turn: ["up", "down", "up"][i] if turn else None,
    "booleans": lambda i, turn: [True, False, True][i] if turn else None,
    "emoji": lambda i, turn: "👍👎👍"[i] if turn else None,
}


@pytest.mark.parametrize("made", OF_REPLIES.values(), ids=OF_REPLIES)
@pytest.mark.parametrize("name", ["feedback", "bewertung", "评价"])
def test_a_label_inside_messages_is_open(tmp_path, capsys, name, made):
    sample = chats(**{name: made})
    assert (open_names(sample), certainty_of(sample)) == ([f"messages[].{name}"], "unsure")
    path = tmp_path / "chats.jsonl"
    pl.DataFrame(sample).write_ndjson(path)
    survey = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out)
    assert survey["verdict"]["text"].startswith(f"not read: messages[].{name} could be a ")
    assert "nothing was found" not in survey["verdict"]["text"]
    asked = runs.fmtkit(capsys, "convert", str(path), "-o", str(tmp_path / "out.jsonl"))
    assert f"not read: messages[].{name} could be a " in asked.err


OF_TURNS = {
    "ids": lambda i, turn: f"a{i}b{turn}",
    "places": lambda _, turn: turn,
    "times": lambda i, turn: 1700000000 + 60 * i + turn,
    "of the role": lambda _, turn: ("Alice", "Bob the bot")[turn],
    "models": lambda i, turn: ["gpt-4", "claude-2", "gpt-4"][i] if turn else None,
    "languages": lambda i, _: ["en", "de", "en"][i],
    "lengths": lambda i, turn: len((ASKED, SAID)[turn][i]),
    "copies": lambda i, turn: (ASKED, SAID)[turn][i],
    "nothing": lambda i, turn: None,
}


@pytest.mark.parametrize("made", OF_TURNS.values(), ids=OF_TURNS)
@pytest.mark.parametrize("name", ["meta", "herkunft", "来源"])
def test_what_is_harmless_inside_messages_leaves_a_guess_sure(name, made):
    sample = chats(**{name: made})
    assert (open_names(sample), certainty_of(sample)) == ([], "sure")


def test_open_keys_of_messages_are_named_with_a_type_too(tmp_path, capsys):
    path, out = tmp_path / "rated.jsonl", tmp_path / "out.jsonl"
    pl.DataFrame(chats(rating=lambda i, _turn: i % 2)).write_ndjson(path)
    converted = fmtkit.convert([str(path)] * 2, "openai", out)
    assert converted.open_keys == {"messages[].rating": "a score"}
    assert converted.warnings == {"open_keys": 2}
    assert (converted.unread_columns, converted.found(["open_keys"])) == ({}, ("open_keys",))
    survey = fmtkit.inspect(str(path), "openai")
    [found] = [one for one in survey.findings if one.code == "open_keys"]
    assert (found.count, found.share) == (len(SAID), 1.0)
    assert found.details == {"messages[].rating": "a score"}
    assert survey.as_dict()["verdict"]["text"].startswith("not read: messages[].rating could be ")
    assert fmtkit.validate(str(path), "openai").found(["open_keys"]) == ("open_keys",)
    told = ("convert", str(path), "-t", "openai", "-o", str(out), "--overwrite")
    done = runs.fmtkit(capsys, *told, "--fail-on", "open_keys")
    assert done.code == 1
    assert "messages[].rating  could be a score" in done.err


def test_keys_of_messages_that_are_read_carried_or_harmless_are_not_open(tmp_path):
    sound = [
        chats(),
        chats(weight=lambda _i, turn: turn),
        chats(id=lambda i, turn: f"m{i}-{turn}", lang=lambda _i, _turn: "en"),
        chats(reasoning_content=lambda i, turn: f"because {i} is so" if turn else None),
    ]
    for rows_of in sound:
        report = fmtkit.convert(rows_of, "openai", tmp_path / "out.jsonl", overwrite=True)
        assert (report.open_keys, "open_keys" in report.warnings) == ({}, False)
    rated = chats(rating=lambda i, _turn: i % 2)
    assert fmtkit.convert(rated, "openai", tmp_path / "all.jsonl", keep="all").open_keys == {}


def test_a_key_of_messages_is_ignored_by_its_name(tmp_path, capsys):
    path, name = tmp_path / "rated.jsonl", "messages[].rating"
    pl.DataFrame(chats(rating=lambda i, _turn: i % 2)).write_ndjson(path)
    report = fmtkit.convert(str(path), "openai", tmp_path / "out.jsonl", ignore=[name])
    assert (report.open_keys, report.warnings) == ({}, {})
    told = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json").out)
    commands = [one["command"] for one in told["readings"] if "--ignore" in one["command"]]
    assert [shlex.split(one)[5:7] for one in commands] == [["--ignore", name]]
    sure = json.loads(runs.fmtkit(capsys, "inspect", str(path), "--json", "--ignore", name).out)
    assert (sure["readings"], sure["open_columns"]) == ([], [])
    for wrong, words in (
        ("messages[].ratng", "no message has that key; did you mean 'rating'"),
        ("messages[].content", "the type reads that key"),
        ("turns[].rating", "no row has that column"),
    ):
        with pytest.raises(OptionError, match=words):
            fmtkit.convert(str(path), "openai", tmp_path / "no.jsonl", ignore=[wrong])


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in cases()])
def test_a_column_that_is_ignored_is_one_that_is_not_there(case, tmp_path):
    """Also an optional one that the type would read, such as `tools` that hold something else."""
    bad = {reject["line"] for reject in case.lines("quarantine.jsonl")}
    rows = [
        json.loads(line)
        for number, line in enumerate(read_lines(case.source), 1)
        if number not in bad and line.strip()
    ]
    source, less = tmp_path / "source.jsonl", tmp_path / "less.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = {
        converter.path(p)
        for converter in registry.converters_named(case.name)
        for p in converter.columns
    }
    for name in dict.fromkeys(name for row in rows for name in row if name in read):
        left = [{key: row[key] for key in row if key != name} for row in rows]
        less.write_text("".join(json.dumps(row) + "\n" for row in left))
        made, expected = outcome_of(case, source, ignore=(name,)), outcome_of(case, less)
        needed = r"needs that column|--keep names the same|no row has that column"
        assert made == expected or re.search(needed, str(made)), name


def outcome_of(case, source, **more):
    """Return the rows and rejects of a source, or what is said where it has none."""
    try:
        made = run(case, source, **more)
    except FmtkitError as error:
        return str(error)
    return made.rows, made.rejects


@pytest.mark.parametrize("joined", [{"rows": 5}, {"rows": [1, None]}, {"rows": None}])
def test_a_joined_row_that_is_none_is_a_bad_row(tmp_path, joined):
    """With --ignore and without: its own rows are looked through for what is ignored."""
    said = [
        ("m1", None, "prompter", None),
        ("m2", "m1", "assistant", 0),
        ("m3", "m1", "assistant", 1),
    ]
    names = ("message_id", "parent_id", "role", "rank")
    rows = [
        dict(zip(names, one, strict=True)) | {"message_tree_id": "m1", "text": one[0]}
        for one in said
    ]
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in [joined, {"rows": rows}]))
    for ignore in ([], ["text_of_another"]):
        rows[0].update(dict.fromkeys(ignore, "x"))
        source.write_text("".join(json.dumps(row) + "\n" for row in [joined, {"rows": rows}]))
        report = fmtkit.convert(
            str(source), "oasst.rows", tmp_path / "out.jsonl", ignore=ignore, overwrite=True
        )
        assert (report.rows_read, report.rows_written, report.quarantined) == (2, 1, 1)


def test_a_column_is_not_mapped_and_ignored(tmp_path):
    source = tmp_path / "rows.jsonl"
    row = {"question": "q", "chosen": "a", "rejected": "b", "s": "Be kind."}
    source.write_text(json.dumps(row) + "\n")
    with pytest.raises(OptionError, match="--ignore s: --map system=s reads that column"):
        fmtkit.convert(
            str(source), "intel", tmp_path / "o.jsonl", columns={"system": "s"}, ignore=["s"]
        )
