"""The released recipes, replayed: traces written by hand from what the releases do.

1. Each recipe shows its sections, with `None` where there is nothing, and a system message of its own.
2. Its calls are read, chosen and refused as released; a refused text uses a decision and does not touch the task.
3. Rewards and ends are the released ones. 4. The wording can be the user's own, as data.
"""

import json

import pytest

from agent_envs.errors import ConfigError
from agent_envs.messages import observation_messages
from agent_envs.parsers import get_parser
from agent_envs.wrapping.recipes import RECIPES, RELEASES, recipe
from agent_envs.wrapping.specs import make_text_env

DONE = "Nothing has changed.\nThe observation before:\n"


def sections(prompt):
    """Heading -> text of a prompt."""
    parts = (part.partition("\n") for part in f"\n\n{prompt}".split("\n\n### ")[1:])
    return {heading: text for heading, _, text in parts}


def call(command, name="env_step", key="command"):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {key: command}})}</tool_call>"


@pytest.fixture
def play():
    """Make a recipe's environment and begin a task."""
    made = []

    def begin(task, release=None, index=0, **env_kwargs):
        made.append(make_text_env(*recipe(task, release, **env_kwargs)))
        observation, info = made[-1].reset(options={"index": index})
        return made[-1], observation, info

    yield begin
    for env in made:
        env.close()


# -- ALFWorld ----------------------------------------------------------------------------------------------------------

ROOM = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
    "cabinet 1, a coffeemachine 1, a countertop 1, a drawer 1, a fridge 1, a microwave 1, a sinkbasin 1, and a "
    "stoveburner 1.\n\nYour task is to: put a hot egg in sinkbasin."
)
EMPTY_HANDED = "You are not carrying anything."


def test_a_house_shows_the_last_two_steps_and_what_came_before_them(play):
    env, prompt, info = play("alfworld", size=1)
    shown = sections(prompt)
    assert [*shown] == [
        *("Task", "Recent Interaction History", "Current Observation", "Admissible Commands"),
        *("Instructions", "Output Format"),
    ]
    assert shown["Task"] == "Your task is to: put a hot egg in sinkbasin."
    assert shown["Recent Interaction History"] == "None" and shown["Current Observation"] == ROOM == info["anchor"]
    commands = [f"- {each}" for each in info["admissible_commands"] if each != "help"]
    assert shown["Admissible Commands"].splitlines() == commands
    assert shown["Instructions"].count("\n- ") == 5 and "env_step" in env.get_wrapper_attr("instructions")
    assert info["rebuilt"] and observation_messages(prompt, info) == [{"role": "user", "content": prompt}]
    parameters = env.get_wrapper_attr("tools")[0]["function"]["parameters"]
    assert parameters["required"] == ["command"] and "additionalProperties" not in parameters

    # The first of two calls counts, one in reasoning too; then a command that is not admissible is carried out.
    env.step(f"<think>{call(' inventory ')}</think>{call('look')}")
    prompt, reward, *_, info = env.step(call("fly"))
    shown = sections(prompt)
    assert shown["Current Observation"] == "Nothing happens." == info["anchor"] and reward == 0
    assert shown["Recent Interaction History"] == (
        f"[Observation 1]\n{ROOM}\n[Action 1]\ninventory\n\n[Observation 2]\n{EMPTY_HANDED}\n[Action 2]\nfly"
    )
    prompt = env.step(call("inventory"))[0]
    assert sections(prompt)["Recent Interaction History"] == (
        f"[Observation 2]\n{EMPTY_HANDED}\n[Action 2]\nfly\n\n[Observation 3]\nNothing happens.\n[Action 3]\ninventory"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("go to fridge 1", "there is no call of a tool"),
        ("<tool_call>{oops}</tool_call>", "there is no call of a tool"),
        ('<tool_call>{"name": "env_step"', "there is no call of a tool"),
        (call("look", name="act") + call("look"), "there is no tool 'act'."),
        (call(" "), "the command is empty"),
        ('<tool_call>{"name": "env_step", "arguments": "look"}</tool_call>', "wrong arguments for env_step"),
    ],
)
def test_a_text_without_a_command_uses_a_decision_and_wraps_the_observation(text, reason, play):
    env, _, first = play("alfworld", size=1)
    env.step(call("inventory"))
    prompt, reward, terminated, truncated, info = env.step(text)
    notice = sections(prompt)["Current Observation"]
    assert f"\nReason: {reason}" in notice and notice.endswith(f"\n\n{DONE}{EMPTY_HANDED}")
    history = sections(prompt)["Recent Interaction History"]
    assert f"[Observation 2]\n{EMPTY_HANDED}\n[Action 2]\n<invalid_tool_call>: {reason}" in history
    assert info["invalid_action"] and info["admissible_commands"] == first["admissible_commands"]
    assert (reward, terminated, truncated) == (0, False, False) and info["anchor"] == notice
    prompt = env.step(text)[0]
    assert sections(prompt)["Current Observation"].endswith(f"{DONE}{notice}")  # notices nest
    for _ in range(15):
        assert not env.step(text)[3]
    assert env.step(call("look"))[2:4] == (False, False) and env.step(text)[2:4] == (False, True)  # 20 decisions


def test_a_house_is_won_for_one_and_lost_for_nothing(play):
    env, *_ = play("alfworld", size=1)
    rewards = []
    while True:
        _, reward, terminated, truncated, info = env.step(env.get_wrapper_attr("expert_action")())
        rewards.append(reward)
        if terminated:
            break
    assert rewards == [0] * (len(rewards) - 1) + [1] and info["success"] and not truncated
    env.reset(options={"index": 0})
    assert [env.step(call("look"))[1:4] for _ in range(20)][-2:] == [(0, False, False), (0, False, True)]


@pytest.mark.parametrize("release", ["steppo", "agent-r1"])
def test_older_releases_show_all_actions_and_no_observations(release, play):
    env, prompt, _ = play("alfworld", release, size=1)
    assert [*sections(prompt)][:4] == ["Task", "Current Observation", "History Actions", "Admissible Commands"]
    assert sections(prompt)["History Actions"] == "None"
    for text in (call("inventory"), "hm", call("look")):
        prompt = env.step(text)[0]
    assert sections(prompt)["History Actions"] == (
        "[Action 1] inventory\n[Action 2] <invalid_tool_call>: there is no call of a tool\n[Action 3] look"
    )


# -- WebShop -----------------------------------------------------------------------------------------------------------


def test_a_shop_takes_exactly_one_call_and_cuts_what_it_showed(play):
    env, prompt, _ = play("webshop")
    assert [*sections(prompt)] == [
        *("Shopping Instruction", "Recent History", "Current Observation", "Available Actions", "Instructions")
    ]
    assert "- search[<your query>]" in sections(prompt)["Available Actions"].splitlines()
    prompt, reward, *_, info = env.step(call("search[mug]") + call("search[cup]"))
    assert reward == -0.1 and info["reward_components"] == {"invalid_call": -0.1}
    assert "\nINVALID_TOOL_CALL: there are 2 calls" in sections(prompt)["Recent History"]
    _, reward, *_, info = env.step(call("search[mug]"))
    assert reward == 0 and not info["invalid_action"]
    prompt = env.step(call("search[mug]"))[0]
    shown = sections(prompt)["Recent History"].partition("[Observation 3]\n")[2].partition("\n[Action 3]")[0]
    assert (len(shown) == 1800 and shown.endswith("...")) or len(shown) < 1800


# -- reading calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "as_json", "as_python"),
    [
        (call("x") + "<tool_call>{oops}</tool_call>", ["x"], ["x"]),  # a bad block beside a good one
        (call("x").replace('"', "'"), [], ["x"]),
        (call("x").replace('"', "'") + call("y"), ["y"], ["y"]),  # literals only where nothing is JSON
        (call("x")[: -len("</tool_call>")], [], []),
        ("<tool_call>{'name': 'f', 'arguments': {'command': '__class__'}}</tool_call>", [], []),
        ("<tool_call>{'name': 'f', 'arguments': {'command': '%s'}}</tool_call>" % ("x" * 8192), [], []),
        ("<tool_call>{'name': 'f', 'arguments': {'command': f()}}</tool_call>", [], []),
        ("<tool_call>" + "[" * 9000 + "</tool_call>", [], []),
        ("<tool_call>" * 200_000, [], []),
        (call("x") * 200, ["x"] * 100, ["x"] * 100),
    ],
)
def test_blocks_are_read_as_released(text, as_json, as_python):
    for name, commands in (("hermes_json", as_json), ("hermes_python", as_python)):
        parsed = get_parser(name).parse(text)
        assert [each.arguments["command"] for each in parsed.calls] == commands
        assert parsed.text == ("" if commands else text)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [('{"q": 1}', {"q": 1}), ("{'q': 1}", {"q": 1}), ("rome", {"": "rome"}), ([1], {"": [1]})],
)
def test_arguments_may_be_written_as_a_string(arguments, read):
    text = f"<tool_call>{json.dumps({'name': 'f', 'arguments': arguments})}</tool_call>"
    assert get_parser("hermes_python").parse(text).calls[0].arguments == read


# -- wording of one's own ----------------------------------------------------------------------------------------------


def test_the_wording_is_the_users_own(tmp_path):
    file = tmp_path / "prompts.toml"
    file.write_text('[mine]\nsystem = "Act."\nuser = "$goal|$recent_steps|$step"\nlabel = "BAD"\n')
    env = make_text_env(*recipe("alfworld", prompts=f"{file}:mine", size=1))
    assert env.reset(options={"index": 0})[0] == "Your task is to: put a hot egg in sinkbasin.|None|1"
    assert env.get_wrapper_attr("instructions") == "Act."
    prompt, *_, info = env.step("hm")
    assert "[Action 1]\nBAD: there is no call of a tool|2" in prompt and info["anchor"].endswith(ROOM)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p.json:mine", '{"mine": {"user": "$gaol"}}', r"has \$gaol; the placeholders are \$task"),
        ("p.json:mine", '{"mine": {"user": "5$"}}', r"a \$ without a name"),
        ("p.json:yours", '{"mine": {"user": ""}}', "must be 'mine', got 'yours'"),
        ("p.json:mine", '{"mine": {"user": "", "sytem": ""}}', "got 'sytem'. Did you mean 'system'"),
        ("p.json:mine", '{"mine": {"system": ""}}', "an object of texts with 'user'"),
        ("p.json:mine", '{"mine": ', "cannot be read"),
        ("p.json:mine", "[" * 100_000, "cannot be read"),
        ("p.json", "", "written FILE:NAME"),
        ("p.py:mine", "", "must end in .json, .toml"),
        ("q.json:mine", "", "cannot be read"),
    ],
)
def test_prompts_that_cannot_be_used(name, text, says, tmp_path):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        make_text_env(*recipe("alfworld", prompts=str(tmp_path / name), size=1))


def test_recipes_that_do_not_exist_are_named():
    for arguments, says in ((("alfwold",), "Did you mean 'alfworld'"), (("scienceworld", "steppo"), "must be 'capo'")):
        with pytest.raises(ConfigError, match=says):
            recipe(*arguments)
    assert {release for _, release in RECIPES} == set(RELEASES)
