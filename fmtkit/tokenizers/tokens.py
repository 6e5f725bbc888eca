"""Tokenizers loaded from a folder: the ids of a string, the special tokens, the chat template.

They are loaded by `tokenizers`, not by transformers, which takes 4.4 s instead of 0.03 and gives the same
ids. Special tokens that only the configuration names are added as in transformers. As in transformers 5,
`add_bos_token` and `add_eos_token` are ignored if tokenizer.json determines how sequences begin and end. A
test compares the two.
"""

import json
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core import hub_access
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import TokenizerError

if TYPE_CHECKING:
    import tokenizers

SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)

HUB_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A loaded tokenizer, its special tokens by name and its chat templates by name."""

    name: str
    backend: "tokenizers.Tokenizer"
    special_tokens: dict[str, str] = field(default_factory=dict)
    chat_templates: dict[str, str] = field(default_factory=dict)

    @property
    def chat_template(self) -> str | None:
        """Return the text of the default chat template; None if there is none."""
        return self.chat_templates.get("default")

    @property
    def bos_id(self) -> int | None:
        """Return the id of the BOS token; None if there is none."""
        return self.special_id("bos_token")

    @property
    def eos_id(self) -> int | None:
        """Return the id of the EOS token; None if there is none."""
        return self.special_id("eos_token")

    @property
    def pad_id(self) -> int | None:
        """Return the id of the padding token, which may be 0; None if there is none."""
        return self.special_id("pad_token")

    def special_id(self, name: str) -> int | None:
        """Return the id of `bos_token`, `eos_token`, ...; None if the tokenizer has none."""
        text = self.special_tokens.get(name)
        return None if text is None else self.backend.token_to_id(text)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> "tokenizers.Encoding":
        """Tokenize one text, without BOS and EOS by default, since chat templates write them."""
        return self.backend.encode(text, add_special_tokens=add_special_tokens)

    def encode_batch(
        self, texts: list[str], *, add_special_tokens: bool = False
    ) -> list["tokenizers.Encoding"]:
        """Tokenize many texts on all cores, with the offsets of each token."""
        return list(self.backend.encode_batch(texts, add_special_tokens=add_special_tokens))

    def control_tokens(self) -> dict[str, int]:
        """Return the special tokens with their ids, longest first."""
        added = self.backend.get_added_tokens_decoder()
        found = {token.content: number for number, token in added.items() if token.special}
        return dict(sorted(found.items(), key=lambda item: (-len(item[0]), item[0])))

    def needs(self, name: str, use: str) -> str:
        """Return a special token; raise TokenizerError, which names the use, if it is missing."""
        text = self.special_tokens.get(name)
        if text is None or self.backend.token_to_id(text) is None:
            raise TokenizerError(
                f"tokenizer {self.name!r} has no {name}, which {use} needs; "
                f"set {name} in its tokenizer_config.json"
            )
        return text

    def needs_chat_template(self) -> str:
        """Return the default chat template; raise TokenizerError with advice if there is none."""
        if self.chat_template is None:
            others = ", ".join(sorted(self.chat_templates))
            named = f" (it has {others}, none of them named default)" if others else ""
            raise TokenizerError(
                f"tokenizer {self.name!r} has no chat template{named}; "
                "name one with --chat-template NAME or FILE.jinja"
            )
        return self.chat_template


def load(name: str | Path) -> Tokenizer:
    """Load a tokenizer from a folder, a tokenizer.json, or the hub (its cache first)."""
    return _load_folder(str(name), folder_of(name))


def folder_of(name: str | Path) -> Path:
    """Return the folder that a tokenizer is in, fetched from the hub if need be."""
    path = Path(name).expanduser()
    if path.is_file():
        if path.name != "tokenizer.json":
            raise TokenizerError(
                f"{str(name)!r} is a file; give the folder that holds tokenizer.json"
            )
        return path.parent
    return path if path.is_dir() else _fetch(str(name))


def _fetch(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    trouble: str | None = None
    patterns = [*HUB_FILES, "additional_chat_templates/*.jinja"]
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise TokenizerError(f"no tokenizer at {name!r}: there is no such folder")
    try:
        try:
            cached = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
        except LocalEntryNotFoundError:
            cached = None
        # A cache filled by another program may hold the model without its tokenizer.
        if cached is not None and (cached / "tokenizer.json").is_file():
            return cached
        with hub_access.bounded() as trouble:
            return Path(snapshot_download(name, allow_patterns=patterns))
    except (
        HFValidationError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OSError,
        ValueError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TokenizerError(
            f"no tokenizer {name!r}: no such folder here, and the hub did not provide it "
            f"({trouble or reason})"
        ) from error


def _load_folder(name: str, folder: Path) -> Tokenizer:
    import tokenizers

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise TokenizerError(
            f"{name!r} has no tokenizer.json (a fast tokenizer); save one there with "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    # tokenizers raises a bare Exception for a file that it does not understand.
    except Exception as error:
        raise TokenizerError(f"{file} cannot be read: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    config = _read_json(folder / "tokenizer_config.json")
    special = _special_tokens(config, _read_json(folder / "special_tokens_map.json"))
    _add_missing(backend, config, special)
    return Tokenizer(name, backend, special, _chat_templates(folder, config))


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise TokenizerError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise TokenizerError(f"{file} holds no JSON object")
    return found


def _special_tokens(config: dict[str, Any], older: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens by name: the usual ones, and a model's own, such as `image_token`."""
    found: dict[str, str] = {}
    extra = config.get("extra_special_tokens")
    own = extra if isinstance(extra, dict) else {}
    others = (name for name in (*config, *own) if name.endswith("_token"))
    for name in dict.fromkeys((*SPECIAL_NAMES, *others)):
        value = config.get(name, older.get(name, own.get(name)))
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _add_missing(
    backend: "tokenizers.Tokenizer", config: dict[str, Any], special: dict[str, str]
) -> None:
    from tokenizers import AddedToken

    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    declared = config.get("added_tokens_decoder") or {}
    for _, entry in sorted(declared.items(), key=lambda item: int(item[0])):
        if entry["content"] not in known:
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            backend.add_tokens(
                [AddedToken(entry["content"], **{f: entry.get(f, False) for f in flags})]
            )
            known.add(entry["content"])
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    named = list(extra.values() if isinstance(extra, dict) else extra)
    for token in [*special.values(), *(t["content"] if isinstance(t, dict) else t for t in named)]:
        if token not in known:
            backend.add_tokens([AddedToken(token, special=True)])
            known.add(token)


def _chat_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Return the templates by name; files take precedence over the configuration, as in transformers."""
    found: dict[str, str] = {}
    inline = config.get("chat_template")
    if isinstance(inline, str):
        found["default"] = inline
    if isinstance(inline, list):
        found |= {entry["name"]: entry["template"] for entry in inline}
    older = _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(older, str):
        found["default"] = older
    file = folder / "chat_template.jinja"
    if file.is_file():
        found["default"] = file.read_text(encoding="utf-8")
    for extra in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[extra.stem] = extra.read_text(encoding="utf-8")
    return found
