"""Start a Gym's servers for a run, wait until they answer, and stop them with the run."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fmtkit.core import http_client
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.building import interrupts
from fmtkit.training.online.conversations.own_process import interrupt, start, stop, tail

from . import head
from .head import AGENTS, Directory
from .settings import HEAD_HOST, GymSettings, find_file

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
    overrides += [f"++{path}={settings.max_turns}" for path in _max_steps_paths(settings)]
    return [*_program(settings), *overrides]


def _program(settings: GymSettings) -> list[str]:
    """Return the start of the command: `ng_run`, or `gym env start` in versions without it.

    Those of the Gym's own environment come before an `ng_run` on PATH.
    """
    folders = (settings.folder / ".venv" / "bin", settings.folder / "bin")
    for name, words in (("ng_run", []), ("gym", ["env", "start"])):
        for folder in folders:
            if (folder / name).is_file():
                return [str(folder / name), *words]
    on_path = shutil.which("ng_run")
    if on_path is not None:
        return [on_path]
    raise DependencyError(
        f"nemo_gym_auto_start: no ng_run or gym in {folders[0]}, and no ng_run on PATH; create a virtual "
        f"environment with Python 3.12 or newer in {folders[0].parent} and {INSTALL} in it, or start the "
        "servers yourself and set nemo_gym_auto_start: false"
    )


def _max_steps_paths(settings: GymSettings) -> list[str]:
    """Return the dotted paths of `max_steps` of each agent in the configurations."""
    if not settings.multi_turn:
        return []
    paths = []
    for path in config_files(settings):
        content = _content(path)
        for name, kinds in content.items() if isinstance(content, Mapping) else ():
            agents = kinds.get(AGENTS) if isinstance(kinds, Mapping) else None
            paths += [f"{name}.{AGENTS}.{inner}.max_steps" for inner in agents or ()]
    return paths


def _content(path: Path) -> object:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise OptionError(f"nemo_gym_config_paths: {path}: cannot be read: {reason}") from error


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

    The servers write to the file `log`. Does nothing if the user has started them (`auto_start: false`).
    """
    if not settings.auto_start:
        yield
        return
    if http_client.answers(f"{settings.head_url}/", 2.0):
        raise OptionError(
            f"nemo_gym_head_port: a server is already running at {settings.head_url}; stop it, choose "
            "a different port, or use it: nemo_gym_auto_start: false"
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
    # A Ray cluster that is already running here has a different Python, and Ray would refuse to join it.
    quiet["RAY_ADDRESS"] = os.environ.get("RAY_ADDRESS", "local")
    folder = settings.folder if settings.folder.is_dir() else None
    return start(command(settings, policy), log, {**os.environ, **quiet}, folder)


def _wait(settings: GymSettings, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until every server answers; the head server answers seconds before the others."""
    deadline = time.monotonic() + settings.server_timeout
    while True:
        if process.poll() is not None:
            raise OptionError(
                f"nemo_gym_auto_start: the Gym ended with code {process.returncode}: {tail(log)}; "
                f"the complete log is {log}"
            )
        late = _not_answering(_directory(settings))
        if not late:
            return
        if time.monotonic() > deadline:
            raise OptionError(
                f"nemo_gym_server_timeout: {', '.join(late)} did not answer within "
                f"{settings.server_timeout:g} s; look at {log}, or allow more time (the first start "
                "installs packages)"
            )
        time.sleep(_POLL)


def _directory(settings: GymSettings) -> Directory | None:
    try:
        return head.read(settings.head_url)
    except http_client.CallError:
        return None


def _not_answering(directory: Directory | None) -> list[str]:
    """Return the servers that do not answer yet, of all: agents also use servers that no row names."""
    if directory is None or not directory.servers:
        return ["the head server"]
    servers = directory.servers.values()
    return [server.name for server in servers if not http_client.answers(f"{server.url}/", 2.0)]
