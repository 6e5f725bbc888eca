"""The keys of NeMo Gym: their defaults, and where relative paths start."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fmtkit.core.errors import OptionError
from fmtkit.core.section import read, texts
from fmtkit.training.online.conversations.naming import POLICY

VERIFY = "nemo_gym_verify"
"""The reward of single answers."""
ADVICE = "start the Gym again and continue with --resume; `/` of each server answers while it runs"
NO_TOKENS = (
    "no item of the answer has generation_token_ids; set return_token_id_information: true for the "
    "model server in the Gym's configuration (its vllm_model_for_training.yaml does)"
)
KIND = "nemo_gym"
"""Prefix of a Gym's metrics."""
HEAD_HOST = "127.0.0.1"
_PREFIX = "nemo_gym_"
_TIMES = ("server_timeout", "verify_timeout", "run_timeout")


@dataclass(frozen=True)
class GymSettings:
    """The keys `nemo_gym_*` without their prefix; the datasets are the plan's."""

    enabled: bool = False
    dir: str = "~/Gym"
    auto_start: bool = True
    config_paths: tuple[str, ...] = field(default=(), metadata={"read": texts})
    head_port: int = 11000
    server_timeout: float = 360
    verify_timeout: float = 30
    run_timeout: float = 300
    model_name: str = ""
    multi_turn: bool = False
    max_turns: int = 10

    def __post_init__(self) -> None:
        for name in _TIMES:
            seconds = getattr(self, name)
            if not isinstance(seconds, (int, float)) or seconds <= 0:
                raise OptionError(f"{_PREFIX}{name}: {seconds}: give a number of seconds above 0")
        port = self.head_port
        if not isinstance(port, int) or not 0 < port < 1 << 16:
            raise OptionError(f"{_PREFIX}head_port: {port}: takes a port from 1 to 65535")

    def policy_name(self, model: str, *, is_adapter: bool) -> str:
        """Return the name by which agents request the trained model.

        An adapter needs another name than its base: vLLM would answer with the base alone.
        """
        return POLICY if is_adapter and self.model_name == model else self.model_name

    @property
    def folder(self) -> Path:
        """Return the folder to which relative paths refer."""
        return Path(self.dir).expanduser()

    @property
    def head_url(self) -> str:
        """Return the address of the head server."""
        return f"http://{HEAD_HOST}:{self.head_port}"


def read_settings(section: Mapping[str, object] | None, model: str) -> GymSettings:
    """Read the keys `nemo_gym_*` of a plan or a job; raise OptionError for invalid values."""
    return read(GymSettings, section, _PREFIX, model_name=model)


_PACKAGES = "lib/python3*/site-packages"


def folders(settings: GymSettings) -> Iterator[Path]:
    """Yield the folders in which a relative path is looked for, the Gym's own first.

    A Gym that pip installed has its data and its configurations among the packages, which its own
    commands look through as well.
    """
    yield settings.folder
    yield from sorted((settings.folder / ".venv").glob(_PACKAGES))
    yield from sorted(settings.folder.glob(_PACKAGES))
    program = shutil.which("ng_run")
    if program is not None:
        yield from sorted(Path(program).resolve().parent.parent.glob(_PACKAGES))


def find_file(settings: GymSettings, path: str) -> Path:
    """Return the file of a path; where there is none, what it would be in the Gym's folder."""
    given = Path(path).expanduser()
    found = (folder / given for folder in folders(settings))
    return next((file for file in found if file.is_file()), settings.folder / given)
