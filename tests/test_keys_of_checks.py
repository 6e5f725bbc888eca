"""A check or a note that names its keys is not run without them: no plan differs from one that runs them all.

A check that names too few keys, and so overlooks what it is to find, fails here.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("trl")

from test_one_problem import FEATURED, FILES, TEXTS

from fmtkit.core.errors import FmtkitError
from fmtkit.training.config import config, keys, trl_files
from fmtkit.training.config.config import load
from fmtkit.training.planning import check
from fmtkit.training.planning import plan as planning


def answer(source: Any, *, partial: bool) -> object:
    """Return the plan of a config, with its notes, or each of its problems with its code, key and line."""
    try:
        plan = planning.plan(source, partial=partial)
    except FmtkitError as error:
        return [
            *map(repr, getattr(error, "problems", ())),
            *getattr(error, "shown", ()),
            str(error),
        ]
    return json.loads(plan.dumps())


@contextmanager
def everything_runs() -> Iterator[None]:
    """Run every check and note whatever keys are set, and read every file as one that may need all there is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "is_due", lambda *_: True)
        patch.setattr(config, "may_be_trls", lambda *_: True)
        patch.setattr(config, "is_foreign", lambda _: True)
        patch.setattr(config, "is_plain_path", lambda _: False)
        patch.setattr(planning, "is_plain_path", lambda _: False)
        yield


def differing(sources: Mapping[str, Any], *, partial: bool) -> dict[str, tuple[object, object]]:
    """Return the sources of which some check found what it does not find by its keys."""
    by_keys = {name: answer(source, partial=partial) for name, source in sources.items()}
    with everything_runs():
        whole = {name: answer(source, partial=partial) for name, source in sources.items()}
    return {name: (by_keys[name], whole[name]) for name in sources if by_keys[name] != whole[name]}


@pytest.mark.parametrize("texts", [TEXTS, FEATURED], ids=["faults", "features"])
def test_the_faults_of_other_tests_are_found_by_their_keys(texts, tmp_path):
    files = {}
    for number, text in enumerate(texts):
        files[text] = tmp_path / f"{number}.yaml"
        files[text].write_text(text, encoding="utf-8")
    assert differing(files, partial=True) == {}


def test_the_examples_plan_as_with_every_check():
    files = {str(file): file for file in FILES}
    assert len(files) > 20
    assert differing(files, partial=False) == {}


def test_a_config_sets_keys_by_name_by_value_by_where_they_go_and_inside_of_entries():
    one = load(
        {
            "base_model": "a/m",
            "datasets": [{"path": "a/b", "split": "train"}],
            "adapter": "lora",
            "trl": {"beta": 0.1},
            "loss_type": "ipo",
            "tokenizer_legacy": True,
            "trainer_args": {"report_to": "none", "optim": "sgd"},
        }
    )
    held = ("adapter", ("adapter", "lora"), "trl.*", "*.*", "datasets", "datasets.split")
    held += ("conditional", "to trainer", "to the trainer alone", "report_to", "optimizer")
    assert [key for key in held if not one.sets(key)] == []
    others = ("lora_r", ("adapter", "qlora"), "vllm.*", "test_datasets", "datasets.name", "split")
    others += ("to peft", "of sections", "optim_args")
    assert [key for key in others if one.sets(key)] == []
    assert one.sets("lora_r", "adapter")
    assert not one.sets()


def test_every_key_that_a_check_names_is_one():
    named = {
        given if isinstance(given, str) else given[0]
        for one in (*check.of_config(), *check.notes())
        for given in one.keys or ()
    }
    assert {name for name in named if not keys.is_nameable(name)} == set()
    assert len(named) > 50
    wrong = ("splitt", "datasets.splitt", "trll.*", "to pef", "of section", "")
    assert [name for name in wrong if keys.is_nameable(name)] == []


VALUES: dict[str, tuple[object, ...]] = {
    "bool": (True,),
    "integer": (2,),
    "count": (3,),
    "natural": (2,),
    "seed": (3,),
    "steps": (2,),
    "number": (0.5,),
    "amount": (0.5,),
    "positive": (0.5,),
    "fraction": (0.1,),
    "text": ("x",),
    "texts": (["x"],),
    "list": (["x"],),
    "numbers": ([1.0],),
    "object": ({"x": 1},),
    "objects": ([{"x": 1}],),
    "text or texts": ("x", ["x", "y"]),
    "functions": ("a.b", ["a.b", "c.d"]),
    "text or object": ("x", {"x": 1}),
    "callbacks": ("a.b", [{"class": "a.b", "kwargs": {"x": 1}}]),
    "bool or text": (True, "x"),
    "image size": (3,),
    "bool or auto": (True, "auto"),
    "bool or text or texts": (True, "x"),
    "any": ("x", 1),
}
PASSED = (
    "lr_scheduler_type",
    "report_to",
    "max_length",
    "packing",
    "eval_steps",
    "optim",
    "use_cpu",
)


def values_of(key: keys.Key) -> Iterator[object]:
    """Yield values of a key, among them each that means something of its own."""
    if key.kind.startswith("enum:"):
        yield from (*key.kind.removeprefix("enum:").split("|")[:2], "zzz")
        return
    yield from VALUES.get(key.kind, ("x", 1))
    yield from (value for value in {**key.values, **key.remarks} if isinstance(value, (str, bool)))


def with_key(method: str, name: str, value: object) -> dict[str, Any]:
    """Return a config of the method with one more key."""
    out: dict[str, Any] = {"base_model": "a/m", "rl": method, "datasets": [{"path": "a/b"}]}
    out |= {"trl": {"reward_funcs": ["fmtkit.rewards.accuracy"]}} if method == "grpo" else {}
    section, dot, last = name.rpartition(".")
    if section == "datasets":
        out["datasets"][0][last] = value
    elif dot and section in keys.section_names():
        out[section] = {**out.get(section, {}), last: value}
    else:
        out[name] = value
    return out


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", "grpo"])
def test_every_key_alone_is_answered_as_with_every_check(method):
    every = {
        n: key for n in (*keys.table(), *keys.arguments_by_name()) if (key := keys.find_key(n))
    }
    every |= {f"{keys.OF_DATASET}{name}": key for name, key in keys.dataset_table().items()}
    pairs = [(name, value) for name, key in every.items() for value in values_of(key)]
    pairs += [("trainer_args", {name: value}) for name in PASSED for value in ("x", 3, True)]
    pairs += [(name, "x") for name in sorted(trl_files.READ)]
    sources = {
        f"{name}: {value}": with_key(method, name, value)
        for name, value in pairs
        if name not in {"rl", "datasets", "base_model"}
    }
    assert len(sources) > 500
    assert differing(sources, partial=False) == {}
