"""Paper search over a citation graph."""
