"""OUT as hf://datasets/OWNER/NAME: one commit of a folder that is whole, and what the hub may answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hub_standin import TOKEN, Hub, running
from runs import INTEL, lines

import fmtkit
from fmtkit.core.errors import OptionError
from fmtkit.writing.outputs import HubFolder, hub_folder

NAME = "someone/pairs"
OUT = f"hf://datasets/{NAME}"


@pytest.fixture
def hub():
    with running() as made:
        yield made


@pytest.fixture
def source(tmp_path) -> Path:
    rows = [INTEL | {"question": f"q{i}"} for i in range(50)]
    (tmp_path / "rows.jsonl").write_bytes(lines(rows) + b"{bad\n")
    return tmp_path / "rows.jsonl"


def convert(hub: Hub, source: Path, *flags: str, out: str = OUT, token: str | None = TOKEN):
    """Run the command as a user of this hub does; return exit code and what it says."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    home = source.parent / "home"
    env |= {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home)}
    if token:
        env["HF_TOKEN"] = token
    command = ["convert", str(source), "--type", "chatml.intel", "-o", out, *flags]
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit", *command],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert TOKEN not in done.stderr + done.stdout
    for file in home.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()
    return done.returncode, done.stderr


def test_a_dataset_is_one_commit_with_a_card_that_names_its_splits(hub, source, tmp_path):
    code, said = convert(hub, source, "--val-size", "5")
    assert code == 0, said
    assert f"{OUT}/data/train-00000-of-00001.parquet" in said
    assert f"{hub.url}/datasets/{NAME}/commit/" in said
    assert len(hub.repositories[NAME]) == 2
    assert hub.visibility[NAME] == "private"
    fmtkit.convert(source, "chatml.intel", tmp_path / "local", val_size=5)
    files = hub.files(NAME)
    for path in ("data/train-00000-of-00001.parquet", "quarantine.jsonl"):
        assert files[path] == (tmp_path / "local" / path).read_bytes()
    assert {"manifest.json", "report.json", "data/validation-00000-of-00001.parquet"} <= {*files}
    card = files["README.md"].decode()
    assert yaml.safe_load(card.split("---")[1])["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "data/train-*"},
                {"split": "validation", "path": "data/validation-*"},
            ],
        }
    ]
    assert not list((tmp_path / "home" / "fmtkit").iterdir())


@pytest.mark.slow
def test_the_splits_of_the_card_are_those_that_load_dataset_finds(hub, source, tmp_path):
    assert convert(hub, source, "--val-size", "5", out=f"{OUT}/sets/a")[0] == 0
    for path, data in hub.files(NAME).items():
        (tmp_path / "clone" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / path).write_bytes(data)
    from datasets import load_dataset

    loaded = load_dataset(str(tmp_path / "clone"), "sets-a", cache_dir=str(tmp_path / "cache"))
    rows = {split: table.num_rows for split, table in loaded.items()}
    manifest = json.loads(hub.files(NAME)["sets/a/manifest.json"])
    assert rows == {file["split"]: file["rows"] for file in manifest["files"]}
    assert set(rows) == {"train", "validation"}


@pytest.mark.slow
def test_what_is_there_is_replaced_only_when_asked_and_only_ours(hub, source):
    card = b"---\nlicense: mit\nconfigs:\n- config_name: other\n  data_files: o/*\n---\n\nMine.\n"
    hub.push(NAME, {"README.md": card})
    assert convert(hub, source, "--val-size", "5")[0] == 0
    code, said = convert(hub, source)
    assert (code, said.strip().splitlines()) == (
        2,
        [f"fmtkit: {OUT} exists already; --overwrite replaces it"],
    )
    code, said = convert(hub, source, "--overwrite")
    assert code == 0, said
    assert "data/validation-00000-of-00001.parquet" not in hub.files(NAME)
    told = hub.files(NAME)["README.md"].decode()
    about = yaml.safe_load(told.split("---")[1])
    assert about["license"] == "mit"
    assert [one["config_name"] for one in about["configs"]] == ["other", "default"]
    assert told.endswith("Mine.\n")
    hub.push(NAME, {"data/theirs.parquet": b"x"})
    before = len(hub.repositories[NAME])
    code, said = convert(hub, source, "--overwrite")
    assert code == 2
    assert "data/theirs.parquet exists already, and fmtkit did not write it" in said
    assert len(hub.repositories[NAME]) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "status", "words"),
    [
        ("/api/datasets/someone/pairs", 401, "the token is not accepted"),
        ("/api/repos/create", 403, "the token may not write there"),
        ("/api/datasets/someone/pairs/commit/main", 403, "the token may not write there"),
        ("/api/datasets/someone/pairs/commit/main", 412, "another commit came meanwhile"),
    ],
)
def test_what_the_hub_refuses_is_one_line_and_nothing_is_committed(
    hub, source, place, status, words
):
    hub.fault = lambda method, path, count: status if path == place else None
    code, said = convert(hub, source, "-q")
    assert code == 3, said
    assert len(said.strip().splitlines()) == 1, said
    line = said
    assert f"cannot write {OUT}: {words}" in line
    assert len(hub.repositories.get(NAME, [{}])) == 1


@pytest.mark.slow
def test_what_was_converted_is_kept_for_resume_where_the_commit_fails(hub, source):
    hub.fault = lambda method, path, count: 403 if "/commit/" in path else None
    code, said = convert(hub, source, "-q")
    assert code == 3
    assert "what was converted is kept: --resume continues" in said
    hub.fault = lambda method, path, count: None
    code, said = convert(hub, source, "--resume")
    assert code == 0, said
    assert len(hub.repositories[NAME]) == 2


def test_a_finished_run_has_nothing_to_resume_and_commits_nothing(hub, source, tmp_path):
    code, first = convert(hub, source, "--val-size", "5")
    assert code == 0, first
    code, said = convert(hub, source, "--val-size", "5", "--resume")
    assert code == 0, said
    assert f"{OUT}/data/validation-00000-of-00001.parquet" in said
    assert len(hub.repositories[NAME]) == 2
    # Another run is not this one, and what others have changed is no finished output.
    code, said = convert(hub, source, "--resume")
    assert code == 2
    assert f"cannot resume {OUT}: options.val_size" in said
    assert not list((tmp_path / "home" / "fmtkit").iterdir())
    hub.push(NAME, {"data/train-00000-of-00001.parquet": b"x"})
    code, said = convert(hub, source, "--val-size", "5", "--resume")
    assert (code, said) == (2, f"fmtkit: {OUT} exists already; --overwrite replaces it\n")
    assert len(hub.repositories[NAME]) == 3


@pytest.mark.slow
def test_an_answer_of_500_is_asked_again(hub, source):
    def fault(method: str, path: str, count: int) -> int | None:
        moment = method == "PUT" or "/commit/" in path or "/preupload/" in path
        return 500 if moment and not count else None

    hub.fault = fault
    code, said = convert(hub, source)
    assert code == 0, said
    assert len(hub.repositories[NAME]) == 2


def test_without_a_token_nothing_is_asked_or_read(hub, source):
    code, said = convert(hub, source, token=None)
    assert code == 2
    assert "needs a token: set HF_TOKEN, or log in with `hf auth login`" in said
    assert hub.seen == []


def test_places_on_the_hub_that_are_not_written_are_refused():
    assert hub_folder("hf://datasets/o/n/") == HubFolder("o/n")
    assert hub_folder("hf://datasets/o/n/a/b") == HubFolder("o/n", "a/b")
    assert hub_folder("out/hf") is None
    for wrong in ("hf://o/n", "hf://datasets/n", "hf://datasets/o/n@dev", "hf://datasets/o/n/a.parquet",
                  "hf://datasets/o/n/../x", "hf://buckets/o/n"):  # fmt: skip
        with pytest.raises(OptionError, match=wrong.partition("@")[0]):
            hub_folder(wrong)
