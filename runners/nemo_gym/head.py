"""The head server of a Gym: the names and addresses of its servers, and the server of each row.

A row is sent to the server that it names; if it names none, to the one that its agent is configured with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from fmtkit.core import http_client
from fmtkit.core.errors import OptionError, near_match

RESOURCES = "resources_servers"
AGENTS = "responses_api_agents"
_KIND_NAMES = {RESOURCES: "resources server", AGENTS: "agent"}
_KINDS = (RESOURCES, AGENTS, "responses_api_models", "environment_servers")
_TIMEOUT = 10.0
_EVERYWHERE = {"0.0.0.0", "::", ""}  # noqa: S104 - addresses in answers, not ones to bind


@dataclass(frozen=True)
class GymServer:
    """A server of a Gym; `name` is its key in the Gym's configuration."""

    name: str
    kind: str
    url: str


@dataclass(frozen=True)
class Directory:
    """The servers by name, and the resources server that each agent uses."""

    servers: Mapping[str, GymServer] = field(default_factory=dict)
    resources_of: Mapping[str, str] = field(default_factory=dict)

    def of_kind(self, kind: str) -> list[str]:
        """Return the names of the servers of a kind."""
        return sorted(name for name, server in self.servers.items() if server.kind == kind)


def read(url: str) -> Directory:
    """Query the head server; raise CallError if it does not answer, OptionError if it is not a head server.

    `/server_instances` is preferred, since it lists the servers that were started. There `name` is the class
    of a server; the name that rows and agents use is `process_name`.
    """
    config = read_config(http_client.get(f"{url}/global_config_dict_yaml", _TIMEOUT), url)
    listed = _listed(url)
    return Directory(listed or configured_servers(config), _resources(config))


def read_config(answer: object, url: str) -> Mapping[str, Any]:
    """Parse the configuration: the answer is a JSON string that contains YAML."""
    try:
        value = yaml.safe_load(answer) if isinstance(answer, str) else answer
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise OptionError(
            f"{url}: the head server's configuration is not valid YAML: {error}"
        ) from error
    if not isinstance(value, Mapping):
        raise OptionError(
            f"{url}: this is not the head server of a NeMo Gym; see nemo_gym_head_port"
        )
    return value


def _listed(url: str) -> dict[str, GymServer]:
    try:
        answer = http_client.get(f"{url}/server_instances", _TIMEOUT)
    except http_client.CallError as error:
        if error.status is None:
            raise
        return {}
    entries = answer if isinstance(answer, list) else []
    servers = [_server(entry) for entry in entries if isinstance(entry, Mapping)]
    return {server.name: server for server in servers if server is not None}


def _server(entry: Mapping[str, Any]) -> GymServer | None:
    name = entry.get("process_name") or entry.get("config_path") or entry.get("name")
    host, port = entry.get("host"), entry.get("port")
    if not name or port is None:
        return None
    return GymServer(str(name), str(entry.get("server_type")), _url(host, port))


def configured_servers(config: Mapping[str, Any]) -> dict[str, GymServer]:
    """Return the servers of a Gym's configuration by their names, for a head server that lists none."""
    return {
        name: GymServer(name, kind, _url(inner.get("host"), inner["port"]))
        for name, kind, inner in _servers(config)
        if inner.get("port") is not None
    }


def _servers(config: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return (name, kind, settings) of every server: {name: {kind: {class: settings}}}."""
    return [
        (str(name), kind, cast("Mapping[str, Any]", inner))
        for name, kinds in config.items()
        for kind in _KINDS
        for inner in _values(kinds, kind)
        if isinstance(inner, Mapping)
    ]


def _values(holder: object, key: str) -> list[object]:
    inside = holder.get(key) if isinstance(holder, Mapping) else None
    return list(inside.values()) if isinstance(inside, Mapping) else []


def _resources(config: Mapping[str, Any]) -> dict[str, str]:
    resources = {}
    for name, kind, inner in _servers(config):
        reference = inner.get("resources_server")
        if kind == AGENTS and isinstance(reference, Mapping) and reference.get("name"):
            resources[name] = str(reference["name"])
    return resources


def _url(host: object, port: object) -> str:
    name = "127.0.0.1" if host is None or str(host) in _EVERYWHERE else str(host)
    return f"http://{name}:{port}"


def verifier(directory: Directory, server: str | None, agent: str | None) -> GymServer:
    """Return the resources server whose /verify scores a row; raise OptionError if there is none.

    A row that names only its agent is verified by the server that the agent uses.
    """
    name = server or directory.resources_of.get(agent or "")
    if name is None and agent is not None:
        _known(directory, agent, AGENTS, "agent_ref")
        raise OptionError(
            f"nemo_gym_datasets: the agent {agent} does not name a resources server; set server_name"
        )
    if name is None:
        raise OptionError(
            "nemo_gym_datasets: a row does not name a server; set server_name next to its path"
            + _running(directory, RESOURCES)
        )
    return _known(directory, name, RESOURCES, "server_name" if server else "agent_ref")


def agent_server(directory: Directory, server: str | None, agent: str | None) -> GymServer:
    """Return the agent whose /run takes a row; raise OptionError if there is none, or several."""
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
    if server is None:
        raise OptionError(
            "nemo_gym_multi_turn: a row names neither an agent nor a server; set server_name next to "
            "its path, or agent_ref in the rows" + _running(directory, AGENTS)
        )
    raise OptionError(
        f"nemo_gym_multi_turn: no agent uses {server}; start "
        "one that does, or write nemo_gym_multi_turn: false to score single answers"
        + _running(directory, AGENTS)
    )


def _known(directory: Directory, name: str, kind: str, key: str) -> GymServer:
    found = directory.servers.get(name)
    if found is not None and found.kind == kind:
        return found
    names = directory.of_kind(kind)
    near = near_match(name, names)
    advice = f"; did you mean {near!r}?" if near else _running(directory, kind)
    raise OptionError(
        f"nemo_gym_datasets: {key}: no running {_KIND_NAMES[kind]} is named {name!r}{advice}"
    )


def _running(directory: Directory, kind: str) -> str:
    names = directory.of_kind(kind)
    return f"; running: {', '.join(names)}" if names else f"; no {_KIND_NAMES[kind]} is running"
