"""Survey: what a source is, what a model would read of it, and what is wrong with it.

The survey is data (fmtkit.surveying.survey_record); fmtkit.reports shows it on a terminal, as JSON, as a page
and as a plot.
"""

from typing import Any

from fmtkit.surveying.inspect_options import InspectOptions
from fmtkit.surveying.inspection import Inspection, run
from fmtkit.surveying.survey_record import Survey

__all__ = ["Survey", "inspect", "inspection"]


def inspect(source: object, type: str | None = None, **options: Any) -> Survey:
    """Survey sources; options are the flags of `fmtkit inspect`.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, TemplateError, TokenizerError: before
            the rows are read.
        SourceError: if a source cannot be read.
    """
    return inspection(source, type, **options).survey


def inspection(source: object, type: str | None = None, **options: Any) -> Inspection:
    """Survey sources, and keep what is needed to look at single rows afterwards."""
    return run(source, InspectOptions.of(type, options))
