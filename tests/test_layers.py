"""Imports point down the layers, and what is heavy is loaded only where it is used."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fixture_cases import cases

ROOT = Path(__file__).parents[1] / "fmtkit"
RUNNERS = ROOT.parent / "runners"
"""fmtkit.runners, in a clone."""
HEAVY = ("torch", "transformers", "datasets", "pandas", "trl", "peft", "accelerate", "matplotlib")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return f"fmtkit.{name}" if parts[0] == "runners" else name


@dataclass(frozen=True)
class Source:
    """What the tests ask of a file, which is parsed once."""

    imports: frozenset[str]
    """The modules that it imports at its top, types apart."""
    all_imports: frozenset[str]
    """The modules that it imports anywhere."""
    texts: frozenset[str]
    """Its string constants."""
    calls: frozenset[str]
    """The names of the functions that it calls."""

    @classmethod
    def of(cls, path: Path) -> "Source":
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        found = (n.value for n in nodes if isinstance(n, ast.Constant))
        called = (n.func for n in nodes if isinstance(n, ast.Call))
        return cls(
            frozenset(imported(tree.body, path)),
            frozenset(imported(nodes, path)),
            frozenset(value for value in found if isinstance(value, str)),
            frozenset(name.id for name in called if isinstance(name, ast.Name)),
        )


def imported(nodes: list, path: Path) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = module_name(path.parents[node.level - 1] / "__init__.py")
                module = f"{package}.{module}".rstrip(".")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


FILES = sorted((*ROOT.rglob("*.py"), *RUNNERS.rglob("*.py")))
SOURCES = {module_name(path): Source.of(path) for path in FILES}
MODULES = {name: source.imports for name, source in SOURCES.items()}
EDGES = {
    name: {other for other in found if other in MODULES and other != name}
    for name, found in MODULES.items()
}


def reachable(name: str) -> set[str]:
    """Return every module of ours that importing one loads."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in EDGES[waiting.pop()] - seen:
            seen.add(other)
            waiting.append(other)
    return seen


def test_no_module_imports_itself_by_way_of_others():
    assert [name for name in MODULES if name in reachable(name)] == []


def test_no_circle_is_closed_by_an_import_within_a_function_or_for_types():
    edges = edges_anywhere()
    # The package itself loads its faces on demand.
    left = {name: found - {name, "fmtkit"} for name, found in edges.items() if name != "fmtkit"}
    while ends := {name for name, found in left.items() if not found}:
        left = {name: found - ends for name, found in left.items() if name not in ends}
    while ends := left.keys() - set().union(*left.values()):
        left = {name: found for name, found in left.items() if name not in ends}
    assert sorted(left) == []


def edges_anywhere() -> dict[str, set[str]]:
    """Return the modules of ours that each module imports: at its top, in functions and for types."""
    return {name: set(source.all_imports & MODULES.keys()) for name, source in SOURCES.items()}


PACKAGES = (
    "core",
    "sources",
    "images",
    "tokenizers",
    "columns",
    "rendering",
    "formats",
    "converters",
    "targets",
    "counting",
    "writing",
    "options",
    "work",
    "rows",
    "reading",
    "stages",
    "detection",
    "running",
    "masks",
    "findings",
    "inspection",
    "reports",
    "rewards",
    "training",
    "browsing",
    "locking",
    "diffing",
    "runners",
    "commands",
)
"""Packages of fmtkit in the order of the road: each imports only from those before it."""
TRAINING = [
    *("config", "planning", "data", "building", "vllm"),
    *("online", "trained", "run"),
]
"""Packages of fmtkit.training, lowest first."""
FACES = ("fmtkit.library", "fmtkit.catalogue", "fmtkit.cli")


def package(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in PACKAGES else None


def test_every_package_has_a_layer():
    found = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    found.add(RUNNERS.name)
    assert found == {*PACKAGES}


FOR_TYPES = {("fmtkit.core.tables", "fmtkit.columns.problems")}
"""Imports that point up: the columns of the tables have the type of what converters return, which has polars
expressions; at run time the tables, which training processes read, need neither."""


def test_imports_point_down_the_layers_of_packages_wherever_they_stand():
    layer_of = {name: number for number, name in enumerate(PACKAGES)}
    wrong = {
        (name, other)
        for name, found in edges_anywhere().items()
        for other in found
        if (own := package(name)) and (its := package(other)) and own != its
        if layer_of[its] >= layer_of[own]
    }
    assert wrong == FOR_TYPES
    assert not any(other in reachable(name) for name, other in FOR_TYPES)


def test_the_design_lists_every_package_in_its_layer():
    text = (ROOT.parent / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", text, re.MULTILINE)
    told = [(int(layer), name) for layer, names in rows for name in re.findall(r"`(\S+)`", names)]
    known = []
    for number, one in enumerate(PACKAGES):
        rooms = {"training": [f"training.{room}" for room in TRAINING]}
        known += [(number, name) for name in rooms.get(one, [one])]
    faces = [(len(PACKAGES) - 1, name.removeprefix("fmtkit.")) for name in FACES]
    assert told == [*known, *faces]


def training_room(name: str) -> str | None:
    """Return the package of fmtkit.training that a module is in; None for all others."""
    parts = name.split(".")
    return parts[2] if parts[1:2] == ["training"] and parts[2:3] != [] else None


def test_every_package_of_training_has_a_layer():
    folders = {path.parent.name for path in (ROOT / "training").glob("*/__init__.py")}
    assert folders == set(TRAINING)


def test_imports_point_down_the_layers_of_training_wherever_they_stand():
    layer_of = {name: number for number, name in enumerate(TRAINING)}
    wrong = {
        (name, other)
        for name, found in edges_anywhere().items()
        if (own := layer_of.get(training_room(name) or "")) is not None
        for other in found
        if layer_of.get(training_room(other) or "", -1) > own
    }
    assert wrong == set()
    # What is beside the packages: options, which import nothing of them, and programs that no package knows.
    beside = {"fmtkit.training.config_page", "fmtkit.training.demo"}
    assert not {name for name, found in edges_anywhere().items() if found & beside} - beside


def test_a_check_that_is_declared_anywhere_is_made_and_is_on_the_page():
    from fmtkit.core import section

    of_sections = {name for one in section.every() for name in one.modules}
    of_sections |= {other for name in of_sections for other in reachable(name)}
    of_plan = reachable("fmtkit.training.planning.plan") | of_sections
    of_run = {"fmtkit.training.run.checklist", *reachable("fmtkit.training.run.checklist")}
    decorators = {"check_config", "check_run"}  # of fmtkit.training.planning.check
    declaring = {name: source.calls & decorators for name, source in SOURCES.items()}
    of_any_plan = {name for name, by in declaring.items() if "check_config" in by}
    assert of_any_plan <= of_plan
    assert of_any_plan <= of_run | of_sections
    assert {name for name, by in declaring.items() if "check_run" in by} <= (
        of_run | of_sections  # the plan of a run loads its sections
    )
    assert sum(map(bool, declaring.values())) > 10


def test_no_package_knows_the_faces():
    for name in MODULES:
        if package(name):
            assert not EDGES[name] & set(FACES), name


def test_converters_know_nothing_of_files_templates_or_runs():
    for name in MODULES:
        if name.startswith("fmtkit.converters."):
            assert not reachable(name) & {
                "fmtkit.running.pipeline",
                "fmtkit.writing.sinks",
                "fmtkit.rendering.chat",
            }, name


def test_the_extension_module_is_loaded_in_one_place():
    naming = {
        name
        for name, source in SOURCES.items()
        if "reading._kernel" in " ".join(source.all_imports | source.texts)
    }
    assert naming == {"fmtkit.reading.native"}


def test_nothing_but_training_and_runners_imports_training():
    built_on_it = ("fmtkit.training", "fmtkit.diffing")
    outside = {n for n in MODULES if not n.startswith(built_on_it) and not is_runner(n)}
    options = "fmtkit.options.train_options"  # the keywords of fmtkit.train, which load nothing
    core = {
        f"fmtkit.core.{name}"
        for name in (
            "options",
            "arguments",
            "data_classes",
            "errors",
            "credentials",
            "urls",
            "escaping",
            "secret_keys",
        )
    }
    assert reachable(options) == core
    assert reachable("fmtkit.options.diff_options") == core
    wrong = {
        name: [
            o
            for o in EDGES[name]
            if o.startswith("fmtkit.training") and o not in (options, "fmtkit.training")
        ]
        for name in outside
    }
    assert {name: found for name, found in wrong.items() if found} == {}


NAMED_OTHERWISE = {
    "sft": {
        "core.runner": "the default method",
        "diffing.trainers.llama_factory": "a stage of LLaMA-Factory",
    },
    "kto": {
        "diffing.trainers.llama_factory": "a stage of LLaMA-Factory",
        "diffing.recorder": "a value of axolotl's rl",
    },
    "gold": {
        "detection.numbered_replies": "a column with the right answer",
        "detection.unread_columns": "a column with the right answer",
    },
    "reward": {
        "converters.rated_steps": "the score of a step",
        "converters.scored_replies": "the score of a reply",
        "detection.listed_replies": "the score of a reply",
        "formats.typenames": "the method of axolotl's type bradley_terry",
        "training.run.curves": "a metric",
        "training.run.verdict": "a metric",
        "training.run.process": "a metric",
        "training.run.progress": "a metric",
        "training.online.keep_samples": "a metric",
        "training.online.samples": "a column",
        "training.online.samples_page": "a column",
        "training.trained.best_of": "the score of an answer",
    },
}
"""Words that are methods too -> the modules that mean something else by them, and what."""


def test_no_module_decides_by_the_name_of_a_method():
    from fmtkit.core import runner

    found = {
        (module.removeprefix("fmtkit."), name)
        for module, source in SOURCES.items()
        for name in source.texts & set(runner.shipped_names())
        if not is_runner(module)
    }
    means_otherwise = {
        (module, name)
        for module, name in found
        for other in NAMED_OTHERWISE.get(name, ())
        if module == other or module.startswith(f"{other}.")
    }
    assert found - means_otherwise == set(), "say it in the runner"


def test_fmtkit_imports_no_runner_and_names_no_key_of_their_sections():
    from fmtkit.core import section

    own = {name: source for name, source in SOURCES.items() if not is_runner(name)}
    importers = {name for name, source in own.items() if any(map(is_runner, source.all_imports))}
    assert importers == set()
    ours = [one for one in section.every() if one.modules[0].startswith("fmtkit.runners.")]
    keys = {key.name for one in ours for key in one.load_keys()}
    keys |= {one.switch for one in ours} - {""}
    assert len(keys) > 30
    naming = {(name, key) for name, source in own.items() for key in source.texts & keys}
    assert naming == set()


# inspect shows the windows of EBFT of a config, too, by its option of that name.
NAMED_BY = {"fmtkit.training.data.inspect_config": "ebft"}


def test_training_speaks_of_no_method_and_environment_that_is_a_folder_of_runners():
    """In prose, too: what a folder brings is described in it, and reaches pages through its section."""
    words = re.compile(r"ebft|nemo.?gym|verifiers", re.IGNORECASE)
    found = {
        (name, word.lower())
        for name, file in ((module_name(path), path) for path in FILES)
        if name.startswith("fmtkit.training.")
        for word in words.findall(file.read_text(encoding="utf-8"))
    }
    assert found == {*NAMED_BY.items()}


def is_runner(name: str) -> bool:
    return name.startswith("fmtkit.runners")


def loaded(code: str) -> set[str]:
    """Run code in a fresh interpreter and return the packages and modules that it loaded."""
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    names = done.stdout.split("\n")[-2].split()
    return {*names, *(name.partition(".")[0] for name in names)}


CALL = """
import sys
sys.argv = {}
from fmtkit import cli
try:
    cli.main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


@pytest.mark.parametrize(
    "command", [["fmtkit", "--help"], ["fmtkit", "convert", "--help"], ["fmtkit", "lock", "--help"]]
)
def test_help_loads_nothing_heavy(command):
    names = loaded(CALL.format(command))
    assert not names & {*HEAVY, "polars", "pyarrow", "numpy", "jsonschema", "tokenizers", "yaml"}


def test_env_imports_none_of_the_packages_whose_versions_it_tells():
    names = loaded(CALL.format(["fmtkit", "env"]))
    assert not names & {*HEAVY, "polars", "pyarrow", "numpy", "jinja2", "tokenizers", "vllm"}


def test_importing_the_package_loads_nothing():
    assert not loaded("import fmtkit") & {*HEAVY, "polars", "pyarrow", "numpy", "typer", "rich"}


def test_converting_and_validating_load_no_framework(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n')
    source = str(tmp_path / "a.jsonl")
    for form in ("chatml.intel", "intel"):
        out = str(tmp_path / f"{form}.parquet")
        arguments = ["fmtkit", "convert", source, "--type", form, "-o", out, "-q"]
        assert not loaded(CALL.format(arguments)) & set(HEAVY)
    assert not loaded(CALL.format(["fmtkit", "validate", source, "--type", "intel"])) & set(HEAVY)


@pytest.mark.parametrize(
    ("form", "suffix"),
    [
        ("chatml.intel", "parquet"),
        ("chatml.intel", "jsonl"),
        ("intel", "jsonl"),
        ("intel", "arrow"),
    ],
)
def test_converting_a_block_that_is_laid_out_loads_no_framework(tmp_path, form, suffix):
    # pyarrow imports pandas, where it is installed, as soon as it has to recognise a Python object.
    rows = ({"question": f"q {i}" * 200, "chosen": "a", "rejected": "b"} for i in range(2_000))
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = str(tmp_path / f"out.{suffix}")
    arguments = ["fmtkit", "convert", str(source), "--type", form, "-o", out, "-q"]
    assert not loaded(CALL.format(arguments)) & set(HEAVY)


EACH = """
import json, sys, warnings
from pathlib import Path
import fmtkit
warnings.simplefilter("ignore")
for number, (name, source, settings) in enumerate(json.load(sys.stdin)):
    fmtkit.convert(source, type=name, out=Path({out!r}) / str(number), **settings)
    assert "pandas" not in sys.modules, source
"""


@pytest.mark.slow
def test_no_fixture_makes_a_conversion_import_pandas(tmp_path):
    # Also those with bad rows, with columns that are not read, and of which nothing is left.
    pytest.importorskip("pandas")
    every = [(case.name, str(case.source), case.settings) for case in cases()]
    script = EACH.format(out=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        input=json.dumps(every),
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == len(every)


UNUSED = (
    *("pydantic", "tokenizers", "http", "multiprocessing.connection", "rich"),
    *("numpy.ma", "pyarrow.json"),
)
"""What a conversion of JSON lines without a tokenizer, into a pipe or a log, has no use for: 0.18 s of CPU."""


def test_a_conversion_imports_nothing_that_it_does_not_use(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n')
    source, out = str(tmp_path / "a.jsonl"), str(tmp_path / "a.parquet")
    flags = ["--overwrite", "--limit", "5", "--workers", "2", "--seed", "3", "--keep", "question"]
    arguments = ["fmtkit", "convert", source, "--type", "chatml.intel", "-o", out]
    # Older versions of numpy and typer import all of theirs at once.
    unused = set(UNUSED) - loaded("import numpy, typer")
    assert loaded(CALL.format(arguments)) & unused == set()
    assert loaded(CALL.format([*arguments, *flags])) & unused == set()


def test_every_public_name_is_listed_sorted_and_there():
    import fmtkit

    assert fmtkit.__all__ == sorted(fmtkit.__all__)
    for name in fmtkit.__all__:
        assert getattr(fmtkit, name).__doc__, name
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = fmtkit.nothing_of_ours
