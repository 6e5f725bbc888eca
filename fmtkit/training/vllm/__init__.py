"""The vLLM server of a run: what would stop it, the command that starts it, and the trainer's side of it.

Before a run, without torch: `plan`, `ready`, `serve`. In a training process: `server` waits for it, while
`lifeline` guards TRL's client, and `lora_sync` and `file_sync` send weights by other ways than NCCL.
"""
