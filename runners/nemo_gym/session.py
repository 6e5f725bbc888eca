"""A Gym in a training process: its servers, the reward function and the rollout function."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from fmtkit.core import http_client
from fmtkit.core.errors import OptionError
from fmtkit.core.tables import GYM_COLUMNS
from fmtkit.training.online.conversations.environment import EnvReward, ExternalEnvironment
from fmtkit.training.online.rewards import read_options
from fmtkit.training.planning.job import Job, Source
from fmtkit.training.vllm import rollout_settings as rollouts

from . import head
from .head import Directory
from .rollout import GymRollout
from .settings import ADVICE, KIND, NO_TOKENS, GymSettings, read_settings
from .verify import Verify


def open_gym(job: Job, tokenizer: Any) -> ExternalEnvironment | None:
    """Find the servers of a job; None if it uses no Gym.

    Raises OptionError for a head server that does not answer and for rows that no server takes.
    """
    settings = read_settings(job.sections.get("nemo_gym"), job.model)
    if not settings.enabled:
        return None
    directory = find(settings)
    check_rows(directory, settings, (*job.train, *job.evaluation))

    @cache
    def judge(server: str | None, agent: str | None) -> str:
        return head.verifier(directory, server, agent).url

    @cache
    def agent_server(server: str | None, agent: str | None) -> str:
        return head.agent_server(directory, server, agent).url

    retries = read_options(job.section("rl")).retries
    is_adapter = rollouts.read_settings(job.of_rollouts(), run=job.run).vllm_lora_sync
    policy = settings.policy_name(job.model, is_adapter=is_adapter)
    if settings.multi_turn:
        rollout = GymRollout(settings, agent_server, tokenizer, retries)
        reward = EnvReward(settings.max_turns, KIND, ADVICE, frozenset({NO_TOKENS}))
        return ExternalEnvironment(reward, rollout, policy)
    return ExternalEnvironment(Verify(settings, judge, retries), None, policy)


def find(settings: GymSettings) -> Directory:
    """Ask the head server for the other servers; raise OptionError if it does not answer."""
    try:
        return head.read(settings.head_url)
    except http_client.CallError as error:
        raise OptionError(
            f"nemo_gym_head_port: {error}; start the Gym (ng_run, or gym env start), or let fmtkit do "
            "it: nemo_gym_auto_start: true with nemo_gym_config_paths"
        ) from error


def check_rows(
    directory: Directory, settings: GymSettings, sources: Sequence[Source]
) -> list[head.GymServer]:
    """Return the servers that the rows need; raise OptionError unless each answers."""
    route = head.agent_server if settings.multi_turn else head.verifier
    files = [file for source in sources for file in source.files]
    found = {route(directory, server, agent) for server, agent in _targets(files)}
    servers = sorted(found, key=lambda server: server.name)
    for server in servers:
        if not http_client.answers(f"{server.url}/", settings.verify_timeout):
            raise OptionError(
                f"nemo_gym: {server.name} does not answer at {server.url}, though the head server "
                "knows it: it is still starting, or it died; its own log says which"
            )
    return servers


def _targets(files: Iterable[str]) -> set[tuple[Any, Any]]:
    """Return the (server, agent) pairs of all rows."""
    import pyarrow.parquet as pq

    found: set[tuple[Any, Any]] = set()
    for file in files:
        if not set(GYM_COLUMNS) <= set(pq.read_schema(file).names):
            raise OptionError(
                f"{file}: has no column nemo_gym_row; data for a Gym is of type nemo_gym"
            )
        names = pq.read_table(file, columns=list(GYM_COLUMNS[1:]))
        found |= set(zip(*(column.to_pylist() for column in names.columns), strict=True))
    return found
