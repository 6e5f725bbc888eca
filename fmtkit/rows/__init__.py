"""Rows that are made of other rows: by functions of the user, and by joining."""
