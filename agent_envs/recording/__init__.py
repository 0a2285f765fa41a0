"""A proxy in front of any OpenAI-compatible server that records what an agent does as episodes."""

from agent_envs.episodes.verdict import EpisodeVerdict
from agent_envs.per_process import lazy_names

__all__ = ["EpisodeStore", "EpisodeVerdict", "RecordingServer"]

# Only the proxy needs aiohttp.
__getattr__, __dir__ = lazy_names(__name__, __all__, {"EpisodeStore": "store", "RecordingServer": "proxy"})
