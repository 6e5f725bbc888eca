"""Environments of the package `verifiers`, run in a process of their own.

verifiers pins much, so it lives in an environment of its own, as a NeMo Gym does; nothing of it is
imported here. Source: https://github.com/PrimeIntellect-ai/verifiers, as its releases have it.

`run` writes the dataset of the environment before the conversion and serves the environment while the
training processes run, both by `bridge`, which the environment's interpreter runs. In the training
process `rollout` runs an episode for each row: the environment asks `endpoint` for the model's turns,
which records the tokens, and the bridge answers with the reward of the rubric.
"""
