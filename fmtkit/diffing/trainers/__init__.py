"""The trainers whose own preparation of rows can be compared with fmtkit's: one module each."""
