"""Fields that are read from the installed source are those of the real classes."""

import importlib
import subprocess
import sys
from dataclasses import fields

import pytest

from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.core.runner import shipped
from fmtkit.training.config.argument_choices import from_annotations
from fmtkit.training.config.class_arguments import FORMER_NAMES, fields_of, has_class
from fmtkit.training.config.keys import table

pytest.importorskip("trl")

CONFIGS = sorted(
    {runner.config for runner in shipped() if has_class(runner.config)} | {"peft:LoraConfig"}
)


@pytest.mark.parametrize("config", CONFIGS)
def test_the_fields_are_those_of_the_real_class(config):
    module, _, name = config.partition(":")
    real = {f.name for f in fields(getattr(importlib.import_module(module), name))}
    assert set(fields_of(config).annotations) == real


@pytest.mark.parametrize(
    ("annotation", "strings"),
    [
        ("int | None", None),
        ("Literal['a', 'b'] | None", ("a", "b")),
        ("typing.Literal['a'] | typing.Literal['b']", ("a", "b")),
        ("list[Literal['a', 'b']] | None", ("a", "b")),
        ("Optional[Literal['a']]", ("a",)),
        ("str | Literal['auto']", ()),
        ("Optional[Union[str, Literal['auto']]]", ()),
        ("bool | Literal['all', 'niter_[number]']", ()),
        ("dict[str, int] | Literal['auto']", ("auto",)),
    ],
)
def test_a_literal_beside_any_string_limits_no_string(annotation, strings):
    assert from_annotations(annotation) == strings


def test_no_import_is_made_to_read_them():
    code = (
        "import sys; from fmtkit.training.config.class_arguments import fields_of; fields_of('trl:DPOConfig');"
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_trainer_key_is_an_argument_of_some_method():
    known = {name for config in CONFIGS for name in fields_of(config).annotations}
    known |= {name for name, former in FORMER_NAMES.items() if former in known}
    known |= {name for runner in shipped() if not runner.variants for name in runner.own}
    for key in table().values():
        if key.to == "trainer" and key.target != "*":
            assert key.target.partition(".")[0] in known, key.name


def test_a_misspelled_argument_is_refused_with_the_near_one():
    with pytest.raises(
        OptionError, match=r"DPOConfig of trl .* has no argument 'learning_rat'; did"
    ):
        fields_of("trl:DPOConfig").check("learning_rat", "trainer_args")


@pytest.mark.parametrize(
    ("name", "advice"),
    [("rpo_alpha", "loss_weights"), ("warmup_ratio", "warmup_steps"), ("no_cuda", "use_cpu")],
)
def test_an_argument_of_older_versions_is_refused_with_its_successor(name, advice):
    config = fields_of("trl:DPOConfig")
    if name in config.fields:
        pytest.skip(f"the installed versions have {name}")
    with pytest.raises(OptionError, match=advice):
        config.check(name, "trainer_args")


def test_a_value_of_the_wrong_type_is_refused():
    with pytest.raises(OptionError, match="max_steps takes int, not 'many'"):
        fields_of("trl:DPOConfig").check_value("max_steps", "many", "trainer_args")


def test_a_class_that_is_gone_is_not_there():
    assert has_class("trl:DPOTrainer")
    assert not has_class("trl.experimental.nothing:NothingTrainer")


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(DependencyError, match="no_such_package is not installed"):
        fields_of("no_such_package:Config")


def test_an_argument_has_the_name_that_the_installed_transformers_knows(
    tmp_path, monkeypatch
) -> None:
    """transformers 5.17 says gradient_checkpointing, 5.23 activation_checkpointing."""
    from dataclasses import make_dataclass

    import tiny_training as tiny

    from fmtkit.core import runner
    from fmtkit.training.building import build

    work = tiny.make_job(tmp_path, "model", "dpo", "Preference", {"gradient_checkpointing": True})
    older = make_dataclass("Older", [*{*work.trainer} - set(FORMER_NAMES), "output_dir", "run_name", "disable_tqdm", "logging_nan_inf_filter", "dataloader_pin_memory", *FORMER_NAMES.values()], namespace={"__init__": lambda self, **values: self.__dict__.update(values)}, init=False)  # fmt: skip
    monkeypatch.setattr(build, "load_class", lambda _: older)
    made = build.make_arguments(work, runner.find("dpo"), ["prompt", "chosen", "rejected"])
    assert made.gradient_checkpointing is True
    assert not hasattr(made, "activation_checkpointing")


def test_an_argument_is_known_by_the_name_that_older_versions_have():
    from dataclasses import replace

    config = fields_of("trl:SFTConfig")
    [new] = [n for n in FORMER_NAMES if n in config.fields or FORMER_NAMES[n] in config.fields][:1]
    found = config.fields.get(new) or config.fields[FORMER_NAMES[new]]
    others = {n: f for n, f in config.fields.items() if n not in (new, FORMER_NAMES[new])}
    older = replace(config, fields={**others, FORMER_NAMES[new]: found})
    older.check(new, "here")
    older.check_value(new, True, "here")
    with pytest.raises(OptionError, match="has no argument"):
        replace(config, fields=others).check(new, "here")
