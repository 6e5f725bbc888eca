"""Outputs of a survey: on a terminal, as JSON, as a page, as a picture."""
