"""Training with verl 0.9.1: its configuration, its runs, its rollout and its batches.

Modules with an ``__all__`` are for users; the others are the adapter's own.
"""
