"""What a browser shows of an episode: whole prompts held once, calls read, tokens as text; and its row in the list.

An episode's row has the fields of `FIELDS`; where it comes from (`Origin`) says run, phase and training step.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent_envs.adapters.merging import plan_rows
from agent_envs.episodes.curves import STEP_FILE
from agent_envs.episodes.plain import common_length, whole
from agent_envs.errors import DataError
from agent_envs.messages import ToolCall, latest_words
from agent_envs.parsers.detect import parse_recorded
from agent_envs.pictures.folder import PictureFolder
from agent_envs.pictures.picture import IMAGE
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.rewards import total

FIELDS = (
    "run", "phase", "at", "env", "split", "family", "task", "sample", "question", "id", "steps", "return", "score",
    "success", "stop", "file", "line",
)  # fmt: skip
"""The fields of an episode's row in the list; `at` is the training step, -1 if there is none."""

_LONGEST = 240  # characters of a question in the list
_SAMPLE = re.compile(r"\d+/(\d{1,6})")  # the episode_id of `agentr1 eval`: INDEX/SAMPLE

Decode = Callable[[Sequence[int]], "list[str]"]
"""Turns tokens into their texts."""


class Origin(NamedTuple):
    """Where episodes come from."""

    path: Path
    """The file."""
    number: int
    """The file's number among all."""
    run: str
    """The name of the run: its folder's, or of a single file its own."""
    phase: str
    """"train" or "validation", as the file's name says; else ""."""
    at: int
    """The training step that the file's name says, or -1."""


def origins(paths: Sequence[Path]) -> list[Origin]:
    """Return the origin of each file. Runs of the same name are told apart by the folders above them.

    >>> [origin[2:] for origin in origins([Path("a/run/episodes/train-000004.jsonl"), Path("b/run/episodes.jsonl")])]
    [('a/run', 'train', 4), ('b/run', '', -1)]
    """
    folders = [_run_folder(path) for path in paths]
    names = {folder: folder.name for folder in folders}
    depth = 1
    while len(set(names.values())) < len(names) and depth < 16:
        depth += 1
        names = {folder: "/".join(folder.parts[-depth:]) for folder in names}
    files = []
    for number, (path, folder) in enumerate(zip(paths, folders, strict=True)):
        named = STEP_FILE.fullmatch(_stem(path))
        phase, at = (named["phase"], int(named["step"])) if named else ("", -1)
        files.append(Origin(path, number, names[folder], phase, at))
    return files


def _run_folder(path: Path) -> Path:
    path = path.absolute()
    stem = _stem(path)
    if STEP_FILE.fullmatch(stem) or stem == "episodes":
        return path.parent.parent if path.parent.name == "episodes" else path.parent
    return path.with_name(stem)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


class Numbered(NamedTuple):
    """An episode and where it is."""

    record: Mapping[str, Any]
    """As ``Episode.to_dict`` returns it."""
    origin: Origin
    line: int
    """Its line in the file, from 1."""
    pictures: Callable[[Any], str] | None = None
    """Returns the ``data:`` URL of a picture by its reference; None for the folder beside the file."""


def shown_episode(episode: Numbered, decode: Decode | None = None) -> dict[str, Any]:
    """Return what the page shows of an episode; its right answer, "" here, may be filled in.

    `decode` turns tokens into their texts; None shows their numbers.

    Raises:
        DataError: It lacks a field, or has one of the wrong type.
    """
    try:
        url = episode.pictures or PictureFolder(episode.origin.path).url
        return _shown(episode.record, decode, url)
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError, IndexError) as e:
        where = f"{episode.origin.path}, line {episode.line}"
        raise DataError(f"{where}: the episode lacks a field or has one of the wrong type: {e!r}") from e


class RowMaker:
    """Makes the rows of the list, in its order: it numbers the episodes of each task."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], int] = {}

    def row(self, shown: Mapping[str, Any], origin: Origin, line: int) -> list[Any]:
        """Return the row of an episode that `shown_episode` returned."""
        reset, steps = shown["reset_info"], shown["steps"]
        last = steps[-1]["info"] if steps else reset
        task = str(reset.get("task_id", shown["index"]))
        key = (origin.run, origin.phase, origin.at, shown["env_id"], task)
        named = _SAMPLE.fullmatch(shown["episode_id"])
        sample = int(named[1]) if named else self._seen.get(key, 0)
        self._seen[key] = self._seen.get(key, 0) + 1
        return [
            origin.run, origin.phase, origin.at, shown["env_id"], str(reset.get("split", "")),
            str(last.get("task_family", reset.get("task_family", ""))), task, sample, shown["question"],
            shown["episode_id"], len(steps), total(step["reward"] for step in steps), shown["score"],
            int(shown["success"]), shown["stop_reason"], origin.number, line,
        ]  # fmt: skip


def _shown(record: Mapping[str, Any], decode: Decode | None, url: Callable[[Any], str]) -> dict[str, Any]:
    for name, kind in (("env_id", str), ("reset_info", dict)):
        if not isinstance(record[name], kind):
            raise TypeError(f"{name} is {record[name]!r:.80}")
    steps = [_placed(step, number) for number, step in enumerate(whole(record["steps"]))]
    last = steps[-1]["info"] if steps else {}
    prompts: list[dict[str, Any]] = []
    seen: list[list[dict[str, Any]]] = []
    for step in (*steps, {"observation": record["final_observation"]}):
        new, prompt = _grown(_before(seen, step) or [], step["observation"])
        seen.append(prompt)
        drawn = [_with_pictures(message, url) for message in new]
        is_text = not isinstance(step["observation"], list)
        prompts.append({"kept": len(prompt) - len(new), "new": drawn, "text": is_text})
    tools = [tool["function"]["name"] for tool in record["tools"]]
    return {
        "env_id": record["env_id"],
        "episode_id": str(record["episode_id"]),
        "group_id": str(record["group_id"]),
        "seed": None if record["seed"] is None else str(int(record["seed"])),
        "index": None if record["index"] is None else int(record["index"]),
        "question": _question(prompts[0]),
        "instructions": str(record["instructions"]),
        "tools": record["tools"],
        "reset_info": record["reset_info"],
        "prompts": prompts,
        "steps": list(_steps(steps, tools, decode)),
        "score": float(last.get("score", 0.0)),
        "success": bool(last.get("success", False)),
        "stop_reason": str(record["stop_reason"]),
        "error": record.get("error") or "",
        "answer": "",
        "answer_from": "",
        **({"roles": record["roles"]} if record.get("roles") else {}),
    }


def _placed(step: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return a step that goes on from an earlier one or from none."""
    after = step.get("after")
    return step if after is None or (type(after) is int and 0 <= after < number) else {**step, "after": None}


def _before(seen: Sequence[Any], step: Mapping[str, Any]) -> Any:
    """Return what has been seen with the step that this one goes on from, or else with the one before it."""
    after = step.get("after")
    return seen[-1 if after is None else after] if seen else None


def _with_pictures(message: dict[str, Any], url: Callable[[Any], str]) -> dict[str, Any]:
    """Return a message with the URLs of its pictures in place of their references."""
    content = message.get("content")
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        return {**message, "content": {**content, "images": [_drawn(image, url) for image in content["images"]]}}
    if not isinstance(content, list):
        return message
    parts = [
        {**part, "image": _drawn(part["image"], url)} if isinstance(part, dict) and "image" in part else part
        for part in content
    ]
    return {**message, "content": parts}


def _drawn(image: Any, url: Callable[[Any], str]) -> Any:
    """Return the URL of a picture, or why it cannot be shown; what is no reference stays."""
    if not isinstance(image, dict):
        return image
    try:
        return url(image)
    except (DataError, ValueError) as e:
        return f"{e}"


def _steps(steps: Sequence[Mapping[str, Any]], tools: Sequence[str], decode: Decode | None) -> Iterator[dict[str, Any]]:
    # the row of each step that has tokens, as training with merged rows lays them out
    having = [n for n, step in enumerate(steps) if step.get("prompt_ids") and step.get("response_ids")]
    pictures = [steps[n].get("prompt_pictures", ()) for n in having]  # references, which are equal if the pictures are
    plan = plan_rows([(steps[n]["prompt_ids"], steps[n]["response_ids"]) for n in having], pictures)
    rows = {having[i]: row for row, members in enumerate(plan) for i in members}
    seen: list[list[int]] = []
    for number, step in enumerate(steps):
        shown = _step(step, tools)
        ids = step.get("response_ids")
        before = _before(seen, step) or []
        if step.get("usage"):
            shown["usage"] = {str(k): v for k, v in step["usage"].items()}
        if ids is not None:
            shown |= {"response_ids": list(ids), "response_logprobs": step.get("response_logprobs")}
            shown["row"] = rows.get(number, -1)
            prompt = step.get("prompt_ids")
            if prompt is not None:
                common = common_length(prompt, before)
                shown["prompt_ids"] = {"kept": common, "new": list(prompt[common:])}
                before = [*prompt, *ids]
            if decode is not None:
                shown["pieces"] = decode(ids)
                shown["prompt_pieces"] = [] if prompt is None else decode(prompt[common:])
        seen.append(before)
        yield shown


def _step(step: Mapping[str, Any], tools: Sequence[str]) -> dict[str, Any]:
    action = str(step["action"])
    shown: dict[str, Any] = {
        "action": action,
        "reward": float(step["reward"]),
        "terminated": bool(step["terminated"]),
        "truncated": bool(step["truncated"]),
        "info": dict(step["info"]),
        **{name: step[name] for name in ("role", "trained", "time", "after") if name in step},
    }
    if (parsed := parse_recorded(action, tools)) is not None:
        shown |= {
            "thought": parsed.reasoning,
            "said": parsed.text,
            "calls": [
                {"name": call.name, "arguments": call.arguments}
                if isinstance(call, ToolCall)
                else {"problem": call.error, "raw": call.raw}
                for call in parsed.calls
            ],
        }
    return shown


def _question(prompt: Mapping[str, Any]) -> str:
    """Return the task's words in one line; of a long text its beginning and its end.

    The words are the last message of the first prompt that has any.
    """
    words: Any = prompt["new"]
    if prompt["text"]:
        words = words[0]["content"]
    elif isinstance(words, list):
        spoken = [message for message in latest_words(words) if isinstance(message, dict) and message.get("content")]
        words = spoken[-1]["content"] if spoken else ""
    if isinstance(words, Mapping):  # text with pictures
        words = str(words.get("text", "")).replace(IMAGE, "")
    if isinstance(words, list):
        words = " ".join(str(part["text"]) for part in words if isinstance(part, dict) and "text" in part)
    flat = " ".join(str(words).split())
    return flat if len(flat) <= _LONGEST else f"{flat[:100]} … {flat[103 - _LONGEST :]}"


def _grown(before: list[dict[str, Any]], observation: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages of an observation that the one before did not start with, and all of its messages.

    Prompts mostly start like the one before; storing each in full would take the square of a long episode's length.
    """
    if not isinstance(observation, list) or not all(isinstance(message, dict) for message in observation):
        words = [{"role": "", "content": observation}]
        return words, words
    return observation[common_length(observation, before) :], observation


def piece_decoder(tokenizer: str) -> Decode:
    """Return a function that gives the text of each token of a tokenizer, a Hugging Face name or folder.

    Raises a ConfigError if there is none, and a MissingExtraError without transformers.
    """
    loaded = load_tokenizer(tokenizer)

    @functools.cache
    def piece(token: int) -> str:
        return loaded.decode([token])

    return lambda ids: [piece(token) for token in ids]
