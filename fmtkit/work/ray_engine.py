"""An engine of Ray's workers: processes of this machine, or of a cluster.

Tasks go to the workers, and their results come back in order; a job is sent once, and unpickled once by each
worker.
"""

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, FmtkitError, OptionError
from fmtkit.core.reachability import trouble_with
from fmtkit.work.engines import WATCHED, Standing, TaskLostError, at_end

T = TypeVar("T")

CRASHES = 3
"""How often a task may crash its worker."""
ENDING = 10.0
"""Seconds that tasks get to end by themselves when a run ends, and that workers get to stop."""
LOSSES = 20
"""How often a task may be lost with its node, or its result with the node that held it."""
_OURS = f"fmtkit-{os.getpid()}"
"""Ray's namespace of a cluster that this process started."""


@dataclass
class Flight:
    """A task under way."""

    task: Any
    result: Any
    """Ray's reference to its result."""
    crashes: int = 0
    losses: int = 0


@dataclass(frozen=True)
class Ray:
    """An engine of the workers of a Ray cluster, or of as many processes here as there are cores."""

    address: str | None = None
    workers: int | None = None
    """CPUs of a cluster started here; None for all cores."""

    def map(self, work: Callable[[Any], T], tasks: Iterator[Any]) -> Iterator[T]:
        """Run tasks on the workers, two for each of their cores in flight.

        Raises:
            TaskLostError: if a task crashes its worker three times.
            DependencyError, OptionError: if Ray is not installed, or no cluster is at the address.
        """
        ray = _package()
        standing = WATCHED.get(Standing())
        with self._cluster(ray):
            standing.begin(tasks)
            job = ray.put(ray.cloudpickle.dumps(work))
            # Ray's own retries do not distinguish a task that kills its worker from a lost node.
            run = ray.remote(num_cpus=1, max_retries=0)(_run)
            room = 2 + 2 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
            flying: deque[Flight] = deque()
            try:
                for task in islice(tasks, room):
                    flying.append(Flight(task, run.remote([job], task)))
                while flying:
                    result: T = result_of(
                        ray, flying[0], lambda task: run.remote([job], task), standing
                    )
                    flying.popleft()
                    standing.done += 1
                    flying.extend(Flight(t, run.remote([job], t)) for t in islice(tasks, 1))
                    yield result
            finally:
                if flying:
                    _end(ray, flying)

    def reach(self, *needed: Any) -> None:
        """Connect to the cluster, or start one, until the end of the session.

        Raises:
            DependencyError, OptionError: if Ray is not installed, no cluster is at the address, or a
                worker cannot unpickle what is needed.
        """
        ray = _package()
        with self._cluster(ray):
            if needed:
                job = ray.put(ray.cloudpickle.dumps(_Needed(needed)))
                _, error = ray.get(ray.remote(num_cpus=1)(_run).remote([job], None))
                if error is not None:
                    raise _rebuilt(*error)

    @contextmanager
    def _cluster(self, ray: Any) -> Iterator[None]:
        """Connect to an existing cluster, or start one and shut it down at the end."""
        if ray.is_initialized():
            yield
            return
        if trouble := _trouble(self.address):
            raise OptionError(f"--ray-address {self.address}: {trouble}")
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        watched = WATCHED.get(None)
        if watched is not None:
            watched.is_starting = True
        try:
            if self.address is not None:
                found = ray.init(address=self.address, **quiet)
            else:
                cores = self.workers or os.cpu_count() or 1
                # A dashboard is useful only if its address is shown.
                shown = {"include_dashboard": watched is not None}
                found = ray.init(address="local", num_cpus=cores, namespace=_OURS, **shown, **quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = " ".join(str(error).split())
            where = f"--ray-address {self.address}" if self.address else "--engine ray"
            raise OptionError(f"{where}: no cluster of Ray can be used: {reason}") from error
        if watched is not None:
            watched.dashboard = found.dashboard_url or None
        if at_end(ray.shutdown):
            yield
            return
        try:
            yield
        finally:
            ray.shutdown()


def _end(ray: Any, flying: deque[Flight]) -> None:
    """End the tasks under way, so that they leave no files behind after the run."""
    # A task that is cancelled just as its answer comes makes Ray 2.60 abort this process, by force or not.
    if ray.get_runtime_context().namespace == _OURS:
        ray.shutdown()
        return
    results = [flight.result for flight in flying]
    _, left = ray.wait(results, num_returns=len(results), timeout=ENDING)
    for result in left:
        ray.cancel(result, force=True)
    if left:
        ray.wait(left, num_returns=len(left), timeout=ENDING)


def _trouble(address: str | None) -> str | None:
    """Return why nothing answers at HOST:PORT; Ray itself would retry for a minute."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    return trouble_with(host, int(port)) if colon and port.isdecimal() else None


def _package() -> Any:
    try:
        import ray
    except ImportError as error:
        raise DependencyError(
            "--engine ray needs the package ray: pip install 'fmtkit[ray]'"
        ) from error
    return ray


def result_of(ray: Any, flight: Flight, again: Callable[[Any], Any], standing: Standing) -> Any:
    """Wait for a task, and run it again where its worker or its node was lost."""
    errors = ray.exceptions
    lost = (errors.NodeDiedError, errors.ObjectLostError, errors.LocalRayletDiedError)
    while True:
        try:
            value, error = ray.get(flight.result)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as problem:
            flight.crashes += 1
            if flight.crashes == CRASHES:
                raise TaskLostError(flight.task, " ".join(str(problem).split())) from problem
        except lost as problem:
            flight.losses += 1
            if flight.losses == LOSSES:
                raise TaskLostError(flight.task, " ".join(str(problem).split())) from problem
        except errors.RayTaskError as problem:
            raise problem.cause from problem  # a bug: raised as it would be on a thread
        else:
            if error is not None:
                raise _rebuilt(*error)
            return value
        standing.lost += 1
        flight.result = again(flight.task)


def _run(job: list[Any], task: Any) -> tuple[Any, tuple[type[FmtkitError], str] | None]:
    """Run a task in a worker; errors of fmtkit are returned as class and message, which can be pickled."""
    try:
        return _fetched(job[0])(task), None
    except FmtkitError as error:
        return None, (type(error), str(error))


@lru_cache(maxsize=1)
def _fetched(reference: Any) -> Callable[[Any], Any]:
    """Return the function that a reference stands for, unpickled once in a worker.

    It is unpickled here, and not by Ray, so that an error can be reported.
    """
    work: Callable[[Any], Any] = pickle.loads(_package().get(reference))  # noqa: S301
    return work


@dataclass(frozen=True)
class _Needed:
    """What a worker must be able to unpickle; nothing is done with it."""

    things: tuple[Any, ...]

    def __call__(self, task: None) -> None:
        """Do nothing."""


def _rebuilt(kind: type[FmtkitError], message: str) -> FmtkitError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    return error
