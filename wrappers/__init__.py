"""Wrappers decide what the policy sees and how its text is read; each does one thing and is named by its effect."""

from agent_envs.wrappers.as_tool import AsTool
from agent_envs.wrappers.augment import Augment, ExpertLabels, PrependInstructions, StripReasoning
from agent_envs.wrappers.chat_messages import ChatMessages
from agent_envs.wrappers.context import SlidingWindow
from agent_envs.wrappers.malformed_calls import MalformedCalls
from agent_envs.wrappers.numbered_actions import NumberedActions
from agent_envs.wrappers.rebuild_prompt import RebuildPrompt
from agent_envs.wrappers.record_episodes import RecordEpisodes
from agent_envs.wrappers.step_rewards import (
    FormatReward,
    InvalidActionPenalty,
    LimitInvalidActions,
    RewardNormalisation,
    StepPenalty,
    ToolCallReward,
)
from agent_envs.wrappers.text_game import ImageGame, TextGame
from agent_envs.wrappers.token_budget import TokenBudget
from agent_envs.wrapping.specs import apply_wrappers, parse_wrapper

__all__ = [
    "AsTool",
    "Augment",
    "ChatMessages",
    "ExpertLabels",
    "FormatReward",
    "ImageGame",
    "InvalidActionPenalty",
    "LimitInvalidActions",
    "MalformedCalls",
    "NumberedActions",
    "PrependInstructions",
    "RebuildPrompt",
    "RecordEpisodes",
    "RewardNormalisation",
    "SlidingWindow",
    "StepPenalty",
    "StripReasoning",
    "TextGame",
    "TokenBudget",
    "ToolCallReward",
    "apply_wrappers",
    "parse_wrapper",
]


def __dir__() -> list[str]:
    return __all__
