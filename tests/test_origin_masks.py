"""Keys of sft that leave trained tokens out by where they come from: the batches hold what inspect shows."""

import pytest

pytest.importorskip("trl")

import tiny_training as tiny
from test_sft_masks import batches, spelled, trained_parts

import fmtkit
from fmtkit.core.errors import OptionError
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.training.data import inspect_config
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import process

QWEN = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}<think>
{{ m.reasoning_content or '' }}
</think>

{{ m.content }}<|im_end|>
{% endgeneration %}{% else %}{{ m.content }}<|im_end|>
{% endif %}{% endfor %}"""
UNMARKED = QWEN.replace("{% generation %}", "").replace("{% endgeneration %}", "") + (
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LAST_ONLY = QWEN.replace("m.reasoning_content or ''", "m.reasoning_content if loop.last else ''")
USER = {"role": "user", "content": "red"}
THOUGHT = {"role": "assistant", "content": "blue", "reasoning_content": "stone"}
SAID = {"role": "assistant", "content": "river"}
WITHIN = {"role": "assistant", "content": "<think>\n\n</think>\n\ngreen"}
ROWS = [
    {"messages": [USER, THOUGHT, USER, SAID]},
    {"messages": [USER, {**THOUGHT, "content": "small"}, USER, THOUGHT]},
    {"messages": [USER, WITHIN]},
]
ENTRY = {"type": "openai"}
EMPTY = "<think>\n\n</think>\n\n"
THINKS = "<think>\nstone\n</think>\n\n"
END = "<|im_end|>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    process.quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def learned(folder, model, rows, template=QWEN, **keys) -> list[str]:
    """Return what of each row the trainer's batches have labels for; inspect shows the same."""
    made = batches(
        folder, model, rows, ENTRY, chat_template="jinja", chat_template_jinja=template, **keys
    )
    options = InspectOptions(show_mask=9)
    [(_, inspection)] = inspect_config.inspect_config(folder / "config.yaml", [], options)
    sides = [side for row in inspection.survey.shown for side in row.sides]
    shown = [
        (
            list(side.ids),
            [
                i if any(a <= n < b for a, b in side.trained) else -100
                for n, i in enumerate(side.ids)
            ],
        )
        for side in sides
    ]
    assert sorted(made) == sorted(shown)
    order = sorted(range(len(shown)), key=lambda n: str(shown[n]))
    assert len(order) == len(rows)
    return [trained_parts(spelled(model, *one)) for one in shown]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {},
            [
                [f"{THINKS}blue{END}\n", f"{EMPTY}river{END}\n"],
                [f"{THINKS}small{END}\n", f"{THINKS}blue{END}\n"],
                [f"{EMPTY}{EMPTY}green{END}\n"],
            ],
        ),
        (
            {"mask_template_tokens": True},
            [
                [f"{THINKS}blue{END}", f"river{END}"],
                [f"{THINKS}small{END}", f"{THINKS}blue{END}"],
                [f"{EMPTY}green{END}"],
            ],
        ),
        (
            {"ignore_empty_think": True},
            [
                [f"{THINKS}blue{END}\n", f"river{END}\n"],
                [f"{THINKS}small{END}\n", f"{THINKS}blue{END}\n"],
                [f"green{END}\n"],
            ],
        ),
        (
            {"mask_template_tokens": True, "keep_reasoning": "last"},
            [
                [f"blue{END}", f"river{END}"],
                [f"small{END}", f"{THINKS}blue{END}"],
                [f"{EMPTY}green{END}"],
            ],
        ),
        (
            {"mask_template_tokens": True, "keep_reasoning": "all"},
            [
                [f"{THINKS}blue{END}", f"river{END}"],
                [f"{THINKS}small{END}", f"{THINKS}blue{END}"],
                [f"{EMPTY}green{END}"],
            ],
        ),
    ],
)
def test_tokens_are_left_out_by_where_they_come_from(keys, expected, model, tmp_path):
    assert learned(tmp_path, model, ROWS, **keys) == expected


def test_templates_that_mark_no_replies_are_no_different(model, tmp_path):
    found = learned(tmp_path, model, ROWS[:1], UNMARKED, mask_template_tokens=True)
    assert found == [[f"{THINKS}blue{END}", f"river{END}"]]


def test_reasoning_that_is_to_be_kept_and_is_lost_is_an_error(model, tmp_path):
    with pytest.raises(
        Exception, match=r"leaves out the reasoning of messages\[1\]; take a template"
    ):
        learned(tmp_path, model, ROWS[1:2], LAST_ONLY, keep_reasoning="all")


@pytest.mark.parametrize(
    "keys",
    [{"mask_template_tokens": True}, {"ignore_empty_think": True}, {"keep_reasoning": "last"}],
)
def test_other_methods_than_sft_refuse_them(keys, tmp_path, model):
    config = {
        "base_model": model,
        "rl": "dpo",
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": "rows.jsonl", "type": "chatml.intel"}],
        **keys,
    }
    [name] = keys
    with pytest.raises(OptionError, match=f"{name}: only sft can choose what is trained on"):
        planning.plan(config)
    rows = [{"question": "red", "chosen": "blue", "rejected": "green"}]
    with pytest.raises(OptionError, match="are for sft, not for dpo"):
        fmtkit.inspect(rows, type="chatml.intel", tokenizer=model, method="dpo", **keys)
