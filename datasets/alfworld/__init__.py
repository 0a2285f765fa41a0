"""ALFWorld's games: released files and generated houses."""
