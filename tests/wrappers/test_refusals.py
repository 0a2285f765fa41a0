"""Arguments and environments that a wrapper refuses when it is made; wrong orders are in test_wrapper_order."""

import math

import gymnasium as gym
import pytest

from agent_envs import wrappers
from agent_envs.errors import ConfigError

TOOL, PLAIN, HOUSE, QUIZ = "AgentR1/GSM8KTool-v0", "AgentR1/GSM8K-v0", "AgentR1/ALFWorld-v0", "AgentR1/HotpotQA-v0"
LAKE = "FrozenLake-v1"

REFUSED = [
    ("AsTool", HOUSE, {"name": "a b"}, "name must be"),
    ("AsTool", HOUSE, {"max_calls": 0}, "max_calls must be"),
    ("AsTool", HOUSE, {"parser": "nope"}, "nope"),
    ("AsTool", HOUSE, {"parser": "react"}, "'react' can only write search"),
    ("Augment", TOOL, {"fn": 3}, "fn must be a function"),
    ("Augment", TOOL, {"fn": "nowhere"}, "module:function"),
    ("Augment", TOOL, {"fn": len, "heading": 3}, "heading must be a string"),
    ("ChatMessages", TOOL, {"reasoning": "some"}, "reasoning must be one of 'keep', 'strip', got 'some'"),
    ("ChatMessages", TOOL, {"tools": 1}, "tools must be"),
    ("ChatMessages", TOOL, {"max_length": 5}, "at least 10000"),
    *(("FormatReward", TOOL, {"weight": x}, "weight must be a number of at least 0")
      for x in (True, "much", math.nan, math.inf, -1)),
    ("InvalidActionPenalty", TOOL, {"penalty": -1}, "at least 0"),
    ("LimitInvalidActions", TOOL, {"limit": 0}, "limit must be"),
    ("MalformedCalls", TOOL, {"policy": "retyr"}, "Did you mean 'retry'"),
    ("MalformedCalls", TOOL, {"max_retries": 0}, "at least 1"),
    ("NumberedActions", TOOL, {}, "list their actions"),
    *(("NumberedActions", HOUSE, {"leave_out": x}, "leave_out must be a list of patterns, got ")
      for x in ("look", None, {"look": 1}, ["look", 1])),
    ("PrependInstructions", TOOL, {"separator": 3}, "separator must be a string"),
    ("RebuildPrompt", TOOL, {"template": "histroy"}, "one of 'history', 'agent-r1', got 'histroy'. Did you mean 'hist"),
    ("RebuildPrompt", TOOL, {"template": "hotpotqa"}, "one of 'history', 'agent-r1', got 'hotpotqa'"),  # another's
    ("RebuildPrompt", QUIZ, {"template": "alfworld"}, "template must be one of 'hotpotqa', 'capo', 'history'"),
    ("RebuildPrompt", TOOL, {"template": "$question"}, r"\$question; the placeholders are \$task"),
    ("RebuildPrompt", TOOL, {"template": "$task costs 5$"}, r"a \$ without a name"),
    ("RebuildPrompt", TOOL, {"template": "nowhere:f"}, "one of 'history', 'agent-r1', got 'nowhere:f'"),
    ("RebuildPrompt", TOOL, {"template": 3}, "template must be one of 'history', 'agent-r1', got 3"),
    ("RebuildPrompt", TOOL, {"fn": "nowhere:f"}, "nowhere:f cannot be loaded"),
    ("RebuildPrompt", TOOL, {"fn": 3}, "fn must be a function or its name"),
    ("RebuildPrompt", TOOL, {"fn": len, "template": "history"}, "either"),
    ("RecordEpisodes", LAKE, {"path": "a"}, "for text environments, and FrozenLake-v1 has no instructions"),
    ("RecordEpisodes", TOOL, {"path": ""}, "path must be the path of a file"),
    ("RecordEpisodes", TOOL, {"path": 3}, "path must be the path of a file"),
    ("RecordEpisodes", TOOL, {"path": "a-{worker}.jsonl"}, r"there is no \{worker\}; it may contain \{env\}, \{host\}"),
    ("RecordEpisodes", TOOL, {"path": "a-{pid.real}.jsonl"}, "there is no"),
    ("RecordEpisodes", TOOL, {"path": "a-{"}, "it may contain"),
    ("RecordEpisodes", TOOL, {"path": "a.jsonl.gz"}, "compressed"),
    ("RecordEpisodes", TOOL, {"path": "~no_such_user/a.jsonl"}, "home"),
    ("RecordEpisodes", TOOL, {"path": "a\0b.jsonl"}, "NUL"),
    ("RecordEpisodes", TOOL, {"path": "a" * 300}, "too long"),
    ("RecordEpisodes", TOOL, {"path": "/dev/null"}, "cannot be written"),
    ("RecordEpisodes", TOOL, {"path": "/dev/null/a.jsonl"}, "cannot be written"),
    ("RewardNormalisation", TOOL, {"by": 3}, "by must be a string, got 3"),
    ("RewardNormalisation", TOOL, {"update": "no"}, "update must be"),
    ("SlidingWindow", TOOL, {"k": -1}, "k must be an integer of at least 0"),
    ("SlidingWindow", TOOL, {"k": True}, "k must be an integer"),
    ("StepPenalty", TOOL, {"penalty": math.nan}, "penalty must be a number of at least 0"),
    *(("TextGame", LAKE, {"actions": x}, "4 different names")
      for x in (["a"], ["a", "a", "b", "c"], ["a", "b", "c", ""])),
    ("TextGame", "Pendulum-v1", {}, "needs at most 1000 discrete actions"),
    ("TokenBudget", TOOL, {"n": 0, "tokenizer": "x"}, "n must be an integer of at least 1"),
    ("TokenBudget", TOOL, {"n": 5, "tokenizer": "./nowhere"}, "there is no tokenizer folder './nowhere'"),
    ("TokenBudget", TOOL, {"n": 5, "tokenizer": "~nobody-of-this-name/x"}, "there is no tokenizer folder '~nobody"),
    ("TokenBudget", TOOL, {"n": 5, "tokenizer": 3}, "tokenizer must be a name, a folder or a tokenizer, got 3"),
    ("TokenBudget", TOOL, {"n": 5, "tokenizer": "x", "template_kwargs": 3}, "template_kwargs must be a dictionary"),
    ("ToolCallReward", TOOL, {"error": 1.0}, "error must be a number of at most 0"),
    ("ToolCallReward", PLAIN, {}, "this one has none"),
]  # fmt: skip


@pytest.mark.parametrize(("wrapper", "env_id", "arguments", "message"), REFUSED)
def test_what_a_wrapper_refuses(wrapper, env_id, arguments, message):
    env = gym.make(env_id, **({"render_mode": "ansi"} if env_id == LAKE else {}))
    env = wrappers.ChatMessages(env) if wrapper in ("SlidingWindow", "TokenBudget") else env
    with pytest.raises(ConfigError, match=message):
        getattr(wrappers, wrapper)(env, **arguments)
