"""Errors of a conversion in the words of a config: flags are replaced by keys."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from fmtkit.core.errors import FmtkitError
from fmtkit.core.options import flag_of
from fmtkit.options.convert_options import ConvertOptions
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
    key = key_meant(config, message, typed)
    if key is not None:
        return f"{config.source}:{config.lines[key]}: {text}"
    return f"{config.source}: {text}" if _meant(message, typed) else text


def key_meant(
    config: Config, message: str, typed: Collection[str] = (), dataset: str = ""
) -> str | None:
    """Return the first key of the file whose flag a message names; of one dataset, if it is given."""
    declared = ConvertOptions.declared()
    entry = re.escape(dataset) if dataset else r"datasets\.\d+"
    for name in _meant(message, typed):
        for key in declared[name].keys:
            place = re.compile(re.sub(r"^datasets\\\.", lambda _: rf"{entry}\.", re.escape(key)))
            for found in config.lines:
                if place.fullmatch(found):
                    return found
    return None


def _meant(message: str, typed: Collection[str]) -> list[str]:
    """Return the options whose flags a message names, in its order, without those in `typed`."""
    flags = {n: message.find(flag_of(n, one)) for n, one in ConvertOptions.declared().items()}
    return [n for _, n in sorted((at, n) for n, at in flags.items() if at >= 0 and n not in typed)]


def _saying(error: FmtkitError, text: str) -> FmtkitError:
    """Return the same error with a different message."""
    copy = type(error).__new__(type(error), text)
    copy.args = (text,)
    copy.__dict__.update(error.__dict__)
    return copy
