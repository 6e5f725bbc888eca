"""Dialogs that something else plays: what a NeMo Gym and a `verifiers` environment have in common.

A dialog is put together as tokens (`dialog`), comes with its reward (`played`, named by `naming`), may
fail (`failures`), and is asked for of a process of its own (`own_process`).
"""
