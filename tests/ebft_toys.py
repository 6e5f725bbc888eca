"""Tiny models and tokenizers for the tests of EBFT, made from a config: nothing is downloaded."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TURNS = (
    "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
MARKS = [
    "<pad>",
    "<unk>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<think>",
    "</think>",
]


def tiny_model(vocabulary: int = 48, *, layers: int = 2, hidden: int = 32, seed: int = 0, **config):
    """Make a Llama with weights large enough that contexts change its logits visibly."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=2,
            initializer_range=0.3,
            **config,
        )
    )
    return model.eval()


def word_tokenizer(words: int = 40) -> PreTrainedTokenizerFast:
    """Make a tokenizer of whole words: marks first, then w1, w2, …"""
    vocabulary = {word: i for i, word in enumerate(MARKS + [f"w{i}" for i in range(1, words + 1)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<|end|>",
        chat_template=TURNS,
        padding_side="left",
    )


def lora(model):
    """Put a LoRA adapter whose effect is not zero on every linear layer of the body."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
    return get_peft_model(model, config)
