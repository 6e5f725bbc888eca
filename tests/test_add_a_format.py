"""The format of docs/add-a-format.md, added without touching a file of ours."""

import json
import os
import re
from pathlib import Path

import pytest
import warm

PAGE = Path(__file__).parents[1] / "docs" / "add-a-format.md"
QUARANTINED = [(2, "value_error", "winner"), (3, "empty_field", "pro")]


def block(language: str) -> str:
    found = re.search(
        rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "debates.jsonl").write_text(block("json"), encoding="utf-8")
    return tmp_path


def convert(folder: Path, *flags: str, path: str = "") -> list[dict[str, object]]:
    command = [
        "convert",
        "debates.jsonl",
        "--type",
        "chatml.debate",
        "--out",
        "pairs.jsonl",
        *flags,
    ]
    done = warm.fmtkit(*command, cwd=folder, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    rows = (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    bad = (folder / "pairs.quarantine.jsonl").read_text(encoding="utf-8").splitlines()
    rejects = [(r["line"], r["code"], r["column"]) for r in map(json.loads, bad)]
    assert rejects == QUARANTINED
    return [json.loads(row) for row in rows]


WANTED = [
    {
        "prompt": "<|im_start|>user\nTea or coffee?<|im_end|>\n<|im_start|>assistant\n",
        "chosen": "Coffee.<|im_end|>",
        "rejected": "Tea.<|im_end|>",
    }
]


def test_a_plugin_file_adds_a_format(folder: Path) -> None:
    (folder / "debate.py").write_text(block("python"), encoding="utf-8")
    assert convert(folder, "--plugin", "debate.py") == WANTED


def test_an_installed_package_adds_a_format(folder: Path) -> None:
    assert convert(folder, path=str(install(folder))) == WANTED


def test_an_installed_package_that_is_broken_is_one_line_that_names_it(folder: Path) -> None:
    site = install(folder)
    (site / "acme_formats" / "debate.py").write_text("1 / 0\n")
    done = warm.fmtkit("types", cwd=folder, env=os.environ | {"PYTHONPATH": str(site)})
    assert done.returncode == 2
    wanted = "converter debate: the package acme-formats 1.0 cannot be used: ZeroDivisionError: "
    assert wanted in done.stderr
    assert done.stderr.count("\n") == 1


def install(folder: Path) -> Path:
    """Write the package of the page as it would be installed, and return the folder it is in."""
    site = folder / "site"
    package = site / "acme_formats"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "debate.py").write_text(block("python"), encoding="utf-8")
    metadata = site / "acme_formats-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-formats\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[fmtkit.converters]\ndebate = acme_formats.debate\n"
    )
    return site
