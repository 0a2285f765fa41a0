"""Write agent_envs/cli/scores.json anew, after a change of tasks or play that is meant: run this file."""

import json
import re
from pathlib import Path

import agent_envs.cli
from agent_envs.cli.scores import POLICIES, play_panel
from agent_envs.policies import RandomPolicy
from agent_envs.registration import ENV_IDS
from agent_envs.rollout.evaluate import evaluate

if __name__ == "__main__":
    entries = {}
    for env_id in ENV_IDS:
        panel = evaluate(env_id, RandomPolicy(), 20, env_kwargs={"split": "test"}).panel
        entries[env_id] = {
            "panel": panel.to_dict(),
            "policies": {name: play_panel(policy, panel) for name, policy in POLICIES.items()},
        }
    text = json.dumps(entries, indent=1)
    text = re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda row: f"[{' '.join(row[1].split())}]", text)
    Path(agent_envs.cli.__file__).with_name("scores.json").write_text(text + "\n", encoding="utf-8")
