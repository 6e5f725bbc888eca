"""The vLLM server of a run: whether it fits, the command that starts it, and the GPUs it may use."""
