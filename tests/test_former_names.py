"""Modules under their former names: the same module, with a warning that says where it is."""

import subprocess
import sys
from copy import copy
from importlib import import_module

import pytest
from pyarrow.parquet import read_table

from fmtkit import former_names
from fmtkit.columns.problems import literal


@pytest.mark.parametrize(("former", "now"), sorted(former_names.FORMER.items()))
def test_a_former_name_is_the_module_itself(former, now):
    sys.modules.pop(former, None)
    with pytest.warns(FutureWarning, match=f"{former} is now {now}; "):
        found = import_module(former)
    sys.modules.pop(former)
    assert found is import_module(now)
    assert found.__spec__.name == now


@pytest.mark.parametrize("place", sorted(former_names.FORMER_ATTRIBUTES))
def test_a_former_function_or_method_is_the_one_that_it_is_now(place):
    last = place.rpartition(".")[2]
    owner = literal(1) if last == "Column" else import_module(place)
    for former, now in former_names.FORMER_ATTRIBUTES[place].items():
        with pytest.warns(FutureWarning, match=rf"{place}\.{former} is now {now}; "):
            assert getattr(owner, former) == getattr(owner, now)
    with pytest.raises(AttributeError, match=f"{place} has no attribute 'butt'"):
        owner.butt  # noqa: B018
    if last == "Column":
        assert copy(owner).value is owner.value


def test_a_former_package_still_gives_its_modules():
    script = (
        "import warnings; warnings.simplefilter('ignore'); import fmtkit; "
        "from fmtkit.converting import engines; import fmtkit.converting.pipeline; "
        "from fmtkit.inspection import masks; from fmtkit.training.rl import rewards; "
        "from fmtkit.training.rl.rewards import loading; "
        "print(engines.__name__, masks.__name__, rewards.__name__, loading.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [
        "fmtkit.work.engines",
        "fmtkit.masks.masks",
        "fmtkit.training.online.rewards",
        "fmtkit.training.online.rewards.loading",
    ]


def test_a_converter_written_for_former_names_works(tmp_path):
    (tmp_path / "debate.py").write_text(
        '"""Debates: a motion, the better speech and the worse one."""\n\n'
        "from fmtkit.columns import Text\n"
        "from fmtkit.dialogs import pair\n"
        "from fmtkit.registry import converter\n"
        "from fmtkit.tables import Preference\n\n\n"
        "@converter()\n"
        "def debate(motion: Text, better: Text, worse: Text) -> Preference:\n"
        '    """Made up for this test."""\n'
        "    return pair(motion, better, worse)\n"
    )
    (tmp_path / "a.jsonl").write_text('{"motion": "m", "better": "b", "worse": "w"}\n')
    command = [
        "fmtkit",
        "convert",
        "a.jsonl",
        "--plugin",
        "debate.py",
        "--type",
        "debate",
        "-o",
        "a.parquet",
    ]
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert read_table(tmp_path / "a.parquet").num_rows == 1


def test_a_name_that_never_was_is_still_an_error():
    with pytest.raises(ModuleNotFoundError, match=r"fmtkit\.nowhere"):
        import_module("fmtkit.nowhere")


def test_the_features_of_fmtkits_trainers_have_their_former_name():
    from fmtkit.core import runner
    from fmtkit.runners.grpo_features.section import FEATURES

    with pytest.warns(FutureWarning, match="OUR_FEATURES is now FEATURES of fmtkit.runners.grpo"):
        assert runner.OUR_FEATURES == FEATURES
    with pytest.raises(AttributeError, match="has no attribute 'THEIR_FEATURES'"):
        _ = runner.THEIR_FEATURES
