"""SOURCE arguments: files, globs, folders, URLs, the hub; and what is said of a bad one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmtkit.core.errors import DependencyError, OptionError, SourceError
from fmtkit.sources.opening import open_sources

ROW = b'{"a": 1}\n'


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(ROW)


def names(argument: object, **options: str) -> list[str]:
    return [source.name for source in open_sources(argument, **options)]  # type: ignore[arg-type]


def test_arguments_are_read_in_the_order_given(tmp_path: Path) -> None:
    fill(tmp_path, "b.jsonl", "a.jsonl")
    given = [str(tmp_path / "b.jsonl"), tmp_path / "a.jsonl", str(tmp_path / "b.jsonl")]
    assert names(given) == [str(path) for path in given]


def test_the_name_is_the_path_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "data/a.jsonl")
    monkeypatch.chdir(tmp_path)
    assert names("data/a.jsonl") == names("data") == names("data/*.jsonl") == ["data/a.jsonl"]


def test_a_glob_is_sorted(tmp_path: Path) -> None:
    fill(tmp_path, "b.jsonl", "a.jsonl", "c/d.jsonl", "a.txt")
    assert names(f"{tmp_path}/*.jsonl") == [f"{tmp_path}/a.jsonl", f"{tmp_path}/b.jsonl"]
    assert len(names(f"{tmp_path}/**/*.jsonl")) == 3


def test_a_name_with_the_marks_of_a_glob_is_a_file_where_it_exists(tmp_path: Path) -> None:
    fill(tmp_path, "a[1].jsonl")
    assert names(tmp_path / "a[1].jsonl") == [f"{tmp_path}/a[1].jsonl"]


def test_a_folder_is_its_data_files_sorted(tmp_path: Path) -> None:
    fill(tmp_path, "b.jsonl", "a.jsonl.gz", "sub/c.json", ".hidden.jsonl", ".cache/d.jsonl")
    fill(tmp_path, "README.md", "quarantine.jsonl", "a.quarantine.jsonl", "report.json")
    fill(tmp_path, "a.report.json", "manifest.json.bak", "dataset_info.json", "state.json")
    found = [Path(name).relative_to(tmp_path).as_posix() for name in names(tmp_path)]
    assert found == ["a.jsonl.gz", "b.jsonl", "sub/c.json"]


def test_a_folder_that_fmtkit_wrote_has_its_rows_in_data(tmp_path: Path) -> None:
    fill(tmp_path, "manifest.json", "report.json", "quarantine.jsonl", "stray.jsonl")
    (tmp_path / "data").mkdir()
    for name in ("train-00000-of-00001.parquet", "validation-00000-of-00001.parquet"):
        pq.write_table(pa.table({"a": [1]}), tmp_path / "data" / name)
    [train], [validation] = names(tmp_path, split="train"), names(tmp_path, split="validation")
    assert Path(train).name.startswith("train")
    assert Path(validation).name.startswith("validation")


def test_a_folder_of_splits_gives_the_one_asked_for(tmp_path: Path) -> None:
    fill(tmp_path, "train.jsonl", "my-test-00.jsonl", "training.jsonl", "test/a.jsonl")
    # Folders that are named for a split count before files.
    assert [Path(n).name for n in names(tmp_path, split="test")] == ["a.jsonl"]
    with pytest.raises(OptionError, match="no split 'dev'"):
        names(tmp_path, split="dev")


def test_a_folder_saved_by_datasets_is_read_in_order(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"a": list(range(10))})
    dataset.save_to_disk(tmp_path / "saved", num_shards=3)
    sources = open_sources(tmp_path / "saved")
    rows = [n for s in sources for b in s.blocks() for n in b.batch["a"].to_pylist()]  # type: ignore[union-attr]
    assert rows == list(range(10))


def test_what_is_missing_is_an_error_that_says_what_is_near(tmp_path: Path) -> None:
    fill(tmp_path, "train.jsonl")
    for argument, said in [
        (tmp_path / "trian.jsonl", "did you mean .*/train.jsonl"),
        (tmp_path / "no" / "a.jsonl", "nor does the folder"),
        (f"{tmp_path}/*.parquet", "no file matches"),
        ("Intel/orca_dpo_pairs", "hf://datasets/Intel/orca_dpo_pairs"),
    ]:
        with pytest.raises(SourceError, match=said) as caught:
            open_sources(argument)
        assert caught.value.exit_code == 3


def test_a_folder_without_data_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, "README.md", "report.json")
    with pytest.raises(SourceError, match="holds no data files"):
        open_sources(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, "a.jsonl")
    (tmp_path / "a.jsonl").chmod(0)
    with pytest.raises(SourceError, match="Permission denied"):
        open_sources(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('{"a": 1}'.encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        ('{"a": 1}'.encode("utf-16-le"), "iconv -f UTF-16 -t UTF-8"),
        ('{"a": 1}'.encode("utf-16-be"), "iconv -f UTF-16 -t UTF-8"),
        ('{"a": 1}'.encode("utf-32"), "UTF-32"),
        (b"PK\x03\x04....", "zip archive"),
        (b"\x80\x04\x95....", "pickle"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_other_formats_are_errors_that_say_what_to_do(
    tmp_path: Path, data: bytes, said: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(SourceError, match=said):
        open_sources(tmp_path / "a.jsonl")


def test_an_unknown_suffix_is_read_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(ROW)
    (tmp_path / "b.txt").write_bytes(b"prose\n")
    assert open_sources(tmp_path / "a.txt")[0].kind == "json"
    with pytest.raises(SourceError, match=r"not a supported kind of data.*\.jsonl"):
        open_sources(tmp_path / "b.txt")
    assert open_sources(tmp_path / "b.txt", ds_type="csv")[0].kind == "csv"
    with pytest.raises(OptionError, match="ds_type 'xml'"):
        open_sources(tmp_path / "a.txt", ds_type="xml")


def test_data_files_are_found_in_the_folder_or_by_themselves(tmp_path: Path) -> None:
    fill(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl")
    one = open_sources(tmp_path, data_files=["c.jsonl", "a.jsonl"])
    assert [source.name for source in one] == [f"{tmp_path}/c.jsonl", f"{tmp_path}/a.jsonl"]
    files = {"train": f"{tmp_path}/b.jsonl", "test": [f"{tmp_path}/c.jsonl"]}
    assert open_sources("json", data_files=files)[0].name == files["train"]
    assert open_sources("json", data_files=files, split="test")[0].name == files["test"][0]
    with pytest.raises(OptionError, match="train, test"):
        open_sources("json", data_files=files, split="dev")


def test_a_pipe_with_a_name_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"open({str(pipe)!r}, 'wb').write({ROW!r} * 3)"
    with subprocess.Popen([sys.executable, "-c", code]):
        (source,) = open_sources(pipe, ds_type="json")
        first = source.first_block()
        assert list(source.blocks()) == [first]
    with pytest.raises(SourceError, match="only once"):
        list(source.blocks())


def test_urls_are_opened_by_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for name in ("b.jsonl", "a.jsonl", "report.json", "sub/c.jsonl"):
        system.pipe(f"/fmtkit-test/{name}", ROW)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2]}), sink)
    system.pipe("/fmtkit-test/d.parquet", sink.getvalue().to_pybytes())
    found = open_sources("memory://fmtkit-test")
    assert [source.name.rpartition("fmtkit-test/")[2] for source in found] == [
        "a.jsonl",
        "b.jsonl",
        "d.parquet",
        "sub/c.jsonl",
    ]
    assert [source.size for source in found[:2]] == [len(ROW)] * 2
    (block,) = found[2].blocks()
    assert block.batch.num_rows == 2  # type: ignore[union-attr]
    assert len(open_sources("memory://fmtkit-test/*.jsonl")) == 2
    for url in ("memory://fmtkit-test/no.jsonl", "nosuch://a/b.jsonl"):
        with pytest.raises(SourceError, match="cannot be opened"):
            open_sources(url)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    fill(tmp_path, "a.jsonl")
    assert names(f"file://{tmp_path}/a.jsonl") == [f"{tmp_path}/a.jsonl"]


HUB = """
import sys
from fmtkit.core.errors import FmtkitError
from fmtkit.sources.opening import open_sources
try:
    open_sources("hf://datasets/nobody/nothing@main")
except FmtkitError as error:
    print(type(error).__name__, error)
"""


def test_the_hub_offline_without_a_cache_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", HUB], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("SourceError hf://datasets/nobody/nothing@main cannot be loaded")


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    for argument, extra in (("hf://datasets/a/b", "hub"), ("s3://a/b.jsonl", "s3")):
        with pytest.raises(DependencyError, match=rf"pip install 'fmtkit\[{extra}\]'"):
            open_sources(argument)


def test_shared_samples_are_told_apart() -> None:
    folder = Path(__file__).parents[2] / "shared" / "data" / "real"
    if not folder.is_dir():
        pytest.skip("the samples of ../shared are not here")
    for source in open_sources(folder):
        rows = sum(block.data.count(b"\n") for block in source.blocks())  # type: ignore[union-attr]
        text = Path(source.name).read_text()
        if source.name.endswith(".json"):
            assert rows == len(json.loads(text))
        else:
            assert rows == text.count("\n") + (not text.endswith("\n"))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a", "a.csv.gz"])
def test_lines_of_json_are_read_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    fill(tmp_path, name)
    (source,) = open_sources(tmp_path / name)
    (block,) = source.blocks()
    assert (source.kind, block.data) == ("json", ROW)  # type: ignore[union-attr]


def test_a_header_with_braces_is_still_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("{a},b\n1,2\n")
    (source,) = open_sources(tmp_path / "a.csv")
    assert (source.kind, source.schema.names) == ("csv", ["{a}", "b"])  # type: ignore[union-attr]
    (tmp_path / "b.csv").write_bytes(ROW)
    (forced,) = open_sources(tmp_path / "b.csv", ds_type="csv")
    assert forced.kind == "csv"


@pytest.mark.parametrize(("suffix", "kind"), [("parquet", "Parquet"), ("arrow", "Arrow IPC")])
def test_a_file_without_the_bytes_of_its_suffix_says_what_to_do(tmp_path, suffix, kind):
    path = tmp_path / f"a.{suffix}"
    for data, told in ((b"", "is empty; "), (b"x", f"is damaged, or not {kind}: ")):
        path.write_bytes(data)
        with pytest.raises(SourceError, match=rf"a\.{suffix} {told}.*again$"):
            open_sources(str(path))
