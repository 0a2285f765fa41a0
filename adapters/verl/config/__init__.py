"""What a run is configured to do: command line, presets, algorithms, and verl's settings."""
