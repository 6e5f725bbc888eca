"""What `--set KEY=VALUE` sets: a key, or a value inside of one."""

from collections.abc import Mapping, Sequence

from fmtkit.core.errors import OptionError
from fmtkit.training.config import keys
from fmtkit.training.config.keys import aliases, find_key, section_names
from fmtkit.training.config.yaml_file import parse


def read(text: str, settings: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return the origin of what `KEY=VALUE` sets, and the key with its value.

    A dotted key may reach into a mapping or a list among the settings.

    Raises OptionError for what is not `KEY=VALUE`, UnknownNameError for a key that is not there.
    """
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise OptionError(f"--set {text}: takes KEY=VALUE")
    origin = f"--set {name}"
    parsed = parse(f"value: {value}", origin)["value"] if value else None
    if name in aliases() or find_key(name) is not None:
        return origin, {aliases().get(name, name): parsed}
    section, _, rest = name.partition(".")
    section = aliases().get(section, section)
    if rest and find_key(section) is not None and section not in section_names():
        return origin, {section: _replaced(settings.get(section), rest.split("."), parsed, origin)}
    keys.check(name)
    return origin, {}


def _replaced(value: object, path: Sequence[str], new: object, origin: str) -> object:
    """Return a mapping or list with one inner value replaced."""
    if not path:
        return new
    step, *rest = path
    if isinstance(value, list):
        if not step.isdigit() or int(step) >= len(value):
            raise OptionError(f"{origin}: there is no item {step}; it has {len(value)}")
        index = int(step)
        return [*value[:index], _replaced(value[index], rest, new, origin), *value[index + 1 :]]
    inner = value if isinstance(value, Mapping) else {}
    return {**inner, step: _replaced(inner.get(step), rest, new, origin)}
