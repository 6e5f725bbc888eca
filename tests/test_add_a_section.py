"""A package adds a section: its keys, what follows from them, its checks, and an environment for the trainer."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
import tiny_training as tiny
import warm

pytest.importorskip("trl")

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
(SECTION,) = re.findall(r"^```python\n(\"\"\"acme_arena.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
"""The section of the page."""
KEYS = """
from fmtkit.training.config.key import Key, inside

KEYS = inside(
    "arena",
    Key("url", "text", "arena", "where the arena is"),
    Key("players", "count", "arena", "how many play"),
    Key("map", "text", "arena", "the map", is_path=True),
)
"""
PLAN = """
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.check import check_config


def derive(plan):
    url = plan.config.get("arena.url")
    if url:
        plan.arguments.notes.append(f"the arena at {url} judges {plan.method}")


@check_config(
    "arena_players",
    "config",
    "an arena that nobody plays in",
    section="arena",
    keys=("arena.*",),
)
def _players(plan: Plan) -> str | None:
    if plan.config.get("arena.players") == 1:
        return "arena.players: 1: nobody plays alone; write 2 or more"
    return None
"""
RUN = """
from fmtkit.training.online.conversations.environment import ExternalEnvironment


def environment(job, tokenizer):
    arena = job.sections.get("arena")
    return ExternalEnvironment(Wins(arena["url"]), None, "") if arena else None


class Wins:
    def __init__(self, url):
        self.url = url
        self.__name__ = "wins"

    def __call__(self, completions, **columns):
        return [float(len(self.url))] * len(completions)
"""
CONFIG = {
    "base_model": "./model",
    "rl": "grpo",
    "datasets": [{"path": "prompts.jsonl"}],
    "trl": {"num_generations": 2, "reward_funcs": ["fmtkit.rewards.accuracy"]},
    "output_dir": "run",
    "micro_batch_size": 2,
    "max_steps": 1,
    "use_cpu": True,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the package in `site`, prompts and a configuration."""
    package = tmp_path / "site" / "acme_arena"
    package.mkdir(parents=True)
    modules = {"__init__": "", "section": SECTION, "keys": KEYS, "plan": PLAN, "run": RUN}
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    metadata = tmp_path / "site" / "acme_arena-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-arena\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[fmtkit.sections]\narena = acme_arena.section\n")
    row = {"prompt": [{"role": "user", "content": "Tea?"}], "answer": "yes"}
    (tmp_path / "prompts.jsonl").write_text(f"{json.dumps(row)}\n" * 4, encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


def fmtkit(
    folder: Path, *arguments: str, code: int = 0, **keys
) -> subprocess.CompletedProcess[str]:
    (folder / "run.yaml").write_text(json.dumps(CONFIG | keys), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(folder / "site")}
    done = warm.fmtkit(*arguments, cwd=folder, env=environment)
    assert done.returncode == code, done.stderr
    return done


PLANNED = ("train", "run.yaml", "--dry-run", "--json")


def test_its_keys_are_planned_and_what_follows_from_them_is_said(folder: Path) -> None:
    done = fmtkit(folder, *PLANNED, arena={"url": "http://a", "players": 2})
    plan = json.loads(done.stdout)
    assert plan["arguments"]["arena"]["url"]["value"] == "http://a"
    assert "the arena at http://a judges grpo" in plan["notes"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"arena": {"urll": "http://a"}}, "did you mean 'arena.url'?"),
        ({"arena": {"players": "two"}}, "arena.players"),
        ({"arena": {"players": 1}}, "nobody plays alone"),
    ],
)
def test_its_keys_are_checked_with_the_others(folder: Path, keys: dict, words: str) -> None:
    assert words in fmtkit(folder, *PLANNED[:3], code=2, **keys).stderr


def test_a_plugin_of_axolotls_may_be_named_where_a_section_stands_for_it(folder: Path) -> None:
    named = {"plugins": ["axolotl.integrations.arena.ArenaPlugin"]}
    done = fmtkit(folder, *PLANNED, code=2, **named)
    assert "fmtkit does not know it" in done.stderr
    text = SECTION.replace("methods=", "plugins={'ArenaPlugin': 'set arena.url'}, methods=")
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    plan = json.loads(fmtkit(folder, *PLANNED, **named).stdout)
    assert "plugins: axolotl.integrations.arena.ArenaPlugin: set arena.url" in plan["notes"]


def test_a_method_that_does_not_take_it_says_so(folder: Path) -> None:
    keys = {"rl": "rloo", "arena": {"url": "http://a"}}
    assert "rloo does not use arena.url" in fmtkit(folder, *PLANNED, **keys).stdout


def test_the_schema_and_the_page_of_keys_know_it(folder: Path) -> None:
    schema = json.loads(fmtkit(folder, "schema", "config").stdout)
    assert schema["properties"]["arena"]["type"] == ["object", "null"]
    python(folder, "-m", "fmtkit.training.config_page", "config.md")
    page = (folder / "config.md").read_text(encoding="utf-8")
    assert "| arena | the arena of acme |" in page
    assert "| `arena.url` | a string | arena | where the arena is |" in page
    shipped = json.loads((ROOT / "schemas" / "config.schema.json").read_text(encoding="utf-8"))
    assert "arena" not in shipped["properties"]


def python(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder / "site"), str(ROOT)))}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


OPENED = """
from types import SimpleNamespace

from fmtkit.core import runner
from fmtkit.training.online import build

parts = SimpleNamespace(runner=runner.find("grpo"), tokenizer=None)
job = SimpleNamespace(sections={"arena": {"url": "http://a"}}, model="m", run="r", trainer={})
print(type(build.environment_of(job, parts).reward).__name__)
print(build.environment_of(SimpleNamespace(**vars(job) | {"sections": {}}), parts))
print(sorted(runner.find("grpo").variant("async").sections))
"""


def test_the_trainer_takes_the_environment_that_it_opens(folder: Path) -> None:
    assert python(folder, "-c", OPENED).splitlines() == ["Wins", "None", "['grpo', 'rl', 'vllm']"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SECTON = 1\n", "has no SECTION in acme_arena.section"),
        (SECTION.replace('"arena"', '"arenas"'), "names its SECTION 'arenas'"),
        (SECTION.replace("methods=", "version=2, methods="), "version 2 of sections"),
        ("import acme_missing\n", "acme_missing"),
    ],
)
def test_a_package_that_cannot_be_used_is_one_line(folder: Path, text: str, words: str) -> None:
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    lines = fmtkit(folder, *PLANNED[:3], code=2).stderr.splitlines()
    assert words in lines[0]
    assert "acme-arena 1.0" in lines[0]


KEY = "from fmtkit.training.config.key import Key\n"


@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        ("keys", "x = 1\n", "has no attribute 'KEYS'"),
        ("keys", "import acme_missing\n", "acme_missing"),
        ("keys", "KEYS = ('arena.url',)\n", "is no fmtkit.training.config.key.Key"),
        ("keys", f"{KEY}KEYS = (Key('base_model', 'text', 'arena', 'x'),)\n", "a key already"),
        ("keys", f"{KEY}KEYS = (Key('arena.x', 'text', 'areno', 'x'),)\n", "there is no 'areno'"),
        ("keys", f"{KEY}KEYS = (Key('arena.x', 'texxt', 'arena', 'x'),)\n", "no kind 'texxt'"),
        ("plan", "import acme_missing\n", "acme_missing"),
        ("plan", "def derive(*given):\n    raise KeyError('z')\n", "KeyError: 'z'"),
        ("plan", "def models(plan):\n    yield 1 / 0\n", "ZeroDivisionError"),
        ("plan", PLAN.replace('return "arena', 'return 1 / 0  # "'), "ZeroDivisionError"),
        ("plan", PLAN.replace("arena.*", "arna.*"), "its check arena_players is about 'arna.*'"),
    ],
)
def test_what_its_code_raises_is_one_line_with_the_package(folder, module, text, words) -> None:
    (folder / "site" / "acme_arena" / f"{module}.py").write_text(text, encoding="utf-8")
    done = fmtkit(
        folder, *PLANNED[:3], code=2, arena={"players": 1} if "check_config" in text else {}
    )
    (line,) = [line for line in done.stderr.splitlines() if words in line]
    assert "section arena: the package acme-arena 1.0 cannot be used: " in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("switch='arena.on'", "its switch 'arena.on' is no key"),
        ("features={'arenas': False}", "its feature 'arenas' is no key of trl"),
        (
            "trainers={'grpo': {'about': 'x'}}",
            "it has a trainer for grpo, as section grpo_features",
        ),
        ("trainers={'dpo': {'trainers': 'x'}}", "its trainer for dpo: "),
        (
            "trainers={'dpo': {'features': frozenset({'x'})}}",
            "its trainer for dpo: dpo: no feature",
        ),
    ],
)
def test_a_field_of_a_section_that_cannot_hold_is_one_line(folder: Path, field, words) -> None:
    text = SECTION.replace("methods=", f"{field}, methods=")
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    rl = "dpo" if "dpo" in field else "grpo"
    done = fmtkit(folder, *PLANNED[:3], code=2, rl=rl)
    (line,) = [line for line in done.stderr.splitlines() if words in line]
    assert "section arena: the package acme-arena 1.0 cannot be used: " in line
    assert "Traceback" not in done.stderr


def test_its_trainer_for_a_method_that_has_one_is_its_own_fault(folder: Path) -> None:
    """Without `methods` it stands before fmtkit's section, and any method is looked up."""
    trainer = 'trainers={"grpo": {"about": "x"}}'
    text = SECTION.replace('methods=frozenset({"grpo"})', trainer)
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    for rl in ("grpo", "sft"):
        done = fmtkit(folder, *PLANNED[:3], code=2, rl=rl)
        assert "Traceback" not in done.stderr
        assert "section arena: the package acme-arena 1.0 cannot be used: it has a" in done.stderr


VARIANTS = """
from fmtkit.core import runner

own = runner.find("{method}")
plain = own.variants.get("trl")
print(own.trainer, plain and plain.trainer, "arena" in own.sections, plain and "arena" in plain.sections)
"""


@pytest.mark.parametrize(
    ("fields", "method", "found"),
    [
        # TRL's own stays TRL's own, and takes the section where that does not train it.
        (
            "trainers={'online_dpo': {'about': 'x', 'trainer': 'acme.x:T'}}",
            "online_dpo",
            "acme.x:T trl.experimental.online_dpo:OnlineDPOTrainer True False",
        ),
        (
            "trainers={'ebft': {'about': 'x', 'trainer': 'acme.x:T'}}",
            "ebft",
            "acme.x:T None True None",
        ),
        (
            "methods=frozenset({'grpo'})",
            "grpo",
            "fmtkit.runners.grpo_features.trainer:FmtkitGRPOTrainer trl:GRPOTrainer True True",
        ),
        (
            "methods=frozenset({'online_dpo'})",
            "online_dpo",
            "fmtkit.runners.online_dpo.trainer:FmtkitOnlineDPOTrainer trl.experimental.online_dpo:OnlineDPOTrainer True True",
        ),
    ],
)
def test_trls_own_trainer_stays_the_variant_of_that_name(
    folder: Path, fields, method, found
) -> None:
    text = SECTION.replace('methods=frozenset({"grpo"})', fields)
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    assert python(folder, "-c", VARIANTS.format(method=method)).strip() == found


def test_an_environment_that_makes_the_answers_needs_a_trainer_that_takes_them(folder) -> None:
    provides = (
        "\n\ndef provides(config):\n    return ('answers',) if config.get('arena.url') else ()\n"
    )
    (folder / "site" / "acme_arena" / "plan.py").write_text(PLAN + provides, encoding="utf-8")
    text = SECTION.replace('{"grpo"}', '{"grpo", "online_dpo"}')
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    arena = {"url": "http://a"}
    fmtkit(folder, *PLANNED[:3], arena=arena)
    trl = {"reward_funcs": ["fmtkit.rewards.accuracy"]}
    done = fmtkit(folder, *PLANNED[:3], code=2, rl="online_dpo", arena=arena, trl=trl)
    assert "arena: the trainer of online_dpo makes the answers itself" in done.stderr


def test_a_section_has_a_trainer_for_a_method_and_trls_own_is_its_variant(folder: Path) -> None:
    own = "trainers={'dpo': {'trainer': 'acme_arena.run:ArenaTrainer', 'about': 'arena pairs'}}"
    text = SECTION.replace("methods=", f"{own}, methods=")
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    code = (
        "from fmtkit.core import runner; own = runner.find('dpo'); "
        "print(own.trainer, own.variants['trl'].trainer, own.variants['trl'].about)"
    )
    about = "prefer the chosen reply, measured against a reference model"
    assert python(folder, "-c", code) == f"acme_arena.run:ArenaTrainer trl:DPOTrainer {about}\n"


@pytest.mark.parametrize("name", ["trainer", "trl", "datasets", "ebft"])
def test_a_section_with_the_name_of_something_else_is_refused(folder: Path, name: str) -> None:
    text = SECTION.replace('"arena"', f'"{name}"')
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    points = folder / "site" / "acme_arena-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[fmtkit.sections]\n{name} = acme_arena.section\n")
    line, *_ = fmtkit(folder, *PLANNED[:3], code=2).stderr.splitlines()
    assert f"section {name}: " in line
    assert "acme-arena 1.0" in line


def hooks() -> dict[str, ast.Subscript]:
    """Return the name of each hook and the type of its function, as they are declared."""
    found = {}
    for module in ("core/runner", "training/planning/hooks", "training/building/online_health"):
        found |= declared(f"{module}.py")
    return found | declared("training/online/conversations/environment.py")


def declared(path: str) -> dict[str, ast.Subscript]:
    out = {}
    for node in ast.parse((ROOT / "fmtkit" / path).read_text(encoding="utf-8")).body:
        match node:
            case ast.AnnAssign(annotation=kind, value=ast.Call(args=[ast.Constant(value=name)])):
                text = kind.value if isinstance(kind, ast.Constant) else ast.unparse(kind)
                out[str(name)] = (
                    ast.parse(text.replace("[Rule]", "[Callable[[A, B], C]]")).body[0].value
                )
    return out


def test_the_functions_of_sections_take_what_their_hooks_give() -> None:
    from fmtkit.core import section

    types = hooks()
    assert [name for name in types if f"`{name}(" not in section.Section.__doc__] == []
    made = []
    for one in section.shipped():
        for module in one.load_modules():
            for name, kind in types.items():
                function = getattr(module, name, None)
                if function is not None:
                    (given, _) = kind.slice.slice.elts
                    assert len(signature(function).parameters) == len(given.elts), (module, name)
                    made.append(name)
    assert set(made) == set(types)


def test_settings_are_read_from_the_keys_that_are_set_and_the_rest_has_its_defaults() -> None:
    from dataclasses import dataclass, field

    from fmtkit.core.section import read, texts

    @dataclass(frozen=True)
    class Arena:
        url: str = ""
        maps: tuple[str, ...] = field(default=(), metadata={"read": texts})
        players: int = 2

    keys = {
        "arena.url": "u",
        "arena.maps": "moon",
        "arena.players": None,
        "players": 9,
        "arena.x": 1,
    }
    assert read(Arena, keys, "arena.") == Arena("u", ("moon",))
    assert read(Arena, {"maps": ["a", "b"]}, players=3) == Arena(maps=("a", "b"), players=3)
    assert read(Arena, None, url="v") == Arena("v")


MANAGED = """
from contextlib import contextmanager

from fmtkit.core import section
from fmtkit.training.planning.hooks import SERVERS


def entered(plan):
    raise LookupError("no arena")
    yield


(own,) = [one for one in section.every() if one.name == "arena"]
import acme_arena.plan as plan

plan.servers = contextmanager(entered)
try:
    with next(own.hooks(SERVERS))(None):
        pass
except Exception as error:
    print(type(error).__name__, error)
plan.servers = contextmanager(lambda plan: (yield))
try:
    with next(own.hooks(SERVERS))(None):
        raise LookupError("in the body")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_servers_are_guarded_until_they_are_there(folder: Path) -> None:
    first, second = python(folder, "-c", MANAGED).splitlines()
    assert first.startswith("DependencyError section arena: the package acme-arena 1.0")
    assert "LookupError: no arena" in first
    assert second.startswith("LookupError")


NOT_EDITABLE = """
import sys

# An editable installation finds in its tree what is missing here.
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in getattr(one, "__module__", "")]
"""


def copied_without(folder: Path, *gone: str) -> Path:
    """Return a copy of fmtkit, laid out as it is installed, without these folders of `runners/`."""
    copy = folder / "copy"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fmtkit", copy / "fmtkit", ignore=skipped)
    for name in ("runners", "schemas", "templates"):
        shutil.copytree(ROOT / name, copy / "fmtkit" / name, ignore=skipped)
    for name in gone:
        shutil.rmtree(copy / "fmtkit" / "runners" / name)
    (copy / "sitecustomize.py").write_text(NOT_EDITABLE, encoding="utf-8")
    return copy


def run_in(copy: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )


DPO = {name: value for name, value in CONFIG.items() if name not in ("trl", "rl", "datasets")} | {
    "rl": "dpo"
}


FOLDERS = ("ebft", "grpo_features", "nemo_gym", "verifiers")
"""Folders of `runners/` without which dpo and plain grpo work as with them."""


@pytest.mark.parametrize("gone", FOLDERS)
def test_grpo_and_dpo_are_planned_where_a_folder_of_runners_is_gone(
    folder: Path, gone: str
) -> None:
    copy = copied_without(folder, gone)
    for config, more in ((CONFIG, ()), (DPO, ("--partial",))):
        (folder / "run.yaml").write_text(json.dumps(config), encoding="utf-8")
        done = run_in(copy, folder, "-m", "fmtkit", *PLANNED[:3], *more)
        assert done.returncode == 0, done.stderr
    assert run_in(copy, folder, "-c", f"import fmtkit.runners.{gone}").returncode != 0


def test_a_method_that_needs_a_folder_that_is_gone_is_one_line_and_listed_nowhere(folder) -> None:
    """EBFT's structured trainer is derived from GRPO's of `grpo_features`."""
    copy = copied_without(folder, "grpo_features")
    (folder / "run.yaml").write_text(json.dumps({"rl": "ebft"}), encoding="utf-8")
    done = run_in(copy, folder, "-m", "fmtkit", *PLANNED[:3], "--partial")
    assert done.returncode == 2
    assert "run.yaml:1: method ebft needs fmtkit.runners.grpo_features" in done.stderr
    assert "Traceback" not in done.stderr
    schema = run_in(copy, folder, "-m", "fmtkit", "schema", "config")
    assert schema.returncode == 0, schema.stderr
    methods = json.loads(schema.stdout)["properties"]["rl"]["enum"]
    assert "ebft" not in methods
    assert "grpo" in methods


def test_the_plugin_that_a_folder_stands_for_is_refused_without_it(folder: Path) -> None:
    copy = copied_without(folder, "nemo_gym")
    config = CONFIG | {"plugins": ["axolotl.integrations.nemo_gym.NemoGymPlugin"]}
    (folder / "run.yaml").write_text(json.dumps(config), encoding="utf-8")
    done = run_in(copy, folder, "-m", "fmtkit", *PLANNED[:3])
    assert "NemoGymPlugin cannot be honoured: fmtkit does not know it" in done.stderr


def test_a_section_of_a_package_that_needs_one_that_is_gone_is_one_line(folder: Path) -> None:
    text = SECTION.replace("methods=", "needs=frozenset({'stadium'}), methods=")
    (folder / "site" / "acme_arena" / "section.py").write_text(text, encoding="utf-8")
    done = fmtkit(folder, *PLANNED[:3], code=2)
    assert (
        "section arena: the package acme-arena 1.0 cannot be used: it needs the section stadium"
        in (done.stderr)
    )


def test_a_folder_of_runners_is_a_section_and_nothing_else_is_touched(folder: Path) -> None:
    copy = copied_without(folder)
    arena = copy / "fmtkit" / "runners" / "arena"
    arena.mkdir()
    modules = {"__init__": "", "section": SECTION, "keys": KEYS, "plan": PLAN, "run": RUN}
    for name, text in modules.items():
        moved = text.replace("acme_arena.", "fmtkit.runners.arena.")
        (arena / f"{name}.py").write_text(moved, encoding="utf-8")
    config = CONFIG | {"arena": {"url": "http://a"}}
    (folder / "run.yaml").write_text(json.dumps(config), encoding="utf-8")
    planned = run_in(copy, folder, "-m", "fmtkit", *PLANNED)
    assert planned.returncode == 0, planned.stderr
    assert "the arena at http://a judges grpo" in json.loads(planned.stdout)["notes"]
    wrong = CONFIG | {"arena": {"players": 1}}
    (folder / "run.yaml").write_text(json.dumps(wrong), encoding="utf-8")
    assert "nobody plays alone" in run_in(copy, folder, "-m", "fmtkit", *PLANNED).stderr
    page = run_in(copy, folder, "-m", "fmtkit.training.config_page", "config.md")
    assert page.returncode == 0, page.stderr
    assert "| `arena.url` |" in (folder / "config.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("gone", [FOLDERS, *((one,) for one in FOLDERS)], ids=" and ".join)
def test_dpo_and_grpo_train_where_folders_of_runners_are_gone(folder: Path, gone) -> None:
    model = tiny.make_model(folder / "tiny", template=tiny.TEMPLATE)
    copy = copied_without(folder, *gone)
    pairs = [
        {"prompt": "red", "chosen": "red is warm", "rejected": "no"},
        {"prompt": "blue", "chosen": "blue is cold", "rejected": "no"},
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    own = {"base_model": model, "bf16": False, "max_steps": 2}
    dpo = DPO | own | {"datasets": [{"path": "pairs.jsonl"}], "output_dir": "dpo"}
    grpo = CONFIG | own | {"output_dir": "grpo"}
    for config in (dpo, grpo):
        (folder / "run.yaml").write_text(json.dumps(config), encoding="utf-8")
        done = run_in(copy, folder, "-m", "fmtkit", "train", "run.yaml")
        assert done.returncode == 0, done.stderr
        run = folder / str(config["output_dir"])
        assert (run / "model").is_dir()
        assert json.loads((run / "report.json").read_text(encoding="utf-8"))["steps"] == 2
