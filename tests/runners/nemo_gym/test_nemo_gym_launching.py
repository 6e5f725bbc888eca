"""Starting a Gym's servers, waiting for them, and stopping them: a program takes the place of ng_run."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fmtkit.core import http_client
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.runners.nemo_gym import head, launching
from fmtkit.runners.nemo_gym.settings import GymSettings
from fmtkit.training.building import interrupts
from fmtkit.training.online.conversations import own_process

TESTS = Path(__file__).parent
STANDIN = "from gym_standin import main; main(sys.argv[1:])"
CONFIG = """
math:
  resources_servers:
    math: {entrypoint: app.py}
math_agent:
  responses_api_agents:
    simple_agent: {entrypoint: app.py}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def make_gym(folder: Path, code: str = STANDIN, name: str = "ng_run", **more) -> GymSettings:
    """Write a folder as a Gym has it: a program in its environment, and a configuration."""
    program = folder / ".venv" / "bin" / name
    program.parent.mkdir(parents=True)
    head_line = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(TESTS)!r})\n"
    program.write_text(head_line + code + "\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "math.yaml").write_text(CONFIG, encoding="utf-8")
    own = {"dir": str(folder), "config_paths": ("math.yaml",), "head_port": free_port()}
    return GymSettings(**{"enabled": True, "server_timeout": 20, **own, **more})


def test_servers_are_started_waited_for_and_stopped(tmp_path):
    settings, log = make_gym(tmp_path), tmp_path / "run" / "gym.log"
    with launching.servers_of(settings, log, {"policy_model_name": "tiny"}):
        found = head.read(settings.head_url)
        urls = [server.url for server in found.servers.values()]
        assert all(http_client.answers(f"{url}/", 2.0) for url in urls)
    assert not http_client.answers(f"{settings.head_url}/", 2.0)
    said = log.read_text(encoding="utf-8")
    assert "stopped by SIGINT" in said
    given = json.loads(said.split("\n")[0].removeprefix("arguments "))
    assert given == {
        "config_paths": f"['{tmp_path}/math.yaml']",
        "skip_venv_if_present": "true",
        "head_server.host": "127.0.0.1",
        "head_server.port": str(settings.head_port),
        "policy_model_name": "tiny",
    }


def test_servers_are_stopped_after_an_error_too(tmp_path):
    settings = make_gym(tmp_path)
    with (
        pytest.raises(ZeroDivisionError),
        launching.servers_of(settings, tmp_path / "gym.log", {}),
    ):
        raise ZeroDivisionError
    assert not http_client.answers(f"{settings.head_url}/", 2.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_servers_are_stopped_by_a_signal_to_us_alone(tmp_path, number):
    settings = make_gym(tmp_path)
    with (
        pytest.raises(KeyboardInterrupt),
        launching.servers_of(settings, tmp_path / "gym.log", {}),
    ):
        os.kill(os.getpid(), number)
    assert not http_client.answers(f"{settings.head_url}/", 2.0)
    assert "stopped by SIGINT" in (tmp_path / "gym.log").read_text(encoding="utf-8")


def test_who_does_not_wait_for_the_servers_leaves_none_behind():
    """The second signal comes while the Gym takes its time to stop."""
    code = (
        "import os, signal, threading\n"
        "signal.signal(signal.SIGINT, lambda *_: os.kill(os.getppid(), signal.SIGTERM))\n"
        "print('ready', flush=True)\n"
        "while True: threading.Event().wait(1)"
    )
    command = [sys.executable, "-c", code]
    gym = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert gym.stdout is not None
    with gym.stdout as said:
        assert said.readline() == b"ready\n"
        with pytest.raises(KeyboardInterrupt), interrupts.handling(own_process.interrupt):
            launching.stop(gym)
    assert gym.returncode == -signal.SIGKILL


def test_the_turns_of_an_agent_are_limited_where_we_start_it(tmp_path):
    settings = make_gym(tmp_path, multi_turn=True, max_turns=3)
    words = launching.command(settings, {})
    assert "++math_agent.responses_api_agents.simple_agent.max_steps=3" in words


def test_a_newer_gym_is_started_by_its_own_command(tmp_path):
    settings = make_gym(tmp_path, name="gym")
    words = launching.command(settings, {})
    assert words[:3] == [str(tmp_path / ".venv" / "bin" / "gym"), "env", "start"]


def test_the_gym_of_its_own_environment_comes_before_one_on_path(tmp_path, monkeypatch):
    other = tmp_path / "path" / "ng_run"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent), prepend=":")
    settings = make_gym(tmp_path, name="gym")
    assert launching.command(settings, {})[0] == str(tmp_path / ".venv" / "bin" / "gym")
    (tmp_path / ".venv" / "bin" / "gym").unlink()
    assert launching.command(settings, {})[0] == str(other)


def test_a_gym_that_is_not_installed_is_told_with_the_command(tmp_path):
    settings = make_gym(tmp_path, name="other")
    with pytest.raises(DependencyError, match=r"no ng_run or gym in .*pip install nemo-gym in it"):
        launching.command(settings, {})


def test_a_configuration_that_is_not_there_is_told(tmp_path):
    settings = make_gym(tmp_path, config_paths=("none.yaml",))
    with pytest.raises(OptionError, match=r"nemo_gym_config_paths: .*none\.yaml: no such file"):
        launching.command(settings, {})


def test_a_gym_that_ends_at_once_is_told_with_its_last_words(tmp_path):
    settings = make_gym(tmp_path, "print('no such key'); sys.exit(3)")
    with (
        pytest.raises(
            OptionError, match=r"the Gym ended with code 3: no such key; the complete log is"
        ),
        launching.servers_of(settings, tmp_path / "gym.log", {}),
    ):
        pass


def test_a_gym_that_does_not_answer_in_time_is_told_and_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(own_process, "GRACE", 0.2)
    pid = tmp_path / "pid"
    code = (
        "import os, pathlib, signal, threading\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
        "threading.Event().wait()"
    )
    settings = make_gym(tmp_path, code, server_timeout=1)
    with (
        pytest.raises(OptionError, match="the head server did not answer within 1 s"),
        launching.servers_of(settings, tmp_path / "gym.log", {}),
    ):
        pass
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_a_port_that_is_taken_is_told(tmp_path):
    import gym_standin as standin

    with standin.running() as gym:
        settings = make_gym(tmp_path, head_port=gym.head_port)
        with (
            pytest.raises(OptionError, match=r"a server is already running at .*; stop it"),
            launching.servers_of(settings, tmp_path / "gym.log", {}),
        ):
            pass


def test_servers_that_run_already_are_left_alone(tmp_path):
    settings = make_gym(tmp_path, auto_start=False)
    with launching.servers_of(settings, tmp_path / "gym.log", {}):
        assert not http_client.answers(f"{settings.head_url}/", 2.0)
    assert not (tmp_path / "gym.log").exists()
