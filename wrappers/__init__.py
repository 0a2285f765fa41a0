"""Wrappers decide what the policy sees and how its text is read; each does one thing and is named by its effect."""

from agent_envs.wrapper_specs import apply_wrappers, parse_wrapper
from agent_envs.wrappers.as_tool import AsTool
from agent_envs.wrappers.format_reward import FormatReward
from agent_envs.wrappers.prepend_instructions import PrependInstructions
from agent_envs.wrappers.rebuilt_papers import RebuiltPapers
from agent_envs.wrappers.record_episodes import RecordEpisodes
from agent_envs.wrappers.step_rewards import InvalidActionPenalty, StepPenalty, ToolCallReward
from agent_envs.wrappers.text_game import TextGame

__all__ = [
    "AsTool",
    "FormatReward",
    "InvalidActionPenalty",
    "PrependInstructions",
    "RebuiltPapers",
    "RecordEpisodes",
    "StepPenalty",
    "TextGame",
    "ToolCallReward",
    "apply_wrappers",
    "parse_wrapper",
]
