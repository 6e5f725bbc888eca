import hashlib
import json

import pytest

from fmtkit.core.errors import OutputExistsError
from fmtkit.writing.working_folder import refuse_existing


def fill(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def report(**files):
    entries = [
        {"path": name, "bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        for name, text in files.items()
    ]
    return json.dumps({"fmtkit": "0", "output": "out", "files": entries})


MANIFEST = json.dumps({"fingerprint": {}, "files": []})
WRITTEN = {
    "data/train-00000-of-00001.parquet": "rows",
    "manifest.json": MANIFEST,
    "quarantine.jsonl": "bad",
}
OURS = {**WRITTEN, "report.json": report(**WRITTEN)}
REMAINS = {"quarantine.jsonl": "bad", "report.json": report(**{"quarantine.jsonl": "bad"})}
OLD = {**WRITTEN, "report.json": '{"fmtkit": "0", "rows_read": 1}'}


def test_where_nothing_is_a_folder_may_be_made(tmp_path):
    refuse_existing(tmp_path / "out", overwrite=False)
    refuse_existing(fill(tmp_path, {}), overwrite=False)


def test_the_reasons_of_a_run_without_rows_may_be_replaced_unless_they_were_changed(tmp_path):
    fill(tmp_path, REMAINS)
    refuse_existing(tmp_path, overwrite=True)
    refuse_existing(tmp_path, overwrite=False)
    (tmp_path / "quarantine.jsonl").write_text("odd")
    with pytest.raises(OutputExistsError, match="was changed since fmtkit wrote it"):
        refuse_existing(tmp_path, overwrite=False)


def test_a_whole_folder_of_ours_may_be_replaced_only_if_asked(tmp_path):
    refuse_existing(fill(tmp_path, OURS), overwrite=True)
    with pytest.raises(OutputExistsError, match="--overwrite replaces it"):
        refuse_existing(tmp_path, overwrite=False)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_was_changed_since_is_never_replaced(tmp_path, name):
    text = OURS[name]
    for changed in (text + "x", text[:-1] + "x"):
        fill(tmp_path, OURS | {name: changed})
        with pytest.raises(OutputExistsError, match=f"{name} exists already and was changed"):
            refuse_existing(tmp_path, overwrite=True)


def test_a_folder_whose_report_names_nothing_is_for_the_user_to_remove(tmp_path):
    fill(tmp_path, OLD)
    with pytest.raises(
        OutputExistsError, match=r"of an earlier fmtkit.*\(rm -r [^ ]*\), or choose"
    ):
        refuse_existing(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        (OURS | {"notes.md": ""}, "notes.md"),
        (OURS | {"data/train-00001-of-00002.parquet": ""}, "data/train-00001-of-00002.parquet"),
        ({"data/train-00000-of-00001.parquet": ""}, "data/train-00000-of-00001.parquet"),
        ({"report.json": "{}"}, "report.json"),
        ({"manifest.json": "no JSON"}, "manifest.json"),
        ({"manifest.json": "[1]"}, "manifest.json"),
        ({"manifest.json": '{"name": "an app", "files": []}'}, "manifest.json"),
        ({"manifest.json": '{"files": ["a"]}'}, "manifest.json"),
    ],
)
def test_a_file_that_fmtkit_did_not_write_is_never_deleted(tmp_path, files, foreign):
    fill(tmp_path, files)
    for overwrite in (False, True):
        with pytest.raises(OutputExistsError, match=f"holds {foreign}, which fmtkit did not write"):
            refuse_existing(tmp_path, overwrite=overwrite)


def test_a_link_is_a_foreign_file(tmp_path):
    fill(tmp_path, OURS)
    (tmp_path / "data" / "link").symlink_to(tmp_path)
    with pytest.raises(OutputExistsError, match="holds data/link"):
        refuse_existing(tmp_path, overwrite=True)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    with pytest.raises(OutputExistsError, match="is a file"):
        refuse_existing(fill(tmp_path, {"out": ""}) / "out", overwrite=True)
