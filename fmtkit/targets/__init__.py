"""One module for each target of `--to`; its name, with hyphens, is the target's name."""

import pkgutil


def shipped() -> tuple[str, ...]:
    """Return the names of fmtkit's own targets, sorted; none of them is imported for that."""
    found = (module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(found))
