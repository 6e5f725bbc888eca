"""Each claim of the documentation is run: examples, generated pages, flags, codes and links."""

import doctest
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, get_origin

import pytest
from versions import as_pinned

from fmtkit import columns
from fmtkit.core import codes
from fmtkit.core.runner import Runner
from fmtkit.findings.advice import ADVICE
from fmtkit.formats import registry, target_registry
from fmtkit.writing.formats import Format

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")})
PAGES += sorted((*ROOT.glob("benchmarks/*.md"), *ROOT.glob("runners/*/README.md")))


def _named(pages: list[Path]) -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


def _docs(name: str) -> Any:
    """Import a module of docs/, which is no package."""
    if str(ROOT / "docs") not in sys.path:
        sys.path.insert(0, str(ROOT / "docs"))
    return import_module(name)


def _blocks(page: Path, *languages: str) -> list[Any]:
    return [block for block in _docs("blocks").blocks(page) if block.language in languages]


WITH_COMMANDS = [page for page in PAGES if any(not b.mark for b in _blocks(page, "console"))]
WITH_PYTHON = [page for page in PAGES if _blocks(page, "pycon")]
NOT_RUN = [b for page in PAGES for b in _docs("blocks").blocks(page) if b.mark == "not run"]


def _with_commands() -> Iterator[Any]:
    """Yield the pages with commands; those of the tutorial train a model."""
    for page in WITH_COMMANDS:
        marks = [pytest.mark.slow] if page.name == "tutorial.md" else []
        yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", _with_commands())
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    blocks = _docs("blocks")
    with blocks.samples(tmp_path):
        for block, step, printed, code in blocks.run(page, tmp_path):
            assert code == 0, f"{block.name}: $ {step.command}\nexit code {code}\n{printed}"
            assert blocks.is_shown(step, printed), (
                f"{block.name}: $ {step.command}\nprints (python docs/blocks.py pastes it):\n{printed}"
            )


@pytest.mark.parametrize("page", _named(WITH_PYTHON))
def test_the_python_of_a_page_gives_what_it_shows(page, tmp_path):
    text = "\n".join("\n".join(block.lines) for block in _blocks(page, "pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    said: list[str] = []
    with _docs("blocks").samples(tmp_path):
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not failed.failed, "".join(said)


@pytest.mark.parametrize("block", [pytest.param(b, id=b.name) for b in NOT_RUN])
def test_a_block_that_is_not_run_says_why(block):
    pytest.skip(block.detail)


@as_pinned
def test_generated_pages_are_as_the_code_has_them():
    assert _docs("generate").stale() == [], "run `make docs`"


def test_every_command_and_flag_is_documented():
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    for command in _docs("pages.commands").commands():
        section = page.partition(f"\n## {command.name}\n")[2].partition("\n## ")[0]
        for flag in command.flags:
            assert flag.help, f"fmtkit {command.name} {flag.names[-1]} has no help"
            for name in flag.names:
                assert f"`{name}`" in section, f"fmtkit {command.name} {name}"


def test_every_flag_that_a_page_shows_exists():
    known = {
        c.name: {n for f in c.flags for n in f.names} for c in _docs("pages.commands").commands()
    }
    for page in PAGES:
        for block in _blocks(page, "console", "sh"):
            for call in re.findall(
                r"\bfmtkit ([a-z][a-z-]*)([^|>#;\n]*(?:\\\n[^|>#;\n]*)*)", "\n".join(block.lines)
            ):
                # What stands after -- is for another program.
                own = re.sub(r"'[^']*'", "", call[1].partition(" -- ")[0])
                flags = re.findall(r"(?<=\s)(--?[a-zA-Z][\w-]*)", own)
                longer = " ".join([call[0], *call[1].split()[:1]])
                name = longer if longer in known else call[0]
                unknown = set(flags) - known.get(name, set()) - {"--help", "-h"}
                assert name in known, f"{block.name}: no command {name}"
                assert not unknown, f"{block.name}: fmtkit {name} has no {unknown}"


def test_every_code_says_what_to_do():
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    for code in [*codes.BAD_ROWS, *codes.ODD_ROWS, *ADVICE]:
        assert f"| `{code}` |" in page, code


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("add-a-format", signature(registry.converter).parameters),
        ("add-a-format", [n for n in vars(columns) if get_origin(vars(columns)[n]) is Annotated]),
        ("add-a-method", [f.name for f in fields(Runner)]),
        ("add-an-output", [f.name for f in fields(Format)]),
        ("targets", signature(target_registry.target).parameters),
    ],
    ids=["converter", "columns", "runner", "output", "target"],
)
def test_what_an_extension_declares_is_explained(page, names):
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    heads = " ".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE))
    explained = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", heads))
    assert sorted(set(names) - explained) == []


def test_the_page_of_formats_begins_with_a_screen_that_leads_to_every_type():
    page = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    top = page.partition("\n## ")[0]
    lines = [len(re.sub(r"\]\(#[^)]*\)|[`\[]", "", line)) // 120 + 1 for line in top.splitlines()]
    assert sum(lines) <= 40
    linked = {anchor.partition(".")[0] for anchor in re.findall(r"\[`([^`]+)`\]\(#", top)}
    assert linked >= {
        c.name.partition(".")[0]
        for c in registry.converters()
        if c.function.__module__.startswith("fmtkit.converters")
    }


def test_every_type_is_in_the_page_of_formats():
    page = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    for converter in registry.converters():
        if converter.function.__module__.startswith("fmtkit.converters"):
            assert f"\n### {converter.name}\n" in page, converter.name


@pytest.mark.parametrize("page", _named(PAGES))
def test_links_lead_somewhere(page):
    for target in LINK.findall(CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.relative_to(ROOT)}: {target}"
        if anchor:
            assert anchor in _anchors(found), f"{page.relative_to(ROOT)}: {target}"


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_a_page_begins_with_what_it_is_about():
    for page in PAGES:
        shown = re.sub(r"<!--.*?-->\n*", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        title, _, rest = shown.partition("\n")
        about = rest.lstrip().partition("\n")[0]
        assert title.startswith("# "), page.name
        assert about, page.name
        assert not re.match(r"(Generated|Made) by", about), page.name


def test_what_is_written_by_hand_has_at_most_forty_thousand_words():
    """Things are said once, and linked: what users read is not what the code could say by itself."""
    pages = [page for page in PAGES if {"docs", "runners"} & {*page.relative_to(ROOT).parts}]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    own = [text for text in texts if not text.startswith("<!-- Generated")]
    assert len(own) < len(texts)
    assert sum(len(text.split()) for text in own) <= 40_000


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name
    for page in ROOT.glob("runners/*/README.md"):
        assert f"](../runners/{page.parent.name}/README.md)" in index, page


@pytest.mark.slow
def test_the_demo_runs(tmp_path):
    blocks = _docs("blocks")
    folder = tmp_path / "docs" / "examples"
    with blocks.samples(folder):
        printed, code = blocks.execute("sh demo.sh", folder)
    assert code == 0, printed
    assert "support_pairs.jsonl:4" in printed or '"line": 4' in printed
    assert (tmp_path / "demo" / "pairs.parquet").is_file()


def test_the_samples_tokenizer_is_what_its_script_makes(tmp_path):
    made = tmp_path / "examples"
    with _docs("blocks").samples(made):
        (made / "tokenizer" / "tokenizer.json").unlink()
        script = made / "tokenizer" / "make.py"
        subprocess.run([sys.executable, str(script)], check=True, timeout=120)
        ours = ROOT / "docs/examples/tokenizer/tokenizer.json"
        assert (made / "tokenizer" / "tokenizer.json").read_bytes() == ours.read_bytes()
