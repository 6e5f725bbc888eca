"""Faces of a survey: terminal, JSON, HTML."""
