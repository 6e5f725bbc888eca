"""`module.attribute` of a configuration: where it is looked for, and what is said when it is not there."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from fmtkit.core import user_modules
from fmtkit.core.errors import OptionError
from fmtkit.training.config import user_objects

KEY = "trl.reward_funcs"


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch):
    """Leave sys.modules and the finder as they were."""
    monkeypatch.setattr(
        sys, "meta_path", [f for f in sys.meta_path if f is not user_modules.FINDER]
    )
    monkeypatch.setattr(user_modules, "FINDER", user_modules.Finder())
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_module_beside_the_config_is_found_wherever_the_command_runs(tmp_path, monkeypatch):
    written(tmp_path / "project", "scores.py", "from near import one\ndef score(): return one\n")
    written(tmp_path / "project", "near.py", "one = 1\n")
    config = written(tmp_path / "project", "run.yaml", "")
    monkeypatch.chdir(tmp_path)
    places = user_objects.places_of(config)
    user_objects.check(KEY, "scores.score", places)
    assert user_objects.load_function(KEY, "scores.score", places)() == 1


def test_the_current_folder_comes_after_that_of_the_config(tmp_path, monkeypatch):
    written(tmp_path, "both.py", "where = 'current'\n")
    written(tmp_path, "only.py", "where = 'current'\n")
    written(tmp_path / "configs", "both.py", "where = 'config'\n")
    config = written(tmp_path / "configs", "run.yaml", "")
    monkeypatch.chdir(tmp_path)
    places = user_objects.places_of(config)
    assert user_objects.load(KEY, "both.where", places) == "config"
    assert user_objects.load(KEY, "only.where", places) == "current"


def test_two_configs_may_each_have_a_module_of_the_same_name(tmp_path):
    for name in ("a", "b"):
        written(tmp_path / name, "mine.py", f"where = {name!r}\n")
    found = [user_objects.load(KEY, "mine.where", [tmp_path / name]) for name in ("a", "b", "a")]
    assert found == ["a", "b", "a"]


def test_a_package_of_modules_is_found_by_its_dotted_name(tmp_path):
    written(tmp_path, "game/__init__.py", "")
    written(tmp_path, "game/board.py", "class Board: pass\n")
    user_objects.check(KEY, "game.board.Board", [tmp_path])
    assert user_objects.load(KEY, "game.board.Board", [tmp_path]).__name__ == "Board"


def test_a_name_near_the_right_one_is_proposed_before_anything_runs(tmp_path):
    file = written(tmp_path, "scores.py", "raise SystemExit\ndef accuracy(): pass\n")
    with pytest.raises(OptionError, match=r"scores.py has no 'acuracy'; did you mean 'accuracy'"):
        user_objects.check(KEY, "scores.acuracy", [tmp_path])
    user_objects.check(KEY, "scores.accuracy", [tmp_path])
    file.write_text("from os.path import *\n")
    user_objects.check(KEY, "scores.join", [tmp_path])


@pytest.mark.parametrize("ask", [user_objects.check, user_objects.load])
def test_a_module_that_is_nowhere_is_told_with_the_places(tmp_path, ask):
    with pytest.raises(
        OptionError, match=rf"no nowhere.py in {tmp_path}, and no installed nowhere"
    ):
        ask(KEY, "nowhere.score", [tmp_path])
    with pytest.raises(OptionError, match=r"not of the form module\.function"):
        ask(KEY, "score", [tmp_path])


def test_a_module_that_fails_is_told_with_its_line(tmp_path):
    written(tmp_path, "broken.py", "a = 1\nb = a / 0\n")
    with pytest.raises(OptionError, match=r"broken.py:2 cannot be loaded: ZeroDivisionError"):
        user_objects.load(KEY, "broken.b", [tmp_path])
    written(tmp_path, "typo.py", "\n\ndef f(:\n")
    with pytest.raises(OptionError, match=r"typo.py:3 cannot be loaded: SyntaxError"):
        user_objects.check(KEY, "typo.f", [tmp_path])


def test_an_installed_package_is_found_from_any_folder(tmp_path):
    """An editable install is on no path of its own; the current folder is not its either."""
    code = (
        "from pathlib import Path; from fmtkit.training.config import user_objects;"
        f"user_objects.check('k', 'fmtkit.rewards.accuracy', [Path({str(tmp_path)!r})])"
    )
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=True)


def test_what_cannot_be_called_is_no_function(tmp_path):
    written(tmp_path, "scores.py", "score = 3\n")
    with pytest.raises(OptionError, match="is of type int; it must be a function"):
        user_objects.load_function(KEY, "scores.score", [tmp_path])


def test_a_function_is_unpickled_where_its_folder_is_served(tmp_path):
    written(tmp_path, "scores.py", "from near import one\ndef score(): return one\n")
    written(tmp_path, "near.py", "one = 'there'\n")
    function = user_objects.load_function(KEY, "scores.score", [tmp_path])
    code = (
        "from fmtkit.core import user_modules;"
        f"print(user_modules.unpickle({pickle.dumps(function)!r}, [{str(tmp_path)!r}])())"
    )
    shown = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "there\n"


def test_a_spawned_process_of_a_training_process_finds_the_users_functions(tmp_path):
    """TRL's asynchronous rollouts are scored in a process that multiprocessing spawns."""
    written(tmp_path, "user/scores.py", "def score(x): return x + 1\n")
    main = """
import multiprocessing, sys
from fmtkit.core import user_modules
if __name__ == "__mp_main__":
    user_modules.serve(sys.argv[1:])
if __name__ == "__main__":
    from pathlib import Path
    from fmtkit.training.config import user_objects
    function = user_objects.load("k", "scores.score", [Path(sys.argv[1])])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(function, [1]))
"""
    file = written(tmp_path, "main.py", main)
    command = [sys.executable, "-P", str(file), str(tmp_path / "user")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout == "[2]\n"


def test_a_folder_serves_its_own_code_and_no_package(tmp_path):
    """Packages look for optional dependencies: a file of that name beside the config is none."""
    written(tmp_path, "scores.py", "def lazy():\n    import wandb\n    return wandb.mark\n")
    written(tmp_path, "wandb.py", "mark = 'mine'\n")
    lazy = user_objects.load_function(KEY, "scores.lazy", [tmp_path])
    assert str(tmp_path) not in sys.path
    with pytest.raises(ModuleNotFoundError):
        exec("import wandb", {"__name__": "transformers.integrations"})
    assert lazy() == "mine"


@pytest.mark.parametrize("ask", [user_objects.check, user_objects.load])
@pytest.mark.parametrize("name", ["polars", "json"])
def test_a_file_with_the_name_of_an_installed_module_is_refused(tmp_path, ask, name):
    written(tmp_path, f"{name}.py", "def score(): pass\n")
    words = f"has the name of the installed module {name}; rename it"
    with pytest.raises(OptionError, match=words):
        ask(KEY, f"{name}.score", [tmp_path])


def test_folders_and_hub_ids_are_no_dotted_names():
    assert user_objects.is_dotted("rewards.accuracy")
    for name in ("org/model-1.5", "./model", "models/rm", "accuracy", "Qwen2.5-0"):
        assert not user_objects.is_dotted(name)
