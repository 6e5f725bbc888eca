"""Finds chat templates by name: fmtkit's, TRL's, a tokenizer's, or a file.

A name can mean two templates. In a type (`llama3.intel`) it is the *family*: fmtkit's template first,
rendered with an empty `bos_token`. As `chat_template` of a config or `--chat-template` it is the template of
the *model*, with its BOS and its trimming: TRL's file if TRL is installed, since TRL's trainers know a
template by its source; else fmtkit's own of that model, which writes the same text.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from fmtkit.core.errors import DependencyError, TemplateError, UnknownNameError
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.tokenizers import tokens
from fmtkit.tokenizers.tokens import Tokenizer

_SUFFIX = ".jinja"

_FAMILIES, _MODELS = "fmtkit.templates", "fmtkit.templates.models"
TRAINING_SUFFIX = "_training"


def _stems(package: str) -> tuple[str, ...]:
    entries = (entry.name for entry in files(package).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in entries if name.endswith(_SUFFIX)))


SHIPPED = _stems(_FAMILIES)
"""The families of fmtkit, one file each."""

MODELS = tuple(name for name in _stems(_MODELS) if not name.endswith(TRAINING_SUFFIX))
"""The models of which fmtkit has a template of its own, by the names that TRL gives them."""

ALIASES = {
    "mistral": "mistral_v3_tekken",
    "mistral_v2v3": "mistral_v3",
    "aya": "trl:cohere",
    "cohere": "trl:cohere",
    "deepseek_r1": "trl:deepseek_r1_distill",
    "deepseek_v3": "trl:deepseekv3",
    "gemma2": "trl:gemma",
    "gemma3": "trl:gemma3",
    "gemma4": "trl:gemma4",
    "glm4_moe": "trl:glm4moe",
    "gpt_oss": "trl:gptoss",
    "lfm2": "trl:lfm2",
    "llama3_1": "trl:llama3_1",
    "llama3_2": "trl:llama3_2",
    "phi_3": "trl:phi3",
    "phi_35": "trl:phi3_5",
    "qwen2_5": "trl:qwen2_5",
    "qwen_25": "trl:qwen2_5",
    "qwen3": "trl:qwen3",
}
"""Names in other tools -> the name here."""

OF_THE_TOKENIZER = frozenset(
    {
        "command_a",
        "command_a_rag",
        "command_a_tool_use",
        "deepseek_v2",
        "exaone",
        "exaone4",
        "falcon_h1",
        "gemma3n",
        "gemma4_unified",
        "jamba",
        "llama3_2_vision",
        "llama4",
        "mistral_v7_tekken",
        "phi_4",
        "pixtral",
        "qwen2_vl",
        "qwen3_5",
    }
)
"""Names for which axolotl ships a copy of a model's template; here the model's tokenizer has it."""

MODEL_FIRST = frozenset(SHIPPED) & frozenset(MODELS)
"""Families of fmtkit whose name is that of a model, too."""

LIKE = 0.8
"""How similar a misspelt name is, from 0 to 1: less and it is that of another model."""
TOKENIZER_DEFAULT = "tokenizer_default"
TRL_PREFIX = "trl:"
WITHOUT_TOKENIZER = {"bos_token": ""}


def names() -> list[str]:
    """Return every available name of a template, apart from files and tokenizers."""
    here = {*SHIPPED, *MODELS, *trl_names()}
    known = {name for name, target in ALIASES.items() if target.removeprefix(TRL_PREFIX) in here}
    return sorted({*SHIPPED, *MODELS, *known, *(TRL_PREFIX + name for name in trl_names())})


@cache
def is_known(name: str) -> bool:
    """Return whether a name is that of a template, even if its package is not installed."""
    return (
        name in SHIPPED
        or name in MODELS
        or name in ALIASES
        or name == TOKENIZER_DEFAULT
        or name.removeprefix(TRL_PREFIX) in trl_names()
    )


def is_of_tokenizer(name: str) -> bool:
    """Return whether a name means the template of the model's own tokenizer."""
    return name == TOKENIZER_DEFAULT or name in OF_THE_TOKENIZER


def near_name(name: str) -> str | None:
    """Return the known name that was probably meant, or None.

    Spelling may differ, a version not: `qwen2.5` is qwen2_5 and `phi4` phi_4, but `llama2` is not llama3_2.
    """
    known = {one: _plain(one) for one in _known()}
    asked = _plain(name)
    alike = [one for one, plain in known.items() if plain == asked]
    if alike:
        return min(alike, key=lambda one: (one in ALIASES, one))
    same = {plain: one for one, plain in sorted(known.items()) if _may_be(plain, asked)}
    near = get_close_matches(asked, same, n=1, cutoff=LIKE)
    return same[near[0]] if near else None


def _may_be(plain: str, asked: str) -> bool:
    """Return whether a misspelt name may be meant: that of a model with another initial or version is not."""
    return plain[:1] == asked[:1] and _version(plain) == _version(asked)


def unknown(name: str) -> UnknownNameError:
    """Return the error for a name that no template has, with the one that was probably meant."""
    near = near_name(name)
    if near is not None:
        return UnknownNameError("template", name, [near], near=near)
    advice = "; the template of another model is in its tokenizer (tokenizer_default), or a file PATH.jinja"
    return UnknownNameError("template", name, _known(), advice, near=None)


def _known() -> set[str]:
    trained = {name for name in trl_names() if name.endswith(TRAINING_SUFFIX)}
    return {
        *SHIPPED,
        *MODELS,
        *ALIASES,
        *trl_names(),
        *OF_THE_TOKENIZER,
        TOKENIZER_DEFAULT,
    } - trained


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _version(name: str) -> str:
    return re.sub(r"[^0-9]", "", name)


def is_inline(name: str) -> bool:
    """Return whether a name is the text of a template itself."""
    return "{{" in name or "{%" in name


def find_family(name: str) -> ChatTemplate:
    """Find the template that a type names: fmtkit's own first, and with an empty BOS.

    Raises UnknownNameError, DependencyError where TRL is missing, TemplateError for a bad file.
    """
    if name in SHIPPED:
        return _shipped(name)
    return _find(name, None)


def find_model_template(name: str, *, tokenizer: str | Path | None = None) -> ChatTemplate:
    """Find the model's template of a name, with the special tokens of a tokenizer if one is given.

    Raises UnknownNameError, DependencyError where TRL is missing, TemplateError for a bad file or
    where the tokenizer has no template, TokenizerError.
    """
    loaded = tokens.load(tokenizer) if tokenizer is not None else None
    if name == TOKENIZER_DEFAULT:
        return _tokenizer_default(loaded)
    named = ALIASES[name].removeprefix(TRL_PREFIX) if name in ALIASES else name
    found = _of_model(named) if named in MODEL_FIRST else _find(name, loaded)
    return found.with_tokens(loaded.special_tokens) if loaded else found


def _find(name: str, tokenizer: Tokenizer | None) -> ChatTemplate:
    if is_inline(name):
        return recognised("inline template", name, WITHOUT_TOKENIZER)
    if name.endswith((".jinja", ".j2")):
        return _file(Path(name).expanduser())
    if name.startswith(TRL_PREFIX):
        return _trl(name.removeprefix(TRL_PREFIX))
    name = ALIASES.get(name, name).removeprefix(TRL_PREFIX)
    if name in SHIPPED:
        return _shipped(name)
    if is_of_tokenizer(name):
        return _tokenizer_default(tokenizer)
    if name in MODELS or name in trl_names() or TRL_PREFIX + name in ALIASES.values():
        return _of_model(name)
    raise unknown(name)


def _shipped(name: str) -> ChatTemplate:
    return ChatTemplate(name, _source(_FAMILIES, name), WITHOUT_TOKENIZER, trusted=True)


def _of_model(name: str) -> ChatTemplate:
    if name in trl_names() or name not in MODELS:
        return _trl(name)
    return own_of_model(name)


def own_of_model(name: str) -> ChatTemplate:
    """Return fmtkit's own template of a model, whether or not TRL is installed."""
    return ChatTemplate(
        name, _source(_MODELS, name), WITHOUT_TOKENIZER, trusted=True, training=_own_training(name)
    )


def _own_training(name: str) -> str | None:
    variant = name + TRAINING_SUFFIX
    return _source(_MODELS, variant) if variant in _stems(_MODELS) else None


def _file(path: Path) -> ChatTemplate:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"the template {str(path)!r} cannot be read: {error}") from error
    return recognised(str(path), source, WITHOUT_TOKENIZER)


def _tokenizer_default(tokenizer: Tokenizer | None) -> ChatTemplate:
    if tokenizer is None:
        raise TemplateError("tokenizer_default is a tokenizer's own template: give --tokenizer")
    source = tokenizer.needs_chat_template()
    return recognised(f"{TOKENIZER_DEFAULT} of {tokenizer.name}", source, tokenizer.special_tokens)


def recognised(name: str, source: str, special_tokens: Mapping[str, str]) -> ChatTemplate:
    """Trust a foreign template that equals one of TRL's or fmtkit's exactly.

    A run gives its tokenizer such a template: where it is read again, no worker process is started.
    """
    for trl in trl_names():
        if _trl_source(trl) == source:
            return ChatTemplate(
                name, source, special_tokens, trusted=True, training=_trl_training(trl)
            )
    for own in MODELS:
        if _source(_MODELS, own) == source:
            return ChatTemplate(
                name, source, special_tokens, trusted=True, training=_own_training(own)
            )
    known = any(_source(_FAMILIES, own) == source for own in SHIPPED)
    return ChatTemplate(name, source, special_tokens, trusted=known)


@cache
def _source(package: str, name: str) -> str:
    return files(package).joinpath(name + _SUFFIX).read_text(encoding="utf-8")


@cache
def trl_folder() -> Path | None:
    """Return where the installed TRL keeps its templates. Importing TRL would take ten seconds."""
    spec = find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "chat_templates"
    return folder if folder.is_dir() else None


@cache
def trl_names() -> tuple[str, ...]:
    """Return the names of the templates in the installed TRL; none where there is none."""
    folder = trl_folder()
    return tuple(sorted(path.stem for path in folder.glob("*.jinja"))) if folder else ()


@cache
def _trl_source(name: str) -> str:
    folder = trl_folder()
    assert folder is not None
    return (folder / f"{name}.jinja").read_text(encoding="utf-8")


def _trl_training(name: str) -> str | None:
    variant = name + TRAINING_SUFFIX
    return _trl_source(variant) if variant in trl_names() else None


def _trl(name: str) -> ChatTemplate:
    if trl_folder() is None:
        own = f"{name!r} names fmtkit's own of this model; " if name in MODELS else ""
        raise DependencyError(
            f"the template {name!r} is a file of TRL, which is not installed: {own}"
            "pip install --no-deps trl brings the files alone, fmtkit[train] what training needs too"
        )
    if name not in trl_names():
        raise UnknownNameError("template in TRL", name, trl_names())
    training = _trl_training(name)
    return ChatTemplate(
        TRL_PREFIX + name, _trl_source(name), WITHOUT_TOKENIZER, trusted=True, training=training
    )
