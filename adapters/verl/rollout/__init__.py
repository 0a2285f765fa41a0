"""Episodes inside verl: the agent loop, and generation on a CPU."""

from agent_envs.adapters.verl import need_verl

need_verl()
