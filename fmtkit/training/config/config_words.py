"""Errors of a conversion in the words of a config: flags are replaced by keys."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from fmtkit.converting.convert_options import ConvertOptions
from fmtkit.core.errors import FmtkitError
from fmtkit.core.options import flag_of
from fmtkit.training.config.config import Config


def _keys() -> Iterator[tuple[str, str, str]]:
    """Yield every option of a conversion that is a key: its name, its long flag, and that key."""
    for name, declared in ConvertOptions.declared().items():
        names = dict.fromkeys(key.removeprefix("datasets.") for key in declared.keys)
        if names:
            yield name, rf"{flag_of(name, declared)}(?![\w-])", " or ".join(names)


_PAIR = r"([\w.-]+)=([^\s;,)]+)"
KEYS: tuple[tuple[str, str, str], ...] = (
    (
        "as_",
        r"--as messages: type (\S+) makes text; use --as text",
        r"type \1 makes prerendered text where this run needs messages; let it make lists of messages, "
        r"or name the columns by a mapping, type: {field_prompt: ..., prompt_format: ...}",
    ),
    ("columns", rf"--map {_PAIR}", r"columns: {\1: \2} next to its type"),
    ("options", rf"--option {_PAIR}", r"options: {\1: \2} next to its type"),
    ("options", r"--option roles", "roles next to its type"),
    ("chat_template", r"--chat-template NAME or FILE\.jinja", "chat_template: NAME or FILE.jinja"),
    ("plugins", r"--plugin FILE\.py or -c CONFIG", "plugins: [FILE.py]"),
    *_keys(),
)
"""An option, what its flag is called on the command line, and how a config says it."""


@contextmanager
def advice(config: Config | None = None, typed: Collection[str] = ()) -> Iterator[None]:
    """Let errors that are raised inside the block name keys instead of flags.

    Options in `typed` were given on the command line and stay flags. With a `config`, the line of the
    first key that is named comes before the message.
    """
    try:
        yield
    except FmtkitError as error:
        message = str(error)
        text = spoken(message, typed)
        if text == message:
            raise
        raise _saying(error, _placed(config, message, text, typed)) from error


def spoken(message: str, typed: Collection[str] = ()) -> str:
    """Return a message with flags replaced by keys of a config, except for flags that were typed."""
    for name, flag, key in KEYS:
        if name not in typed:
            message = re.sub(flag, key, message)
    return message


def _placed(config: Config | None, message: str, text: str, typed: Collection[str]) -> str:
    """Put the file and the line of the first key that is meant before a message."""
    if config is None or text.startswith(config.source):
        return text
    declared = ConvertOptions.declared()
    flags = {name: message.find(flag_of(name, one)) for name, one in declared.items()}
    meant = sorted((at, name) for name, at in flags.items() if at >= 0 and name not in typed)
    for _, name in meant:
        for line in _lines(config, declared[name].keys):
            return f"{config.source}:{line}: {text}"
    return f"{config.source}: {text}" if meant else text


def _lines(config: Config, keys: Sequence[str]) -> Iterator[int]:
    """Yield the lines of the file that set one of these keys."""
    for key in keys:
        place = re.compile(re.escape(key).replace(r"datasets\.", r"datasets\.\d+\."))
        yield from (line for name, line in config.lines.items() if place.fullmatch(name))


def _saying(error: FmtkitError, text: str) -> FmtkitError:
    """Return the same error with a different message."""
    copy = type(error).__new__(type(error), text)
    copy.args = (text,)
    copy.__dict__.update(error.__dict__)
    return copy
