"""Rows of large sources on a page that asks a local server for them: `fmtkit inspect --serve`."""
