"""The head server of a Gym: which servers there are, where they listen, and which agent uses which."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from fmtkit.core.errors import OptionError
from fmtkit.training.rl import http_client

RESOURCES = "resources_servers"
AGENTS = "responses_api_agents"
_KINDS = (RESOURCES, AGENTS, "responses_api_models", "environment_servers")
_TIMEOUT = 10.0
_EVERYWHERE = {"0.0.0.0", "::", ""}  # noqa: S104  (what a server says, not where we listen)


@dataclass(frozen=True)
class Server:
    """A server of a Gym, by the name under which its configuration has it."""

    name: str
    kind: str
    url: str


@dataclass(frozen=True)
class Directory:
    """The servers by name, and the resources server that each agent plays with."""

    servers: Mapping[str, Server] = field(default_factory=dict)
    resources_of: Mapping[str, str] = field(default_factory=dict)

    def of_kind(self, kind: str) -> list[str]:
        """Return the names of the servers of a kind."""
        return sorted(name for name, server in self.servers.items() if server.kind == kind)


def read(url: str) -> Directory:
    """Ask the head server; raise CallError if it does not answer, OptionError if it is no head.

    `/server_instances` is preferred, since it lists what was started; it calls a server `name` what
    its class is called, and `process_name` what rows and agents call it.
    """
    config = _config(http_client.get(f"{url}/global_config_dict_yaml", _TIMEOUT), url)
    listed = _listed(url)
    return Directory(listed or _configured(config), _resources(config))


def _config(answer: object, url: str) -> Mapping[str, Any]:
    """Read the whole configuration: the answer is a JSON text that holds YAML."""
    try:
        value = yaml.safe_load(answer) if isinstance(answer, str) else answer
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise OptionError(f"{url}: the head server's configuration is no YAML: {error}") from error
    if not isinstance(value, Mapping):
        raise OptionError(f"{url}: this is no head server of a NeMo Gym; see nemo_gym_head_port")
    return value


def _listed(url: str) -> dict[str, Server]:
    try:
        answer = http_client.get(f"{url}/server_instances", _TIMEOUT)
    except http_client.CallError as error:
        if error.status is None:
            raise
        return {}
    entries = answer if isinstance(answer, list) else []
    found = [_server(entry) for entry in entries if isinstance(entry, Mapping)]
    return {server.name: server for server in found if server is not None}


def _server(entry: Mapping[str, Any]) -> Server | None:
    name = entry.get("process_name") or entry.get("config_path") or entry.get("name")
    host, port = entry.get("host"), entry.get("port")
    if not name or port is None:
        return None
    return Server(str(name), str(entry.get("server_type")), _url(host, port))


def _configured(config: Mapping[str, Any]) -> dict[str, Server]:
    found = {}
    for name, kind, inner in _servers(config):
        if inner.get("port") is not None:
            found[name] = Server(name, kind, _url(inner.get("host"), inner["port"]))
    return found


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
    found = {}
    for name, kind, inner in _servers(config):
        reference = inner.get("resources_server")
        if kind == AGENTS and isinstance(reference, Mapping) and reference.get("name"):
            found[name] = str(reference["name"])
    return found


def _url(host: object, port: object) -> str:
    name = "127.0.0.1" if host is None or str(host) in _EVERYWHERE else str(host)
    return f"http://{name}:{port}"
