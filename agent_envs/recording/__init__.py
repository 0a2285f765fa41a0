"""A proxy before any OpenAI-compatible server that writes down what an agent does as episodes."""

from agent_envs.recording.end import EpisodeEnd
from agent_envs.recording.server import RecordingServer
from agent_envs.recording.store import EpisodeStore

__all__ = ["EpisodeEnd", "EpisodeStore", "RecordingServer"]
