"""Advice in the words of a config: what a conversion says of its flags, said of the keys for them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fmtkit.converting.convert_options import ConvertOptions
from fmtkit.errors import FmtkitError
from fmtkit.options import flag_of


def _keys() -> Iterator[tuple[str, str]]:
    """Yield the long flag of every option of a conversion that is a key, and that key."""
    for name, declared in ConvertOptions.declared().items():
        found = dict.fromkeys(key.removeprefix("datasets.") for key in declared.keys)
        if found:
            yield rf"{flag_of(name, declared)}(?![\w-])", " or ".join(found)


_PAIR = r"([\w.-]+)=([^\s;,)]+)"
KEYS: tuple[tuple[str, str], ...] = (
    (
        r"--as messages: type (\S+) makes text; use --as text",
        r"type \1 makes finished text where this run needs messages; let it make lists of messages, "
        r"or name the columns by a mapping, type: {field_prompt: ..., prompt_format: ...}",
    ),
    (rf"--map {_PAIR}", r"columns: {\1: \2} beside its type"),
    (rf"--option {_PAIR}", r"options: {\1: \2} beside its type"),
    (r"--option roles", "roles beside its type"),
    (r"--chat-template NAME or FILE\.jinja", "chat_template: NAME or FILE.jinja"),
    (r"--plugin FILE\.py or -c CONFIG", "plugins: [FILE.py]"),
    *_keys(),
)
"""What a flag is called on the command line -> how a config says it."""


@contextmanager
def advice() -> Iterator[None]:
    """Let errors that are raised inside speak of keys instead of flags."""
    try:
        yield
    except FmtkitError as error:
        text = spoken(str(error))
        if text == str(error):
            raise
        raise _saying(error, text) from error


def spoken(message: str) -> str:
    """Return a message with the keys of a config for the flags that it names."""
    for flag, key in KEYS:
        message = re.sub(flag, key, message)
    return message


def _saying(error: FmtkitError, text: str) -> FmtkitError:
    """Make the same error with other words."""
    made = type(error).__new__(type(error), text)
    made.args = (text,)
    made.__dict__.update(error.__dict__)
    return made
