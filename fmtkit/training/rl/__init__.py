"""Rewards, rollouts and conversations of the online methods."""
