"""The model card of a run: what was trained, on which data, with which settings and versions."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from fmtkit.core.credentials import public
from fmtkit.training.planning.job import Job


def write(folder: Path, job: Job, report: Mapping[str, object], *, merged: bool = False) -> Path:
    """Write README.md next to the model; a merged one needs no peft."""
    path = folder / "README.md"
    path.write_text(text(job, report, merged=merged), encoding="utf-8")
    return path


def text(job: Job, report: Mapping[str, object], *, merged: bool = False) -> str:
    """Return the card: front matter for the hub, then the facts."""
    head = {
        "base_model": job.model,
        "library_name": "peft" if job.peft is not None and not merged else "transformers",
        "tags": ["fmtkit", "trl", job.method],
    }
    name = Path(job.run).name
    parts = [
        "---\n" + yaml.safe_dump(head, sort_keys=False) + "---",
        f"# {name}",
        f"`{job.model}` trained with {job.method} by fmtkit.",
        "## Data\n\n" + _data(report.get("data")),
        "## Result\n\n" + _table(report.get("metrics")),
        "## Settings\n\n```yaml\n" + _config(job) + "```",
        "## Versions\n\n" + _table(report.get("versions")),
    ]
    return "\n\n".join(parts) + "\n"


def of_merge(base: str, adapter: Path) -> str:
    """Return the card of a base model into which an adapter from elsewhere was merged."""
    head = {"base_model": base, "library_name": "transformers", "tags": ["fmtkit", "merge"]}
    text = f"The adapter `{adapter}` merged into `{base}` by fmtkit."
    return "\n\n".join(
        ["---\n" + yaml.safe_dump(head, sort_keys=False) + "---", f"# {adapter.name}", text, ""]
    )


def _config(job: Job) -> str:
    path = Path(job.run) / "config.yaml"
    # The card may be pushed to the hub.
    return public(path.read_text(encoding="utf-8")) if path.is_file() else ""


def _data(data: object) -> str:
    lines = ["| files | rows | sha256 |", "|---|---|---|"]
    entries = data if isinstance(data, list) else []
    for entry in entries:
        lines.append(f"| {entry['file']} | {entry['rows']} | `{entry['sha256']}` |")
        lines += [f"| ↳ {s['path']} | {s['rows']} | {_hash(s)} |" for s in entry["sources"]]
    return "\n".join(lines)


def _hash(source: Mapping[str, object]) -> str:
    """Return the hash of a source; a dataset of the hub has none."""
    return f"`{source['sha256']}`" if source.get("sha256") else ""


def _table(values: object) -> str:
    lines = ["| | |", "|---|---|"]
    for name, value in values.items() if isinstance(values, Mapping) else ():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"| {name} | {shown} |")
    return "\n".join(lines)
