"""The page."""

from fmtkit.inspection import Inspection


def write(inspection: Inspection, path: str) -> None:
    raise NotImplementedError
