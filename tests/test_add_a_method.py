"""The method of docs/add-a-method.md: a package adds it, and everything that knows methods knows it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm

pytest.importorskip("trl")

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "add-a-method.md"
PROMPTS = [{"prompt": [{"role": "user", "content": text}]} for text in ("Tea?", "Sea?", "Hills?")]
REWARDS = """
import sys
from pathlib import Path


def length(completions, **kwargs):
    frame, callers = sys._getframe(), set()
    while frame is not None:
        callers.add(type(frame.f_locals.get("self")).__name__)
        frame = frame.f_back
    Path("callers").write_text(" ".join(sorted(callers)))
    return [len(c[-1]["content"]) / 100 for c in completions]
"""
QUIET = """
import sys
sys.argv = {}
from fmtkit import cli
try:
    cli.main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(sorted(name for name in sys.modules if name.startswith(("acme", "fmtkit.runners.")) and not (name.startswith("fmtkit.") and (name.endswith(".section") or hasattr(sys.modules[name], "__path__")))))
"""


def block(language: str, number: int = 0) -> str:
    found = re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return found[number]


def install(site: Path, modules: dict[str, str], points: str) -> Path:
    """Write an installed package: its modules, and metadata with its entry points."""
    package = site / "acme_methods"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", **modules}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    metadata = site / "acme_methods-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-methods\nVersion: 1.0\n")
    lines = points.replace('[project.entry-points."fmtkit.runners"]', "[fmtkit.runners]")
    (metadata / "entry_points.txt").write_text(lines.replace('"', ""))
    return site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the package of the page in `site`, prompts, rewards and a configuration."""
    install(tmp_path / "site", {"wide_gmpo": block("python")}, block("toml"))
    rows = "".join(f"{json.dumps(row)}\n" for row in PROMPTS)
    (tmp_path / "prompts.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "rewards.py").write_text(REWARDS, encoding="utf-8")
    (tmp_path / "gmpo.yaml").write_text(block("yaml"), encoding="utf-8")
    # A plan looks whether a local model is there; a run loads it.
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


def python(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder / "site"), str(ROOT)))}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def fmtkit(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder / "site")}
    done = warm.fmtkit(*arguments, cwd=folder, env=environment)
    assert done.returncode == code, done.stderr
    return done


def test_the_plan_names_its_trainer_and_judges_its_arguments(folder: Path) -> None:
    plan = json.loads(fmtkit(folder, "train", "gmpo.yaml", "--dry-run", "--json").stdout)
    assert plan["method"] == "wide_gmpo"
    assert plan["trainer"] == "trl.experimental.gmpo:GMPOTrainer"
    assert plan["arguments"]["trainer"]["epsilon"]["value"] == 0.3
    assert [data["table"] for data in plan["datasets"]] == ["Prompt"]
    wrong = fmtkit(
        folder, "train", "gmpo.yaml", "--dry-run", "--set", "trainer_args.epsilom=1", code=2
    )
    assert "GMPOConfig of trl" in wrong.stderr
    assert "did you mean 'epsilon'?" in wrong.stderr


OWN_CONFIG = """
from dataclasses import dataclass

from trl.experimental.gmpo import GMPOConfig


@dataclass
class OwnConfig(GMPOConfig):
    politeness: float = 0.5
"""


def test_a_config_class_of_the_packages_own_has_the_arguments_of_its_bases(folder: Path) -> None:
    package = folder / "site" / "acme_methods"
    (package / "inner").mkdir()
    (package / "inner" / "configs.py").write_text(OWN_CONFIG)
    runner = block("python").replace(
        "trl.experimental.gmpo:GMPOConfig", "acme_methods.inner.configs:OwnConfig"
    )
    (package / "wide_gmpo.py").write_text(runner)
    sets = ("--set", "trainer_args.politeness=1.0", "--set", "trl.beta=0.1")
    plan = json.loads(fmtkit(folder, "train", "gmpo.yaml", "--dry-run", "--json", *sets).stdout)
    arguments = plan["arguments"]["trainer"]
    assert (arguments["politeness"]["value"], arguments["beta"]["value"]) == (1.0, 0.1)
    wrong = fmtkit(folder, "train", "gmpo.yaml", "--dry-run", *sets[:1], "trainer_args.x=1", code=2)
    assert "OwnConfig of acme_methods 1.0 has no argument 'x'" in wrong.stderr


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "trl.num_generations=3",
            "do not divide into groups of 3|does not divide into groups of 3",
        ),
        ("trl.replay_buffer_size=4", "it is for ebft, gdpo and grpo"),
        ("trl.reward_funcs=", "trl.reward_funcs: needed to train"),
        ("ref_model=./model", "the trainer for wide_gmpo takes no reference model"),
    ],
)
def test_the_rules_of_its_runner_hold_in_the_plan(folder: Path, override: str, words: str) -> None:
    done = fmtkit(folder, "train", "gmpo.yaml", "--prepare", "--set", override, code=2)
    assert re.search(words, done.stderr)
    # One problem: its line, and the line of the config with carets below it.
    assert done.stderr.startswith("fmtkit: ")
    assert len([line for line in done.stderr.splitlines() if "gmpo.yaml:" in line]) == 1


def test_the_schema_and_the_page_of_keys_know_it(folder: Path) -> None:
    schema = json.loads(fmtkit(folder, "schema", "config").stdout)
    assert "wide_gmpo" in schema["properties"]["rl"]["enum"]
    assert "wide_gmpo" in schema["properties"]["method"]["enum"]
    python(folder, "-m", "fmtkit.training.config_page", "config.md")
    page = (folder / "config.md").read_text(encoding="utf-8")
    assert (
        "| `wide_gmpo` | Prompt | `trl.experimental.gmpo:GMPOTrainer` | rewards | GRPO with" in page
    )
    shipped = json.loads((ROOT / "schemas" / "config.schema.json").read_text(encoding="utf-8"))
    assert "wide_gmpo" not in shipped["properties"]["rl"]["enum"]


def test_converting_and_inspecting_choose_tables_and_masks_by_it(folder: Path) -> None:
    typed = ("prompts.jsonl", "--type", "passthrough", "--method", "wide_gmpo")
    fmtkit(folder, "convert", *typed, "-o", "out.jsonl")
    assert len((folder / "out.jsonl").read_text().splitlines()) == len(PROMPTS)
    survey = json.loads(fmtkit(folder, "inspect", *typed, "--json").stdout)
    assert (survey["method"], survey["table"]) == ("wide_gmpo", "Prompt")
    pairs = {"question": "q", "chosen": "a", "rejected": "b"}
    (folder / "pairs.jsonl").write_text(json.dumps(pairs) + "\n")
    wrong = fmtkit(
        folder,
        "convert",
        "pairs.jsonl",
        "--type",
        "intel",
        "--method",
        "wide_gmpo",
        "-o",
        "x.jsonl",
        code=2,
    )
    assert "--method wide_gmpo takes Prompt, but type intel makes" in wrong.stderr


def test_help_and_lists_import_no_runner(folder: Path) -> None:
    for command in (["--help"], ["train", "--help"], ["schema", "config"], ["types"]):
        done = python(folder, "-c", QUIET.format(["fmtkit", *command]))
        assert done.stdout.splitlines()[-1] == "[]", command


def test_converting_for_a_method_loads_its_runner_alone_and_no_framework(folder: Path) -> None:
    arguments = [
        "fmtkit",
        "convert",
        "prompts.jsonl",
        "--type",
        "passthrough",
        "--method",
        "wide_gmpo",
    ]
    arguments += ["-o", "out.jsonl", "-q"]
    code = QUIET.format(arguments) + "\nassert not {'torch', 'trl', 'yaml'} & set(sys.modules)"
    done = python(folder, "-c", code)
    assert done.stdout.splitlines()[-1] == "['acme_methods', 'acme_methods.wide_gmpo']"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of"),
        ("raise SystemExit(3)\n", "cannot be used: SystemExit: 3"),
        ("RUNER = 1\n", "has no RUNNER in acme_methods.wide_gmpo"),
        ("RUNNER = {'method': 'wide_gmpo'}\n", "has no RUNNER in acme_methods.wide_gmpo"),
        (block("python").replace('"wide_gmpo"', '"gmpa"'), "names its RUNNER 'gmpa'"),
        (
            block("python").replace('"Prompt"', '"Promt"'),
            "ValueError: wide_gmpo: no table named 'Promt'",
        ),
        (
            block("python").replace('"vllm"', '"vlm"'),
            "ValueError: wide_gmpo: no section named 'vlm'",
        ),
        (block("python").replace("group=8", "mask='sft'"), "wide_gmpo: no mask rule named 'sft'"),
        (block("python").replace("group=8", "head='rank'"), "wide_gmpo: no head named 'rank'"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it(folder: Path, text: str, words: str) -> None:
    (folder / "site" / "acme_methods" / "wide_gmpo.py").write_text(text)
    done = fmtkit(folder, "train", "gmpo.yaml", "--dry-run", code=2)
    assert "method wide_gmpo: the package acme-methods 1.0" in done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["raise SystemExit(3)\n", "RUNNER = {'method': 'wide_gmpo'}\n"])
def test_other_methods_do_not_suffer_from_a_broken_package(folder: Path, text: str) -> None:
    (folder / "site" / "acme_methods" / "wide_gmpo.py").write_text(text)
    fmtkit(folder, "train", "gmpo.yaml", "--dry-run", "--set", "rl=grpo", "--set", "trainer_args=")


def test_a_name_that_fmtkit_has_is_an_error_that_names_both(folder: Path) -> None:
    points = folder / "site" / "acme_methods-1.0.dist-info" / "entry_points.txt"
    points.write_text("[fmtkit.runners]\ngrpo = acme_methods.wide_gmpo\n")
    done = fmtkit(folder, "train", "gmpo.yaml", "--dry-run", "--set", "rl=grpo", code=2)
    assert "method grpo: fmtkit and acme-methods 1.0 both have it; uninstall one" in done.stderr


def test_a_runner_in_the_working_directory_is_not_found(folder: Path) -> None:
    (folder / "runners").mkdir()
    (folder / "runners" / "mine.py").write_text(block("python").replace('"wide_gmpo"', '"mine"'))
    done = fmtkit(folder, "train", "gmpo.yaml", "--dry-run", "--set", "rl=mine", code=2)
    assert "rl: no method named 'mine'" in done.stderr


@pytest.mark.slow
def test_its_mask_rule_is_what_inspect_shows(folder: Path) -> None:
    import tiny_training as tiny

    scored = block("python").replace('"Prompt"', '"Preference"')
    scored = scored.replace("    group=8", "    mask='score'")
    (folder / "site" / "acme_methods" / "wide_gmpo.py").write_text(scored)
    pair = {"question": "good apple", "chosen": "red", "rejected": "blue"}
    (folder / "pairs.jsonl").write_text(f"{json.dumps(pair)}\n")
    tiny.make_model(folder / "model", template=tiny.TEMPLATE)
    flags = ("--type", "chatml.intel", "--tokenizer", "model", "--show-mask", "1", "--json")
    shown = {}
    for method in ("wide_gmpo", "dpo"):
        text = fmtkit(folder, "inspect", "pairs.jsonl", *flags, "--method", method).stdout
        shown[method] = text
    score = "the score is read at the last token; no token is predicted"
    assert score in shown["wide_gmpo"]
    assert score not in shown["dpo"]


FEATURED = (
    block("python")
    .replace('"wide_gmpo"', '"gmpo_featured"')
    .replace("features=TRL_FEATURES", "features=FEATURES")
    .replace("\nRUNNER", "from fmtkit.runners.grpo_features.section import FEATURES\n\nRUNNER", 1)
    .replace("trl.experimental.gmpo:GMPOTrainer", "acme_methods.trainers:FeaturedGMPOTrainer")
    .replace(
        "    health=", '    build="fmtkit.runners.grpo_features.build:build_grpo",\n    health='
    )
    .replace("HealthLimits()", "HealthLimits(first_steps=1, low_reward=50.0)")
)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wide_gmpo", "gmpo_featured"])
def test_a_run_trains_with_the_class_that_the_runner_names(folder: Path, method: str) -> None:
    import tiny_training as tiny

    package = folder / "site" / "acme_methods"
    (package / "trainers.py").write_text(block("python", 1))
    (package / "featured.py").write_text(FEATURED)
    limits = block("python").replace(
        "HealthLimits()", "HealthLimits(first_steps=1, low_reward=50.0)"
    )
    (package / "wide_gmpo.py").write_text(limits)
    points = folder / "site" / "acme_methods-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "gmpo_featured = acme_methods.featured\n")
    tiny.make_model(folder / "model", template=tiny.TEMPLATE)
    sets = ["max_steps=2", "logging_steps=1", "bf16=false", "use_cpu=true", f"rl={method}"]
    sets += ["trl.replay_buffer_size=2"] if method == "gmpo_featured" else []
    flags = [flag for one in sets for flag in ("--set", one)]
    done = fmtkit(folder, "train", "gmpo.yaml", *flags)
    run = folder / "runs" / "gmpo"
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert (report["method"], report["steps"]) == (method, 2)
    trainer = {"wide_gmpo": "GMPOTrainer", "gmpo_featured": "FeaturedGMPOTrainer"}[method]
    assert trainer in (folder / "callers").read_text().split()
    assert "rewards/length/mean was never above 50.0 in 1 steps" in done.stderr
    assert (run / "model" / "model.safetensors").is_file()
    assert json.loads((run / "job.json").read_text(encoding="utf-8"))["method"] == method
