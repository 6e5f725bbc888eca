"""The time that chat templates get: one for a whole run, whatever the clock says meanwhile."""

import os
from datetime import UTC, datetime

from fmtkit.core.errors import OptionError

EPOCH = "SOURCE_DATE_EPOCH"
"""https://reproducible-builds.org/specs/source-date-epoch: seconds since 1970 in UTC."""


def now() -> datetime:
    """Return the local time, or that of SOURCE_DATE_EPOCH, in whole seconds; a run calls this once.

    Raises OptionError if SOURCE_DATE_EPOCH is not a number of seconds.
    """
    given = os.environ.get(EPOCH)
    if not given:
        # Without a time zone, as in templates of transformers.
        return datetime.now().replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(given), UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError) as error:
        raise OptionError(f"{EPOCH}={given}: give whole seconds since 1970") from error
