"""Commands of fmtkit in processes of their own that start warm: forks of one that has imported it.

A new interpreter imports for half a second of CPU until a command begins, and for two more until TRL's
classes are read. A fork has the environment, folder, streams, modules and caches of its command alone,
and ends as any process. What is imported when, and how a process starts, need `sys.executable`.
"""

import atexit
import gc
import io
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

IMPORTED = (
    *(
        "fmtkit.cli",
        "fmtkit.commands.application",
        "fmtkit.library",
        "fmtkit.running.conversions",
        "fmtkit.inspection.inspection",
    ),
    *(
        "fmtkit.training.run.run",
        "fmtkit.training.run.checklist",
        "fmtkit.training.config.keys",
    ),
    *(
        "fmtkit.training.online.plan",
        "fmtkit.runners.nemo_gym.plan",
        "fmtkit.reports.survey_outputs",
    ),
    *(
        "fmtkit.reports.console",
        "fmtkit.commands.listings",
        "fmtkit.commands.run_listings",
        "fmtkit.converters",
    ),
    *("jsonschema", "polars", "pyarrow.compute", "rich.table", "yaml"),
)


def fmtkit(
    *arguments: object,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> subprocess.CompletedProcess[str]:
    """Run a command as the installed `fmtkit` does, with bytes on its stdin.

    Modules are found in the folders of its PYTHONPATH first.
    """
    command = list(map(str, arguments))
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder, name)) for name in ("stdin", "stdout", "stderr")]
        for file in files:
            Path(file).write_bytes(given if file == files[0] else b"")
        environment = dict(os.environ if env is None else env)
        code = _ask((command, files, str(cwd or Path.cwd()), environment))
        said = [Path(file).read_text(encoding="utf-8") for file in files[1:]]
    return subprocess.CompletedProcess(command, code, *said)


def _ask(request: Any) -> int:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request).encode() + b"\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@cache
def _server() -> "subprocess.Popen[bytes]":
    server = subprocess.Popen(
        [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(server.communicate)
    return server


def _serve() -> None:
    """Fork for each request, and be the command in the fork: no thread runs here that it would lack."""
    for name in IMPORTED:
        import_module(name)
    for module in pkgutil.iter_modules(import_module("fmtkit.converters").__path__):
        import_module(f"fmtkit.converters.{module.name}")
    _read_classes()
    # A fork that collects garbage would copy every page that is shared with this process.
    gc.freeze()
    while request := os.read(0, 1 << 20):
        while not request.endswith(b"\n"):
            request += os.read(0, 1 << 20)
        pid = os.fork()
        if not pid:
            _run(*json.loads(request))
            return
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, f"{code}\n".encode())


def _read_classes() -> None:
    """Read the arguments of every shipped method's classes, where TRL is installed.

    No method is looked for by its name: that would find the packages of this process for good.
    """
    from fmtkit.core import runner, section
    from fmtkit.training.config import class_arguments

    for name in runner.shipped_names():
        place = f"{name}.runner" if name in section.folders("runner") else name
        one = import_module(f"{runner.GROUP}.{place}").RUNNER
        if class_arguments.has_class(one.config):
            class_arguments.fields_of(one.config, one.trainer)


def _run(command: list[str], files: list[str], cwd: str, environment: dict[str, str]) -> None:
    for number, file in enumerate(files):
        opened = os.open(file, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w" if number else "r", closefd=False), encoding="utf-8")
        for number in range(3)
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    sys.argv = ["fmtkit", *command]
    from fmtkit import cli

    cli.main()


if __name__ == "__main__":
    _serve()
