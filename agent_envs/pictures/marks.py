"""Pictures as characters, while a prompt is put together from texts that are cut, flattened and joined."""

from __future__ import annotations

import re
from typing import Any

from agent_envs.errors import ConfigError
from agent_envs.pictures.picture import ImageObservation, Picture, Pictured, as_picture, observation_parts

_FIRST, _LAST = 0xF0000, 0xFFFFD  # characters for private use, which mean nothing in a text from elsewhere
_MARKS = re.compile(f"([{chr(_FIRST)}-{chr(_LAST)}])")


class PictureMarks:
    """Gives each picture of an episode a character of its own, which nothing can cut in two.

    >>> import numpy as np
    >>> marks = PictureMarks()
    >>> text = marks.text({"text": "Look: <image>.", "images": (np.zeros((1, 1, 3), np.uint8),)})
    >>> len(text), marks.pictured("Again: " + text[6:]).text
    (8, 'Again: <image>.')
    """

    def __init__(self) -> None:
        self._pictures: list[Picture] = []

    def text(self, observation: str | ImageObservation) -> str:
        """Return an observation as text with a mark for each picture; marks that it has already are taken out."""
        return "".join(
            _MARKS.sub("\ufffd", part) if isinstance(part, str) else self._mark(part)
            for part in observation_parts(observation)
        )

    def count(self, text: str) -> int:
        """Return the number of marks in a text."""
        return len(_MARKS.findall(text))

    def pictured(self, text: str) -> Pictured:
        """Return a text with its pictures in the place of their marks."""
        parts = _MARKS.split(text)  # every second one is a mark
        known = len(self._pictures)
        return Pictured(
            *(
                self._pictures[ord(part) - _FIRST] if i % 2 and ord(part) - _FIRST < known else part
                for i, part in enumerate(parts)
            )
        )

    def _mark(self, picture: Any) -> str:
        if len(self._pictures) > _LAST - _FIRST:
            raise ConfigError(f"an episode can show {_LAST - _FIRST + 1} pictures in prompts that are rebuilt")
        self._pictures.append(as_picture(picture))
        return chr(_FIRST + len(self._pictures) - 1)
