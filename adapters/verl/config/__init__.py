"""What a run is configured to do: YAML groups that Hydra composes with verl's own, and what Python works out."""
