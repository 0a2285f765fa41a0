"""A proxy before any OpenAI-compatible server that writes down what an agent does as episodes."""

from agent_envs.recording.proxy import RecordingServer
from agent_envs.recording.store import EpisodeStore
from agent_envs.recording.verdict import EpisodeEnd

__all__ = ["EpisodeEnd", "EpisodeStore", "RecordingServer"]


def __dir__() -> list[str]:
    return __all__
