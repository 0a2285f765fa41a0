"""Sessions with servers of the Model Context Protocol."""
