"""Ids and masks equal those that the installed TRL's trainers and collators build of a row."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.masks import masks
from fmtkit.masks.masked import Masked
from fmtkit.masks.masking import Masking
from fmtkit.masks.masks import mask_steps
from fmtkit.rendering.row_templates import RowTemplate, compile_template
from fmtkit.tokenizers import tokens
from fmtkit.tokenizers.tokens import Tokenizer

ROOT = Path(__file__).parents[1]
GOLDENS = ROOT.parent / "shared/data/goldens/tokenizer"
pytestmark = pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs ../shared/data/goldens")

USER, BOT = "user", "assistant"


def say(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


CHATS = [
    say((USER, "Hello"), (BOT, "Hi! It's 5.")),
    say(("system", "Be"), (USER, "one"), (BOT, "two\n"), (USER, " three "), (BOT, "café 你好 <b>")),
    say((USER, "x"), (BOT, " ")),
]  # fmt: skip


@pytest.fixture(scope="module", params=["chatml", "llama3", "zephyr"])
def setup(request, tmp_path_factory) -> tuple[Path, Tokenizer, RowTemplate]:
    folder = tmp_path_factory.mktemp(request.param)
    variants = json.loads((GOLDENS / "variants.json").read_text())
    variant = variants[{"zephyr": "spm"}.get(request.param, request.param)]
    (folder / "tokenizer.json").write_bytes((GOLDENS / "tokenizer.json").read_bytes())
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **variant}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    source = (ROOT / "templates" / f"{request.param}.jinja").read_text()
    (folder / "chat_template.jinja").write_text(source)
    tokenizer = tokens.load(folder)
    return folder, tokenizer, compile_template(tokenizer.needs_chat_template(), tokenizer)


@pytest.fixture(scope="module")
def model(setup) -> str:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder, _, _ = setup
    config = transformers.LlamaConfig(
        vocab_size=3200, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    peer.save_pretrained(folder / "model")
    return str(folder / "model")


def trained_by(
    name: str, model: str, rows: list[dict[str, Any]], out: Path, **options: Any
) -> list[Any]:
    """Return what trainer `name` would feed the model: batches of one row, without padding."""
    pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoTokenizer

    module = (
        "trl" if name in ("SFT", "DPO", "KTO", "Reward") else f"trl.experimental.{name.lower()}"
    )
    trl = __import__(module, fromlist=["x"])
    config = getattr(trl, f"{name}Config")(
        output_dir=str(out),
        use_cpu=True,
        report_to="none",
        per_device_train_batch_size=1,
        **options,
    )
    peer = AutoTokenizer.from_pretrained(model)
    trainer = getattr(trl, f"{name}Trainer")(
        model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=peer
    )
    return [trainer.data_collator([row]) for row in trainer.train_dataset]


def assert_same(batch_ids: Any, batch_trained: Any, attention: Any, own: Masked) -> None:
    size = int(attention.sum())
    assert own.ids.tolist() == batch_ids[:size].tolist()
    assert own.trained.tolist() == [bool(flag) for flag in batch_trained[:size].tolist()]
    assert len(own.offsets) == len(own.ids)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.slow
def test_conversations_are_masked_as_sft_masks_them(setup, model, tmp_path, everything):
    _, tokenizer, template = setup
    rows = [{"messages": chat} for chat in CHATS]
    batches = trained_by("SFT", model, rows, tmp_path, assistant_only_loss=not everything)
    for row, batch in zip(rows, batches, strict=True):
        masking = Masking(train_on_inputs=everything)
        (own,) = masks.mask_row(row, "Conversation", tokenizer, template, masking)
        assert_same(
            batch["input_ids"][0], batch["labels"][0] != -100, batch["attention_mask"][0], own
        )


@pytest.mark.parametrize("assistant_only", [False, True])
@pytest.mark.slow
def test_completions_are_masked_as_sft_masks_them(setup, model, tmp_path, assistant_only):
    _, tokenizer, template = setup
    rows = [{"prompt": chat[:-1], "completion": chat[-1:]} for chat in CHATS]
    batches = trained_by("SFT", model, rows, tmp_path, assistant_only_loss=assistant_only)
    for row, batch in zip(rows, batches, strict=True):
        masking = Masking(assistant_only=assistant_only)
        (own,) = masks.mask_row(row, "Completion", tokenizer, template, masking)
        assert_same(
            batch["input_ids"][0], batch["labels"][0] != -100, batch["attention_mask"][0], own
        )


PAIRS = [{"prompt": c[:-1], "chosen": c[-1:], "rejected": say((BOT, "no idea"))} for c in CHATS]


@pytest.mark.slow
def test_pairs_are_masked_as_dpo_masks_them(setup, model, tmp_path):
    _, tokenizer, template = setup
    for row, batch in zip(PAIRS, trained_by("DPO", model, PAIRS, tmp_path), strict=True):
        for place, own in enumerate(masks.mask_row(row, "Preference", tokenizer, template)):
            assert own.side == ("chosen", "rejected")[place]
            parts = (batch[k][place] for k in ("input_ids", "completion_mask", "attention_mask"))
            assert_same(*parts, own)


@pytest.mark.slow
def test_pairs_are_scored_as_the_reward_trainer_scores_them(setup, model, tmp_path):
    _, tokenizer, template = setup
    for row, batch in zip(PAIRS, trained_by("Reward", model, PAIRS, tmp_path), strict=True):
        for place, own in enumerate(
            masks.mask_row(row, "Preference", tokenizer, template, Masking("reward"))
        ):
            size = int(batch["attention_mask"][place].sum())
            assert own.ids.tolist() == batch["input_ids"][place][:size].tolist()
            assert np.flatnonzero(own.trained).tolist() == [size - 1]


@pytest.mark.slow
def test_labelled_replies_are_masked_as_kto_masks_them(setup, model, tmp_path):
    _, tokenizer, template = setup
    rows = [{"prompt": c[:-1], "completion": c[-1:], "label": c is CHATS[0]} for c in CHATS]
    batches = trained_by("KTO", model, rows, tmp_path, loss_type="apo_zero_unpaired")
    for row, batch in zip(rows, batches, strict=True):
        (own,) = masks.mask_row(row, "Unpaired", tokenizer, template)
        assert_same(
            batch["input_ids"][0], batch["completion_mask"][0], batch["attention_mask"][0], own
        )


def test_steps_are_labelled_on_the_token_after_each(setup):
    _, tokenizer, _ = setup
    row = {"prompt": "1+1?", "completions": ["First", "so 2"], "labels": [True, False]}
    (own,) = masks.mask_row(row, "Stepwise", tokenizer)
    newline = tokenizer.encode("\n").ids
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    first, second = (tokenizer.encode(step).ids for step in row["completions"])
    prompt = [*bos, *tokenizer.encode("1+1?").ids]
    assert own.ids.tolist() == [*prompt, *first, *newline, *second, *newline]
    places = [len(prompt) + len(first), len(own.ids) - 1]
    assert np.flatnonzero(own.trained).tolist() == places
    assert own.steps == (1.0, 0.0)
    last = mask_steps(row, tokenizer, train_on_last_step_only=True)
    assert (np.flatnonzero(last.trained).tolist(), last.steps) == (places[1:], (0.0,))
    assert mask_steps({**row, "labels": [0.7, 1.0]}, tokenizer).notes


def test_token_rows_are_trained_where_their_labels_say_so(setup):
    _, tokenizer, _ = setup
    ids = tokenizer.encode("one two three").ids
    labels = [-100, *ids[1:]]
    row = {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels, "prompt_length": 1}
    (own,) = masks.mask_row(row, "Tokens", tokenizer)
    assert own.trained.tolist() == [False] + [True] * (len(ids) - 1)
    assert own.text == "one two three"


def test_prompts_are_context(setup):
    _, tokenizer, template = setup
    (own,) = masks.mask_row({"prompt": CHATS[0][:1]}, "Prompt", tokenizer, template)
    assert not own.trained.any()
    assert own.why.startswith("the row is context")


def test_replies_are_found_where_a_template_marks_none(setup):
    _, tokenizer, template = setup
    source = template.template.source.replace("generation %}", "if true %}", 1)
    bare = compile_template(source.replace("endgeneration %}", "endif %}"), tokenizer)
    for chat in CHATS:
        marked, found = (
            masks.mask_row({"messages": chat}, "Conversation", tokenizer, one)[0]
            for one in (template, bare)
        )
        assert found.ids.tolist() == marked.ids.tolist()
        # A turn ends where the next begins: what the template writes behind its end is learnt too.
        assert (found.trained | ~marked.trained).all()
        assert found.notes[0].startswith("the template marks no replies")


def test_a_conversation_needs_a_template(setup):
    _, tokenizer, _ = setup
    with pytest.raises(OptionError, match="--chat-template"):
        masks.mask_row({"messages": CHATS[0]}, "Conversation", tokenizer)


def test_a_template_that_rewrites_its_prompt_is_noted(setup):
    _, tokenizer, _ = setup
    source = "{% for m in messages %}[{{ loop.length }}]{{ m.content }}{% endfor %}"
    own = masks.mask_row(PAIRS[0], "Preference", tokenizer, compile_template(source, tokenizer))
    assert "not in the whole" in own[0].notes[0]


def test_a_method_that_is_not_there_is_an_error_before_any_row(tmp_path):
    from fmtkit.formats import typenames
    from fmtkit.inspection.as_trained import masking_of
    from fmtkit.options.inspect_options import InspectOptions

    name = typenames.read("mine.rows", functions=True)
    with pytest.raises(UnknownNameError, match="no method named 'grop'; did you mean 'grpo'"):
        masking_of(name, InspectOptions(method="grop"))
