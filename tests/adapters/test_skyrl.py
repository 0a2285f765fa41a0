"""The export to SkyRL-Gym, against the real package: what it plays is what the environment plays."""

import json
import subprocess
import sys

import gymnasium as gym
import pytest

from agent_envs.errors import ConfigError
from agent_envs.prompts.conversation import Conversation
from agent_envs.wrapping.specs import apply_wrappers

skyrl_gym = pytest.importorskip("skyrl_gym")

from agent_envs.adapters import skyrl  # noqa: E402  the package is there

ENVS = [
    ("AgentR1/GSM8KTool-v0", {}),
    ("AgentR1/ALFWorld-v0", {"size": 1}),
    ("AgentR1/PaperSearch-v0", {"papers": 300}),
]


@pytest.fixture(autouse=True)
def registered():
    skyrl.register()
    skyrl.register()  # said again, nothing happens
    yield
    del skyrl_gym.registry[skyrl.ENV_CLASS]


def play(env_id, kwargs, index, act, wrappers=()):
    """An episode of the environment itself: the conversation, and the rewards."""
    env = apply_wrappers(gym.make(env_id, **kwargs), wrappers)
    said = [env.get_wrapper_attr(name) for name in ("instructions", "tool_instructions")]
    conversation = Conversation("\n\n".join(filter(None, said)))
    observation, info = env.reset(options={"index": index})
    news, rewards, texts, done = [conversation.observe(observation, info).new], [], [], False
    while not done:
        texts.append(act(env, len(texts)))
        conversation.respond(texts[-1])
        observation, reward, terminated, truncated, info = env.step(texts[-1])
        news.append(conversation.observe(observation, info).new)
        rewards.append(reward)
        done = terminated or truncated
    env.close()
    return news, rewards, texts, (terminated, truncated and not terminated, info["success"])


def through_skyrl(row, texts):
    """What SkyRL's generator does with a row, given the model's texts."""
    env = skyrl_gym.make(row["env_class"], env_config={}, extras={k: v for k, v in row.items() if k != "prompt"})
    prompt, info = env.init([dict(message) for message in row["prompt"]])
    assert info["index"] == row["extra_info"]["index"]
    news, rewards = [prompt], []
    for i, text in enumerate(texts):
        output = env.step(text)
        news.append(output["observations"])
        rewards.append(output["reward"])
        assert output["done"] == (i == len(texts) - 1) and output.get("postprocessed_action") is None
        json.dumps(output["metadata"])
    metrics = env.get_metrics()
    env.close()
    return news, rewards, output["metadata"], metrics


@pytest.mark.parametrize(("env_id", "kwargs"), ENVS)
def test_an_experts_episode_is_the_environments_own(env_id, kwargs):
    kwargs = {"split": "test", **kwargs}
    for row in skyrl.make_rows(env_id, [0, 3], env_kwargs=kwargs):
        index = row["extra_info"]["index"]
        news, rewards, texts, end = play(env_id, kwargs, index, lambda env, _: env.unwrapped.expert_action())
        got, got_rewards, metadata, metrics = through_skyrl(row, texts)
        assert row["prompt"] == news[0] and got[:-1] == news[:-1] and got[-1] == []
        assert got_rewards == rewards and all(type(reward) is float for reward in got_rewards)
        assert (metadata["terminated"], metadata["truncated"], metadata["success"]) == end
        assert metadata["final_observation"]
        assert metrics["return"] == sum(rewards) and metrics["steps"] == len(texts) and metrics["success"] == end[2]
        assert skyrl.SkyRLTextEnv.aggregate_metrics([metrics, metrics])["return"] == sum(rewards)


def test_bad_actions_limits_and_wrappers():
    kwargs, wrappers = {"split": "test"}, ["InvalidActionPenalty(penalty=0.25)"]
    (row,) = skyrl.make_rows("AgentR1/GSM8KTool-v0", [5], env_kwargs=kwargs, wrappers=wrappers)
    broken = '<tool_call>\n{"name": "calculator"\n</tool_call>'
    news, rewards, texts, end = play("AgentR1/GSM8KTool-v0", kwargs, 5, lambda *_: broken, wrappers)
    got, got_rewards, metadata, metrics = through_skyrl(row, texts)
    assert got[:-1] == news[:-1] and got_rewards == rewards and min(rewards) == -0.25 and end[1]
    assert metadata["truncated"] and metrics["truncated"] == 1.0 and metrics["invalid_actions"] == len(texts)
    # the trainer's own limit
    env = skyrl_gym.make("agentr1", extras={**row, "max_turns": 2})
    env.init(row["prompt"])
    assert not env.step(broken)["done"]
    output = env.step(broken)
    assert output["done"] and output["metadata"]["truncated"] and not output["metadata"]["terminated"]
    env.close()


def test_roles_of_tool_results_and_prompts_that_are_rebuilt():
    for role in ("tool", "user"):
        (row,) = skyrl.make_rows("AgentR1/GSM8KTool-v0", [0], tool_role=role)
        env = skyrl_gym.make("agentr1", extras=row)
        env.init(row["prompt"])
        assert [m["role"] for m in env.step(env.env.unwrapped.expert_action())["observations"]] == [role]
        env.close()
    kwargs = {"papers": 300}
    (row,) = skyrl.make_rows("AgentR1/PaperSearch-v0", [0], env_kwargs=kwargs, wrappers=["RebuildPrompt"])
    env = skyrl_gym.make("agentr1", extras=row)
    env.init(row["prompt"])
    with pytest.raises(ConfigError, match="only append to the conversation"):
        env.step(env.env.unwrapped.expert_action())
    env.close()


def test_rows_go_through_a_dataset_and_back(tmp_path):
    """As SkyRL does it: parquet, then everything but the prompt and the environment's class as extras."""
    datasets = pytest.importorskip("datasets", minversion="2.0")
    rows = skyrl.make_rows("AgentR1/ALFWorld-v0", range(3), env_kwargs={"split": "test", "size": 1})
    datasets.Dataset.from_list(rows).to_parquet(str(tmp_path / "rows.parquet"))
    for row, read in zip(rows, datasets.Dataset.from_parquet(str(tmp_path / "rows.parquet")), strict=True):
        env = skyrl_gym.make(read.pop("env_class"), extras={**read, "max_turns": 50})
        assert env.init(read["prompt"])[0] == row["prompt"]
        env.close()


def test_what_an_environment_draws_is_in_the_rows_prompt(monkeypatch):
    from agent_envs.envs.gsm8k.env import GSM8KEnv

    begin = GSM8KEnv.begin
    monkeypatch.setattr(GSM8KEnv, "begin", lambda self, task: (f"{self.np_random.random()}", begin(self, task)[1]))
    (row,) = skyrl.make_rows("AgentR1/GSM8K-v0", [0])
    env = skyrl_gym.make("agentr1", extras=row)
    assert env.init(row["prompt"])[0] == row["prompt"]
    env.close()


def test_defaults_come_from_the_trainers_configuration():
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"env_id": "AgentR1/GSM8K-v0", "env_kwargs": {"split": "test"}})
    env = skyrl_gym.make("agentr1", env_config=config, extras={"extra_info": {"index": 2}})
    assert env.init([])[1]["index"] == 2 and env.env.unwrapped.split == "test"
    env.close()


def test_what_cannot_work_says_why():
    with pytest.raises(ConfigError, match="has no env_id"):
        skyrl_gym.make("agentr1", extras={})
    with pytest.raises(ConfigError, match="unknown environment 'AgentR1/Nothing-v0'"):
        skyrl.make_rows("AgentR1/Nothing-v0", [0])
    with pytest.raises(ConfigError, match="tool_role"):
        skyrl.make_rows("AgentR1/GSM8K-v0", [0], tool_role="robot")
    with pytest.raises(ConfigError, match="JSON"):
        skyrl.make_rows("AgentR1/GSM8K-v0", [0], env_kwargs={"data": object()})
    with pytest.raises(ConfigError, match="already has another environment"):
        skyrl.register("gsm8k")


def test_from_the_root_the_packages_are_the_packages(root):
    """`skyrl_gym`, `trl` and `verifiers` are not our modules of these names, wherever Python was started."""
    names = ("skyrl_gym", "trl", "verifiers")
    code = f"from importlib.util import find_spec; print(*(find_spec(n).origin for n in {names}))"
    for cwd in (root, root / "agent_envs"):
        done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True)
        assert done.stdout.count("site-packages") == 3


def aloud(env, model):
    """The plain loop, written as an agent."""
    messages = [{"role": "system", "content": env.instructions}, *env.messages]
    while not env.over:
        reply = model.chat(messages, env.tools)
        env.step(reply)
        messages = [*messages, reply.message, *env.messages]


def twice(env, model):
    model.chat([{"role": "user", "content": "Plan."}])
    model.chat([{"role": "user", "content": "Go."}])


def test_an_agent_that_appends_plays_and_another_is_refused():
    kwargs = {"split": "test"}
    (row,) = skyrl.make_rows("AgentR1/GSM8KTool-v0", [3], env_kwargs=kwargs)
    news, rewards, texts, end = play("AgentR1/GSM8KTool-v0", kwargs, 3, lambda env, _: env.unwrapped.expert_action())
    for limit, given in ((0, texts), (1, texts[:1]), (1, ["<tool_call>nothing</tool_call>"])):
        env = skyrl_gym.make("agentr1", env_config={"agent": aloud}, extras={**row, "max_turns": limit})
        got, outputs = [env.init(row["prompt"])[0]], []
        for text in given:
            outputs.append(env.step(text))
            got.append(outputs[-1]["observations"])
        said = [[message["content"] for message in new] for new in got]
        assert said[:-1] == [[m["content"] for m in new] for new in news[: len(given)]] and said[-1] == []
        assert [output["done"] for output in outputs] == [False] * (len(given) - 1) + [True]
        metrics = env.get_metrics()
        env.close()
        if not limit:
            assert outputs[-1]["reward"] == metrics["return"] == sum(rewards) and metrics["success"] == end[2]
        else:
            assert metrics["truncated"] == 1.0 and metrics["invalid_actions"] == (given != texts[:1])
    env = skyrl_gym.make("agentr1", env_config={"agent": twice}, extras=row)
    env.init(row["prompt"])
    with pytest.raises(ConfigError, match="SkyRL can only append to one conversation, and this agent began another"):
        env.step("I plan.")
    env.close()
