"""Rollouts that an external environment runs: what the environments of different packages share.

A rollout is assembled as tokens, comes with its reward (`environment`, named by `naming`), may fail
(`failures`), and comes from a process of its own (`own_process`).
"""
