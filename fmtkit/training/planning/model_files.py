"""Files of a model that is on this machine: in its folder, or in the hub's cache."""

from pathlib import Path


def model_file(name: str, file: str) -> Path | None:
    """Return a file of a local model: in its folder, or in the hub's cache."""
    path = Path(name).expanduser() / file
    if path.is_file() or not name or is_path(name):
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, file)
    except HFValidationError:
        return None
    return Path(cached) if isinstance(cached, str) else None


def is_path(name: str) -> bool:
    """Return whether a name cannot be a model of the hub."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1
