"""The card of a folder: what it says, that its splits are found, and that nobody's own card is replaced."""

import json
from pathlib import Path

import pytest
import yaml
from runs import INTEL, lines

import fmtkit
from fmtkit.core.errors import OutputExistsError
from fmtkit.writing.dataset_card import is_own

ROWS = [INTEL | {"question": f"q{number}"} for number in range(30)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "from" / "sk|ps_<b>*x*.jsonl"
    path.parent.mkdir()
    path.write_bytes(lines(ROWS) + b"{bad\n")
    return path


def card(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def test_a_card_says_where_rows_come_from_how_they_were_made_and_what_was_lost(source, tmp_path):
    fmtkit.convert(source, "chatml.intel", tmp_path / "out", val_size=5)
    text = card(tmp_path / "out")
    head = yaml.safe_load(text.split("---\n")[1])
    assert head["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "data/train-*"},
                {"split": "validation", "path": "data/validation-*"},
            ],
        }
    ]
    assert (head["size_categories"], head["tags"]) == (["n<1K"], ["fmtkit"])
    assert "\n# sk&#124;ps&#95;&#60;b&#62;&#42;x&#42;.jsonl\n" in text
    assert "as chatml.intel, rendered with the chat template chatml." in text
    for line in ("| train | 25 |", "| validation | 5 |", "| read | 31 |", "| quarantined | 1 |"):
        assert line in text
    assert "| 1 | json_syntax |" in text
    # Names are text, and a folder of this machine is not told.
    assert "| sk&#124;ps&#95;&#60;b&#62;&#42;x&#42;.jsonl | 31 |" in text
    assert str(tmp_path) not in text
    assert is_own(text)


def test_the_same_input_gives_the_same_card(source, tmp_path):
    for name in ("a", "b"):
        fmtkit.convert(source, "intel", tmp_path / name)
    assert card(tmp_path / "a") == card(tmp_path / "b")


def test_a_card_that_nobody_edited_is_renewed(source, tmp_path):
    fmtkit.convert(source, "intel", tmp_path / "out")
    source.write_bytes(lines(ROWS[:4]))
    fmtkit.convert(source, "intel", tmp_path / "out", overwrite=True)
    assert "| train | 4 |" in card(tmp_path / "out")


@pytest.mark.parametrize("edit", ["", "Mine alone.\n", "appended"])
def test_a_card_that_somebody_wrote_or_edited_is_kept(source, tmp_path, edit):
    out = tmp_path / "out"
    fmtkit.convert(source, "intel", out)
    own = card(out) + "\nMy notes.\n" if edit == "appended" else edit
    (out / "README.md").write_text(own, encoding="utf-8")
    with pytest.raises(OutputExistsError, match="--overwrite replaces it"):
        fmtkit.convert(source, "intel", out)
    for _ in range(2):
        fmtkit.convert(source, "intel", out, overwrite=True)
        assert card(out) == own
    # Not even by a run that writes no rows.
    source.write_bytes(b"{bad\n")
    with pytest.raises(fmtkit.FmtkitError):
        fmtkit.convert(source, "intel", out, overwrite=True)
    assert card(out) == own


def test_a_folder_with_a_card_alone_is_filled_and_the_card_kept(source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "README.md").write_text("Mine.\n", encoding="utf-8")
    fmtkit.convert(source, "intel", out)
    assert card(out) == "Mine.\n"
    assert "README.md" not in json.dumps(json.loads((out / "report.json").read_text())["files"])


def test_a_link_in_place_of_a_card_is_refused(source, tmp_path):
    out = tmp_path / "out"
    fmtkit.convert(source, "intel", out)
    (out / "README.md").unlink()
    (out / "README.md").symlink_to(source)
    with pytest.raises(OutputExistsError, match=r"README\.md"):
        fmtkit.convert(source, "intel", out, overwrite=True)


def test_a_folder_with_a_card_is_read_as_one_without(source, tmp_path):
    out = tmp_path / "out"
    fmtkit.convert(source, "intel", out)
    assert fmtkit.table(str(out), "passthrough").num_rows == 30


@pytest.mark.slow
def test_load_dataset_finds_the_splits_by_the_card(source, tmp_path):
    datasets = pytest.importorskip("datasets")
    fmtkit.convert(source, "intel", tmp_path / "out", val_size=5)
    found = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {split: rows.num_rows for split, rows in found.items()} == {"train": 25, "validation": 5}
