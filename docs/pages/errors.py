# ruff: noqa: E501 -- the lines are Markdown
"""docs/errors.md: exit codes, errors, and the codes of rows, warnings and findings."""

from fmtkit.core import errors
from fmtkit.core.codes import BAD_ROWS, ODD_ROWS, Code
from fmtkit.findings.advice import ADVICE
from pages.markdown import NOTICE, code, sentence, table

HEAD = f"""\
{NOTICE}
# Errors and codes

## Exit codes

| code | meaning |
| --- | --- |
| 0 | done; quarantined rows up to `--max-errors` do not change this |
| 1 | findings of `validate`, a code of `--fail-on` (`convert`, `validate`, `inspect`), or more bad rows than `--max-errors` or `--on-error fail` allows |
| 2 | usage or configuration: a flag, a name, a column or a template is wrong, or the output exists |
| 3 | a source cannot be read, or an output cannot be written |
| 4 | not one row could be converted (quarantine and report are written), or `validate` found no rows |
| 130 | interrupted; a folder can be resumed with `--resume` |

With `--json` an error is an object on stdout too: `{{"error": {{"type": "SourceError", "messages": [...], "exit_code": 3}}}}`.

An error is one line on stderr: what is wrong, where, and what to do next. Mistakes of the user
give no traceback. A traceback is a bug in fmtkit: please report it with the output of `fmtkit env`.
"""

TREE = """
## Errors of the library

Every error that fmtkit raises on purpose is a `fmtkit.FmtkitError`, and most also derive from a builtin exception, so
that either can be caught.
`error.exit_code` is the exit code of the command line.

```text
{tree}
```
"""

REASONS_HEAD = """
## Why a row is quarantined

Whether a row is bad depends on that row alone. A row with several faults gets the code that comes first in this table.
A line of the quarantine is a JSON object with `file`, `row` (0-based), `line` (1-based, null where a source has no
lines), `code`, `column`, `message` and the row itself as `raw` (at most 1 MiB; `raw_bytes` is then its full length) or,
if it is not UTF-8, as `raw_base64`. [How to repair and convert bad rows](converting.md#bad-rows).

"""

WARNINGS_HEAD = """
## Warnings

A row with a warning is converted, and counted in the report. `convert` and `validate` exit with 1 if they find the CODE
of `--fail-on CODE`, a warning or a bad row; `convert` has then written its rows. In the library `found(CODES)` of a report,
of findings and of a survey returns which of them there are.

"""

FINDINGS_HEAD = """
## Findings of inspect

`fmtkit inspect --fail-on CODE` exits with 1 if it finds CODE: one of these, or of the codes above.

"""


def text() -> str:
    """Return the page."""
    reasons = table(["code", "meaning", "what to do"], _rows(BAD_ROWS))
    warnings = table(["code", "meaning", "what to do"], _rows(ODD_ROWS))
    found = table(
        ["code", "severity", "meaning", "what to do"],
        (
            [code(name), found.severity, sentence(found.message), sentence(found.advice)]
            for name, found in ADVICE.items()
        ),
    )
    parts = [HEAD, TREE.format(tree=_tree()), REASONS_HEAD, reasons, WARNINGS_HEAD, warnings]
    return "".join([*parts, FINDINGS_HEAD, found])


def _tree() -> str:
    """Return the error tree as the docstring of fmtkit.core.errors draws it."""
    drawn = (errors.__doc__ or "").split("\n\n")[1]
    return drawn.strip("\n")


def _rows(codes: dict[str, Code]) -> list[list[str]]:
    return [[code(name), sentence(entry.means), entry.advice] for name, entry in codes.items()]
