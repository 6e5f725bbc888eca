"""Start a Gym's servers for a run, wait until they answer, and stop them with the run."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.rl import http_client
from fmtkit.training.rl.dialogs.own_process import interrupt, started, stop, tail
from fmtkit.training.rl.nemo_gym import head
from fmtkit.training.rl.nemo_gym.head import AGENTS, Directory
from fmtkit.training.rl.nemo_gym.settings import HEAD_HOST, GymSettings, find_file
from fmtkit.training.run import interrupts

INSTALL = "pip install nemo-gym"
_POLL = 0.5


def command(settings: GymSettings, policy: Mapping[str, str]) -> list[str]:
    """Return the command that starts the servers; raise DependencyError if it is not installed.

    `policy` holds the address and the name of the model that agents call.
    """
    # Quoted for Hydra, whose grammar gives brackets, commas and equals signs a meaning.
    paths = ",".join(f"'{path}'" for path in config_files(settings))
    overrides = [f"+config_paths=[{paths}]", "+skip_venv_if_present=true"]
    overrides += [f"+head_server.host={HEAD_HOST}", f"+head_server.port={settings.head_port}"]
    overrides += [f"++{name}={value}" for name, value in policy.items()]
    overrides += [f"++{path}={settings.max_turns}" for path in _steps(settings)]
    return [*_program(settings), *overrides]


def _program(settings: GymSettings) -> list[str]:
    """Find `ng_run`, or `gym` in versions without it: in the Gym's own environment first."""
    folders = (settings.folder / ".venv" / "bin", settings.folder / "bin")
    for name, words in (("ng_run", []), ("gym", ["env", "start"])):
        for place in folders:
            if (place / name).is_file():
                return [str(place / name), *words]
        if name == "ng_run" and (found := shutil.which(name)):
            return [found, *words]
    raise DependencyError(
        f"nemo_gym_auto_start: no ng_run in {folders[0]} or on PATH; make an environment of Python "
        f"3.12 or newer there ({INSTALL}; it does not run on fmtkit's), or start the servers by "
        "yourself and write nemo_gym_auto_start: false"
    )


def _steps(settings: GymSettings) -> list[str]:
    """Return where the configurations set the maximum number of turns of each agent."""
    if not settings.multi_turn:
        return []
    found = []
    for path in config_files(settings):
        content = _content(path)
        for name, kinds in content.items() if isinstance(content, Mapping) else ():
            agents = kinds.get(AGENTS) if isinstance(kinds, Mapping) else None
            found += [f"{name}.{AGENTS}.{inner}.max_steps" for inner in agents or ()]
    return found


def _content(path: Path) -> object:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise OptionError(f"nemo_gym_config_paths: {path}: cannot be read: {said}") from error


def config_files(settings: GymSettings) -> list[Path]:
    """Return the configurations as files; raise OptionError for a missing one."""
    files = [find_file(settings, path) for path in settings.config_paths]
    for file in files:
        if not file.is_file():
            raise OptionError(
                f"nemo_gym_config_paths: {file}: no such file; relative paths start from "
                f"nemo_gym_dir ({settings.dir})"
            )
    return files


@contextmanager
def servers_of(settings: GymSettings, log: Path, policy: Mapping[str, str]) -> Iterator[None]:
    """Run the servers of a run: start them, wait for all of them, stop them at the end.

    The servers write to the file `log`. Does nothing where they run already (auto_start: false).
    """
    if not settings.auto_start:
        yield
        return
    if http_client.answers(f"{settings.head_url}/", 2.0):
        raise OptionError(
            f"nemo_gym_head_port: something answers at {settings.head_url} already; stop it, take "
            "another port, or use it: nemo_gym_auto_start: false"
        )
    with interrupts.handling(interrupt):
        process = _started(settings, log, policy)
        try:
            _wait(settings, process, log)
            yield
        finally:
            stop(process)


def _started(
    settings: GymSettings, log: Path, policy: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    # A cluster that runs here already is of another Python, and Ray would refuse to join it.
    quiet["RAY_ADDRESS"] = os.environ.get("RAY_ADDRESS", "local")
    folder = settings.folder if settings.folder.is_dir() else None
    return started(command(settings, policy), log, {**os.environ, **quiet}, folder)


def _wait(settings: GymSettings, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until every server answers; the head server answers seconds before the others."""
    deadline = time.monotonic() + settings.server_timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise OptionError(
                f"nemo_gym_auto_start: the Gym ended with code {process.returncode}: {tail(log)}; "
                f"all of it is in {log}"
            )
        if not _asleep(_directory(settings)):
            return
        time.sleep(_POLL)
    late = ", ".join(_asleep(_directory(settings)))
    raise OptionError(
        f"nemo_gym_server_timeout: {late} did not answer within {settings.server_timeout:g} s; "
        f"look at {log}, or allow more time (the first start installs packages)"
    )


def _directory(settings: GymSettings) -> Directory | None:
    try:
        return head.read(settings.head_url)
    except http_client.CallError:
        return None


def _asleep(directory: Directory | None) -> list[str]:
    """Return which servers do not answer yet; agents also need servers that no row names."""
    if directory is None or not directory.servers:
        return ["the head server"]
    found = directory.servers.values()
    return [server.name for server in found if not http_client.answers(f"{server.url}/", 2.0)]
