"""Anchors, layout, masks and sampling of strided EBFT, against forwards of one block at a time."""

import pytest
import torch
from ebft_toys import lora, tiny_model
from torch import Tensor, tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)
from versions import logits_of_each_row

from fmtkit.core.errors import OptionError
from fmtkit.counting.anchors import AnchorRule, anchor_positions
from fmtkit.runners.ebft.attention_support import attending, check_layers, choose_attention
from fmtkit.runners.ebft.block_generation import generate_blocks, sample
from fmtkit.runners.ebft.block_layout import BlockLayout
from fmtkit.runners.ebft.block_loss import cross_entropy, policy_loss, token_log_probs
from fmtkit.runners.ebft.block_mask import additive, dense_mask, flex_mask

pytestmark = logits_of_each_row
WORKED = BlockLayout(anchors=tensor([[2, 4]]), document=6, steps=2)
WORKED_MASK = """
1000000000
1100000000
1110000000
1111000000
1111100000
1111110000
1100001000
1111000100
1100001010
1111000101
"""


# --- anchors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "context", "steps", "stride", "count"),
    [
        (256, 8, 8, 8, 31),
        (1024, 8, 8, 8, 127),
        (40, 8, 4, 4, 8),
        (20, 8, 8, 8, 1),
        (16, 8, 8, 8, 1),
        (15, 8, 8, 8, 0),
    ],
)
def test_a_document_has_this_many_anchors(length, context, steps, stride, count) -> None:
    rule = AnchorRule(stride=stride, context_length=context, generate_max_len=steps)
    assert len(anchor_positions(rule, length, 0)) == count


@pytest.mark.parametrize(
    ("length", "prompt", "prefix", "expected"),
    [(6, 0, 0, [2, 4]), (5, 0, 0, [2]), (6, 3, 0, [3]), (6, 3, 1, [4])],
)
def test_anchors_begin_behind_the_prompt_and_its_prefix(length, prompt, prefix, expected) -> None:
    rule = AnchorRule(2, 2, 2, prefix)
    assert anchor_positions(rule, length, prompt) == expected


def test_a_window_that_leaves_the_mask_is_no_anchor() -> None:
    rule = AnchorRule(stride=1, context_length=1, generate_max_len=2)
    assert anchor_positions(rule, 8, 0, [0, 0, 1, 1, 1, 0, 1, 1]) == [2, 3, 6]


# --- layout and masks ---------------------------------------------------------------------------


def test_the_worked_mask_positions_and_predictors_hold() -> None:
    expected = [[int(c) for c in line] for line in WORKED_MASK.split()]
    assert dense_mask(WORKED)[0, 0].int().tolist() == expected
    assert WORKED.position_ids().tolist() == [[0, 1, 2, 3, 4, 5, 2, 4, 3, 5]]
    assert WORKED.predictors().tolist() == [[1, 3, 6, 7]]
    assert WORKED.windows().tolist() == [[[2, 3], [4, 5]]]


def test_no_query_is_blind() -> None:
    layout = BlockLayout(tensor([[1, 3, 1], [2, 4, 1]]), document=6, steps=3)
    assert dense_mask(layout).any(dim=-1).all()


def test_a_row_without_blocks_is_causal() -> None:
    layout = BlockLayout(torch.empty(1, 0, dtype=torch.long), document=4, steps=2)
    assert dense_mask(layout)[0, 0].int().tolist() == torch.ones(4, 4).tril().int().tolist()
    assert layout.predictors().shape == (1, 0)


def test_flex_and_dense_masks_are_the_same() -> None:
    from torch.nn.attention.flex_attention import create_mask

    from fmtkit.runners.ebft.block_mask import visibility

    layout = BlockLayout(tensor([[2, 4, 5], [1, 3, 2]]), document=9, steps=3)
    made = create_mask(visibility(layout), 2, 1, layout.size, layout.size, device="cpu")
    assert torch.equal(made, dense_mask(layout))
    # The block mask holds whole blocks of 128; here there is one, partly masked.
    assert flex_mask(layout).shape[-2:] == (layout.size, layout.size)


def test_the_generated_part_is_cut_out_by_block_and_step() -> None:
    values = torch.arange(10).view(1, 10, 1)
    assert WORKED.generated(values)[0, :, :, 0].tolist() == [[6, 8], [7, 9]]


# --- forwards -----------------------------------------------------------------------------------


def rows(seed: int = 0) -> tuple[Tensor, BlockLayout, Tensor]:
    """Two documents of 14 tokens with three anchors, two samples and three steps."""
    generator = torch.Generator().manual_seed(seed)
    document = torch.randint(3, 48, (2, 14), generator=generator)
    anchors = tensor([[4, 7, 10], [5, 8, 11]]).repeat(1, 2)
    layout = BlockLayout(anchors, document=14, steps=3)
    blocks = torch.randint(3, 48, (2, 3, 6), generator=generator)
    return document, layout, blocks


def block_logits(model, document: Tensor, layout: BlockLayout, blocks: Tensor, **inputs) -> Tensor:
    """Return the logits (B, G, M, V) that predict the generated tokens."""
    mask = additive(dense_mask(layout), torch.float32)
    output = model(
        input_ids=layout.join(document, blocks),
        attention_mask=mask,
        position_ids=layout.position_ids(),
        logits_to_keep=layout.predictors(),
        use_cache=False,
        **inputs,
    )
    return output.logits.view(*blocks.shape, -1)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_log_probs_equal_a_forward_of_each_block_alone(attention: str) -> None:
    model = tiny_model()
    model.set_attn_implementation(attention)
    document, layout, blocks = rows()
    mine = token_log_probs(block_logits(model, document, layout, blocks), blocks, 0.6)
    for row in range(2):
        for block in range(layout.blocks):
            anchor = int(layout.anchors[row, block])
            tokens = torch.cat([document[row, :anchor], blocks[row, :, block]])[None]
            logits = model(tokens).logits[0, anchor - 1 : -1]
            naive = torch.log_softmax(logits / 0.6, -1).gather(-1, blocks[row, :, block][:, None])
            torch.testing.assert_close(mine[row, :, block], naive[:, 0], atol=1e-5, rtol=0)


def test_changing_one_block_leaves_the_others_logits_unchanged() -> None:
    model = tiny_model()
    document, layout, blocks = rows()
    changed = blocks.clone()
    changed[:, :, 2] = (changed[:, :, 2] + 7) % 45 + 3
    before = block_logits(model, document, layout, blocks)
    after = block_logits(model, document, layout, changed)
    others = [0, 1, 3, 4, 5]
    assert torch.equal(before[:, :, others], after[:, :, others])
    assert not torch.equal(before[:, 1:, 2], after[:, 1:, 2])


def test_a_block_does_not_see_what_it_rewrites() -> None:
    model = tiny_model()
    document, layout, blocks = rows()
    changed = document.clone()
    changed[0, 7:] = (changed[0, 7:] + 5) % 45 + 3
    before = block_logits(model, document, layout, blocks)
    after = block_logits(model, changed, layout, blocks)
    seen_before_7 = [0, 1, 3, 4]
    assert torch.equal(before[0, :, seen_before_7], after[0, :, seen_before_7])
    assert not torch.allclose(before[0, :, 2], after[0, :, 2])


def test_the_document_does_not_see_the_blocks() -> None:
    model = tiny_model()
    document, layout, blocks = rows()
    joined = layout.join(document, blocks)
    mask = additive(dense_mask(layout), torch.float32)
    output = model(input_ids=joined, attention_mask=mask, position_ids=layout.position_ids())
    torch.testing.assert_close(output.logits[:, :14], model(document).logits, atol=1e-5, rtol=0)


def test_padding_changes_no_log_prob() -> None:
    model = tiny_model()
    document, layout, blocks = rows()
    padded = torch.cat([document, torch.zeros(2, 9, dtype=torch.long)], dim=1)
    longer = BlockLayout(layout.anchors, document=23, steps=3)
    torch.testing.assert_close(
        block_logits(model, padded, longer, blocks),
        block_logits(model, document, layout, blocks),
        atol=1e-5,
        rtol=0,
    )


def test_samples_in_one_row_equal_samples_in_repeated_rows() -> None:
    model = tiny_model()
    document, layout, blocks = rows()
    shared = block_logits(model, document, layout, blocks)
    repeated = document.repeat_interleave(2, dim=0)
    anchors = layout.anchors[:, :3].repeat_interleave(2, dim=0)
    single = BlockLayout(anchors, document=14, steps=3)
    split = torch.cat([blocks[:, :, :3], blocks[:, :, 3:]], dim=1).view(4, 3, 3)
    logits = block_logits(model, repeated, single, split)
    again = logits.view(2, 2, 3, 3, -1).permute(0, 2, 1, 3, 4).reshape(shared.shape)
    torch.testing.assert_close(shared, again, atol=1e-5, rtol=0)


# --- generation ---------------------------------------------------------------------------------


def generate_without_cache(
    model, document: Tensor, layout: BlockLayout, temperature: float
) -> Tensor:
    steps = torch.zeros(document.shape[0], layout.steps, layout.blocks, dtype=torch.long)
    for step in range(layout.steps):
        steps[:, step] = sample(block_logits(model, document, layout, steps)[:, step], temperature)
    return steps


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.5])
def test_cached_generation_equals_recomputing_the_whole_row(temperature: float) -> None:
    model = tiny_model()
    document, layout, _ = rows()
    with torch.no_grad():
        torch.manual_seed(5)
        cached = generate_blocks(model, document, layout, temperature=temperature)
        torch.manual_seed(5)
        dense = generate_without_cache(model, document, layout, temperature)
    assert torch.equal(cached, dense)


def test_greedy_blocks_continue_the_document_as_generate_does() -> None:
    model = tiny_model()
    document, layout, _ = rows()
    blocks = generate_blocks(model, document, layout, temperature=0.0)
    for block in range(3):
        anchor = int(layout.anchors[0, block])
        expected = model.generate(
            document[:1, :anchor],
            attention_mask=torch.ones(1, anchor, dtype=torch.long),
            max_new_tokens=3,
            min_new_tokens=3,
            do_sample=False,
            eos_token_id=None,
        )
        assert blocks[0, :, block].tolist() == expected[0, anchor:].tolist()


def test_padding_changes_no_sampled_token() -> None:
    model = tiny_model()
    document, layout, _ = rows()
    padded = torch.cat([document, torch.zeros(2, 5, dtype=torch.long)], dim=1)
    longer = BlockLayout(layout.anchors, document=19, steps=3)
    torch.manual_seed(2)
    short = generate_blocks(model, document, layout, temperature=0.9)
    torch.manual_seed(2)
    assert torch.equal(short, generate_blocks(model, padded, longer, temperature=0.9))


def test_sampling_follows_the_tempered_distribution() -> None:
    torch.manual_seed(0)
    logits = tensor([1.0, 0.0, -1.0]).expand(20000, 3)
    counts = torch.bincount(sample(logits, 0.5), minlength=3) / 20000
    torch.testing.assert_close(counts, torch.softmax(logits[0] / 0.5, 0), atol=0.01, rtol=0)


def test_top_p_keeps_the_likeliest_tokens_that_reach_it() -> None:
    torch.manual_seed(0)
    logits = tensor([0.5, 0.3, 0.15, 0.05]).log().expand(5000, 4)
    assert set(sample(logits, 1.0, top_p=0.7).tolist()) == {0, 1}
    assert set(sample(logits, 1.0, top_p=0.81).tolist()) == {0, 1, 2}
    assert set(sample(logits, 1.0, top_p=0.01).tolist()) == {0}


# --- losses -------------------------------------------------------------------------------------


def test_the_worked_policy_loss_tiles_advantages_over_steps() -> None:
    log_probs = tensor(
        [[[-0.5, -1.0], [-0.2, -0.4]], [[-0.7, -0.3], [-0.1, -0.9]]]
    )  # sample, step, anchor
    rewards = tensor([[1.0, 0.2], [0.4, 0.6]])  # sample, anchor
    from fmtkit.runners.ebft.energy_reward import advantages

    gained = advantages(rewards.T, "rloo").T
    torch.testing.assert_close(gained, tensor([[0.6, -0.4], [-0.6, 0.4]]))
    step_major = log_probs.permute(1, 0, 2).reshape(1, 2, 4)
    loss = policy_loss(step_major, gained.reshape(1, 4), torch.ones(1, 4, dtype=torch.bool))
    assert loss.item() == pytest.approx(-0.0175, abs=1e-6)


def test_blocks_that_are_not_valid_count_nowhere() -> None:
    log_probs, advantage = torch.randn(1, 2, 3), torch.randn(1, 3)
    valid = tensor([[True, True, False]])
    torch.testing.assert_close(
        policy_loss(log_probs, advantage, valid),
        policy_loss(log_probs[:, :, :2], advantage[:, :2], valid[:, :2]),
    )


def test_cross_entropy_is_that_of_the_next_labelled_token() -> None:
    logits, labels = torch.randn(2, 5, 7), tensor([[3, -100, 2, 5, -100, 1], [-100] * 6])
    kept = [(0, 2), (0, 3), (0, 5)]
    expected = sum(-torch.log_softmax(logits[r, j - 1], -1)[labels[r, j]] for r, j in kept) / 3
    torch.testing.assert_close(cross_entropy(logits, labels), expected)


def test_cross_entropy_without_a_target_is_zero_and_has_a_gradient() -> None:
    logits = torch.randn(1, 3, 7, requires_grad=True)
    loss = cross_entropy(logits, torch.full((1, 4), -100))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.abs().sum() == 0


def test_greedy_sampling_is_scored_at_temperature_one() -> None:
    logits, tokens = torch.randn(3, 7), tensor([1, 2, 3])
    assert torch.equal(token_log_probs(logits, tokens, 0.0), token_log_probs(logits, tokens, 1.0))


# --- which models and attentions ----------------------------------------------------------------


def small(config):
    return config(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=16,
        **({"head_dim": 8} if config is Gemma2Config else {}),
    )


def test_full_attention_is_fine() -> None:
    check_layers(tiny_model(), 10_000)
    check_layers(lora(tiny_model()), 10_000)


@pytest.mark.parametrize(
    ("config", "model"), [(MistralConfig, MistralForCausalLM), (Gemma2Config, Gemma2ForCausalLM)]
)
def test_a_window_shorter_than_a_row_is_refused(config, model) -> None:
    check_layers(model(small(config)), 16)
    with pytest.raises(OptionError, match=r"sliding window of at least .* = 17 tokens"):
        check_layers(model(small(config)), 17)


def test_recurrent_layers_are_refused() -> None:
    config = MambaConfig(vocab_size=32, hidden_size=16, state_size=4, num_hidden_layers=1)
    with pytest.raises(OptionError, match=r"linear_attention layers \(mamba\)"):
        check_layers(MambaForCausalLM(config), 8)


@pytest.mark.parametrize(
    ("requested", "used", "remark"),
    [
        (None, "sdpa", None),
        ("sdpa", "sdpa", None),
        ("eager", "eager", None),
        ("flex_attention", "flex_attention", None),
        ("flash_attention_2", "sdpa", "flash_attention_2 cannot take EBFT's mask"),
    ],
)
def test_attention_is_what_can_take_the_mask(requested, used, remark) -> None:
    chosen, said = choose_attention(requested)
    assert chosen == used
    assert (said is None) if remark is None else remark in said


def test_attention_is_switched_for_a_while() -> None:
    model = lora(tiny_model())
    before = model.config._attn_implementation
    with attending(model, "eager"):
        assert model.config._attn_implementation == "eager"
    assert model.config._attn_implementation == before
