"""Tests reach fmtkit by its public names, so that what is behind them can be moved."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
OF_OTHERS = frozenset(
    {
        # TRL's trainers, whose methods and attributes the tests compare with and put others in place of.
        *("_calculate_rewards", "_generate", "_generate_and_score_completions"),
        *("_generate_single_turn", "_get_per_token_logps_and_entropies", "_last_loaded_step"),
        *("_log_completion_extra", "_logs", "_metrics", "_pending_extra_logs", "_prepare_inputs"),
        # transformers, pyarrow, fsspec, IPython, the standard library.
        *("_attn_implementation", "_name_or_path", "_import_from_c_capsule", "_strip_protocol"),
        *("_repr_html_", "_exit", "_replace"),
    }
)
"""Names with an underscore that are not fmtkit's."""


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that are looked up, imported or patched; none of a test's own classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (one.name for one in names)
            case ast.Call(
                func=ast.Attribute(attr="setattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                yield name.rpartition(".")[2]


def test_no_test_reaches_a_private_name_of_fmtkit():
    found = {
        (file.name, name)
        for file in TESTS.rglob("*.py")
        for name in private_names(ast.parse(file.read_text(encoding="utf-8")))
        if name.startswith("_") and not name.startswith("__") and name not in OF_OTHERS
    }
    assert found == set()
