# ruff: noqa: E501 -- the lines are Markdown
"""docs/versions.md: which versions the tests were run with, how they ended, and what is bound to a version."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fmtkit.core import runner, section
from fmtkit.core.runner import Runner, our_features
from fmtkit.training.vllm.ready import RANGE
from pages.markdown import NOTICE, code, table

RECORDS = Path(__file__).parents[2] / ".ci" / "versions.json"

HEAD = f"""\
{NOTICE}
# Versions

Each column is a run of the tests: when it was, how many tests passed, failed and were skipped, and the versions that it
had. Such a run writes them itself: `make test-newest RECORD=1`, then `make docs`.

| command | versions |
| --- | --- |
| `make test` | those of `constraints.txt`, which `make` installs |
| `make test-newest` | the newest that `pyproject.toml` allows together, but for torch |
| `make test-lowest` | the lowest that `pyproject.toml` allows, but for torch and TRL |
| `make test-old-trl` | those of `constraints.txt` with an older TRL, for the trainers that TRL removed |
| `make test-verifiers` | those of `constraints.txt`, and beside them an environment with the real `verifiers` |
| `make test-vllm` | an environment with the real vLLM, on the CPU |

"""

PINNED = """
## What is bound to a version

A method needs a version of TRL or transformers only for what it uses of them. fmtkit's trainers for the online methods
override private methods of TRL's, which another version may have moved. On a version that they were not made for, TRL's
own trainer trains instead and the plan has a note, unless the configuration has a key or a section of which only fmtkit's
trainer knows: then the plan is refused, and names the key. Other methods train with any TRL that `pyproject.toml` allows.

"""

VLLM = f"""
vLLM (`trl.use_vllm`, `fmtkit vllm-serve`) must be {code(RANGE)}, which is what TRL 1.16 works with. It says itself which
versions of transformers it takes, so it gets [an environment of its own](vllm.md#an-environment-for-it).
"""


def text() -> str:
    """Return the page."""
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    bound = table(["method", "what", "TRL", "transformers", "else"], _bound())
    return HEAD + "".join(_tables(records)) + PINNED + bound + VLLM


def _tables(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of the runs, and the tests that failed."""
    yield table(["", *(code(one["command"]) for one in records)], _rows(records))
    for one in records:
        if one["failed"]:
            yield f"\nFailed in {code(one['command'])}:\n\n"
            yield "".join(f"- {code(name)}\n" for name in one["failed"])


def _rows(records: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    yield ["date", *(one["date"] for one in records)]
    yield ["passed", *(str(one["passed"]) for one in records)]
    yield ["failed", *(str(len(one["failed"])) for one in records)]
    yield ["skipped", *(str(one["skipped"]) for one in records)]
    names = sorted({name for one in records for name in one["versions"]} - {"python"})
    for name in ("python", *names):
        yield [name, *(one["versions"].get(name, "") for one in records)]


def _bound() -> Iterator[list[str]]:
    """Yield a line for each method, variant or key that not every supported version has."""
    usual = Runner(method="", tables=(), trainer="", config="", about="").trl
    for one in runner.shipped():
        variants = {name: found for name, found in one.variants.items() if name != runner.TRLS_OWN}
        for name, found in (
            {"": one} | variants if runner.TRLS_OWN in one.variants else variants or {"": one}
        ).items():
            if (found.trl, found.transformers) != (usual, ""):
                yield [
                    code(one.method),
                    _what(one, name),
                    *_range(found.trl if found.trl != usual else ""),
                    *_range(found.transformers),
                    found.instead,
                ]


def _what(one: Runner, variant: str) -> str:
    """Return what of a method needs the version: a variant, the keys of fmtkit's trainer, or all of it."""
    if variant:
        return code(f"{one.variant_key}: {variant}")
    if runner.TRLS_OWN not in one.variants:
        return "all of it"
    keys = sorted(one.features & our_features().keys())
    sections = sorted(
        part.name for part in section.every() if part.switch and part.name in one.sections
    )
    return _listed([*(f"trl.{key}" for key in keys), *sections])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def _range(wanted: str) -> list[str]:
    return [code(wanted) if wanted else ""]
