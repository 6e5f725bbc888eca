"""The page of `fmtkit diff`: written by hand, but for the lists of rules and reasons."""

import re
from collections.abc import Mapping
from pathlib import Path

from fmtkit.diffing.rules import ONLY, RULES

PAGE = Path(__file__).resolve().parents[1] / "diff.md"


def text() -> str:
    """Return the page with the rules and reasons that there are."""
    written = PAGE.read_text(encoding="utf-8")
    for head, listed in (("rule", RULES), ("reason", ONLY)):
        written = _with_rows(written, f"| {head} | meaning |\n|---|---|\n", listed)
    return written


def _with_rows(written: str, head: str, listed: Mapping[str, str]) -> str:
    before, _, rest = written.partition(head)
    rows = "".join(f"| `{name}` | {about} |\n" for name, about in listed.items())
    return before + head + rows + re.sub(r"\A(?:[|].*\n)*", "", rest)
