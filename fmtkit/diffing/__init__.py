"""Comparing what fmtkit trains on with a dataset that axolotl has prepared."""
