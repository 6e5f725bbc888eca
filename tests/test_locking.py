"""`fmtkit lock` and `fmtkit check`: planted changes are found and named, with the row and the cause."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tokenizers
import warm
import yaml

import fmtkit
from fmtkit.core.errors import (
    FmtkitError,
    OptionError,
    OutputExistsError,
    SourceError,
    TokenizerError,
    UnknownNameError,
)
from fmtkit.locking import lock_file
from fmtkit.locking.lock_file import Lock
from fmtkit.locking.locking import Check
from fmtkit.tokenizers import tokens

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((files("fmtkit.schemas") / "check.schema.json").read_text())
TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}
{% else %}{{ message['content'] }}<|im_end|>{% endif %}
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
Rows = list[dict[str, Any]]


def chats(count: int) -> Rows:
    return [
        {
            "messages": [
                {"role": "user", "content": f"What is {i} + 1? \u00e9\U0001f600"},
                {"role": "assistant", "content": f"It is {i + 1}."},
            ]
        }
        for i in range(count)
    ]


def write(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


class Place:
    """A folder with a dataset, a template, a tokenizer and their lock."""

    def __init__(self, folder: Path, rows: Rows) -> None:
        self.folder = folder
        self.data, self.lock = folder / "chats.jsonl", folder / "chats.lock"
        self.template, self.tokenizer = folder / "own.jinja", folder / "tokenizer"
        write(self.data, rows)
        self.template.write_text(TEMPLATE)
        shutil.copytree(ROOT / "docs/examples/tokenizer", self.tokenizer)
        self.options: dict[str, Any] = {
            "type": "openai",
            "chat_template": "chatml",
            "tokenizer": str(self.tokenizer),
        }

    def locked(self, **more: Any) -> Lock:
        return fmtkit.lock(str(self.data), self.lock, **{**self.options, **more})

    def check(self, **more: Any) -> Check:
        found = fmtkit.check(self.lock, **more)
        jsonschema.validate(found.as_dict(), SCHEMA)
        return found

    def rows(self) -> Rows:
        return [json.loads(line) for line in self.data.read_text().splitlines()]

    def edit(self, change: Callable[[Rows], object]) -> None:
        rows = self.rows()
        change(rows)
        write(self.data, rows)

    def relock(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Rewrite the lock as if another machine had written it."""
        data = yaml.safe_load(self.lock.read_text())
        change(data)
        lock_file.write(self.lock, Lock(data["datasets"], data["versions"], data["budgets"]))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path, chats(60))
    made.locked()
    return made


@pytest.fixture
def templated(tmp_path: Path) -> Place:
    """A place whose template is a file of its user."""
    made = Place(tmp_path, chats(60))
    made.options["chat_template"] = str(made.template)
    made.locked()
    return made


def named(found: Check) -> list[tuple[str, str]]:
    return [(one.what, one.severity) for one in found.changes]


def first(found: Check, what: str) -> Any:
    return next(one for one in found.changes if one.what == what)


def test_an_unchanged_dataset_is_as_it_was(place):
    found = place.check()
    assert (found.changes, found.exit_code, found.rows) == ((), 0, 60)


# Planted changes of data.


def say(rows: Rows, place: int, text: str = "Changed.") -> None:
    rows[place]["messages"][1]["content"] = text


def test_a_changed_row_is_named_with_its_line_and_its_source(place):
    place.edit(lambda rows: say(rows, 16))
    found = place.check()
    change = first(found, "data")
    assert (found.exit_code, change.row, change.last_row, change.line) == (1, 16, 16, 17)
    # Also if the texts of all rows are other ones.
    again = first(place.check(chat_template="llama3"), "data")
    assert (again.row, again.message) == (16, change.message)
    assert change.message == f"1 row was changed; the first is row 16 ({change.source}:17)"
    assert change.causes == ("source chats.jsonl has other bytes",)


def test_an_appended_row_is_named(place):
    place.edit(lambda rows: rows.append(chats(61)[-1]))
    change = first(place.check(), "data")
    assert (change.row, change.line) == (60, 61)
    assert change.message.startswith("1 row was added; ")


def test_an_inserted_row_is_named(place):
    place.edit(lambda rows: rows.insert(7, chats(99)[-1]))
    change = first(place.check(), "data")
    assert (change.row, change.message.split(";")[0]) == (7, "1 row was added")


def test_a_removed_row_is_named_by_the_row_that_is_there_now(place):
    place.edit(lambda rows: rows.pop(5))
    change = first(place.check(), "data")
    assert change.row == 5
    assert change.message.startswith("1 row was removed; it stood before row 5 ")


def test_a_row_removed_at_the_end_is_named(place):
    place.edit(lambda rows: rows.pop())
    change = first(place.check(), "data")
    assert (change.row, change.message) == (None, "1 row was removed, after the last row of today")


def test_reordered_rows_are_not_called_changed(place):
    place.edit(lambda rows: rows.insert(3, rows.pop(9)))
    change = first(place.check(), "data")
    assert change.message.startswith("the same rows are in another order (7 rows were moved)")
    assert change.row == 3


def test_other_bytes_with_the_same_rows_are_a_note(place):
    turned = [
        {"messages": [dict(reversed(m.items())) for m in row["messages"]]} for row in place.rows()
    ]
    place.data.write_text("".join(json.dumps(row) + " \n\n" for row in turned))
    found = place.check()
    assert (named(found), found.exit_code) == ([("data", "note"), ("count", "note")], 0)
    message = "source chats.jsonl has other bytes: its rows are the same"
    assert found.changes[0].message == message


def test_a_renamed_source_with_the_same_bytes_is_a_note(place):
    other = place.folder / "renamed.jsonl"
    place.data.rename(other)
    found = place.check(data=str(other))
    assert (named(found), found.exit_code) == ([("source", "note")], 0)
    assert "chats.jsonl is renamed.jsonl now" in found.changes[0].message


def test_the_order_of_keys_of_a_call_counts_since_it_is_written(tmp_path):
    rows = chats(3)
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": 2}}}
    rows[1]["messages"][1] = {"role": "assistant", "content": "x", "tool_calls": [call]}
    place = Place(tmp_path, rows)
    del place.options["tokenizer"], place.options["chat_template"]
    place.locked()
    call["function"]["arguments"] = {"b": 2, "a": 1}  # type: ignore[index]
    write(place.data, rows)
    assert first(place.check(), "data").row == 1


def test_a_row_that_is_bad_now_is_in_the_counts(place):
    place.edit(lambda rows: rows[4].update(messages=[]))
    found = place.check()
    messages = [one.message for one in found.changes if one.what == "count"]
    assert "quarantined: 0 → 1 rows" in messages
    assert any(message.startswith("reasons.empty_field: 0 → 1") for message in messages)


# Planted changes of what reads, renders and tokenizes them.


def test_an_edited_template_is_named_with_the_first_row_whose_text_differs(templated):
    templated.template.write_text(TEMPLATE.replace("}}<|im_end|>{% endif", "}} <|im_end|>{% endif"))
    found = templated.check()
    assert named(found) == [("template", "change"), ("texts", "change")]
    change = first(found, "texts")
    assert change.causes == ("template own.jinja: was edited",)
    assert (change.row, change.line) == (0, 1)


def test_a_template_that_marks_other_tokens_changes_labels_of_the_same_texts(templated):
    said = "{{ message['content'] }}"
    later = "{{ message['content'][:3] }}{% generation %}{{ message['content'][3:] }}"
    edited = TEMPLATE.replace("{% generation %}" + said, later)
    templated.template.write_text(edited)
    found = templated.check()
    assert named(found) == [("template", "change"), ("ids_and_labels", "change")]
    change = first(found, "ids_and_labels")
    assert "in 60 of the 60 rows" in change.message
    assert change.causes == ("template own.jinja: was edited",)


def test_an_edited_comment_of_a_template_is_a_change_of_the_template_alone(templated):
    templated.template.write_text("{# reviewed #}" + TEMPLATE)
    assert named(templated.check()) == [("template", "change")]


def test_an_edited_tokenizer_is_named_with_its_file(place):
    path = place.tokenizer / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["merges"] = data["model"]["merges"][:10]
    path.write_text(json.dumps(data))
    found = place.check()
    assert named(found)[0] == ("tokenizer", "change")
    assert "tokenizer.json was changed" in found.changes[0].message
    change = first(found, "tokens")
    assert change.causes == (found.changes[0].message,)


def test_a_template_within_a_tokenizers_settings_is_no_change_of_its_ids(place):
    path = place.tokenizer / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": "other"}))
    assert place.check().changes == ()
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": "<|im_start|>"}))
    assert ("tokenizer", "change") in named(place.check())


def test_an_option_that_is_given_is_compared_with_that_of_the_lock(place):
    found = place.check(limit=50)
    assert ("option", "change") in named(found)
    assert first(found, "option").message == "option limit: not set → 50"
    assert "option limit: not set → 50" in first(found, "data").causes


def test_another_rule_of_masks_is_named_with_the_first_row_whose_labels_differ(place):
    found = place.check(train_on_inputs=True)
    assert first(found, "masks").message == "mask rule train_on_inputs: not set → True"
    change = first(found, "ids_and_labels")
    assert (change.row, change.line) == (0, 1)
    assert "mask rule train_on_inputs: not set → True" in change.causes


def test_another_method_is_another_rule_of_masks(tmp_path):
    place = Place(tmp_path, [])
    rows = [{"question": f"q {i}", "chosen": "yes it is", "rejected": "no"} for i in range(5)]
    write(place.data, rows)
    place.options["type"] = "intel"
    place.locked(method="dpo")
    found = place.check(method="reward")
    assert {"masks", "ids_and_labels"} <= {one.what for one in found.changes}


def test_another_maximum_length_is_named_with_the_rows_that_it_cuts(place):
    place.lock.unlink()
    place.locked(max_length=200)
    found = place.check(max_length=5)
    assert first(found, "option").message == "option max_length: [200] → [5]"
    assert "too_long: 0 → 60 rows" in {one.message for one in found.changes}


def test_another_library_of_the_same_rows_is_a_note(place):
    place.relock(lambda data: data["versions"].update(tokenizers="0.1.0"))
    found = place.check()
    assert (named(found), found.exit_code) == ([("library", "note")], 0)
    assert found.changes[0].message.startswith("tokenizers 0.1.0 → ")
    assert found.changes[0].message.endswith(": the rows are the same")


def test_a_library_that_makes_other_labels_of_the_same_texts_is_the_cause(place):
    def other(data: dict[str, Any]) -> None:
        data["versions"]["fmtkit"] = "0.0.1"
        lines = data["datasets"][0]["within"]["ids_and_labels"]
        lines[0] = re.sub(r"3:\w+", "3:00000000", lines[0])

    place.relock(other)
    found = place.check()
    change = first(found, "ids_and_labels")
    assert (found.exit_code, change.row) == (1, 3)
    assert change.causes[0].startswith("library: fmtkit 0.0.1 → ")


def test_a_library_that_makes_other_ids_of_one_row_is_seen_in_a_row_that_no_mask_is_looked_at(
    tmp_path, monkeypatch
):
    rows = chats(1000)
    rows[501]["messages"][1]["content"] = "It is QZQ."
    place = Place(tmp_path, rows)
    state = place.locked().datasets[0]
    looked_at = " ".join(state["within"]["ids_and_labels"])
    assert " 501:" not in looked_at
    load = tokens.load

    def other(name: str) -> tokens.Tokenizer:
        """Make another id of each Z, as many as before."""
        made = load(name)
        text = json.loads(made.backend.to_str())
        words = text["model"]["vocab"]
        words["Z"], words["#"] = words["#"], words["Z"]
        return dataclasses.replace(made, backend=tokenizers.Tokenizer.from_str(json.dumps(text)))

    assert place.check().changes == ()
    monkeypatch.setattr(tokens, "load", other)
    found = place.check()
    assert [(one.what, one.row) for one in found.changes] == [("tokens", 501)]


def test_a_map_file_that_was_edited_is_named(tmp_path):
    place = Place(tmp_path, [])
    rows = [{"q": f"q {i}", "chosen": f"a {i}", "rejected": f"b {i}", "r": "z"} for i in range(5)]
    write(place.data, rows)
    mapping = tmp_path / "map.json"
    mapping.write_text('{"question": "q"}')
    fmtkit.lock(str(place.data), place.lock, "intel", map_file=str(mapping))
    assert place.check().changes == ()
    mapping.write_text('{"question": "q", "rejected": "r"}')
    found = place.check()
    assert first(found, "option").message == "file ./map.json: its contents were changed"
    assert "file ./map.json: its contents were changed" in first(found, "data").causes


@pytest.mark.slow
def test_whenever_ids_or_labels_change_the_check_says_so(place):
    """Every row's ids and labels, as `inspect` shows them, against what the digests say."""

    def shown(**more: Any) -> list[Any]:
        options = {**place.options, **more}
        survey = fmtkit.inspect(str(place.data), show_mask=60, **options)
        return [[(side.ids, side.trained) for side in row.sides] for row in survey.shown]

    before = shown()
    original = place.data.read_bytes()
    edits = (
        lambda m: m[1].update(content=m[1]["content"] + " "),
        lambda m: m[0].update(content=m[0]["content"].replace(" ", "  ", 1)),
        lambda m: m[0].update(content=m[0]["content"].replace("\u00e9", "e\u0301")),
        lambda m: m.insert(0, {"role": "system", "content": "s"}),
        lambda m: m[1].update(train=False),
        lambda m: m[1].update(name="x"),
    )
    differing, told = [], []
    for edit in edits:
        place.edit(lambda rows, edit=edit: edit(rows[13]["messages"]))
        differing.append(shown() != before)
        told.append(place.check().exit_code == 1)
        place.data.write_bytes(original)
    assert differing == [True, True, True, True, True, False]
    assert all(is_told for differs, is_told in zip(differing, told, strict=True) if differs)


# Large datasets, whose digests are of groups of rows.


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("large"), chats(5_003))
    del made.options["tokenizer"]
    made.locked()
    assert yaml.safe_load(made.lock.read_text())["datasets"][0]["within"]["every"] == 10
    return made


@pytest.mark.parametrize(
    ("change", "row", "last", "words"),
    [
        (lambda rows: say(rows, 4_000), 4_000, 4_009, "rows changed in one group of 10"),
        (lambda rows: say(rows, 5_002), 5_000, 5_002, "rows changed in one group of 10"),
        (
            lambda rows: [say(rows, 17), say(rows, 3_000)],
            10,
            19,
            "rows changed in 2 of 501 groups of 10",
        ),
        (lambda rows: rows.append(chats(6_000)[-1]), 5_003, 5_003, "1 row was added at the end"),
        (lambda rows: rows.insert(1_234, chats(6_000)[-1]), 1_234, 1_234, "1 row was added"),
        (
            lambda rows: [rows.insert(1_234, row) for row in chats(6_000)[-2:]],
            1_230,
            1_241,
            "2 rows were added, and others may have changed",
        ),
        (lambda rows: rows.pop(777), 770, 778, "1 row was removed, and others may have changed"),
        (lambda rows: rows.pop(), 5_000, 5_001, "1 row was removed, at the end or among the last"),
        (
            lambda rows: rows.insert(100, rows.pop(2_000)),
            100,
            109,
            "the same rows are in another order",
        ),
    ],
)
def test_of_many_rows_the_stretch_is_named_that_the_digests_show(large, change, row, last, words):
    original = large.data.read_bytes()
    large.edit(change)
    try:
        found = first(large.check(), "data")
    finally:
        large.data.write_bytes(original)
    assert found.message.split(";")[0] == words
    assert (found.row, found.line) == (row, row + 1)
    assert found.last_row == last


@pytest.mark.parametrize(
    ("change", "row", "words"),
    [
        (lambda rows: [say(rows, 17), say(rows, 3_000)], 17, "2 rows were changed"),
        (lambda rows: [rows.pop(777), rows.pop(2_000)], 777, "2 rows were removed"),
        (lambda rows: rows.insert(5, rows.pop(9)), 5, "the same rows are in another order"),
        (lambda rows: rows.append(chats(6_000)[-1]), 5_003, "1 row was added"),
        (lambda rows: [say(rows, 3), rows.pop()], 3, "1 row was removed, and others were changed"),
    ],
)
def test_with_the_digest_of_every_row_the_row_is_named(large, tmp_path, change, row, words):
    lock = tmp_path / "chats.lock"
    fmtkit.lock(str(large.data), lock, **large.options, row_digests=True)
    original = large.data.read_bytes()
    large.edit(change)
    try:
        found = first(fmtkit.check(lock), "data")
        (tmp_path / "chats.lock.rows").unlink()
        without = fmtkit.check(lock)
        fmtkit.check(lock, update=True)
        assert fmtkit.check(lock).changes == ()
        size = (tmp_path / "chats.lock.rows").stat().st_size
        assert size == 4 * len(large.rows())
    finally:
        large.data.write_bytes(original)
    assert (found.row, found.last_row) == (row, row)
    assert found.message.startswith(words)
    notes = [one.message for one in without.changes if one.severity == "note"]
    message = (
        "chats.lock.rows is not beside the lock: only the stretch of the first change is known"
    )
    assert (message in notes, without.exit_code) == (True, 1)


# The file.


def test_a_lock_is_the_same_whatever_the_workers_the_folder_and_the_time(tmp_path):
    texts = []
    for workers in (1, 4, 4):
        folder = tmp_path / f"{len(texts)}"
        folder.mkdir()
        place = Place(folder, chats(3_000))
        place.locked(workers=workers)
        texts.append(place.lock.read_bytes())
    assert texts[0] == texts[1] == texts[2]
    assert str(tmp_path).encode() not in texts[0]


def test_a_lock_of_many_rows_stays_small(large):
    assert large.lock.stat().st_size < 15_000


def test_the_lock_is_sorted_yaml_that_says_what_its_digests_are_of(place):
    data = yaml.safe_load(place.lock.read_text())
    state = data["datasets"][0]
    assert list(data) == sorted(data)
    assert list(state) == sorted(state)
    assert state["digests"]["of"].endswith("ids and labels of 60 rows")
    assert state["given"] == ["./chats.jsonl"]
    assert state["options"] == {"chat_template": "chatml", "tokenizer": "./tokenizer"}
    place.lock.unlink()
    fmtkit.lock(str(place.data), place.lock, "openai")
    state = yaml.safe_load(place.lock.read_text())["datasets"][0]
    assert state["digests"]["of"] == "canonical rows and their texts; there is no tokenizer"


def test_a_lock_is_checked_from_any_folder(place, monkeypatch):
    for folder in (place.folder, place.folder.parent, Path("/")):
        monkeypatch.chdir(folder)
        assert place.check().changes == ()


def test_a_guessed_type_is_written_down(place):
    del place.options["type"]
    place.lock.unlink()
    assert place.locked().datasets[0]["type"] == "openai"
    assert place.check().changes == ()


def test_update_writes_the_state_of_today_and_keeps_the_budgets(place):
    text = place.lock.read_text().replace(
        "budgets: {}", "budgets: {quarantined: 0.1%, duplicate_rows: 3}"
    )
    place.lock.write_text(text)
    place.edit(lambda rows: say(rows, 2))
    assert place.check().exit_code == 1
    found = place.check(update=True)
    assert (found.updated, found.exit_code) == (True, 0)
    assert yaml.safe_load(place.lock.read_text())["budgets"] == {
        "quarantined": "0.1%",
        "duplicate_rows": 3,
    }
    assert place.check().changes == ()


def test_an_update_of_an_unchanged_dataset_changes_no_byte(place):
    before = place.lock.read_bytes()
    assert place.check(update=True).changes == ()
    assert place.lock.read_bytes() == before


def budget(place: Place, text: str) -> None:
    place.lock.write_text(place.lock.read_text().replace("budgets: {}", f"budgets: {{{text}}}"))


def test_a_finding_over_its_budget_fails_also_after_an_update(place):
    budget(place, "duplicate_rows: 1, quarantined: 2%")
    place.edit(lambda rows: rows.extend([rows[0], rows[0]]))
    found = place.check(update=True)
    assert found.exit_code == 1
    over = [one for one in found.changes if one.severity == "over_budget"]
    assert [one.message for one in over] == [
        "duplicate_rows: 2 of 62 rows, 3.23%; the budget is 1",
    ]
    assert named(place.check()) == [("budget", "over_budget")]


def test_a_budget_that_is_not_exceeded_allows_the_finding(place):
    place.edit(lambda rows: rows.extend([rows[0], rows[0]]))
    place.check(update=True)
    budget(place, "duplicate_rows: 2")
    assert place.check().exit_code == 0


def test_rows_over_a_length_have_a_budget(place):
    place.lock.unlink()
    place.locked(max_length=5)
    budget(place, "too_long: 10%")
    assert place.check().changes[0].message == "too_long: 60 of 60 rows, 100.00%; the budget is 10%"


# Bad input.


@pytest.mark.parametrize(
    ("edit", "error", "words"),
    [
        (lambda text: text.replace("budgets: {}", "budgets: {to_long: 1}"), UnknownNameError, "did you mean 'too_long'"),
        (lambda text: text.replace("budgets: {}", "budgets: {too_long: many}"), OptionError, "budgets.too_long: 'many': give a number"),
        (lambda text: text.replace("budgets: {}", "budgets: {too_long: -1}"), OptionError, "budgets.too_long"),
        (lambda text: text.replace("budgets: {}", "budgets: {too_long: yes}"), OptionError, "budgets.too_long"),
        (lambda text: text.replace("budgets: {}", "budgets: 5"), OptionError, "budgets: give codes and limits"),
        (lambda text: text.replace("fmtkit_lock: 2", "fmtkit_lock: 1"), OptionError, "another version of the format than 2"),
        (lambda text: text.replace("fmtkit_lock: 2", ""), OptionError, "is no lock of fmtkit"),
        (lambda text: text.replace("rows_read: 60", "rows_read: 61"), OptionError, "edited by hand"),
        (lambda text: text.replace("budgets: {}", "budgets: {}\nbudgets: {}"), OptionError, "duplicate key 'budgets'"),
        (lambda text: re.sub("checksum: .*", "", text), OptionError, "checksum: is missing"),
        (lambda text: text + "more: 1\n", OptionError, "more: is not a key of a lock"),
        (lambda text: "<<<<<<< ours\n" + text, OptionError, "chats.lock"),
        (lambda text: "version = 4\n[[package]]\n", OptionError, "chats.lock"),
        (lambda text: '{"lockfileVersion": 3}', OptionError, "is no lock of fmtkit"),
        (lambda text: "", OptionError, "chats.lock"),
    ],
)  # fmt: skip
def test_a_lock_that_cannot_be_read_is_one_line(place, edit, error, words):
    place.lock.write_text(edit(place.lock.read_text()))
    with pytest.raises(error, match=re.escape(words)) as caught:
        place.check()
    assert "\n" not in str(caught.value)
    assert "chats.lock" in str(caught.value)


def test_a_missing_source_tokenizer_or_lock_is_one_line(place):
    place.data.rename(place.folder / "gone")
    with pytest.raises(SourceError, match=r"chats\.jsonl"):
        place.check()
    (place.folder / "gone").rename(place.data)
    place.tokenizer.rename(place.folder / "moved")
    with pytest.raises(TokenizerError, match="tokenizer"):
        place.check()
    place.lock.unlink()
    with pytest.raises(OptionError, match="`fmtkit lock` writes one"):
        place.check()


def test_a_lock_is_replaced_only_if_asked_and_a_foreign_file_never(place):
    with pytest.raises(OutputExistsError, match="--update"):
        place.locked()
    budget(place, "duplicate_rows: 2")
    # Whatever became of its other lines.
    place.lock.write_text(place.lock.read_text().replace("rows_read: 60", "rows_read: 61"))
    assert place.locked(overwrite=True).budgets == {"duplicate_rows": 2}
    assert place.check().changes == ()
    foreign = place.folder / "other.lock"
    foreign.write_text("version = 1\n")
    with pytest.raises(OutputExistsError, match="is no lock"):
        fmtkit.lock(str(place.data), foreign, "openai", overwrite=True)
    assert foreign.read_text() == "version = 1\n"


def test_what_cannot_be_read_again_is_refused(place):
    for source in ([{"question": "q"}], "-", [place.data, "-"]):
        with pytest.raises(OptionError, match="cannot be read again"):
            fmtkit.lock(source, place.folder / "other.lock", "intel")
    with pytest.raises(OptionError, match="SOURCE is missing"):
        fmtkit.lock([], place.folder / "other.lock", "intel")


def test_a_template_that_writes_the_date_needs_one(templated):
    templated.template.write_text("{{ strftime_now('%Y') }}" + TEMPLATE)
    with pytest.raises(OptionError, match="--date"):
        templated.locked(overwrite=True)
    templated.locked(overwrite=True, date="2026-07-26")
    assert templated.check().changes == ()


@pytest.mark.slow
def test_no_secret_reaches_the_lock(place):
    key = "hf_" + "abcdEFGH" * 5
    with pytest.raises(OptionError, match="looks like a secret"):
        place.locked(overwrite=True, where=f"messages is not null and '{key}' != 'x'")
    assert key not in place.lock.read_text()
    with pytest.raises(FmtkitError) as caught:
        fmtkit.lock(
            f"https://user:{key}@127.0.0.1:9/a.jsonl?token={key}", place.folder / "b.lock", "openai"
        )
    assert key not in str(caught.value)
    assert not (place.folder / "b.lock").exists()


# A training config.

CONFIG = {
    "rl": "sft",
    "base_model": "tokenizer",
    "chat_template": "chatml",
    "sequence_len": 200,
    "datasets": [{"path": "chats.jsonl", "type": "openai"}],
    "test_datasets": [{"path": "held.jsonl", "type": "openai"}],
}


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Check]:
    """Return what writes the config with other keys, and checks it against the lock of the first."""
    place = Place(tmp_path, chats(20))
    write(tmp_path / "held.jsonl", chats(5))
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "run.yaml"

    def check(**keys: Any) -> Check:
        config.write_text(yaml.safe_dump({**CONFIG, **keys}))
        if not place.lock.exists():
            fmtkit.lock([], place.lock, config=str(config))
        return place.check()

    assert check().changes == ()
    return check


def test_the_datasets_of_a_config_are_locked_as_its_run_reads_them(configured, tmp_path):
    data = yaml.safe_load((tmp_path / "chats.lock").read_text())
    assert data["config"] == {"path": "./run.yaml"}
    assert [state["given"] for state in data["datasets"]] == [["./chats.jsonl"], ["./held.jsonl"]]
    assert data["datasets"][0]["masks"] == {"method": "sft", "rule": "completion"}
    write(tmp_path / "held.jsonl", chats(6))
    change = first(configured(), "data")
    assert (change.dataset, change.row, change.line) == ("held.jsonl", 5, 6)


@pytest.mark.parametrize(
    ("keys", "what", "message"),
    [
        ({"sequence_len": 10}, "option", "option max_length: 200 → 10"),
        ({"train_on_inputs": True}, "masks", "mask rule train_on_inputs: not set → True"),
        ({"roles_to_train": ["user"]}, "ids_and_labels", "ids or labels differ"),
        ({"train_on_eos": "none"}, "ids_and_labels", "ids or labels differ"),
        ({"chat_template": "llama3"}, "template", "template: chatml → "),
        ({"datasets": [{**CONFIG["datasets"][0], "limit": 3}]}, "option", "option limit: not set → 3"),
        ({"test_datasets": []}, "config", "2 datasets → 1, which the config names now"),
        ({"seed": 7}, "option", "option seed: 42 → 7"),
    ],
)  # fmt: skip
def test_a_key_of_the_config_that_changed_is_named(configured, keys, what, message):
    found = configured(**keys)
    assert found.exit_code == 1
    assert any(message in one.message for one in found.changes if one.what == what), found.changes


def test_a_config_names_its_sources(configured, tmp_path):
    lock = tmp_path / "other.lock"
    with pytest.raises(OptionError, match="-c names the sources"):
        fmtkit.lock(str(tmp_path / "chats.jsonl"), lock, config=str(tmp_path / "run.yaml"))
    with pytest.raises(OptionError, match="is of a config"):
        fmtkit.check(tmp_path / "chats.lock", data="chats.jsonl")


# The command.


@pytest.mark.slow
def test_the_commands_exit_as_the_others_do_and_print_one_line_for_each_thing(place):
    def run(*words: object) -> tuple[int, list[str]]:
        done = warm.fmtkit(*words, cwd=place.folder)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    lock = ["lock", "chats.jsonl", "-t", "openai", "-o", "new.lock"]
    assert run(*lock)[0] == 0
    code, lines = run("check", "new.lock")
    assert (code, lines) == (0, ["✔ new.lock: 60 rows, all as it was"])
    code, lines = run(*lock)
    assert (code, len(lines)) == (2, 1)
    place.edit(lambda rows: say(rows, 16))
    code, lines = run("check", "new.lock")
    assert (code, lines) == (
        1,
        [
            "✖ new.lock: 1 thing is not as locked",
            "✖ changed data: 1 row was changed; the first is row 16 (chats.jsonl:17)",
            "          why: source chats.jsonl has other bytes",
            "after a look at it: fmtkit check new.lock --update",
        ],
    )
    code, lines = run("check", "new.lock", "--json")
    found = json.loads("\n".join(lines))
    jsonschema.validate(found, SCHEMA)
    assert (code, found["changes"][0]["line"]) == (1, 17)
    assert run("check", "new.lock", "-q") == (1, [])
    assert run("check", "new.lock", "--update")[0] == 0
    assert run("check", "new.lock")[0] == 0
    place.data.unlink()
    code, lines = run("check", "new.lock")
    assert (code, len(lines)) == (3, 1)
    assert run("lock", "chats.jsonl")[0] == 2
