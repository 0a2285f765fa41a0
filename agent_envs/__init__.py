"""A Gymnasium-native suite of text-agent environments, and thin adapters to trainers.

>>> import gymnasium as gym, agent_envs
>>> env = gym.make("AgentR1/GSM8KTool-v0")
>>> question, info = env.reset(options={"index": 0})
"""

import os
from typing import TYPE_CHECKING

from agent_envs._version import __version__
from agent_envs.branching import EnvSnapshot, restore, snapshot
from agent_envs.episodes.record import Episode, Step, StopReason, read_episodes, write_episodes
from agent_envs.errors import ToolError
from agent_envs.messages import Message, ToolCall, ToolSpec
from agent_envs.per_process import lazy_names
from agent_envs.pictures.picture import Picture, Pictured
from agent_envs.problem_env import Problem, ProblemEnv
from agent_envs.registration import ENV_IDS, register_envs
from agent_envs.spaces import ImageText, MessagesSpace, UnicodeText
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome, TextEnv

if TYPE_CHECKING:
    from agent_envs.episodes.table import episodes_to_frame
    from agent_envs.policies.openai.calls import from_openai, to_openai
    from agent_envs.policies.scripted import ExpertPolicy
    from agent_envs.rollout.branch import branch
    from agent_envs.rollout.evaluate import evaluate
    from agent_envs.rollout.evaluation import Evaluation
    from agent_envs.rollout.many import run_episodes
    from agent_envs.rollout.one import arun_episode, run_episode
    from agent_envs.tool_env import ToolEnv
    from agent_envs.tools.base import Tool
    from agent_envs.vector.env import TextVectorEnv
    from agent_envs.vector.make import make_vec
    from agent_envs.wrapping.specs import apply_wrappers

__all__ = [
    "ENV_IDS",
    "EnvSnapshot",
    "Episode",
    "Evaluation",
    "ExpertPolicy",
    "ImageText",
    "IndexedTasks",
    "Message",
    "MessagesSpace",
    "Outcome",
    "Picture",
    "Pictured",
    "Problem",
    "ProblemEnv",
    "Step",
    "StopReason",
    "TextEnv",
    "TextVectorEnv",
    "Tool",
    "ToolCall",
    "ToolEnv",
    "ToolError",
    "ToolSpec",
    "UnicodeText",
    "__version__",
    "apply_wrappers",
    "arun_episode",
    "branch",
    "episodes_to_frame",
    "evaluate",
    "from_openai",
    "make_vec",
    "read_episodes",
    "register_envs",
    "restore",
    "run_episode",
    "run_episodes",
    "snapshot",
    "to_openai",
    "write_episodes",
]

# A checkout without symbolic links (git without them, a zip) has adapters, datasets and wrappers in its root alone.
if not os.path.isdir(os.path.join(__path__[0], "datasets")):
    __path__.append(os.path.dirname(__path__[0]))

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "Evaluation": "rollout.evaluation",
        "ExpertPolicy": "policies.scripted",
        "Tool": "tools.base",
        "TextVectorEnv": "vector.env",
        "ToolEnv": "tool_env",
        "apply_wrappers": "wrapping.specs",
        "arun_episode": "rollout.one",
        "branch": "rollout.branch",
        "episodes_to_frame": "episodes.table",
        "evaluate": "rollout.evaluate",
        "from_openai": "policies.openai.calls",
        "make_vec": "vector.make",
        "run_episode": "rollout.one",
        "run_episodes": "rollout.many",
        "to_openai": "policies.openai.calls",
    },
    ["adapters", "envs", "parsers", "policies", "retrieval", "rewards", "serving", "testing", "tools", "wrappers"],
)

register_envs()
