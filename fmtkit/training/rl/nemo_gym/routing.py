"""Which server a row goes to: its own words first, then what the agents' configuration tells."""

from fmtkit.core.errors import OptionError, near_match
from fmtkit.training.rl.nemo_gym.head import AGENTS, RESOURCES, Directory, Server


def verifier(directory: Directory, server: str | None, agent: str | None) -> Server:
    """Return the resources server whose /verify judges a row; raise OptionError if there is none.

    A row that names its agent alone is judged by the server that the agent plays with.
    """
    name = server or directory.resources_of.get(agent or "")
    if name is None and agent is not None:
        _known(directory, agent, AGENTS, "agent_ref")
        raise OptionError(
            f"nemo_gym_datasets: the agent {agent} names no resources server; set server_name"
        )
    if name is None:
        raise OptionError(
            "nemo_gym_datasets: a row names no server; set server_name beside its path"
            + _there(directory, RESOURCES)
        )
    return _known(directory, name, RESOURCES, "server_name" if server else "agent_ref")


def player(directory: Directory, server: str | None, agent: str | None) -> Server:
    """Return the agent whose /run plays a row; raise OptionError if there is none, or several."""
    if agent is not None:
        return _known(directory, agent, AGENTS, "agent_ref")
    fitting = sorted(a for a, s in directory.resources_of.items() if s == server)
    running = [name for name in fitting if name in directory.servers]
    if len(running) == 1:
        return directory.servers[running[0]]
    if running:
        raise OptionError(
            f"nemo_gym_multi_turn: {server} has the agents {', '.join(running)}; name one in the "
            'rows: "agent_ref": {"type": "responses_api_agents", "name": …}'
        )
    raise OptionError(
        f"nemo_gym_multi_turn: no agent plays with {server or 'a row that names no server'}; start "
        "one that does, or write nemo_gym_multi_turn: false to score single answers"
        + _there(directory, AGENTS)
    )


def _known(directory: Directory, name: str, kind: str, key: str) -> Server:
    found = directory.servers.get(name)
    if found is not None and found.kind == kind:
        return found
    names = directory.of_kind(kind)
    near = near_match(name, names)
    advice = f"; did you mean {near!r}?" if near else _there(directory, kind)
    raise OptionError(f"nemo_gym_datasets: {key}: no {kind} named {name!r} runs{advice}")


def _there(directory: Directory, kind: str) -> str:
    names = directory.of_kind(kind)
    return f"; there are: {', '.join(names)}" if names else f"; no {kind} run at all"
