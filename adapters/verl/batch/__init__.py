"""Batches of steps: rows, columns, layout, losses, and the trainer that uses them."""
