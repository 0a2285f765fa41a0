"""Episodes being recorded: every call is on disk before its agent gets the answer, whole episodes in episodes.jsonl.

``FOLDER/open/`` has a file for each episode that goes on, with a line per call; ``FOLDER/episodes.jsonl`` has the
finished ones: an episode is finished once its line is there. A killed process loses no answered call: the next one
reads the open episodes and continues them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_envs.episodes.builder import EpisodeBuilder
from agent_envs.episodes.plain import to_json_types
from agent_envs.episodes.record import Episode, Step
from agent_envs.episodes.run_folder import locked_folder
from agent_envs.episodes.verdict import EpisodeVerdict
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines, numbered_lines
from agent_envs.messages import content_parts, content_text, latest_words
from agent_envs.pictures.folder import PictureFolder
from agent_envs.policies.openai.fields import without_keys
from agent_envs.policies.openai.reply import SampledTokens

_log = logging.getLogger(__name__)
_LONGEST_KEY, _LONGEST_LINE = 10_000, 1 << 30
_RECORDED = re.compile(rb'"episode_id":\s*("(?:[^"\\]|\\.)*")')
_ENDED_BY = re.compile(rb'"ended_by":\s*"(\w+)"')


class FinishedError(ConfigError):
    """The episode is finished: nothing can be added to it."""


@dataclass(slots=True)
class OpenEpisode:
    """An episode that goes on. Its calls are on disk."""

    episode_id: str
    path: Path
    """The file with its calls."""
    group_id: str | None = None
    """Name shared with the episodes it is compared with, or None for the episode alone."""
    index: int | None = None
    """The task's index."""
    calls: int = 0
    """Calls so far, failed and running ones included; the number of the next one."""
    steps: int = 0
    """Steps on disk."""
    failed: int = 0
    running: int = 0
    finished: bool = False
    conversations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Messages up to and with each response, by its id, for requests that go on from one."""
    keys: frozenset[str] = frozenset()
    """Keys that its requests brought, which are not written."""
    touched: float = field(default_factory=time.monotonic)
    """When something happened last (monotonic seconds)."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while its file is read or written."""


class EpisodeStore:
    """Open and finished episodes in a folder. Methods may be called from several threads.

    Args:
        folder: The folder. One process at a time writes to it.
        env_id: The episodes' ``env_id``.

    Raises:
        ConfigError: Another process records into the folder, or it cannot be written.
        DataError: A file in it is broken in another way than by a killed process.
    """

    def __init__(self, folder: str | os.PathLike[str], env_id: str = "recorded") -> None:
        self.folder, self.env_id = Path(folder), env_id
        self.path = self.folder / "episodes.jsonl"
        self.open: dict[str, OpenEpisode] = {}
        self.pictures = PictureFolder(self.path)
        """Where the pictures of the episodes are."""
        self._lock = threading.Lock()
        with ExitStack() as stack:
            stack.enter_context(locked_folder(self.folder / "open"))
            self.finished = self._read_finished()
            """Each finished episode's `EpisodeVerdict.digest`, None if it is not known."""
            for path in sorted((self.folder / "open").glob("*.jsonl")):
                self._resume(path)
            self._locked = stack.pop_all()

    def episode(self, episode_id: str, group_id: str | None = None, index: int | None = None) -> OpenEpisode:
        """Return the open episode of this name, a new one if there is none.

        A FinishedError says that it is finished, a ConfigError that it began with another group or index.
        """
        with self._lock:
            if episode_id in self.finished:
                raise FinishedError(f"episode {episode_id!r} is finished; choose another name")
            episode = self.open.get(episode_id)
            if episode is None:
                name = hashlib.sha256(episode_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]
                episode = OpenEpisode(episode_id, self.folder / "open" / f"{name}.jsonl")
                _name(episode, group_id, index)
                self.open[episode_id] = episode
                return episode
        with episode.lock:
            for name, old, new in (("group", episode.group_id, group_id), ("task index", episode.index, index)):
                if new is not None and old is not None and old != new:
                    raise ConfigError(f"episode {episode_id!r} began with the {name} {old!r}, got {new!r}")
            if (group_id is not None and episode.group_id is None) or (index is not None and episode.index is None):
                _name(episode, episode.group_id or group_id, index if episode.index is None else episode.index)
        return episode

    def add_steps(self, episode: OpenEpisode, number: int, rows: list[dict[str, Any]], tools: list[Any]) -> None:
        """Write a call to disk: a row per choice, with the fields of ``Step`` that a call has.

        Its pictures must be in `pictures` already. If that raises an OSError, or a FinishedError, the file does not
        hold the call.
        """
        with episode.lock:
            self._check_open(episode)
            rows = [_keyless(row, episode.keys) for row in to_json_types(rows)]
            line = {"kind": "call", "number": number, "rows": rows, "tools": without_keys(tools, episode.keys)}
            JSONLines(episode.path).append(line)
            episode.steps += len(rows)
            episode.touched = time.monotonic()

    def add_failure(self, episode: OpenEpisode, number: int, error: str, partial: str | None = None) -> None:
        """Write down that a call failed, and the text that came before; nothing if the episode is finished."""
        with episode.lock:
            if episode.finished:
                return
            failure: dict[str, Any] = {"call": number}
            for name, text, longest in (("error", error, 2000), ("partial", partial, 1 << 20)):
                if text is not None:
                    failure[name] = without_keys(text[: longest + _LONGEST_KEY], episode.keys)[:longest]
            JSONLines(episode.path).append({"kind": "failure", "failure": failure})
            episode.failed += 1
            episode.touched = time.monotonic()

    def finish(self, episode: OpenEpisode, verdict: EpisodeVerdict) -> Episode:
        """Finish an episode and return its record, which is in the file of episodes from now on.

        Raises a FinishedError if it is finished already, a ConfigError if the verdict does not fit its steps. After an
        OSError it is open as before.
        """
        with episode.lock:
            self._check_open(episode)
            record = self._build(episode, verdict)
            with self._lock:
                JSONLines(self.path).append(without_keys(to_json_types(record.to_dict()), episode.keys))
                self.finished[record.episode_id] = verdict.digest
                self.open.pop(record.episode_id, None)
            episode.finished = True
            episode.path.unlink(missing_ok=True)
        return record

    def close(self) -> None:
        """Let another process record into the folder; it continues the open episodes."""
        self._locked.close()

    def _check_open(self, episode: OpenEpisode) -> None:
        if episode.finished:
            raise FinishedError(f"episode {episode.episode_id!r} has been finished meanwhile")

    def _build(self, episode: OpenEpisode, verdict: EpisodeVerdict) -> Episode:
        """Return the record of an episode, with its steps in the order in which their calls came."""
        calls, failures = _calls_and_failures([line for _, line in JSONLines(episode.path).after()])
        tools: dict[str, Any] = {}
        for tool in (tool for call in calls for tool in call["tools"]):
            tools.setdefault(tool["function"]["name"], tool)
        rows = [row for call in calls for row in call["rows"]]
        anchors = [_latest_state(row["observation"]) for row in rows]
        for row, anchor in zip(rows, anchors[1:], strict=False):
            row["info"]["anchor"] = anchor  # the state that the step led to
        begun = {"reward": 0.0, "terminated": False, "truncated": False}
        steps = [Step.from_dict({**begun, **row}, self.pictures) for row in rows]
        system = next((m for m in (rows[0]["observation"] if rows else []) if m["role"] == "system"), {"content": ""})
        default_group = episode.episode_id if episode.index is None else f"{self.env_id}:{episode.index}"
        reset_info = {"source": "recording", "failed_calls": failures, "ended_by": verdict.digest}
        reset_info["anchor"] = anchors[0] if anchors else ""
        record = EpisodeBuilder(
            self.env_id,
            options={"index": episode.index},
            episode_id=episode.episode_id,
            group_id=episode.group_id or default_group,
            instructions=content_text(system["content"]),
            tools=tuple(tools.values()),
            reset_info=reset_info,
            steps=[*verdict.apply(steps)],
        )
        return record.episode(verdict.stop_reason, verdict.error)

    def _read_finished(self) -> dict[str, str | None]:
        finished: dict[str, str | None] = {}
        if self.path.exists():
            JSONLines(self.path).append()  # removes a last line that a kill cut off
            for number, line in numbered_lines(self.path, _LONGEST_LINE):
                name, digest = _RECORDED.search(line), _ENDED_BY.search(line)  # a line may have megabytes
                if name is None:
                    raise DataError(f"{self.path}, line {number}: not an episode")
                finished[json.loads(name[1])] = None if digest is None else digest[1].decode()
        return finished

    def _resume(self, path: Path) -> None:
        """Take over an episode that an earlier process left open."""
        rows = JSONLines(path)
        rows.append()  # removes a last line that a kill cut off
        lines = [line for _, line in rows.after()]
        if not lines:
            path.unlink()
            return
        names = [line for line in lines if line["kind"] == "episode"]
        if not names:
            raise DataError(f"{path} does not say which episode it holds")
        episode = OpenEpisode(names[-1]["episode_id"], path, names[-1]["group_id"], names[-1]["index"])
        calls, failures = _calls_and_failures(lines)
        numbers = [call["number"] for call in calls] + [failure["call"] for failure in failures]
        episode.calls = max(numbers, default=-1) + 1
        episode.steps, episode.failed = sum(len(call["rows"]) for call in calls), len(failures)
        if episode.episode_id in self.finished:
            path.unlink()
        else:
            self.open[episode.episode_id] = episode


def _calls_and_failures(lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the answered calls in the lines of an open episode, in the order in which they came, and the failures."""
    calls = sorted((line for line in lines if line["kind"] == "call"), key=lambda line: line["number"])
    return calls, [line["failure"] for line in lines if line["kind"] == "failure"]


def _name(episode: OpenEpisode, group_id: str | None, index: int | None) -> None:
    """Give an episode its group and index; after an OSError it does not have them."""
    names = {"episode_id": episode.episode_id, "group_id": group_id, "index": index}
    JSONLines(episode.path).append({"kind": "episode", **names})
    episode.group_id, episode.index = group_id, index


def _keyless(row: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Return a row without the keys; tokens would spell them, so they go too."""
    told = {name: value for name, value in row.items() if name not in SampledTokens._fields}
    hidden = without_keys(told, keys)
    if hidden is told:
        return row
    hidden.pop("prompt_pictures", None)
    hidden["info"] |= {"tokens": "none", "tokens_error": "the text has a key, which is not recorded"}
    return {**hidden, **dict.fromkeys(SampledTokens._fields)}


def _latest_state(messages: list[Any]) -> str:
    """Return what came after the agent's last response: the state without its history, its pictures by their names."""

    def named(part: Any) -> str:
        return part["text"] if part["type"] == "text" else f"[picture {part['image']['sha256'][:16]}]"

    latest: Any = latest_words(messages)
    contents = [content_parts(message["content"]) for message in latest if message["role"] != "system"]
    return "\n".join("".join(map(named, content)) for content in contents)
