"""NeMo Gym in a run: checks before it, and the Gym's servers while it trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.online.conversations.environment import ExternalEnvironment
from fmtkit.training.planning import job
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.vllm.server_state import address, asks_server

from . import launching, session
from .plan import policy_name, settings_of

LOG = "nemo_gym.log"


def check(plan: Plan) -> None:
    """Raise OptionError or DependencyError, before anything is converted, for a Gym that cannot be used."""
    settings = settings_of(plan.config)
    if not settings.enabled:
        return
    for dataset in plan.datasets:
        path = Path(str(dataset.entry.get("path")))
        if not path.is_file():
            raise OptionError(
                f"nemo_gym_datasets: {path}: no such file; relative paths start from nemo_gym_dir "
                f"({settings.dir}), then from the packages of its environment"
            )
    if settings.auto_start:
        launching.command(settings, policy(plan))
    else:
        session.find(settings)


def environment(work: job.Job, tokenizer: Any) -> ExternalEnvironment | None:
    """Return the rewards, and the conversations, of a job's Gym; None without one."""
    return session.open_gym(work, tokenizer)


@contextmanager
def servers(plan: Plan) -> Iterator[None]:
    """Run the servers while the training processes run; do nothing for a run without a Gym.

    Raises OptionError if they do not start, or lack a server that the rows name.
    """
    settings = settings_of(plan.config)
    if not settings.enabled:
        yield
        return
    work = job.read(plan.run)
    with launching.servers_of(settings, plan.run / LOG, policy(plan)):
        directory = session.find(settings)
        session.check_rows(directory, settings, (*work.train, *work.evaluation))
        yield


def policy(plan: Plan) -> dict[str, str]:
    """Return the settings with which the Gym's agents call the model: the trainer's vLLM server."""
    settings = settings_of(plan.config)
    trainer = plan.arguments.values("trainer")
    if not settings.multi_turn or not asks_server(trainer):
        return {}
    url = address(trainer).url.replace("://0.0.0.0", "://127.0.0.1")
    return {
        "policy_base_url": f"{url}/v1",
        "policy_api_key": "EMPTY",
        "policy_model_name": policy_name(plan.config),
    }


def remarks(plan: Plan) -> list[str]:
    """Return a note if rows have tools that the model cannot call, which may be a mistake."""
    import pyarrow.parquet as pq

    settings = settings_of(plan.config)
    if not settings.enabled or settings.multi_turn:
        return []
    files = [file for source in job.read(plan.run).train for file in source.files]
    columns = [pq.read_table(file, columns=["tools"]).column("tools") for file in files]
    count = sum(len(column) - column.null_count for column in columns)
    if not count:
        return []
    return [
        f"{count} rows have tools, which the model does not see in a single turn;  "
        "nemo_gym_multi_turn: true lets it call them"
    ]
