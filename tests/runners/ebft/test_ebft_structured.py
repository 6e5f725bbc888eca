"""The reward and the trainer of structured EBFT: sequences, caps, rollouts, losses, short runs."""

import math
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch
import vllm_stub as vllm
from datasets import Dataset
from ebft_toys import lora, tiny_model, word_tokenizer
from torch import Tensor, tensor
from trl import GRPOConfig

from fmtkit.core.errors import ColumnMismatchError, FmtkitError, OptionError
from fmtkit.runners.ebft.conversation_rollout import (
    ConversationRollouts,
    first_turn,
    inserted_turns,
)
from fmtkit.runners.ebft.feature_network import adapter_network, copied_network
from fmtkit.runners.ebft.features import layer_indices, pool, token_features
from fmtkit.runners.ebft.reference_loss import reference_batch, reference_loss
from fmtkit.runners.ebft.reference_sequences import Renderer, TokenSequence, without_opened_tag
from fmtkit.runners.ebft.reward_function import padded
from fmtkit.runners.ebft.settings import read_settings
from fmtkit.runners.ebft.structured import EBFTTrainer, generation_cap, has_turns
from fmtkit.training.vllm.rollout_settings import RolloutSettings, capped

TOKENIZER = word_tokenizer()
RENDERER = Renderer(TOKENIZER, {0, 2}, 512)
USER, ASSISTANT, END = 4, 5, 2
QUESTION = [{"role": "user", "content": "w1 w2"}]


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def rows(count: int = 4, *, turns: bool = False) -> list[dict]:
    out = []
    for i in range(count):
        row = {
            "prompt": [turn("user", f"w{i + 1} w{i + 2}")],
            "ground_truth": " ".join(f"w{i + j}" for j in range(3, 6 + i)),
        }
        if turns:
            more = [turn("user", f"w{i + 9}"), turn("assistant", f"w{i + 11} w{i + 12}")]
            row["remaining_turns"] = [] if i % 2 else more
        out.append(row)
    return out


def make_trainer(path: Path, model=None, data=None, *, ebft=None, **values: object) -> EBFTTrainer:
    model = tiny_model() if model is None else model
    make_network = adapter_network if hasattr(model, "peft_config") else copied_network
    arguments = {
        "output_dir": str(path),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 8,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "max_steps": 2,
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "loss_type": "grpo",
    }
    data = rows() if data is None else data
    return EBFTTrainer(
        model=model,
        args=GRPOConfig(**(arguments | values)),
        train_dataset=data if isinstance(data, Dataset) else Dataset.from_list(data),
        processing_class=word_tokenizer(),
        settings=read_settings({"feature_layers": [0.5, 1.0], **(ebft or {})}),
        network=make_network(model),
    )


# --- sequences ----------------------------------------------------------------------------------


def test_generated_and_reference_begin_with_the_same_prompt() -> None:
    generated = RENDERER.generated(QUESTION, [10, 11, END, 0, 0])
    assert generated == TokenSequence([USER, 8, 9, END, ASSISTANT, 10, 11], 5)
    reference = RENDERER.reference(QUESTION, "w4")
    assert reference == TokenSequence([USER, 8, 9, END, ASSISTANT, 11], 5)


def test_a_text_prompt_is_tokenised_as_it_is() -> None:
    assert RENDERER.generated("w1 w2", [10]) == TokenSequence([8, 9, 10], 2)
    assert RENDERER.reference("w1 w2", "w3") == TokenSequence([8, 9, 10], 2)


def test_a_reference_of_several_turns_is_the_whole_conversation() -> None:
    later = [turn("user", "w4"), turn("assistant", "w5")]
    out = RENDERER.reference(QUESTION, "w3", later)
    assert out.ids == [USER, 8, 9, END, ASSISTANT, 10, END, USER, 11, END, ASSISTANT, 12]
    assert out.prompt == 5


def test_several_turns_after_a_text_prompt_are_refused() -> None:
    with pytest.raises(ColumnMismatchError, match="give the prompt as messages"):
        RENDERER.reference("w1", "w2", [turn("user", "w4"), turn("assistant", "w5")])


def test_long_sequences_lose_their_beginning() -> None:
    short = Renderer(TOKENIZER, {0, 2}, 4)
    out = short.generated(QUESTION, [10, 11, 12])
    assert out == TokenSequence([ASSISTANT, 10, 11, 12], 1, truncated=True)
    assert short.generated(QUESTION, [10, 11, 12, 13, 14]).prompt == 0


@pytest.mark.parametrize(
    ("prompt", "answer", "left"),
    [
        ("x <think>\n", "<think>\nadd</think>4", "add</think>4"),
        ("x <think>", "<think>\nadd", "\nadd"),
        ("x <think>\n", "<think>add", "add"),
        ("x", "<think>\nadd", "<think>\nadd"),
        ("x <think>\n", "4", "4"),
        ("x <think> y", "<think>4", "<think>4"),
        ("x <|begin_of_thought|>", "<|begin_of_thought|>a", "a"),
        ("x <think>", "<reasoning>a", "<reasoning>a"),
    ],
)
def test_a_thinking_tag_is_never_doubled(prompt: str, answer: str, left: str) -> None:
    assert without_opened_tag(prompt, answer) == left


def test_the_suffix_between_turns_follows_the_end_of_text() -> None:
    assert RENDERER.suffix_ids([turn("user", "w4")]) == [USER, 11, END, ASSISTANT]


def test_a_template_that_rewrites_answers_cannot_take_further_turns() -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% if loop.last or m.role == 'user' %}{{ m.content }} "
        "{% endif %}{% endfor %}"
    )
    with pytest.raises(ColumnMismatchError, match="renders an answer differently"):
        Renderer(tokenizer, {0, 2}, 512).suffix_ids([turn("user", "w4")])


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_tokenizers_padding_side_does_not_matter(side: str) -> None:
    TOKENIZER.padding_side = side
    body = tiny_model().model
    sequences = [TokenSequence([8, 9, 10, 11], 2), TokenSequence([8, 9], 1)]

    def embedded(batch: list[TokenSequence], method) -> Tensor:
        p = padded(batch, torch.device("cpu"))
        indices = layer_indices([0.5, 1.0], 2)
        return pool(
            token_features(body, p.ids, indices, attention_mask=p.mask),
            p.lengths,
            p.prompts,
            method,
        )

    for method in ("last_token", "mean_pooling", "completion_mean", "concat"):
        together = embedded(sequences, method)
        alone = torch.cat([embedded([one], method) for one in sequences])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


# --- caps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "longest", "cap"),
    [([10, 40], 256, 64), ([100], 256, 150), ([500], 256, 256), ([10], 32, 32), ([500], 32, 32)],
)
def test_the_cap_follows_the_references_below_the_users_own(lengths, longest, cap) -> None:
    assert generation_cap(lengths, 1.5, longest) == cap


@pytest.mark.parametrize("vllm", [False, True])
def test_a_cap_is_taken_back_even_after_an_error(vllm: bool) -> None:
    trainer = SimpleNamespace(
        use_vllm=vllm,
        generation_config=SimpleNamespace(max_new_tokens=100),
        vllm_generation=SimpleNamespace(max_completion_length=100),
        max_completion_length=100,
    )

    def generate() -> None:
        with capped(trainer, 7):
            assert trainer.generation_config.max_new_tokens == (100 if vllm else 7)
            assert trainer.vllm_generation.max_completion_length == (7 if vllm else 100)
            assert trainer.max_completion_length == 100
            raise RuntimeError

    with pytest.raises(RuntimeError):
        generate()
    assert trainer.generation_config.max_new_tokens == 100
    assert trainer.vllm_generation.max_completion_length == 100


def test_the_trainer_generates_no_more_than_the_references_suggest(tmp_path: Path) -> None:
    data = [{"prompt": QUESTION, "ground_truth": "w3"}]
    trainer = make_trainer(
        tmp_path, data=data, max_completion_length=100, generation_kwargs={"eos_token_id": None}
    )
    trainer.train()
    assert trainer.state.log_history[0]["completions/max_length"] == 64
    assert trainer.generation_config.max_new_tokens == 100
    trainer.settings = read_settings({"adaptive_max_tokens": False})
    assert trainer.cap(data) == 100


class Served:
    """A server that gives every prompt one answer, and notes how long the answers might be."""

    def __init__(self) -> None:
        self.limits: list[tuple[str, int]] = []

    def generate(self, prompts: list[list[int]], n: int, max_tokens: int, **_: object) -> dict:
        own = "long" if 9 in prompts[0] else "short"
        self.limits.append((own, max_tokens))
        answers = [[10 + k, 11, END] for _ in prompts for k in range(n)]
        logprobs = [[[-1.0]] * 3 for _ in answers]
        return {"prompt_ids": prompts, "completion_ids": answers, "logprobs": logprobs}


@pytest.mark.parametrize("ahead", [False, True])
def test_answers_are_capped_by_their_own_references_ahead_of_time_too(
    tmp_path: Path, ahead: bool
) -> None:
    long = {"prompt": [turn("user", "w1 w2")], "ground_truth": "w3 " * 80}
    short = {"prompt": [turn("user", "w1 w3")], "ground_truth": "w3"}
    trainer = make_trainer(tmp_path, data=[long, short], max_completion_length=200, max_steps=6)
    server = Served()
    vllm.attach(trainer, server)
    trainer.vllm_generation.sync_weights = lambda: None
    trainer.rollouts = RolloutSettings(async_prefetch=ahead)
    trainer.train()
    assert len(server.limits) == 6
    assert set(server.limits) == {("long", 120), ("short", 64)}
    assert trainer.vllm_generation.max_completion_length == 200


# --- the reward ---------------------------------------------------------------------------------


def test_rewards_equal_those_computed_one_sequence_at_a_time(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    prompts = [QUESTION] * 4
    completions = [[10, 11], [12], [13, 14, 15, END], []]
    body = tiny_model().model
    trainer.model.train()

    def embed(ids: list[int]) -> Tensor:
        states = body(tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
        parts = [states[i][0, -1] / states[i][0, -1].norm() for i in (1, 2)]
        whole = torch.cat(parts)
        return whole / whole.norm()

    prompt = [USER, 8, 9, END, ASSISTANT]
    x = torch.stack([embed(prompt + [t for t in ids if t != END]) for ids in completions])
    g = embed([*prompt, 10, 11])
    gram = x @ x.T
    expected = 2 * (x @ g) - 2 * (gram.sum(1) - gram.diagonal()) / 3
    logged: dict[str, float] = {}
    out = trainer.reward_funcs[0](
        prompts=prompts,
        completions=None,
        completion_ids=completions,
        ground_truth=["w3 w4"] * 4,
        log_metric=lambda name, value: logged.update({name: value}),
    )
    torch.testing.assert_close(tensor(out), expected, atol=1e-5, rtol=0)
    assert logged["ebft/reward"] == pytest.approx(expected.mean().item(), abs=1e-5)
    assert logged["ebft/alignment"] == pytest.approx(2 * (x @ g).mean().item(), abs=1e-5)
    assert logged["ebft/truncated_frac"] == 0


def test_each_row_is_compared_with_its_own_turns(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.model.train()
    other = [turn("user", "w9")]
    later = [turn("user", "w4"), turn("assistant", "w5")]
    conversation = [10, END, USER, 11, END, ASSISTANT, 12, END]
    out = trainer.reward_funcs[0](
        prompts=[QUESTION] * 4 + [other] * 4,
        completions=None,
        completion_ids=[[10]] * 4 + [conversation] * 4,
        ground_truth=["w3"] * 8,
        remaining_turns=[[]] * 4 + [later] * 4,
    )
    # Every sample is its reference, and so all are alike: 2·1 − 2·1.
    torch.testing.assert_close(tensor(out), torch.zeros(8), atol=1e-5, rtol=0)


def test_a_whitened_reward_logs_the_alignment_of_the_unit_vectors_too(tmp_path: Path) -> None:
    prompts, completions = [QUESTION] * 4, [[10, 11], [12], [13, 14, 15], [10]]
    logs: list[dict[str, float]] = []
    for whitening in (True, False):
        trainer = make_trainer(tmp_path, ebft={"use_whitening": whitening})
        trainer.model.train()
        logged: dict[str, float] = {}
        trainer.reward_funcs[0](
            prompts=prompts,
            completions=None,
            completion_ids=completions,
            ground_truth=["w3 w4"] * 4,
            log_metric=lambda name, value, into=logged: into.update({name: value}),
        )
        logs.append(logged)
    whitened, plain = logs
    for name in ("alignment", "diversity"):
        found = whitened[f"ebft/{name}_unwhitened"]
        assert found == pytest.approx(plain[f"ebft/{name}"], abs=1e-6)
        assert found != pytest.approx(whitened[f"ebft/{name}"], abs=1e-3)
    assert "ebft/alignment_unwhitened" not in plain


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"ground_truth": None}, ColumnMismatchError, "no column 'ground_truth'"),
        (
            {"prompts": [QUESTION] * 3 + [[turn("user", "w7")]]},
            FmtkitError,
            "row 3: its prompt is not that of row 0",
        ),
        ({"prompts": [QUESTION] * 3}, FmtkitError, "3 prompts do not divide into groups of 4"),
    ],
)
def test_rows_that_cannot_be_rewarded_stop_the_run(tmp_path, change, error, message) -> None:
    trainer = make_trainer(tmp_path)
    trainer.model.train()
    call = {
        "prompts": [QUESTION] * 4,
        "completions": None,
        "completion_ids": [[10]] * 4,
        "ground_truth": ["w3"] * 4,
    }
    with pytest.raises(error, match=message):
        trainer.reward_funcs[0](**(call | change))


def test_features_that_are_no_number_name_the_row(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.model.train()
    broken = tiny_model()
    broken.model.embed_tokens.weight.data[20] = math.nan
    trainer.reward_funcs[0].network = copied_network(broken)
    with pytest.raises(FmtkitError, match="row 2 of the completions: the features hold NaN"):
        trainer.reward_funcs[0](
            prompts=[QUESTION] * 4,
            completions=None,
            completion_ids=[[10], [11], [20], [12]],
            ground_truth=["w3"] * 4,
        )


# --- what is refused at the start ---------------------------------------------------------------


def test_data_without_references_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ColumnMismatchError, match=r"no column 'ground_truth'.*it has prompt, answer"
    ):
        make_trainer(tmp_path, data=[{"prompt": QUESTION, "answer": "w3"}])


def test_a_group_that_is_parted_over_devices_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.args.steps_per_generation = 1
    trainer.args.per_device_train_batch_size = 2
    with pytest.raises(
        OptionError, match=r"is 2, which is not a multiple of trl.num_generations \(4\)"
    ):
        trainer.check()


def test_the_unbiased_form_needs_three_generations(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="diversity_baseline: loo needs at least 3"):
        make_trainer(
            tmp_path,
            num_generations=2,
            ebft={"diversity_baseline": "loo"},
        )


def test_dropping_unused_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="remove_unused_columns: false"):
        make_trainer(tmp_path, remove_unused_columns=True)


# --- rollouts of several turns ------------------------------------------------------------------


def scripted(answers: list[list[list[int]]]):
    """Return a generator of scripted answers, and the prompts that it was asked."""
    asked: list[tuple[list[list[int]], int]] = []

    def generate(prompts: list[list[int]], group: int):
        asked.append((prompts, group))
        out = answers.pop(0)
        return out, [[-0.5] * len(one) for one in out]

    return generate, asked


def test_turns_alternate_and_inserted_tokens_are_masked() -> None:
    generate, asked = scripted([[[10, END], [11]], [[12, END], [13, END]], [[14]]])
    rollout = ConversationRollouts(generate, eos=END, ends=frozenset({END}), longest=50)
    first, second = rollout.run([[1], [1]], [[[6, 7]], [[6], [8]]], 2)
    assert first.completion == [10, END, 6, 7, 12, END]
    assert first.mask == [1, 1, 0, 0, 1, 1]
    assert first.logprobs == [-0.5, -0.5, 0.0, 0.0, -0.5, -0.5]
    # The second row was cut by its length: its end of text is inserted, not generated.
    assert second.completion == [11, END, 6, 13, END, 8, 14]
    assert second.mask == [1, 0, 0, 1, 1, 0, 1]
    assert [group for _, group in asked] == [2, 1, 1]
    assert asked[2][0] == [[1, 11, END, 6, 13, END, 8]]


def test_a_full_conversation_takes_no_further_turn() -> None:
    generate, asked = scripted([[[10] * 6, [10, END]], [[11] * 6]])
    rollout = ConversationRollouts(generate, eos=END, ends=frozenset({END}), longest=6)
    full, cut = rollout.run([[1], [1]], [[[6]], [[6]]], 2)
    assert full.completion == [10] * 6
    assert cut.completion == [10, END, 6, 11, 11, 11]
    assert cut.mask == [1, 1, 0, 1, 1, 1]
    assert len(asked[1][0]) == 1


def test_several_ranks_generate_for_every_row_in_every_round() -> None:
    generate, asked = scripted([[[10, END], [11, END]]] * 3)
    rollout = ConversationRollouts(
        generate, eos=END, ends=frozenset({END}), longest=50, rounds=lambda _: 2, together=True
    )
    first, second = rollout.run([[1], [1]], [[[6]], []], 2)
    assert [len(prompts) for prompts, _ in asked] == [2, 2, 2]
    assert first.completion == [10, END, 6, 10, END]
    assert second.completion == [11, END]


def test_turns_are_grouped_before_each_answer() -> None:
    u, a, t = turn("user", "x"), turn("assistant", "y"), turn("tool", "z")
    assert inserted_turns([u, a, t, u, a, u]) == [[u], [t, u]]
    assert inserted_turns([]) == inserted_turns(None) == []


def test_only_the_first_turn_may_train() -> None:
    assert first_turn([1, 1, 0, 0, 1]) == [1, 1, 0, 0, 0]
    assert first_turn([1, 1]) == [1, 1]


@pytest.mark.parametrize("which", ["all", "first"])
def test_conversations_train_on_what_was_generated(tmp_path: Path, which: str) -> None:
    trainer = make_trainer(
        tmp_path,
        data=rows(turns=True),
        ebft={"multi_turn_train": which, "adaptive_max_tokens": False},
        max_completion_length=24,
        generation_kwargs={"max_new_tokens": 4},
    )
    trainer.generation_config.max_new_tokens = 4
    trainer.model.train()
    seen: list[dict] = []
    inner = trainer._calculate_rewards

    def spied(inputs, prompts, completions, ids):
        seen.append({"ids": ids, "turns": [row["remaining_turns"] for row in inputs]})
        return inner(inputs, prompts, completions, ids)

    trainer._calculate_rewards = spied
    trainer.cap = lambda _: 4
    batch = [dict(row) for row in rows(1, turns=True) for _ in range(4)]
    output = trainer._generate_and_score_completions(batch)
    assert all(turns for turns in seen[0]["turns"])
    suffix = RENDERER.suffix_ids([turn("user", "w9")])
    for ids, mask, own in zip(
        seen[0]["ids"], output["tool_mask"], output["completion_mask"], strict=True
    ):
        kept = mask[: len(ids)].tolist()
        end = kept.index(0)
        assert end <= 4
        inserted = ids[end : end + len(suffix) + (ids[end - 1] != END)]
        assert inserted[-len(suffix) :] == suffix
        after = kept[end + len(inserted) :]
        assert after == [int(which == "all")] * len(after)
        assert len(after) >= 1
        assert own.sum() == len(ids)


def test_rows_without_a_reference_have_no_reward_and_the_others_theirs(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.model.train()
    other = [turn("user", "w9")]
    ids = [[10, 11], [12], [13, 14], [15]]
    logged: dict[str, float] = {}

    def rewarded(truths: list[str | None]) -> list[float | None]:
        return trainer.reward_funcs[0](
            prompts=[QUESTION] * 4 + [other] * 4,
            completions=None,
            completion_ids=ids * 2,
            ground_truth=truths,
            log_metric=lambda name, value: logged.update({name: value}),
        )

    whole = rewarded(["w3"] * 8)
    assert logged["ebft/no_reference"] == 0
    for missing in (None, " "):
        found = rewarded(["w3"] * 4 + [missing] * 4)
        assert found[4:] == [None] * 4
        assert found[:4] == pytest.approx(whole[:4])
        assert logged["ebft/no_reference"] == 1
        assert logged["ebft/reward"] == pytest.approx(sum(whole[:4]) / 4)
    assert rewarded([None] * 8) == [None] * 8


@pytest.mark.parametrize("settings", [{}, {"ce_coef": 0.5}])
def test_a_batch_without_any_reference_is_passed_and_counted(tmp_path: Path, settings) -> None:
    data = [{"prompt": QUESTION, "ground_truth": None}] * 4
    trainer = make_trainer(tmp_path, data=data, ebft=settings)
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    assert trainer.state.global_step == 2
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert all(log["ebft/no_reference"] >= 1 and log["loss"] == 0 for log in logs)
    for name, value in trainer.model.named_parameters():
        assert torch.equal(value, before[name]), name


# --- cross-entropy ------------------------------------------------------------------------------


def test_the_reference_loss_is_that_of_the_answer_and_its_end() -> None:
    model = tiny_model()
    data = [row for row in rows(2) for _ in range(3)]
    batch = reference_batch(data, RENDERER, 3)
    assert batch["gt_own"].tolist() == [True, False, False] * 2
    total, count = reference_loss(model, batch)
    expected, tokens = 0.0, 0
    for row in rows(2):
        prompt = RENDERER.prompt_ids(row["prompt"])
        answer = [*TOKENIZER(row["ground_truth"])["input_ids"], END]
        logits = model(tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        expected = expected - torch.log_softmax(logits, -1)[range(len(answer)), answer].sum()
        tokens += len(answer)
    torch.testing.assert_close(total, expected, atol=1e-4, rtol=1e-5)
    assert count == tokens


def test_a_group_without_a_reference_owns_none() -> None:
    data = [row for row in [rows(2)[0], rows(2)[1] | {"ground_truth": None}] for _ in range(3)]
    batch = reference_batch(data, RENDERER, 3)
    assert batch["gt_own"].tolist() == [True] + [False] * 5


def test_without_an_own_row_the_reference_loss_is_a_zero_with_a_gradient() -> None:
    model = tiny_model()
    batch = reference_batch(rows(1) * 4, RENDERER, 4)
    part = {name: values[1:3] for name, values in batch.items()}
    total, count = reference_loss(model, part)
    total.backward()
    assert total == 0
    assert count == 0
    assert model.lm_head.weight.grad.abs().sum() == 0


@pytest.mark.parametrize(("batch", "accumulation"), [(8, 1), (4, 2), (2, 4)])
def test_accumulation_leaves_the_cross_entropy_equal(tmp_path, batch, accumulation) -> None:
    model = tiny_model()
    trainer = make_trainer(
        tmp_path,
        model,
        data=rows(2),
        ebft={"ce_coef": 1.0, "alignment_coef": 0.0, "diversity_coef": 0.0},
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        optim="sgd",
        learning_rate=1.0,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        temperature=0.5,
    )
    start = tiny_model()
    trainer.train()
    total, count = reference_loss(
        start, reference_batch([r for r in rows(2) for _ in range(4)], RENDERER, 4)
    )
    (total / count).backward()
    for (name, after), before in zip(model.named_parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(
            after.detach(), before.detach() - before.grad, atol=1e-5, rtol=0, msg=name
        )
    if batch == 8:
        logged = trainer.state.log_history[0]["ebft/ce_loss"]
        assert logged == pytest.approx(float((total / count).detach()), abs=1e-4)


# --- runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("turns", [False, True])
def test_two_steps_train_and_log(tmp_path: Path, adapter: bool, turns: bool) -> None:
    model = lora(tiny_model()) if adapter else tiny_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = make_trainer(
        tmp_path,
        model,
        data=rows(turns=turns),
        ebft={"ce_coef": 0.1, "use_whitening": adapter},
        gradient_accumulation_steps=2,
        scale_rewards="none",
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == 2
    for name in ("alignment", "diversity", "cfm_loss", "reward", "truncated_frac", "ce_loss"):
        assert math.isfinite(steps[0][f"ebft/{name}"])
    assert "rewards/ebft/mean" in steps[0]
    assert all(math.isfinite(entry["loss"]) for entry in steps)
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert changed
    assert not adapter or all("lora" in name for name in changed)


@pytest.mark.parametrize("adapter", [False, True])
def test_features_stay_bit_identical_while_the_policy_trains(tmp_path: Path, adapter: bool) -> None:
    model = lora(tiny_model()) if adapter else tiny_model()
    trainer = make_trainer(tmp_path, model, learning_rate=0.1)
    ids = tensor([[8, 9, 10, 11]])

    def features() -> Tensor:
        with trainer.reward_funcs[0].network() as body:
            return body(input_ids=ids, use_cache=False).last_hidden_state.clone()

    before, policy = features(), model(ids).logits.detach().clone()
    trainer.train()
    model.eval()
    assert torch.equal(features(), before)
    assert not torch.allclose(model(ids).logits, policy)


def test_a_copy_made_after_the_trainer_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    with pytest.raises(OptionError, match="make the feature network first"):
        copied_network(trainer.model)


def test_adapters_that_change_the_base_model_are_refused() -> None:
    from peft import IA3Config, LoraConfig, get_peft_model

    biased = get_peft_model(tiny_model(), LoraConfig(target_modules=["q_proj"], bias="all"))
    with pytest.raises(OptionError, match=r"biases \(bias: all\)"):
        adapter_network(biased)
    scaled = IA3Config(target_modules=["k_proj"], feedforward_modules=[])
    with pytest.raises(OptionError, match="is a IA3Config"):
        adapter_network(get_peft_model(tiny_model(), scaled))


def test_evaluation_uses_its_own_group_size(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, num_generations_eval=2)
    result = trainer.evaluate(Dataset.from_list(rows(2)))
    assert math.isfinite(result["eval_ebft/reward"])
    assert "eval_ebft/ce_loss" not in result


def test_other_reward_functions_follow_ebfts(tmp_path: Path) -> None:
    model = tiny_model()
    trainer = EBFTTrainer(
        model=model,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=4,
            max_steps=1,
            logging_steps=1,
            disable_tqdm=True,
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list(rows()),
        processing_class=word_tokenizer(),
        settings=read_settings({}),
        network=copied_network(model),
        reward_funcs=[lambda completions, **_: [float(len(c)) for c in completions]],
    )
    trainer.train()
    assert trainer.reward_func_names[0] == "ebft"
    assert len(trainer.reward_func_names) == 2


@pytest.mark.parametrize("nothing", [None, []])
def test_a_column_without_any_later_turn_is_no_conversation(nothing):
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    table = {"ground_truth": ["a", "b"], "remaining_turns": pa.array([nothing] * 2, kind)}
    assert not has_turns(Dataset(pa.table(table)))
    assert has_turns({"eval": Dataset.from_list(rows(2, turns=True))})
    assert not has_turns(Dataset.from_list(rows(2)))
