"""Episodes being recorded: every call on disk before its agent hears of it, and whole episodes in an episodes.jsonl.

``FOLDER/open/`` has a file per episode that has not ended, with a line per call; ``FOLDER/episodes.jsonl`` the episodes
that have. A process that is killed loses no call that was answered: the next one reads what is open and goes on.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_envs.episodes.record import Episode, Step, to_json_types
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import FileLock, JSONLines
from agent_envs.recording.ended_episodes import EndedEpisodes
from agent_envs.recording.verdict import EpisodeEnd

__all__ = ["EpisodeStore", "FinishedError", "OpenEpisode"]


class FinishedError(ConfigError):
    """The episode has ended: nothing can be added to it."""


@dataclass(slots=True)
class OpenEpisode:
    """An episode that has not ended. Its calls are on disk."""

    episode_id: str
    """Name of the episode."""
    path: Path
    """The file with its calls."""
    group_id: str | None = None
    """Name shared with the episodes it is compared with, or None for the episode alone."""
    index: int | None = None
    """The task's index, or None."""
    calls: int = 0
    """Calls so far, those that failed and those that are under way included; the next one's number."""
    steps: int = 0
    """Steps on disk."""
    failed: int = 0
    """Calls that failed."""
    running: int = 0
    """Calls under way."""
    over: bool = False
    """Whether it has ended meanwhile."""
    touched: float = field(default_factory=time.monotonic)
    """When something happened last (monotonic seconds)."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while its file is read or written."""


class EpisodeStore:
    """Open episodes and the file of ended ones. Methods may be called from several threads.

    Args:
        folder: Where the files lie. One process writes to a folder at a time.
        env_id: What the episodes' ``env_id`` says.

    Raises:
        ConfigError: Another process records into the folder, or it cannot be written.
        DataError: A file in it is broken in another way than a killed process leaves it.
    """

    def __init__(self, folder: str | os.PathLike[str], env_id: str = "recorded") -> None:
        self.folder, self.env_id = Path(folder), env_id
        self.path = self.folder / "episodes.jsonl"
        self.open: dict[str, OpenEpisode] = {}
        self._lock = threading.Lock()
        try:
            self._guard = FileLock(self.folder / "open" / ".lock", wait=False)
        except BlockingIOError as e:
            raise ConfigError(f"another process records into {folder}; name another folder") from e
        except OSError as e:
            raise ConfigError(f"{folder} cannot be written: {e}") from e
        try:
            self._ended = EndedEpisodes(self.path, self.folder / "open" / ".ended")
            for path in sorted((self.folder / "open").glob("*.jsonl")):
                self._read_open(path)
        except BaseException:
            self._guard.close()
            raise

    @property
    def ended(self) -> int:
        """The number of episodes that have ended."""
        return len(self._ended)

    def has_ended(self, episode_id: str) -> bool:
        """Whether an episode is in the file of ended ones."""
        return episode_id in self._ended

    def episode(self, episode_id: str, group_id: str | None = None, index: int | None = None) -> OpenEpisode:
        """The open episode of this name; a new one where there is none.

        Raises:
            FinishedError: It has ended.
            ConfigError: It was begun with another group or index.
        """
        with self._lock:
            if episode_id in self._ended:
                raise FinishedError(f"episode {episode_id!r} has ended; name another one")
            known = self.open.get(episode_id)
            if known is None:
                name = hashlib.sha256(episode_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]
                known = OpenEpisode(episode_id, self.folder / "open" / f"{name}.jsonl", group_id, index)
                JSONLines(known.path).append(
                    {"kind": "episode", "episode_id": episode_id, "group_id": group_id, "index": index}
                )
                self.open[episode_id] = known
                return known
        with known.lock:
            for name, old, new in (("group", known.group_id, group_id), ("task index", known.index, index)):
                if new is not None and old is not None and old != new:
                    raise ConfigError(f"episode {episode_id!r} was begun with the {name} {old!r}, now it is {new!r}")
            if (group_id is not None and known.group_id is None) or (index is not None and known.index is None):
                known.group_id, known.index = known.group_id or group_id, index if known.index is None else known.index
                named = {"episode_id": episode_id, "group_id": known.group_id, "index": known.index}
                JSONLines(known.path).append({"kind": "episode", **named})
        return known

    def add_steps(self, episode: OpenEpisode, number: int, rows: list[dict[str, Any]], tools: list[Any]) -> None:
        """Write down a call: a row per choice with the fields of ``Step`` that a call has.

        Raises:
            FinishedError: The episode has ended meanwhile.
            OSError: The file cannot be written; the call is then not in it.
        """
        with episode.lock:
            self._check_open(episode)
            JSONLines(episode.path).append(
                to_json_types({"kind": "call", "number": number, "rows": rows, "tools": tools})
            )
            episode.steps += len(rows)
            episode.touched = time.monotonic()

    def add_failure(self, episode: OpenEpisode, number: int, error: str, partial: str | None = None) -> None:
        """Write down a call that came to nothing, and what was said of it before; nothing where the episode is over."""
        with episode.lock:
            if episode.over:
                return
            failure = {"call": number, "error": error} | ({} if partial is None else {"partial": partial})
            JSONLines(episode.path).append({"kind": "failure", "failure": failure})
            episode.failed += 1
            episode.touched = time.monotonic()

    def finish(self, episode: OpenEpisode, end: EpisodeEnd) -> Episode:
        """End an episode: from now on it is in the file of ended ones.

        Raises:
            FinishedError: It has ended before, by something else.
            ConfigError: The end does not fit the episode's steps.
        """
        with episode.lock:
            self._check_open(episode)
            record = self._build(episode, end)
            JSONLines(episode.path).append({"kind": "end", "end": end.to_dict()})
            self._keep(record, end.digest)
            episode.over = True
            episode.path.unlink(missing_ok=True)
        return record

    def ended_by(self, episode_id: str, end: EpisodeEnd) -> bool:
        """Whether an episode was ended by just this: a request said twice is answered twice."""
        return self._ended.digest(episode_id) == end.digest

    def idle(self, seconds: float) -> list[OpenEpisode]:
        """The open episodes in which nothing has happened for so long."""
        now = time.monotonic()
        return [e for e in list(self.open.values()) if not e.running and now - e.touched >= seconds]

    def close(self) -> None:
        """Let another process record into the folder. What is open stays so, for the next one."""
        self._guard.close()

    def _check_open(self, episode: OpenEpisode) -> None:
        if episode.over:
            raise FinishedError(f"episode {episode.episode_id!r} has ended before this came")

    def _keep(self, record: Episode, digest: str) -> None:
        with self._lock:
            self._ended.add(record, digest)
            self.open.pop(record.episode_id, None)

    def _build(self, episode: OpenEpisode, end: EpisodeEnd) -> Episode:
        """The record of an episode, its steps in the order in which their calls came."""
        calls, failures = [], []
        tools: dict[str, Any] = {}
        for _, line in JSONLines(episode.path).after():
            if line["kind"] == "call":
                calls.append(line)
            elif line["kind"] == "failure":
                failures.append(line["failure"])
        calls.sort(key=lambda call: call["number"])
        for call in calls:
            for tool in call["tools"]:
                tools.setdefault(tool["function"]["name"], tool)
        rows = [row for call in calls for row in call["rows"]]
        anchors = [_last_words(row["observation"]) for row in rows]
        for row, anchor in zip(rows, anchors[1:], strict=False):
            row["info"]["anchor"] = anchor  # the state that the step led to
        steps = [Step.from_dict({"reward": 0.0, "terminated": False, "truncated": False, **row}) for row in rows]
        first = next((m for m in (rows[0]["observation"] if rows else []) if m["role"] == "system"), None)
        begun = {
            "source": "recording",
            "failed_calls": failures,
            "ended_by": end.digest,
            "anchor": "".join(anchors[:1]),
        }
        return Episode(
            env_id=self.env_id,
            episode_id=episode.episode_id,
            group_id=episode.group_id or (
                episode.episode_id if episode.index is None else f"{self.env_id}:{episode.index}"
            ),
            seed=None,
            index=episode.index,
            instructions=first["content"] if first else "",
            tools=tuple(tools.values()),
            reset_info=begun,
            steps=end.apply(steps),
            final_observation="",
            stop_reason=end.stop_reason,
            error=end.error,
        )  # fmt: skip

    def _read_open(self, path: Path) -> None:
        """An episode that an earlier process left; one that was being ended is brought to its end."""
        lines = [line for _, line in JSONLines(path).after()]
        if not lines:
            path.unlink()
            return
        named = [line for line in lines if line["kind"] == "episode"]
        if not named:
            raise DataError(f"{path} does not say which episode it holds")
        episode = OpenEpisode(named[-1]["episode_id"], path, named[-1]["group_id"], named[-1]["index"])
        numbers = [line["number"] for line in lines if line["kind"] == "call"]
        failures = [line["failure"] for line in lines if line["kind"] == "failure"]
        episode.calls = max(numbers + [failure["call"] for failure in failures], default=-1) + 1
        episode.steps = sum(len(line["rows"]) for line in lines if line["kind"] == "call")
        episode.failed = len(failures)
        if episode.episode_id in self._ended:
            path.unlink()
        elif lines[-1]["kind"] == "end":
            end = EpisodeEnd.from_dict(lines[-1]["end"])
            self._keep(self._build(episode, end), end.digest)
            path.unlink()
        else:
            self.open[episode.episode_id] = episode


def _last_words(messages: list[dict[str, Any]]) -> str:
    """What came after the agent's last response: the state's text without its history."""
    spoken = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    since = messages[spoken[-1] + 1 :] if spoken else messages
    return "\n".join(message["content"] for message in since if message["role"] != "system")
