"""Values of keys that name files and folders: `~` and variables in them are replaced."""

import os
import re
from pathlib import Path

from fmtkit.core.errors import OptionError
from fmtkit.core.options import refuse_empty

PLAIN = re.compile(r"[^~$:]+")
"""A path that says by itself where it is: neither empty, nor a URL, nor with anything to be replaced."""
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def read(name: str, value: object) -> object:
    """Return a path, or a list of them, with `~` and $VARIABLES replaced.

    Raises OptionError for a variable that is not set.
    """
    if isinstance(value, list):
        return [read(name, item) for item in value]
    refuse_empty(value, name)
    if not isinstance(value, str) or "{{" in value or "{%" in value:
        return value
    unset = [v for v in _VARIABLE.findall(value) if v not in os.environ]
    if unset:
        raise OptionError(f"{name}: {value}: the variable {unset[0]} is not set")
    return os.path.expandvars(str(Path(value).expanduser()) if value[:1] == "~" else value)
