"""`fmtkit vllm-serve`: show or run the server of a configuration, after looking for what would stop it."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from fmtkit.core.errors import OptionError
from fmtkit.training.config.config import Config, load
from fmtkit.training.vllm import gpus, listening
from fmtkit.training.vllm import versions as vllm_versions
from fmtkit.training.vllm.command import HOST, ServeCommand, command, devices_needed, port_of


def plan(source: str, overrides: Sequence[str] = (), more: Sequence[str] = ()) -> ServeCommand:
    """Return the command of a configuration; `more` are further flags of vLLM."""
    return command(load(source, overrides), more)


def serve(
    source: str,
    overrides: Sequence[str] = (),
    more: Sequence[str] = (),
    *,
    say: Callable[[str], None],
) -> NoReturn:
    """Become the server of a configuration: signals and the exit code are vLLM's from here on.

    Raises DependencyError and OptionError for what would fail after minutes of loading.
    """
    config = load(source, overrides)
    made = command(config, more)
    vllm_versions.check_server()
    check_port(config)
    check_gpus(config, os.environ)
    for note in made.notes:
        say(f"note: {note}")
    say(made.shell)
    # -P: a module in the working directory is none of vLLM's.
    run = [sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", *made.arguments]
    sys.stdout.flush()
    os.execve(sys.executable, run, {**os.environ, **made.environment})  # noqa: S606 - our own command


def check_port(config: Config) -> None:
    """Raise OptionError for a port that is taken."""
    host, port = str(config.get("vllm.host") or HOST), port_of(config)
    if listening.is_free("127.0.0.1" if host == "localhost" else host, port):
        return
    taker = listening.listener(port)
    who = f" by process {taker.pid} ({' '.join(taker.command)[:80]})" if taker else ""
    raise OptionError(
        f"vllm.port: {host}:{port} is taken{who}; stop that server, or set vllm.port, which the trainer "
        "then asks too"
    )


def check_gpus(config: Config, environment: Mapping[str, str]) -> None:
    """Raise OptionError if the server needs more GPUs than it would see."""
    needed, seen = devices_needed(config), gpus.visible(environment)
    if gpus.is_known(environment) and len(seen) < needed:
        named = environment.get("CUDA_VISIBLE_DEVICES")
        shown = f"CUDA_VISIBLE_DEVICES={named}" if named is not None else "this machine"
        raise OptionError(
            f"the server needs {needed} GPUs (vllm.tensor_parallel_size times data_parallel_size), and "
            f"{shown} shows {len(seen)}"
        )
