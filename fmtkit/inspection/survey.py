"""Survey: what a source is, what a model would read of it, and what is wrong with it.

The survey is data (fmtkit.inspection.survey_record); fmtkit.reports shows it on a terminal, as JSON, as a
page and as a plot.
"""

from fmtkit.inspection.inspect_options import InspectOptions
from fmtkit.inspection.inspection import run
from fmtkit.inspection.survey_record import Survey

__all__ = ["Survey", "inspect"]


def inspect(source: object, options: InspectOptions) -> Survey:
    """Survey sources.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, TemplateError, TokenizerError: before
            the rows are read.
        SourceError: if a source cannot be read.
    """
    return run(source, options).survey
