"""A tokenizer loads from its folder, says what it lacks, and equals what transformers loads."""

import json
from pathlib import Path

import pytest

from fmtkit.core.errors import TokenizerError
from fmtkit.tokenizers import tokens

GOLDENS = Path(__file__).parents[2] / "shared/data/goldens/tokenizer"
pytestmark = pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs ../shared/data/goldens")
TEXT = "<s>Hello <|im_start|>user\nIt's 1,234 naïve café 你好<|im_end|>\n  x"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_bytes((GOLDENS / "tokenizer.json").read_bytes())
    return tmp_path


def configure(folder: Path, **config: object) -> Path:
    text = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config})
    (folder / "tokenizer_config.json").write_text(text)
    return folder


VARIANTS = json.loads((GOLDENS / "variants.json").read_text()) if GOLDENS.is_dir() else {}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "extra", [{}, {"add_bos_token": True, "add_eos_token": True}, {"add_bos_token": False}]
)
def test_ids_equal_those_of_transformers(folder, variant, extra):
    transformers = pytest.importorskip("transformers")
    configure(folder, **VARIANTS[variant], **extra)
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    own = tokens.load(folder)
    assert own.encode(TEXT).ids == peer(TEXT, add_special_tokens=False)["input_ids"]
    assert own.encode(TEXT, add_special_tokens=True).ids == peer(TEXT)["input_ids"]
    assert (own.bos_id, own.eos_id, own.pad_id) == (
        peer.bos_token_id,
        peer.eos_token_id,
        peer.pad_token_id,
    )


def test_special_tokens_that_only_the_configuration_names_are_added(folder):
    transformers = pytest.importorskip("transformers")
    added = {
        "3072": {
            "content": "<new>",
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
            "normalized": False,
            "special": True,
        }
    }
    configure(
        folder,
        eos_token={"__type": "AddedToken", "content": "<fin>", "special": True},
        added_tokens_decoder=added,
        extra_special_tokens=["<also>"],
    )
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    own = tokens.load(folder)
    text = "a<new>b<fin><also>"
    assert own.encode(text).ids == peer(text, add_special_tokens=False)["input_ids"]
    assert own.eos_id == peer.eos_token_id


def test_pad_id_zero_is_an_id(folder):
    assert tokens.load(configure(folder, **VARIANTS["chatml_pad0"])).pad_id == 0


def test_a_tokenizer_json_stands_for_its_folder(folder):
    assert (
        tokens.load(folder / "tokenizer.json").encode("a b").ids
        == tokens.load(str(folder)).encode("a b").ids
    )


def test_truncation_and_padding_of_the_file_are_off(folder):
    description = json.loads((folder / "tokenizer.json").read_text())
    description["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    (folder / "tokenizer.json").write_text(json.dumps(description))
    assert len(tokens.load(folder).encode("one two three four five").ids) > 2


def test_a_template_file_stands_above_the_configuration(folder):
    configure(
        folder,
        chat_template=[
            {"name": "default", "template": "one"},
            {"name": "tool_use", "template": "two"},
        ],
    )
    assert tokens.load(folder).chat_templates == {"default": "one", "tool_use": "two"}
    (folder / "chat_template.jinja").write_text("file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("three")
    found = tokens.load(folder)
    assert found.chat_template == "file"
    assert found.chat_templates["rag"] == "three"


def test_control_tokens_come_longest_first(folder):
    found = list(tokens.load(folder).control_tokens())
    assert found[0] == "<|start_header_id|>"
    assert {"<|im_end|>", "[INST]"} <= set(found)


def test_what_is_missing_is_said_in_one_line(folder, tmp_path):
    bare = tokens.load(folder)
    for complaint, find in {
        "no pad_token, which padding needs": lambda: bare.needs("pad_token", "padding"),
        "no chat template; name one with --chat-template": bare.needs_chat_template,
        "no such folder": lambda: tokens.load("./nowhere/at/all"),
    }.items():
        with pytest.raises(TokenizerError, match=complaint) as caught:
            find()
        assert "\n" not in str(caught.value)
    configure(folder, eos_token="</s>")
    assert tokens.load(folder).needs("eos_token", "x") == "</s>"


def test_a_folder_without_a_fast_tokenizer_says_how_to_save_one(tmp_path):
    with pytest.raises(TokenizerError, match="save_pretrained"):
        tokens.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match="cannot be read"):
        tokens.load(tmp_path)
    (tmp_path / "vocab.txt").write_text("x")
    with pytest.raises(TokenizerError, match="give the folder"):
        tokens.load(tmp_path / "vocab.txt")


def test_a_name_that_is_no_folder_is_looked_up_in_the_hub(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TokenizerError, match="the hub did not provide it"):
        tokens.load("nobody/nothing")
