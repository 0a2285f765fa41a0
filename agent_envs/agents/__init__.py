"""Agents: functions `agent(env, model)` that play an episode, of which every call of the model is a step.

An agent writes its own prompts, calls the model as often as it likes, and steps the environment when it wants to. It is
played in place of the loop of one call per step wherever `agent=` or `--agent` is given, and trained by its calls.
"""
