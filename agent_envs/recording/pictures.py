"""The pictures of recorded prompts: from ``data:`` URLs to files beside the episodes, within bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.errors import DataError, MissingExtraError
from agent_envs.messages import Message
from agent_envs.per_process import PerProcess
from agent_envs.pictures.folder import PictureFolder, reference
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import from_data_url
from agent_envs.recording.replies import observed_messages

__all__ = ["PromptPictures", "shows_pictures"]

_MOST_PIXELS = 1 << 27  # of a request, of pictures that have not been read before: 64 screens of 1920 x 1080
_KEPT = 4096  # pictures whose names are kept, since an agent sends all of them again with each call


def shows_pictures(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a request's messages have pictures."""
    contents = [message.get("content") for message in messages]
    return any(
        isinstance(part, Mapping) and part.get("type") == "image_url"
        for content in contents
        if isinstance(content, list)
        for part in content
    )


class PromptPictures:
    """Reads the pictures of prompts and stores each once. Methods may be called from several threads.

    Args:
        folder: Where the pictures go.
    """

    def __init__(self, folder: PictureFolder) -> None:
        self._folder = folder
        self._known: PerProcess[Picture] = PerProcess(keep=_KEPT)  # by a digest of the URL; without their pixels

    def observed(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[str]]:
        """Return a request's messages with their pictures, and why some of these are left out.

        A picture is read if it is in the message itself, as a PNG or JPEG in a ``data:`` URL; an address is not
        fetched. What is left out is ``[image_url]`` in the message.

        Raises:
            OSError: A picture cannot be written.
        """
        left, problems = _MOST_PIXELS, list[str]()

        def stored(url: str, where: str) -> Picture:
            nonlocal left
            if left <= 0:
                raise DataError(f"{where}: the pictures of a call have more than {_MOST_PIXELS} pixels")
            picture = from_data_url(url, where)
            left -= picture.width * picture.height
            self._folder.add([picture])
            return self._folder.find(reference(picture))

        def read(part: Mapping[str, Any]) -> Picture | None:
            where, given = f"picture {len(problems) + 1} that is left out", part.get("image_url")
            url = given.get("url") if isinstance(given, Mapping) else given
            try:
                if not isinstance(url, str) or not url.startswith("data:"):
                    raise DataError(f"{where}: expected a data: URL; addresses are not fetched")
                key = hashlib.sha256(url.encode("utf-8", "surrogatepass")).digest()
                return self._known.get(key, lambda: stored(url, where))
            except (DataError, MissingExtraError) as e:
                problems.append(str(e))
                return None

        return observed_messages(messages, read), problems
