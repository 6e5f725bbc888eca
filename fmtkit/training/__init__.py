"""From a YAML to a trained model."""
