"""`chat_template_path` of TRL's files: a template's file, or a tokenizer whose template and tokens are taken.

TRL clones a tokenizer's template with its added tokens and its EOS. Here that is said by the keys of other
files: `chat_template`, `special_tokens` and `tokens`, and `peft_trainable_token_indices` of an adapter.
"""

from collections.abc import Mapping
from pathlib import Path

from fmtkit.core.errors import OptionError, TokenizerError
from fmtkit.tokenizers import tokens
from fmtkit.tokenizers.tokens import Tokenizer

KEY = "chat_template_path"
_FILES = (".jinja", ".jinja2", ".j2")
_INSIDE = "chat_template.jinja"


def read(values: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    """Return the keys by which a file without `chat_template_path` says what it says.

    Raises OptionError for a tokenizer that is neither here nor on the hub or has no template, and where
    another key names another template.
    """
    path = str(values[KEY])
    if path.endswith(_FILES):
        return _checked(values, {"chat_template": path})
    folder = Path(path).expanduser()
    if (folder / _INSIDE).is_file() and not (folder / "tokenizer.json").is_file():
        return _checked(values, {"chat_template": str(folder / _INSIDE)})
    try:
        source = tokens.load(path)
        text = source.needs_chat_template()
        inside = tokens.folder_of(path) / _INSIDE
    except TokenizerError as error:
        raise OptionError(
            f"{KEY}: {error}; name a .jinja file, a folder of a tokenizer, or one of the hub"
        ) from error
    named = {"chat_template": str(inside)}
    if not inside.is_file():
        named = {"chat_template": "jinja", "chat_template_jinja": text}
    return _checked(values, named) | _tokens(values, source, notes)


def _checked(values: Mapping[str, object], named: dict[str, str]) -> dict[str, object]:
    for key in ("chat_template", "chat_template_jinja"):
        if values.get(key) not in (None, named.get(key)):
            raise OptionError(f"{KEY} and {key} differ; keep one")
    return dict(named)


def _tokens(values: Mapping[str, object], source: Tokenizer, notes: list[str]) -> dict[str, object]:
    """Return the keys that give a model's tokenizer the source's EOS and the added tokens that it lacks."""
    own = _own(values)
    vocabulary = {} if own is None else own.backend.get_vocab(with_added_tokens=True)
    added = source.backend.get_added_tokens_decoder()
    lacking = [token for _, token in sorted(added.items()) if token.content not in vocabulary]
    given = values.get("special_tokens")
    special = dict(given) if isinstance(given, Mapping) else {}
    eos = source.special_tokens.get("eos_token")
    if eos is not None:
        if special.get("eos_token") not in (None, eos):
            notes.append(f"{KEY}: its eos_token {eos} is taken, as by TRL")
        special["eos_token"] = eos
    new = [token.content for token in lacking if token.special]
    if new:
        before = special.get("additional_special_tokens")
        special["additional_special_tokens"] = [*(before if isinstance(before, list) else ()), *new]
    out: dict[str, object] = {"special_tokens": special} if special else {}
    words = [token.content for token in lacking if not token.special]
    if words:
        before = values.get("tokens")
        out["tokens"] = [*(before if isinstance(before, list) else ()), *words]
    if lacking and own is not None and values.get("adapter"):
        first = own.backend.get_vocab_size(with_added_tokens=True)
        out["peft_trainable_token_indices"] = list(range(first, first + len(lacking)))
    return out


def _own(values: Mapping[str, object]) -> Tokenizer | None:
    """Return the tokenizer of the model; None where it is not to be had, and every token may be lacking."""
    names = ("tokenizer_config", "base_model", "model_name_or_path")
    name = next((str(values[n]) for n in names if values.get(n)), None)
    try:
        return None if name is None else tokens.load(name)
    except TokenizerError:
        return None
