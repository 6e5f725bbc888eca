"""Shows the library's functions with the keywords and lines that @keywords adds when a function is made."""

from inspect import Signature, getdoc, signature
from typing import Any

import griffe

import fmtkit

_KINDS = {kind.value: kind for kind in griffe.ParameterKind}


class Keywords(griffe.Extension):
    """Replace the signature and docstring that stand in the source with those that `help` shows."""

    def on_function(self, *, func: griffe.Function, **_kwargs: Any) -> None:
        made = getattr(fmtkit, func.name, None) if func.name in fmtkit.__all__ else None
        if made is None or func.path != f"{made.__module__}.{func.name}":
            return
        found = signature(made)
        func.parameters = griffe.Parameters(*map(_parameter, found.parameters.values()))
        if func.docstring is not None:
            func.docstring.value = getdoc(made) or ""


def _parameter(given: Any) -> griffe.Parameter:
    default = None if given.default is Signature.empty else repr(given.default)
    kind = _KINDS[given.kind.description]
    return griffe.Parameter(
        given.name, annotation=_text(given.annotation), kind=kind, default=default
    )


def _text(annotation: Any) -> str | None:
    """Return an annotation without the modules of its names, as the stub has it."""
    if annotation is Signature.empty:
        return None
    written = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    for module in ("collections.abc.", "pathlib.", "typing."):
        written = written.replace(module, "")
    return written
