"""Episodes played: one, many at once, evaluated, or as demonstrations."""
