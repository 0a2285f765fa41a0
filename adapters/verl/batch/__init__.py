"""Batches of steps: rows, columns, layout, losses, and the trainer that uses them."""

from agent_envs.adapters.verl import need_verl

need_verl()
