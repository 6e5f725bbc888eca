"""Rollouts that an external environment runs: what NeMo Gym and `verifiers` environments share.

A dialog is put together as tokens (`dialog`), comes with its reward (`environment`, named by `naming`), may
fail (`failures`), and is asked for of a process of its own (`own_process`).
"""
