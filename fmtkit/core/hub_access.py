"""Whether the Hugging Face hub can be reached, found out once within seconds.

Without a network each call of its client tries six times, over half a minute (huggingface_hub 1.x).
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from fmtkit.core.reachability import trouble_with

OFFLINE = "HF_HUB_OFFLINE"


@contextmanager
def bounded() -> Iterator[str | None]:
    """Restrict the hub's client to its cache within the block if the hub does not answer; yield why."""
    reason = trouble()
    if reason is None:
        yield None
        return
    from huggingface_hub import constants

    # datasets keeps a copy of the flag, and may be loaded already.
    modules = [m for m in (constants, sys.modules.get("datasets.config")) if m is not None]
    before = [getattr(module, OFFLINE) for module in modules]
    for module in modules:
        setattr(module, OFFLINE, True)
    try:
        yield reason
    finally:
        for module, value in zip(modules, before, strict=True):
            setattr(module, OFFLINE, value)


@cache
def trouble() -> str | None:
    """Return why the hub cannot be reached; None if it can, or if it is not needed."""
    from urllib.request import getproxies  # brings http and ssl

    if os.environ.get(OFFLINE, "").upper() in {"1", "ON", "YES", "TRUE"} or getproxies():
        return None
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    return trouble_with(host, port)


def environment(names: Iterable[str]) -> dict[str, str]:
    """Return variables that spare a subprocess the wait: none for local folders, or with a reachable hub."""
    if all(Path(name).expanduser().exists() for name in names) or trouble() is None:
        return {}
    return {OFFLINE: "1"}


def cached(name: str, file: str) -> Path | None:
    """Return where a file of a hub repository is in the cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, file)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None
