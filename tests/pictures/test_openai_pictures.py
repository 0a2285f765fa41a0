"""OpenAIPolicy with pictures: parts with data URLs, results under their ids, and nothing else changed."""

import base64

import gymnasium as gym
import pytest

from agent_envs import run_episode
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import read_picture
from tests.pictures.shades import call, shade

pytest.importorskip("PIL.Image")
pytest.importorskip("openai")


def pictures(message: dict) -> list[Picture]:
    """The pictures of a message as a server gets it."""
    urls = [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]
    return [read_picture(base64.b64decode(url.removeprefix("data:image/png;base64,")), "server") for url in urls]


def looks(request):
    if len([m for m in request["messages"] if m["role"] == "assistant"]) >= 2:
        return "5"
    return [{"name": "look", "arguments": {"times": 1}}]


@pytest.fixture
def play(fake_chat, monkeypatch):
    from agent_envs.policies import OpenAIPolicy

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def played(env, think=looks, **kwargs):
        server = fake_chat.ChatServer(think)
        policy = OpenAIPolicy("m", base_url=server.url, max_retries=0, **kwargs)
        try:
            episode = run_episode(env, policy, options={"index": 5})
        finally:
            policy.close()
            server.close()
        assert episode.success, episode.error
        return [request["messages"] for request in server.requests]

    return played


def test_a_server_gets_every_picture_where_it_takes_them(play):
    first, second, third = play(gym.make("Shades-v0"))
    assert first[1]["role"] == "user" and pictures(first[1]) == [Picture(shade(5))]
    assert first[1]["content"][0] == {"type": "text", "text": "How bright is the < image>? (5)\n"}
    *_, result, seen = second
    assert (result["role"], result["content"]) == ("tool", "closer 1: <image> and <image>")
    assert seen["role"] == "user" and pictures(seen) == [Picture(shade(5, 2)), Picture(shade(1))]
    assert third[: len(second)] == second, "a prompt that grows stays as it was"


def test_without_native_tools_results_come_from_the_user(play):
    def think(request):
        done = len([m for m in request["messages"] if m["role"] == "assistant"])
        return "5" if done else call("look", times=1)

    _, second = play(gym.make("Shades-v0"), think, tool_mode="text")
    assert [m["role"] for m in second] == ["system", "user", "assistant", "user"]
    assert pictures(second[-1]) == [Picture(shade(5, 2)), Picture(shade(1))]
