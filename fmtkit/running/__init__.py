"""A conversion from its options to its report: preparation, the pipeline, the ledger, validation, replay."""
