"""Code of plugins goes to workers by value: they need neither the files nor the packages of the driver."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from runs import lines

import fmtkit
from fmtkit.core import carried_code, plugins
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.formats import registry
from fmtkit.options.convert_options import ConvertOptions, RowOptions
from fmtkit.running.conversions import convert_to
from fmtkit.running.pipeline import stream
from fmtkit.running.preparation import prepare
from fmtkit.sources.opening import open_sources
from fmtkit.work.engines import Threads

CONVERTER = """
from fmtkit.columns import Text
from fmtkit.columns.conversations import pair
from fmtkit.formats.registry import converter
from fmtkit.core.tables import Preference
{imports}

@converter(name="{name}")
def convert(q: Text, a: Text, b: Text) -> Preference:
    return pair(q, a, b)
"""
ROWS = [{"q": f"q{i}", "a": "a", "b": "b" if i else None} for i in range(9)]
ELSEWHERE = """
import pickle, sys
from fmtkit.work.engines import Inline
from fmtkit.running.pipeline import stream
made = pickle.loads(open(sys.argv[1], "rb").read())
for pickled in made if isinstance(made, list) else [made]:
    job = pickle.loads(pickled) if isinstance(pickled, bytes) else pickled
    for piece in stream(job, engine=Inline()):
        print(piece.table.to_pylist(), piece.rejects)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Give a folder of packages that only this process has on its path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("acme"):
            del sys.modules[name]
    forget()


def forget() -> None:
    plugins.forget()
    plugins.load.cache_clear()
    registry.converters.cache_clear()
    carried_code.packages.cache_clear()


def install(site: Path, module: str = "acme_formats.kinds.debate", imports: str = "") -> str:
    """Install a package as pip does, and return the name of its type."""
    *packages, last = module.split(".")
    folder = site.joinpath(*packages)
    folder.mkdir(parents=True, exist_ok=True)
    if packages and packages[0] != "acme":  # that one is a namespace
        for depth in range(len(packages)):
            site.joinpath(*packages[: depth + 1], "__init__.py").touch()
    elif packages:
        site.joinpath(*packages[:2], "__init__.py").touch()
    name = f"acme_{last}"
    (folder / f"{last}.py").write_text(CONVERTER.format(name=name, imports=imports))
    metadata = site / f"acme_{last}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{last}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[fmtkit.converters]\n{name} = {module}\n")
    forget()
    return name


def job_of(tmp_path: Path, type: str, **options):
    (tmp_path / "rows.jsonl").write_bytes(lines(ROWS))
    for plugin in options.get("plugins", ()):
        registry.load_plugin(plugin)
    return prepare(open_sources(str(tmp_path / "rows.jsonl")), RowOptions(type=type, **options))


def elsewhere(job, tmp_path: Path, gone: Sequence[Path] = ()) -> subprocess.CompletedProcess:
    """Unpickle a job in a process that has nothing of this one's, some files not, and convert there."""
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    for file in gone:
        file.unlink()
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-P", "-c", ELSEWHERE, str(tmp_path / "job")],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd="/",
    )


def expected(job) -> str:
    return "".join(
        f"{piece.table.to_pylist()} {piece.rejects}\n" for piece in stream(job, engine=Threads(1))
    )


@pytest.mark.parametrize(
    "module", ["acme_formats.kinds.debate", "acme_alone", "acme.plugins.deep.argue"]
)
def test_a_package_that_only_the_driver_has_is_used_by_workers(site, tmp_path, module):
    job = job_of(tmp_path, install(site, module))
    done = elsewhere(job, tmp_path)
    assert done.stdout == expected(job), done.stderr
    assert done.stdout.count("q1") == 1


METHOD = """
from fmtkit.core.runner import Runner
from fmtkit.core.section import Section

SECTION = Section(name="acme_arena", about="the arena", modules=())
RUNNER = Runner(
    method="acme_gmpo",
    tables=("Preference",),
    trainer="trl:DPOTrainer",
    config="trl:DPOConfig",
    about="a method with a section",
    sections=frozenset({"acme_arena"}),
)
"""


FOUND = """
import pickle, sys
from fmtkit.core import runner

assert runner.find("sft").sections == frozenset()
pickle.loads(open(sys.argv[1], "rb").read()).unpack()
print(sorted(runner.find("acme_gmpo").sections))
"""


def test_a_method_travels_with_the_section_that_it_takes(site, tmp_path):
    install(site, "acme_sections.arena")
    (site / "acme_sections" / "method.py").write_text(METHOD)
    points = site / "acme_arena-1.0.dist-info" / "entry_points.txt"
    points.write_text(
        f"{points.read_text()}[fmtkit.runners]\nacme_gmpo = acme_sections.method\n"
        "[fmtkit.sections]\nacme_arena = acme_sections.method\n"
    )
    forget()
    (tmp_path / "code").write_bytes(pickle.dumps(carried_code.carried(())))
    done = subprocess.run(
        [sys.executable, "-P", "-c", FOUND, str(tmp_path / "code")],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        cwd="/",
    )
    assert done.stdout == "['acme_arena']\n", done.stderr


def test_a_plugin_file_travels_with_the_neighbours_that_it_imports(tmp_path):
    folder = tmp_path / "mine"
    (folder / "helpers").mkdir(parents=True)
    (folder / "helpers" / "__init__.py").write_text("from .deep import SAID\n")
    (folder / "helpers" / "deep.py").write_text("SAID = 'here'\n")
    plugin = folder / "plugin_that_travels.py"
    text = CONVERTER.format(name="plugin_that_travels", imports="from helpers import SAID")
    plugin.write_text(text)
    (folder / "unrelated.py").write_text("1 / 0\n")
    job = job_of(tmp_path, "plugin_that_travels", plugins=(str(plugin),))
    wanted = expected(job)
    assert {*job.code.folders[0][1]} == {
        "plugin_that_travels.py",
        "helpers/__init__.py",
        "helpers/deep.py",
    }
    gone = [plugin, folder / "helpers" / "deep.py"]
    done = elsewhere(job, tmp_path, gone)
    assert done.stdout == wanted, done.stderr


def test_a_function_of_rows_is_run_where_they_are_read(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "asked_later.py").write_text("def said(row):\n    return row['q'] + '!'\n")
    (folder / "functions_of_mine.py").write_text(
        "def ask(cfg, **keywords):\n"
        "    def made(row):\n"
        "        from asked_later import said\n\n"
        "        return {'prompt': said(row), 'completion': row['b']} if row['q'] != 'q3' else None\n"
        "    return made\n"
    )
    plugin = folder / "functions_of_mine.py"
    job = job_of(tmp_path, "functions_of_mine.ask", plugins=(str(plugin),))
    wanted = expected(job)
    assert "q1!" in wanted
    assert "null_field" in wanted
    done = elsewhere(job, tmp_path, [plugin, folder / "asked_later.py"])
    assert done.stdout == wanted, done.stderr


def test_a_plugin_file_that_was_run_twice_travels(tmp_path):
    plugin = tmp_path / "plugin_run_twice.py"
    plugin.write_text(CONVERTER.format(name="plugin_run_twice", imports=""))
    for _ in range(2):
        job = job_of(tmp_path, "plugin_run_twice", plugins=(str(plugin),))
        assert elsewhere(job, tmp_path).stdout == expected(job)


def test_a_worker_of_several_jobs_runs_the_plugin_of_each(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    helper, plugin = folder / "order_of_it.py", folder / "plugin_that_changes.py"
    text = CONVERTER.format(name="plugin_that_changes", imports="from order_of_it import LIKED")
    jobs, wanted = [], ""
    for liked, made in (("a", "pair(q, a, b)"), ("bb", "pair(q, a, b)"), ("bb", "pair( a, q, b)")):
        # Of other sizes, so that no bytecode of the same second is taken for theirs.
        helper.write_text(f"LIKED = {liked!r}\n")
        changed = "if LIKED == 'bb':\n        a, b = b, a\n    return " + made
        plugin.write_text(text.replace("return pair(q, a, b)", changed))
        sys.modules.pop("order_of_it", None)
        job = job_of(tmp_path, "plugin_that_changes", plugins=(str(plugin),))
        jobs.append(pickle.dumps(job))
        wanted += expected(job)
    done = elsewhere(jobs, tmp_path)
    assert done.stdout == wanted, done.stderr
    done = elsewhere(jobs, tmp_path, [helper, plugin])
    assert done.stdout == wanted, done.stderr


def test_a_plugin_file_named_as_another_module_is_told_so(tmp_path):
    plugin = tmp_path / "queue.py"
    plugin.write_text(CONVERTER.format(name="plugin_in_queue", imports=""))
    job = job_of(tmp_path, "plugin_in_queue", plugins=(str(plugin),))
    with pytest.raises(OptionError, match=r"queue\.py: another module is called queue"):
        pickle.dumps(job)


def test_a_module_beside_a_folder_of_its_name_travels(tmp_path):
    (tmp_path / "tables_of_it").mkdir()
    (tmp_path / "tables_of_it" / "words.json").write_text("{}")
    (tmp_path / "tables_of_it.py").write_text("WORD = 1\n")
    plugin = tmp_path / "plugin_with_tables.py"
    plugin.write_text("from tables_of_it import WORD\n")
    [(_, files)] = carried_code.carried([str(plugin)]).folders
    assert {*files} == {"plugin_with_tables.py", "tables_of_it.py"}


def test_a_package_that_is_too_large_or_wants_another_is_named_in_one_line(
    site, tmp_path, monkeypatch
):
    (site / "acme_base.py").write_text("WORD = 1\n")
    job = job_of(tmp_path, install(site, imports="from acme_base import WORD"))
    said = elsewhere(job, tmp_path).stderr.splitlines()[-1]
    assert said.startswith("fmtkit.core.errors.DependencyError: --engine ray: a worker cannot load")
    assert "acme_base" in said
    monkeypatch.setattr(carried_code, "MOST_BYTES", 10)
    carried_code.packages.cache_clear()
    said = elsewhere(job_of(tmp_path, "acme_debate"), tmp_path).stderr.splitlines()[-1]
    assert "acme-debate 1.0 is too large to be sent along" in said


@pytest.mark.slow
def test_ray_converts_and_inspects_by_what_only_the_driver_has(site, tmp_path, monkeypatch):
    if "CI" not in os.environ:  # there it is an error that it is missing
        pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    name = install(site)
    helper = tmp_path / "mine" / "helper_of_it.py"
    helper.parent.mkdir()
    helper.write_text("WORD = 1\n")
    plugin = helper.with_name("plugin_of_the_driver.py")
    said = "from helper_of_it import WORD"
    plugin.write_text(CONVERTER.format(name="plugin_of_the_driver", imports=said))
    source = tmp_path / "rows.jsonl"
    source.write_bytes(lines(ROWS))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    # Ray tells workers the folders of the driver's path that it thinks are of its code.
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(site)])
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    forget()
    try:

        def importable(module):
            import importlib.util

            return importlib.util.find_spec(module) is not None

        asked = ray.remote(importable)
        assert ray.get(asked.remote("fmtkit"))
        assert not ray.get(asked.remote("acme_formats"))
        for kind, files in ((name, ()), ("plugin_of_the_driver", (str(plugin),))):
            made = []
            for engine in ("threads", "ray"):
                out = tmp_path / f"{kind}-{engine}"
                fmtkit.convert(source, f"chatml.{kind}", out, engine=engine, plugins=files)
                shard = out / "data" / "train-00000-of-00001.parquet"
                made.append((shard.read_bytes(), (out / "quarantine.jsonl").read_bytes()))
                survey = fmtkit.inspect(source, type=kind, engine=engine, plugins=files)
                made[-1] += (json.dumps(survey.as_dict()),)
            assert made[0] == made[1]
        for module in [m for m in sys.modules if m.startswith("acme")]:
            del sys.modules[module]
        (site / "acme_base.py").write_text("WORD = 1\n")
        other = install(site, "acme_other", "from acme_base import WORD")
        with pytest.raises(DependencyError, match=r"a worker cannot load a plugin: .*acme_base"):
            convert_to(source, tmp_path / "no", ConvertOptions(type=other, engine="ray"))
        assert not [p for p in tmp_path.iterdir() if "no" in p.name]
    finally:
        ray.shutdown()
        cluster.shutdown()
