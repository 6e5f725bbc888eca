"""What the site has beyond the pages of docs/: its order, the API reference, links to files outside docs/."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import fmtkit

ROOT = Path(__file__).resolve().parents[2]
_INDEX_ROW = re.compile(r"^\| \[[^\]]+\]\(([\w./-]+\.md)\)", re.MULTILINE)
_OF_RUNNERS = re.compile(r"(?:\.\./)+runners/(\w+)/README\.md")
_OF_DOCS = re.compile(r"\]\(\.\./\.\./docs/")
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take groups and order of the pages from the tables in docs/README.md, so that they are told once."""
    index = (Path(config.docs_dir) / "README.md").read_text(encoding="utf-8")
    parts = _OF_RUNNERS.sub(r"\1.md", index).split("\n## ")[1:]
    groups = {part.partition("\n")[0]: _INDEX_ROW.findall(part) for part in parts}
    groups["Reference"].append({"API reference": "api.md"})
    config.nav = ["README.md", *({name: pages} for name, pages in groups.items())]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the API reference, every public name as `help` shows it, and the pages of folders of `runners/`."""
    blocks = [
        f"::: {getattr(fmtkit, name).__module__}.{name}\n    options: {{heading: fmtkit.{name}}}\n"
        for name in fmtkit.__all__
    ]
    text = "\n".join(["# API reference\n", *blocks])
    files.append(File.generated(config, "api.md", content=text))
    for page in sorted(ROOT.glob("runners/*/README.md")):
        # They link to pages of docs/ as a reader of the repository finds them.
        content = _OF_DOCS.sub("](", page.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"{page.parent.name}.md", content=content))
    return files


def on_page_markdown(text: str, *, page: Page, config: MkDocsConfig, **_files: Files) -> str:
    """Let links to files outside docs/ lead to the repository; one that is not there ends the build."""
    text = _OF_RUNNERS.sub(r"\1.md", text)
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def outside(found: re.Match[str]) -> str:
        target = (folder / found[1] / found[2]).resolve()
        if target.is_relative_to(config.docs_dir) or not target.exists():
            return found[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.repo_url.rstrip('/')}/{kind}/main/{target.relative_to(ROOT)}{found[3] or ''})"

    return _OUTSIDE.sub(outside, text)
