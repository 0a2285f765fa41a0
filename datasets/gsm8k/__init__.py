"""Word problems: released rows and generated ones."""
