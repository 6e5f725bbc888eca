"""What all tests share: no verdict depends on how fast a machine is."""

import gc

from hypothesis import settings

settings.register_profile("fmtkit", deadline=None)
settings.load_profile("fmtkit")


def pytest_collection_finish() -> None:
    """Let no garbage collection look at what was imported: with torch that is half a second, per run."""
    gc.collect()
    gc.freeze()
