"""The engine that a run uses."""

from fmtkit.options.convert_options import SourceOptions
from fmtkit.work.engines import Engine, Threads


def engine_of(options: SourceOptions) -> Engine:
    """Return the engine that `--engine` names."""
    if options.engine == "ray":
        # Ray takes a second to import, which a run on threads need not wait for.
        from fmtkit.work.ray_engine import Ray

        return Ray(options.ray_address, options.workers)
    return Threads(options.workers)
