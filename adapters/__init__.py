"""Adapters turn recorded episodes into a trainer's batches: one folder or file per trainer."""
