"""Pictures in a server's answers, of which nothing is believed that was not checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Space

from agent_envs.errors import BackendReplyError, DataError
from agent_envs.messages import with_pictures
from agent_envs.pictures.png import LARGEST_SIDE, from_base64
from agent_envs.spaces import ImageText, MessagesSpace, shows_pictures

__all__ = ["picture_limits", "read_observation"]

_MOST = 1 << 12  # pictures of an observation


def picture_limits(described: Any, where: str) -> tuple[int, ...]:
    """Return the most pictures of an observation and their greatest side, nothing if it shows none.

    Args:
        described: What the server says: the two numbers, or nothing.
        where: The server, for error messages.
    """
    if described == []:
        return ()
    numbers = isinstance(described, list) and len(described) == 2 and all(type(value) is int for value in described)
    if not numbers or not 1 <= described[0] <= _MOST or not 1 <= described[1] <= LARGEST_SIDE:
        raise BackendReplyError(f"{where}: expected how many pictures and their greatest side, got {described!r:.80}")
    return tuple(described)


def read_observation(observed: Mapping[str, Any], space: Space[Any], where: str) -> Any:
    """Return the observation in a server's answer, with its pictures.

    Raises:
        BackendReplyError: A picture is broken or too large, or there are more or fewer than the text says.
    """
    if not shows_pictures(space):
        return observed.get("messages", observed["text"])
    assert isinstance(space, (ImageText, MessagesSpace))
    images = observed.get("images", [])
    if not isinstance(images, list) or len(images) > space.max_images:
        raise BackendReplyError(f"{where}: expected at most {space.max_images} pictures, got {images!r:.80}")
    try:
        pictures = [from_base64(image, where, max_side=space.max_side) for image in images]
    except DataError as e:
        raise BackendReplyError(f"{e}") from e
    observation: Any = {"text": observed["text"], "images": tuple(picture.array for picture in pictures)}
    if isinstance(space, MessagesSpace):
        try:
            observation = with_pictures(observed["messages"], pictures)
        except (KeyError, TypeError, StopIteration):  # no messages, or fewer pictures than parts
            observation = None
    if not space.contains(observation):
        raise BackendReplyError(f"{where}: expected an observation in {space!r}, got {observed['text']!r:.200}")
    return observation
