"""Row functions in a worker process: a user's file is loaded, and called with one row at a time."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from fmtkit.core import user_modules
from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.worker import Serve

ALL = "__all__"
FILTERED = b"null"


def serve(setup: Mapping[str, Any]) -> Serve:
    """Load a user's function in a worker; answers JSON rows, `null`, or `!` and what went wrong."""
    row_function, removed = load(setup["file"], setup["name"], setup["config"])

    def answer(item: bytes) -> bytes:
        row = json.loads(item)
        try:
            made = row_function(dict(row))
            return _encoded(made, row, removed)
        except Exception as error:  # noqa: BLE001
            # Whatever a user's function raises is that row's fault: it is quarantined with the reason.
            return b"!" + _reason(error, setup).encode("utf-8", "replace")

    return answer


def load(
    file: str, name: str, config: Mapping[str, Any]
) -> tuple[Callable[[dict[str, Any]], Any], frozenset[str]]:
    """Run a user's file and its factory; return the row function and the columns it removes.

    Raises OptionError if there is no such function, or it does not return what it should.
    """
    spec = spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    user_modules.serve([Path(file).parent], module.__name__)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OptionError(
            f"{file} cannot be loaded: {user_modules.describe(error, file)}"
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [key for key, value in vars(module).items() if callable(value)]
        near = near_match(name, known)
        raise OptionError(
            f"{file} has no function {name!r}" + (f"; did you mean {near!r}?" if near else "")
        )
    try:
        made = factory(dict(config))
    except Exception as error:
        raise OptionError(f"{file}: {name} raised {user_modules.describe(error, file)}") from error
    row_function, extra = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
    if not callable(row_function) or not isinstance(extra, Mapping):
        raise OptionError(
            f"{file}: {name} must return a function, or (function, {{'remove_columns': [...]}})"
        )
    return _with_keywords(row_function), frozenset(_columns(extra.get("remove_columns", ())))


def _columns(removed: Any) -> Sequence[str]:
    return [removed] if isinstance(removed, str) else list(removed or ())


def _with_keywords(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    """Fill `tokenizer` or `processing_class` with None where a row function demands one."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    needed = {
        p.name: None
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return lambda row: function(row, **needed)


def _encoded(made: Any, row: dict[str, Any], removed: frozenset[str]) -> bytes:
    if made is None or made == {}:
        return FILTERED
    if not isinstance(made, Mapping):
        return f"!returned {type(made).__name__}, not a dict".encode()
    kept = (
        {} if ALL in removed else {key: value for key, value in row.items() if key not in removed}
    )
    return json.dumps({**kept, **made}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _reason(error: Exception, setup: Mapping[str, Any]) -> str:
    return f"{setup['name']} raised {user_modules.describe(error, setup['file'])}"
