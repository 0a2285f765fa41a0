"""Which wrappers go together, and in which order; which of Gymnasium's fit text.

Behaviours pinned here:
1. A wrapper in the wrong place is refused when it is made, and the error names the right order.
2. Every order of the right kind is accepted; the table knows every wrapper of the package.
3. Gymnasium's wrappers that fit text work; those that do harm are refused however they are applied.
4. Rewards of many tasks come to one size, with shared statistics.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import gymnasium.wrappers as stock
import numpy as np
import pytest

import agent_envs
from agent_envs.errors import AgentEnvsError, ConfigError
from agent_envs.policies import ExpertPolicy
from agent_envs.registration import layers
from agent_envs.wrappers import ChatMessages, RewardNormalisation, SlidingWindow, apply_wrappers
from agent_envs.wrappers.step_rewards import return_statistics
from agent_envs.wrapping.order import REFUSED, Place, PlacedWrapper
from agent_envs.wrapping.specs import wrapper_names

TOOL, HOUSE = "AgentR1/GSM8KTool-v0", "AgentR1/ALFWorld-v0"
NOTES, BUDGET = "Augment(fn='html:escape')", "TokenBudget(n=9, tokenizer='x')"


@pytest.mark.parametrize(
    ("env_id", "specs", "message"),
    [
        (TOOL, ["SlidingWindow"], "put ChatMessages beneath it. In this order: ChatMessages, SlidingWindow"),
        (TOOL, [BUDGET], "In this order: ChatMessages, TokenBudget"),
        (TOOL, ["ChatMessages", "ChatMessages"], "ChatMessages is there already"),
        (TOOL, ["ChatMessages", "RebuildPrompt"], "RebuildPrompt must go beneath ChatMessages. In this order: Rebuil"),
        (TOOL, ["ChatMessages", "MalformedCalls"], "MalformedCalls must go beneath ChatMessages"),
        (HOUSE, ["ChatMessages", "AsTool"], "AsTool must go beneath ChatMessages. In this order: AsTool, ChatMessages"),
        (HOUSE, ["AsTool", "NumberedActions"], "NumberedActions"),
        (HOUSE, ["MalformedCalls"], "here the actions are commands: put AsTool beneath"),
        (HOUSE, ["StripReasoning", "AsTool"], "AsTool must go beneath StripReasoning"),
        (HOUSE, ["RebuildPrompt", "AsTool"], "AsTool must go beneath RebuildPrompt"),
        (TOOL, ["RebuildPrompt", "RebuildPrompt"], "RebuildPrompt is there already"),
        (TOOL, ["RebuildPrompt", "ChatMessages", "SlidingWindow"], "and RebuildPrompt cannot be combined"),
        (TOOL, ["PrependInstructions", "RebuildPrompt"], "In this order: RebuildPrompt, PrependInstructions"),
        (TOOL, [NOTES, "RebuildPrompt"], "In this order: RebuildPrompt, Augment"),
        (TOOL, ["PrependInstructions", NOTES], "In this order: Augment, PrependInstructions"),
        (TOOL, ["FormatReward", "MalformedCalls"], "must go beneath FormatReward, which would not see"),
        (TOOL, ["StepPenalty", "ChatMessages", "MalformedCalls"], "order: MalformedCalls, ChatMessages, StepPenalty"),
        (TOOL, ["TextGame"], "this is a text environment already"),
        ("CartPole-v1", ["ChatMessages"], "TextGame turns discrete actions into text"),
        ("CartPole-v1", ["TextGame", "TextGame"], "TextGame"),
        ("CartPole-v1", [NOTES], "Augment needs text"),
        (TOOL, ["AsTool"], "has tools already"),
    ],
)
def test_mistakes_are_refused_with_the_right_order(env_id, specs, message):
    with pytest.raises(ConfigError, match=message):
        apply_wrappers(gym.make(env_id), specs)


def test_right_orders_are_accepted_and_rewards_go_anywhere():
    text = ["MalformedCalls", "StripReasoning", NOTES, "PrependInstructions", "ChatMessages", "SlidingWindow"]
    for kept in itertools.chain.from_iterable(itertools.combinations(text, n) for n in range(len(text) + 1)):
        if "SlidingWindow" not in kept or "ChatMessages" in kept:
            env = apply_wrappers(gym.make(TOOL), [*kept, "FormatReward", "ToolCallReward", "StepPenalty"])
            placed = [layer for layer in layers(env) if isinstance(layer, PlacedWrapper) and layer.place < Place.REWARD]
            assert [type(layer).__name__ for layer in placed][::-1] == [spec.partition("(")[0] for spec in kept]
            env.reset(seed=0)
            assert len(env.step("<tool_call>")) == 5
    env = apply_wrappers(gym.make(HOUSE), ["StepPenalty", "AsTool", "MalformedCalls", "RebuildPrompt", NOTES, NOTES])
    env.reset(seed=0)
    assert env.step("")[4]["malformed_calls"] == 1
    apply_wrappers(gym.make("FrozenLake-v1", render_mode="ansi"), ["TextGame", "AsTool", "ChatMessages"]).reset(seed=0)


def test_every_wrapper_has_a_place_and_a_spec():
    assert "ChatMessages" in wrapper_names() and "apply_wrappers" not in wrapper_names()
    for name in wrapper_names():
        wrapper = getattr(agent_envs.wrappers, name)
        assert issubclass(wrapper, PlacedWrapper) and isinstance(wrapper.place, Place)


def test_a_wrapper_of_ones_own_counts_as_what_it_extends():
    class MyChat(ChatMessages):
        pass

    env = SlidingWindow(MyChat(gym.make(TOOL)), k=1)
    with pytest.raises(ConfigError, match="ChatMessages is there already"):
        ChatMessages(MyChat(gym.make(TOOL)))
    assert env.reset(seed=0)[0][-1]["role"] == "user"


# -- 3: Gymnasium's own ------------------------------------------------------------------------------------------------

FIT = {
    "Autoreset": {},
    "ClipReward": {"min_reward": 0.0, "max_reward": 1.0},
    "FrameStackObservation": {"stack_size": 2, "padding_type": "zero"},
    "NormalizeReward": {},
    "OrderEnforcing": {},
    "PassiveEnvChecker": {},
    "RecordEpisodeStatistics": {},
    "RenderCollection": {},
    "TimeLimit": {"max_episode_steps": 3},
    "TransformReward": {"func": lambda reward: 2 * reward},
}
ARGUMENTS = {
    "AddWhiteNoise": {"probability_of_noise_per_pixel": 0.5},
    "DelayObservation": {"delay": 1},
    "DiscretizeAction": {"bins": 2},
    "DiscretizeObservation": {"bins": 2},
    "DtypeObservation": {"dtype": np.float32},
    "MaxAndSkipObservation": {"skip": 2},
    "ObstructView": {"obstructed_pixels_ratio": 0.5, "obstruction_width": 1},
    "RecordVideo": {"video_folder": "videos"},
    "RepeatAction": {"num_repeats": 2},
    "RescaleAction": {"min_action": 0, "max_action": 1},
    "RescaleObservation": {"min_obs": 0, "max_obs": 1},
    "ReshapeObservation": {"shape": (2,)},
    "ResizeObservation": {"shape": (2, 2)},
    "StickyAction": {"repeat_action_probability": 0.5},
    "ArrayConversion": {"env_xp": np, "target_xp": np},
}
YOUR_OWN = {"FilterObservation", "TransformAction", "TransformObservation"}  # whose function decides


def test_every_stock_wrapper_is_known_to_fit_or_not():
    classes = {name for name in stock.__all__ if name[0].isupper()}
    assert classes == {*FIT, *REFUSED, *YOUR_OWN}


@pytest.mark.parametrize("name", FIT)
@pytest.mark.parametrize("chat", [False, True])
def test_stock_wrappers_that_fit_work(name, chat):
    plain = gym.make(TOOL, render_mode="ansi")
    env = getattr(stock, name)(ChatMessages(plain) if chat else plain, **FIT[name])
    first, _ = env.reset(seed=0)
    assert name != "FrameStackObservation" or first[0] == ([] if chat else "")
    action = plain.unwrapped.format_call("calculator", {"expression": "6*7"})
    observation, reward, terminated, truncated, _ = env.step(action)
    last = observation[-1] if name == "FrameStackObservation" else observation
    assert (last[-1]["content"] if chat else last) == "42"
    assert (float(reward), terminated, truncated) == (0.0, False, False)
    result = env.step(plain.unwrapped.expert_action())
    assert env.observation_space.contains(result[0])
    if name == "RecordEpisodeStatistics":
        result = env.step("#### 1")
        assert result[2] and result[4]["episode"]["l"] == 3


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("chat", [False, True])
def test_stock_wrappers_that_do_harm_are_refused(name, chat):
    try:
        wrapper = getattr(stock, name)
    except (ImportError, gym.error.DependencyNotInstalled) as e:
        pytest.skip(f"needs an extra of Gymnasium: {e}")
    arguments = ARGUMENTS.get(name, {})
    make = lambda: ChatMessages(gym.make(TOOL, render_mode="ansi")) if chat else gym.make(TOOL, render_mode="ansi")  # noqa: E731
    refusals = (TypeError, ValueError, AssertionError, AgentEnvsError, gym.error.Error)
    with pytest.raises((*refusals,)) as refusal:  # by its own check or the space's, or where ours sees it
        apply_wrappers(make(), [lambda env: wrapper(env, **arguments)])
    assert str(refusal.value)
    if name in ("AddWhiteNoise", "ObstructView", "DelayObservation", "RepeatAction", "StickyAction"):
        assert f"Gymnasium's {name} is not for text: {REFUSED[name]}" in str(refusal.value)
        with pytest.raises(ConfigError, match=name):
            RewardNormalisation(wrapper(make(), **arguments))
        with pytest.raises(ConfigError, match=name):
            agent_envs.run_episode(wrapper(make(), **arguments), ExpertPolicy())
        with pytest.raises(ConfigError, match=name):
            agent_envs.run_episodes(lambda: wrapper(make(), **arguments), ExpertPolicy(), 1, progress=False)


@pytest.mark.parametrize("chat", [False, True])
def test_text_has_no_form_as_numbers(chat):
    env = gym.make(TOOL)
    space = (ChatMessages(env) if chat else env).observation_space
    for make in (
        lambda: stock.FlattenObservation(ChatMessages(env) if chat else env),
        lambda: stock.TimeAwareObservation(ChatMessages(env) if chat else env),
        lambda: gym.spaces.flatdim(space),
        lambda: gym.spaces.flatten(space, space.sample()),
        lambda: gym.spaces.unflatten(space, np.zeros(1)),
        lambda: gym.spaces.flatten_space(gym.spaces.Dict({"text": space})),
    ):
        with pytest.raises(ConfigError, match="holds text, which cannot be flattened into an array of numbers"):
            make()
    env = stock.TimeAwareObservation(gym.make(TOOL), flatten=False)
    with pytest.raises(ConfigError, match="TimeAwareObservation is not for text"):
        apply_wrappers(env, ["StepPenalty"])


# -- 4: rewards of one size --------------------------------------------------------------------------------------------


def test_rewards_come_to_one_size_per_kind_of_task():
    name = "test/kinds"
    statistics = return_statistics(name)

    def play(index, **kwargs):
        env = RewardNormalisation(gym.make(HOUSE, size=1), by="task_family", name=name, **kwargs)
        _, info = env.reset(options={"index": index})
        scale, total, reward, over = info["reward_scale"], 0.0, 0.0, False
        while not over:
            _, reward, terminated, truncated, info = env.step(env.get_wrapper_attr("expert_action")() or "look")
            total, over = total + reward, terminated or truncated
            assert info["reward_scale"] == scale and info["success"] == terminated
        return info["task_family"], scale, total

    family, scale, total = play(0)
    assert (scale, total) == (1.0, 1.0)
    assert (statistics.counts, statistics.squares) == ({family: 1}, {family: 1.0})
    statistics.counts[family], statistics.squares[family] = 99, 9999.0
    assert play(0, update=False) == (family, 10.0, 0.1) and statistics.counts[family] == 99
    assert play(0)[1:] == (10.0, 0.1) and statistics.counts[family] == 100
    with pytest.raises(ConfigError, match="by='kind': the reset's info has no such key; it has admissible_commands"):
        RewardNormalisation(gym.make(HOUSE, size=1), by="kind").reset(seed=0)


def test_instances_and_threads_share_the_statistics():
    name = "test/shared"
    episodes = agent_envs.run_episodes(
        TOOL, ExpertPolicy(), 40, wrappers=[f"RewardNormalisation(name={name!r})"], concurrency=8, progress=False
    )
    assert all(e.error is None for e in episodes)
    assert (return_statistics(name).counts, return_statistics(name).squares) == ({"": 40}, {"": 40.0})
    assert {e.reward for e in episodes} == {1.0}
    with ThreadPoolExecutor(50) as pool:
        list(pool.map(return_statistics(name).add, ["b"] * 50, [2.0] * 50))
    assert return_statistics(name).counts["b"] == 50
    for odd in (float("nan"), float("inf"), float("-inf")):
        return_statistics(name).add("b", odd)
    assert return_statistics(name).counts["b"] == 50 and return_statistics(name).scale("b") == (201 / 51) ** 0.5


def test_branches_of_an_episode_keep_its_scale():
    env = RewardNormalisation(gym.make(TOOL), name="test/branch")
    env.reset(seed=0)
    point = agent_envs.snapshot(env)
    first = env.step("#### 1")
    agent_envs.restore(env, point)
    assert env.step("#### 1") == first
    assert gym.make(env.spec).name == "test/branch"
