"""Converting no more rows than the steps of a run can draw."""

from collections.abc import Callable
from dataclasses import replace

from fmtkit.core.errors import NothingWrittenError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.run_report import Report


def convert_first(
    first: int, options: ConvertOptions, convert: Callable[[ConvertOptions], Report]
) -> None:
    """Convert until there are `first` rows, or no more are left.

    Which rows are bad or too long is not known before: where a part makes too few, one of twice the size is
    converted, which is less than twice the work in all.
    """
    limit, most = 2 * first, options.limit
    while most is None or limit < most:
        try:
            report = convert(replace(options, limit=limit))
        except NothingWrittenError:
            break
        if report.rows_read < limit:
            return
        if report.joined or report.no_pair:
            break
        if report.rows_written >= first:
            return
        limit *= 2
    convert(options)
