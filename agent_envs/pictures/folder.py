"""The folder of pictures beside a file of episodes: each picture once, as a PNG named by its content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_envs.errors import DataError
from agent_envs.files import open_data, replacing
from agent_envs.pictures.picture import IMAGE, Picture
from agent_envs.pictures.png import LARGEST_FILE, LARGEST_SIDE, png_url, read_picture, to_png

FOLDER = "pictures"
"""Name of the folder."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class PictureFolder:
    """The pictures of the episode files in a folder, which share them.

    A file of episodes names a picture by its `reference`, and this folder has it as ``DIGEST.png``. A picture is there
    before the line that names it, and several processes may add the same one.

    Args:
        path: A file of episodes; the pictures are in ``pictures`` beside it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Path(path).parent / FOLDER
        self._there: set[str] = set()

    def add(self, pictures: Iterable[Picture]) -> None:
        """Write the pictures that are not there.

        Raises:
            MissingExtraError: Pillow is not installed.
            OSError: A file cannot be written.
        """
        for picture in pictures:
            if picture.digest in self._there:
                continue
            target = self.file(picture.digest)
            if not target.is_file():
                data = to_png(picture)
                with replacing(target) as partial:
                    partial.write_bytes(data)
            self._there.add(picture.digest)

    def find(self, value: Any) -> Picture:
        """Return the picture of a reference; its file is read when its pixels are asked for.

        Raises:
            ValueError: It is no reference.
        """
        if not isinstance(value, Mapping) or value.keys() != {"sha256", "height", "width"}:
            raise ValueError(f"a picture is {value!r:.80}")
        digest, sides = value["sha256"], (value["height"], value["width"])
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"a picture has the digest {digest!r:.80}")
        if not all(type(side) is int and 1 <= side <= LARGEST_SIDE for side in sides):
            raise ValueError(f"a picture has the sides {sides!r:.80}")
        return Picture.stored(digest, *sides, lambda: self.read(digest))

    def read(self, digest: str) -> Picture:
        """Return the picture of a digest.

        Raises:
            DataError: It is not there, or its file holds something else.
            MissingExtraError: Pillow is not installed.
        """
        return read_picture(self._bytes(digest), str(self.file(digest)))

    def url(self, value: Any) -> str:
        """Return the picture of a reference as a ``data:`` URL for a web page.

        Raises:
            DataError: Its file is not there, or holds no PNG.
            ValueError: It is no reference.
        """
        digest = self.find(value).digest
        return png_url(self._bytes(digest), str(self.file(digest)))

    def _bytes(self, digest: str) -> bytes:
        file = self.file(digest)
        try:
            with open_data(file) as opened:
                return opened.read(LARGEST_FILE + 1)
        except OSError as e:
            raise DataError(
                f"{file}: a picture of the episodes beside this folder cannot be read: {e.strerror}; keep the folder "
                f"{FOLDER!r} with the files of episodes"
            ) from e

    def file(self, digest: str) -> Path:
        """Return the path of a picture's file."""
        return self.folder / f"{digest}.png"


def reference(picture: Picture) -> dict[str, Any]:
    """Return what stands for a picture in a file of episodes."""
    return {"sha256": picture.digest, "height": picture.height, "width": picture.width}


def stored_observation(value: Any, folder: PictureFolder) -> Any:
    """Return an observation as a file has it with pictures in place of references.

    Raises:
        ValueError: It is no observation, a reference is malformed, or the text has another number of placeholders.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.keys() == {"text", "images"}:
        text, images = value["text"], value["images"]
        if not isinstance(text, str) or not isinstance(images, list) or text.count(IMAGE) != len(images):
            raise ValueError(f"an observation with pictures is {value!r:.80}")
        return {"text": text, "images": tuple(map(folder.find, images))}
    if not isinstance(value, list):
        raise ValueError(f"an observation is {value!r:.80}")
    return [_stored_message(message, folder) for message in value]


def _stored_message(message: Any, folder: PictureFolder) -> Any:
    if not isinstance(message, dict):
        raise ValueError(f"a message is {message!r:.80}")
    content = message.get("content")
    if not isinstance(content, list):
        if content is not None and not isinstance(content, str):
            raise ValueError(f"the content of a message is {content!r:.80}")
        return {**message, "content": content or ""}  # None is OpenAI's form beside calls
    parts = [
        {**part, "image": folder.find(part.get("image"))}
        if isinstance(part, dict) and part.get("type") == "image"
        else part
        for part in content
    ]
    if not all(
        isinstance(part, dict) and (part.get("type") == "image" or isinstance(part.get("text"), str)) for part in parts
    ):
        raise ValueError(f"the content of a message is {content!r:.80}")
    return {**message, "content": parts}
