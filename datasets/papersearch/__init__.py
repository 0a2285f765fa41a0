"""Queries for papers and the corpora they are searched in."""
