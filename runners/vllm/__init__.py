"""`vllm`: the server that makes the answers."""
