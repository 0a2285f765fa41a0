"""What a run is configured to do: YAML groups that Hydra composes with verl's own, and what Python works out."""

from agent_envs.adapters.verl import need_verl

need_verl()
