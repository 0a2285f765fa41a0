"""Wrappers around environments with pictures: they keep picture and placeholder together, or refuse by name."""

import gymnasium as gym
import pytest

from agent_envs.branching import restore, snapshot
from agent_envs.errors import ConfigError
from agent_envs.messages import pictures_of
from agent_envs.pictures.picture import IMAGE, Picture, alike
from agent_envs.wrapping.specs import apply_wrappers
from tests.pictures.shades import call, shade


def wrapped(*specs):
    return apply_wrappers(gym.make("Shades-v0", max_episode_steps=30), list(specs))


def test_messages_grow_with_the_pictures_of_every_step():
    env = wrapped("ChatMessages")
    messages, _ = env.reset(options={"index": 9})
    assert messages[-1]["content"][1] == {"type": "image", "image": Picture(shade(9))}
    messages, *_ = env.step(call("look", times=1))
    assert [len(pictures_of([m])) for m in messages] == [0, 1, 0, 2]
    assert env.observation_space.contains(messages)
    messages[1]["content"].clear()  # a copy
    assert len(pictures_of(env.step(call("look", times=2))[0])) == 5


def test_a_window_drops_pictures_with_their_steps():
    env = wrapped("ChatMessages", "SlidingWindow(k=1)")
    env.reset(seed=0)
    env.step(call("look", times=1))
    messages, *_, info = env.step(call("look", times=2))
    assert info["dropped_exchanges"] == 1 and len(pictures_of(messages)) == 3
    assert Picture(shade(2)) in pictures_of(messages) and Picture(shade(1)) not in pictures_of(messages)


def test_too_many_pictures_truncate_and_too_much_text_is_cut_around_them():
    env = wrapped("ChatMessages(max_images=4)")
    env.reset(seed=0)
    assert not env.step(call("look", times=1))[3]
    messages, _, _, truncated, _ = env.step(call("look", times=1))
    assert truncated and len(pictures_of(messages)) == 3
    env = wrapped("ChatMessages(max_length=10000)")
    env.reset(seed=0)
    messages, *_ = env.step(call("say", text="a" * 9000) + call("look", times=1))
    assert env.observation_space.contains(messages) and "[cut: 9000 characters]" in messages[-2]["content"]


def test_notes_stay_text():
    env = wrapped("Augment(fn='tests.pictures.test_wrappers_pictures:note')")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation) and "a < image> of mine" in observation["text"]
    observation, *_, info = env.step(call("look", times=1) + call("say", text="b"))
    assert observation["text"] == "\n".join(result["content"] for result in info["tool_results"])
    assert env.observation_space.contains(observation) and observation["text"].count("< image>") == 1


def note(observation, info):
    return "a <image> of mine"


def test_instructions_and_reasoning_and_malformed_calls_keep_pictures():
    env = wrapped("MalformedCalls(policy='retry')", "StripReasoning", "PrependInstructions(separator='<image>')")
    observation, _ = env.reset(seed=0)
    assert observation["text"].startswith("Write the brightness.< image>") and env.observation_space.contains(
        observation
    )
    observation, *_, info = env.step("<think>hm</think><tool_call>{<image></tool_call>")
    assert info["retries"] == 1 and observation["images"] == () and env.observation_space.contains(observation)


def test_a_branch_goes_on_exactly_with_its_wrappers():
    env = wrapped("ChatMessages", "SlidingWindow(k=2)")
    env.reset(seed=4)
    before = env.step(call("look", times=1))[0]
    point = snapshot(env)
    first = env.step(call("look", times=2))
    assert restore(env, point)[0] == before
    assert alike(env.step(call("look", times=2)), first)


class TestImageGame:
    @pytest.fixture(autouse=True)
    def pygame(self):
        pytest.importorskip("pygame")

    def test_large_pictures_are_shrunk_the_same_everywhere(self):
        from agent_envs.wrappers import ImageGame

        env = ImageGame(gym.make("Taxi-v4", render_mode="rgb_array"), max_side=64)
        observation, _ = env.reset(seed=0)
        assert observation["images"][0].shape == (54, 64, 3) and env.observation_space.max_side == 64
        assert observation["images"][0].mean() > 20
        env.close()

    def test_it_needs_pictures_and_goes_with_the_other_wrappers(self):
        from agent_envs.wrappers import ImageGame

        with pytest.raises(ConfigError, match="render_mode='rgb_array', got 'ansi'"):
            ImageGame(gym.make("FrozenLake-v1", render_mode="ansi"))
        lake = gym.make("FrozenLake-v1", render_mode="rgb_array", is_slippery=False)
        env = apply_wrappers(lake, ["ImageGame", "AsTool"])
        env.reset(seed=0)
        observation, *_, info = env.step(call("env_step", command="up") + call("env_step", command="<image>"))
        assert env.observation_space.contains(observation) and len(observation["images"]) == 2
        assert [r["content"].count(IMAGE) for r in info["tool_results"]] == [1, 1]
        env = apply_wrappers(lake, ["ImageGame", "NumberedActions"])
        env.reset(seed=0)
        observation, *_ = env.step("1")
        assert observation["text"] == "<image>\n\nActions:\n1 left\n2 down\n3 right\n4 up"
        env.close()
