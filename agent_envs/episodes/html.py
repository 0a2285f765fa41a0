"""Writes episodes as one self-contained HTML page: a list with filters, and every step of each episode.

The page contains a summary of all episodes and the episodes in compressed chunks, of which the browser opens only those
that are viewed: ten thousand episodes open as fast as ten. The page shows everything in an episode as plain text, and
its policy names its one script and its one style by their hashes: a browser runs nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
import os
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from typing import Any

from agent_envs.errors import DataError
from agent_envs.files import replacing
from agent_envs.messages import ToolCall
from agent_envs.parsers.detect import parse_recorded
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.rewards import total

__all__ = ["write_view"]

_PER_CHUNK = 20
_FIELDS = ("id", "env", "task", "family", "steps", "return", "score", "success", "stop")


def write_view(
    records: Iterable[Mapping[str, Any]],
    path: str | os.PathLike[str],
    *,
    title: str = "Episodes",
    tokenizer: str | None = None,
) -> int:
    """Write the page.

    Args:
        records: Episodes as ``Episode.to_dict`` returns them.
        path: The file to write; it appears whole or not at all.
        title: The page's title.
        tokenizer: Hugging Face name or folder of the tokenizer that decodes sampled tokens; None shows their ids.

    Returns:
        The number of episodes.

    Raises:
        ConfigError: There is no such tokenizer.
        DataError: A record is not an episode.
        MissingExtraError: A tokenizer is given and transformers is not installed.
    """
    decode = None if tokenizer is None else _decoder(tokenizer)
    before, _, after = _template().partition("<!--DATA-->")
    summary: list[list[Any]] = []
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(before)
        for number, chunk in enumerate(_packed(_lines(records, decode, summary))):
            file.write(f'<script type="text/plain" id="chunk{number}">{chunk}</script>\n')
        meta = {"title": title, "fields": _FIELDS, "per_chunk": _PER_CHUNK, "rows": summary}
        body = _json(meta).replace("<", "\\u003c")
        file.write(f'<script type="application/json" id="summary">{body}</script>\n')
        file.write(after)
    return len(summary)


def _lines(records: Iterable[Mapping[str, Any]], decode: Any, summary: list[list[Any]]) -> Iterator[str]:
    """Yield what the page shows of each episode as a line of JSON, and append the episode's row to `summary`."""
    for record in records:
        try:
            shown = _shown(record, decode)
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as e:
            raise DataError(f"episode {len(summary) + 1} lacks a field or has one of the wrong type: {e!r}") from e
        summary.append([shown[name] if name != "steps" else len(shown["steps"]) for name in _FIELDS])
        yield _json(shown)


def _packed(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines in compressed chunks, in order. Threads compress while the next lines are made."""
    waiting: deque[Future[str]] = deque()
    with ThreadPoolExecutor(max_workers=2) as pool:
        while chunk := list(itertools.islice(lines, _PER_CHUNK)):
            waiting.append(pool.submit(_pack, chunk))
            if len(waiting) > 8:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


def _pack(chunk: list[str]) -> str:
    return base64.b64encode(zlib.compress("\n".join(chunk).encode("ascii"), 1)).decode("ascii")


def _template() -> str:
    """Return the page without episodes, its policy with the hashes of its script and its style."""
    page = resources.files("agent_envs").joinpath("view.html").read_text(encoding="utf-8")
    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        page = page.replace(f"sha256-{tag.upper()}", f"sha256-{digest}")
    return page


def _json(value: Any) -> str:
    """Encode a value for a browser, whose JSON has no infinite numbers and no NaN: strings replace them."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _shown(record: Mapping[str, Any], decode: Any) -> dict[str, Any]:
    """Return what the page shows of an episode."""
    steps = record["steps"]
    last = steps[-1]["info"] if steps else record["reset_info"]
    tools = [tool["function"]["name"] for tool in record["tools"]]
    prompts: list[dict[str, Any]] = []
    prompt: list[dict[str, Any]] = []
    for observation in (*(step["observation"] for step in steps), record["final_observation"]):
        before = prompt
        new, prompt = _grown(before, observation)
        prompts.append({"kept": len(prompt) - len(new), "new": new})
    return {
        "id": str(record["episode_id"]),
        "group": str(record["group_id"]),
        "env": str(record["env_id"]),
        "task": str(record["reset_info"].get("task_id", record["index"])),
        "family": str(last.get("task_family", "")),
        "seed": None if record["seed"] is None else str(record["seed"]),
        "return": total(step["reward"] for step in steps),
        "score": float(last.get("score", 0.0)),
        "success": int(bool(last.get("success", False))),
        "stop": str(record["stop_reason"]),
        "error": record.get("error") or "",
        "instructions": str(record["instructions"]),
        "tools": record["tools"],
        "prompts": prompts,
        "steps": [_shown_step(step, tools, decode) for step in steps],
    }


def _shown_step(step: Mapping[str, Any], tools: Sequence[str], decode: Any) -> dict[str, Any]:
    info, action = step["info"], str(step["action"])
    ids = step.get("response_ids")
    shown: dict[str, Any] = {
        "action": action,
        "reward": float(step["reward"]),
        "components": {str(k): v for k, v in (info.get("reward_components") or {}).items()},
        "invalid": bool(info.get("invalid_action", False)),
        "terminated": bool(step["terminated"]),
        "truncated": bool(step["truncated"]),
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
    if ids is None and step.get("usage"):
        shown["usage"] = {str(k): v for k, v in step["usage"].items()}
    if ids is not None:
        prompt_ids = step.get("prompt_ids")
        shown |= {
            "response_ids": list(ids),
            "response_logprobs": step.get("response_logprobs"),
            "response_mask": info.get("response_mask"),
            "prompt_ids": None if prompt_ids is None else len(prompt_ids),
            "pieces": None if decode is None else decode(ids),
        }
    return shown


def _grown(before: list[dict[str, Any]], observation: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages of an observation that the one before did not start with, and all of its messages.

    Prompts mostly start like the one before; storing each in full would take the square of a long episode's length.
    """
    if not isinstance(observation, list) or not all(isinstance(message, dict) for message in observation):
        words = [{"role": "", "content": observation}]
        return words, words
    kept = 0
    while kept < min(len(before), len(observation)) and before[kept] == observation[kept]:
        kept += 1
    return observation[kept:], observation


def _decoder(tokenizer: str) -> Any:
    loaded = load_tokenizer(tokenizer)

    @functools.cache
    def piece(token: int) -> str:
        return loaded.decode([token])

    return lambda ids: [piece(token) for token in ids]
