"""Training with verl 0.9.1: its configuration, its runs, its rollout and its batches."""
