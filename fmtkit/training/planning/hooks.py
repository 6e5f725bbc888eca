"""The functions by which a section takes part in a plan and a run: what each is given and returns.

`fmtkit.core.runner` has those that read a configuration alone, `building.online_health` and
`online.conversations.environment` those of the training process. Their modules load them by their names.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from fmtkit.core.section import Hook

if TYPE_CHECKING:
    # Modules that a plan imports call these.
    from fmtkit.training.config.config import Config, Entry
    from fmtkit.training.planning.run_plan import Plan

DERIVE: "Hook[Callable[[Plan], None]]" = Hook("derive")
"""Checks the keys, and sets what follows from them in `plan.arguments`."""
DATASETS: "Hook[Callable[[Config], Mapping[str, Entry]]]" = Hook("datasets")
"""Returns datasets in place of the run's, by their dotted names; none where it has none."""
MISSING: "Hook[Callable[[Config], Iterable[str]]]" = Hook("missing")
"""Returns the keys that are still to be set."""
TYPES: "Hook[Callable[[Config], Mapping[str, str]]]" = Hook("types")
"""Returns names of datasets' types that mean a different one in the run -> that type."""
WHOLE_GROUPS: "Hook[Callable[[Config], Iterable[str]]]" = Hook("whole_groups")
"""Returns the keys that need all answers to a prompt in one process."""
MODELS: "Hook[Callable[[Plan], Iterable[tuple[str, str]]]]" = Hook("models")
"""Returns the key and the name of each model that a key loads."""
LACKING_DEVICE: "Hook[Callable[[Plan], str | None]]" = Hook("lacking_device")
"""Returns why the run would find no GPU that it needs."""
CHECK: "Hook[Callable[[Plan], None]]" = Hook("check")
"""Raises what is wrong, before anything is converted."""
REMARKS: "Hook[Callable[[Plan], Iterable[str]]]" = Hook("remarks")
"""Returns what is to be said of the converted rows."""
SERVERS: "Hook[Callable[[Plan], AbstractContextManager[object]]]" = Hook("servers")
"""Runs servers around the training processes."""
