"""An environment can be pickled at any point of an episode, and the episode goes on elsewhere as it would have here.

But for the variables of programs, which are in one process alone (tests/sandbox).

1. Every id, in another process: observations, rewards, info, the expert's advice and the tasks drawn afterwards.
2. Styles and sources that open something of their own: indexes on disk, files of rows, a temporary page.
"""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_envs import ENV_IDS

VARIANTS = {
    **{env_id: (env_id, {}) for env_id in ENV_IDS},
    "react": ("AgentR1/HotpotQA-v0", {"style": "react"}),
    "search_r1": ("AgentR1/MuSiQue-v0", {"style": "search_r1", "force_first_search": False}),
    "first search": ("AgentR1/TwoWikiMultihopQA-v0", {"force_first_search": True}),
    "lexical": ("AgentR1/PaperSearch-v0", {"selector": "lexical"}),
    "page": ("AgentR1/WebShop-v0", {"render_mode": "human"}),
}
STEPS = 4
STAY_AT_THE_START = {
    "AgentR1/GSM8K-v0",  # over after one step
    *("AgentR1/GSM8KCode-v0", "AgentR1/MathCode-v0", "AgentR1/TableQA-v0"),
}


def actions_of(env: gym.Env[Any, str]) -> str:
    return env.unwrapped.expert_action() or "search[lamp]"


def play_on(pickled: bytes) -> list[Any]:
    """Play an episode to its end, and begin the next one."""
    env = pickle.loads(pickled)
    seen: list[Any] = [env.unwrapped.task.task_id, env.unwrapped.snapshot()]
    for _ in range(STEPS):
        seen.append(env.step(actions_of(env)))
        if seen[-1][2] or seen[-1][3]:
            break
    seen.append(env.reset())
    env.close()
    return seen


def begun(name: str) -> gym.Env[Any, str]:
    env_id, kwargs = VARIANTS[name]
    env = gym.make(env_id, **kwargs)
    env.reset(seed=7)
    if env_id not in STAY_AT_THE_START:
        env.step(actions_of(env))
    return env


@pytest.fixture(scope="module")
def continued(tmp_path_factory):
    """Each variant's pickle, what another process saw as it played on, and the environment's own next step."""
    folder = tmp_path_factory.mktemp("pickles")
    envs = {name: begun(name) for name in VARIANTS}
    pickles = {name: pickle.dumps(env) for name, env in envs.items()}
    folder.joinpath("in").write_bytes(pickle.dumps(pickles))
    subprocess.run([sys.executable, __file__, folder / "in", folder / "out"], check=True, stdout=subprocess.DEVNULL)
    elsewhere = pickle.loads(folder.joinpath("out").read_bytes())
    here = {name: env.step(actions_of(env)) for name, env in envs.items()}
    for env in envs.values():
        env.close()
    return {name: (pickles[name], elsewhere[name], here[name]) for name in VARIANTS}


@pytest.mark.parametrize("name", VARIANTS)
def test_an_episode_goes_on_in_another_process(name, continued, capsys):
    pickled, elsewhere, here = continued[name]
    assert elsewhere == play_on(pickled)
    assert elsewhere[2] == here


def test_an_environment_whose_first_reset_is_still_to_come():
    for env_id in ENV_IDS:
        env = gym.make(env_id)
        again = pickle.loads(pickle.dumps(env))
        assert env.reset(seed=3) == again.reset(seed=3)


def test_files_are_opened_again(tmp_path):
    rows = [
        {
            "_id": str(number),
            "question": f"Where is hill {number}?",
            "answer": f"Valley {number}",
            "context": [[f"Hill {number}", [f"Hill {number} is in Valley {number}."]], ["Rain", ["It rains."]]],
            "supporting_facts": [[f"Hill {number}", 0]],
        }
        for number in range(3)
    ]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))
    env = gym.make("AgentR1/HotpotQA-v0", data=file)
    env.reset(seed=0)
    call = env.unwrapped.format_call("search", {"query": "hill 2"})
    pickled = pickle.dumps(env)
    assert len(pickled) < 10_000  # names what to open
    assert pickle.loads(pickled).step(call) == env.step(call)


def test_the_users_own_question_travels_whole():
    env = gym.make("AgentR1/HotpotQA-v0")
    env.reset(options={"question": "Who wrote the long report?"})
    again = pickle.loads(pickle.dumps(env))
    assert again.unwrapped.task == env.unwrapped.task
    assert again.step("<answer>Nobody</answer>") == env.step("<answer>Nobody</answer>")


if __name__ == "__main__":
    pickles = pickle.loads(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[2]).write_bytes(pickle.dumps({name: play_on(pickled) for name, pickled in pickles.items()}))
