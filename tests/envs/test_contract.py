"""Every registered id keeps the contract, and the check notices environments that do not."""

import inspect
import json
import re
import tracemalloc

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.branching import tried
from agent_envs.errors import ConfigError
from agent_envs.registration import PICTURE_IDS, make_env
from agent_envs.testing import ContractError, _check_vectors, check_text_env
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.wrappers import FormatReward, PrependInstructions, apply_wrappers, parse_wrapper
from agent_envs.wrapping.specs import wrapper_names

IDS = (*agent_envs.ENV_IDS, *PICTURE_IDS)
IN_PROCESSES = ("AgentR1/ALFWorld-v0", "AgentR1/GSM8KTool-v0", *PICTURE_IDS)
"""Those played in Gymnasium's vectors too, which start processes; tests/vector plays all of them side by side."""


@pytest.mark.parametrize("env_id", IDS)
def test_every_id_keeps_the_contract(env_id):
    check_text_env(env_id, vectors=env_id in IN_PROCESSES)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if env_id not in IN_PROCESSES])
def test_every_id_keeps_the_contract_in_vectors(env_id):
    _check_vectors(env_id, {})


@pytest.mark.parametrize("env_id", ["AgentR1/HotpotQA-v0", "AgentR1/PaperSearch-v0", "AgentR1/WebShop-v0"])
def test_a_further_environment_shares_its_index(env_id):
    gym.make(f"agent_envs:{env_id}").reset(seed=0)  # the name of who has not imported the package
    tracemalloc.start()
    envs = [gym.make(env_id) for _ in range(20)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
        env.step(env.unwrapped.expert_action())
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(envs) < 200_000
    for env in envs:
        env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_available_actions_can_be_taken_and_the_prompt_state_is_plain_data(env_id):
    env = gym.make(env_id, split="test")
    env.reset(seed=0)
    for _ in range(3):
        state = env.unwrapped.prompt_state()
        assert json.loads(json.dumps(state)) == state
        for action in env.unwrapped.available_actions() or ():
            with tried(env):
                assert not env.step(action.replace("...", "red"))[4]["invalid_action"]
        if env.step(env.unwrapped.expert_action())[2]:
            break


@pytest.mark.parametrize("env_id", IDS)
def test_an_unknown_argument_is_refused_with_the_names_that_are_taken(env_id):
    for wrong, near in (("splt", "split"), ("reender_mode", "render_mode"), ("tools", None), ("levels_", None)):
        hint = f" Did you mean '{near}'" if near else ""
        with pytest.raises(ConfigError, match=f"Env does not take '{wrong}'.{hint}") as raised:
            gym.make(env_id, **{wrong: 1})
        with pytest.raises(ConfigError, match=re.escape(str(raised.value))):
            agent_envs.make_vec(env_id, 2, **{wrong: 1})
    names = re.findall(r"'(\w+)'", str(raised.value).partition("There are:")[2])
    constructors = [base.__init__ for base in type(gym.make(env_id).unwrapped).__mro__]
    defaults = {n: p.default for init in constructors for n, p in inspect.signature(init).parameters.items()}
    assert {"split", "data", "render_mode"} < set(names)
    for name in names:  # each of them is taken
        gym.make(env_id, **{name: defaults[name]})


def test_arguments_are_refused_wherever_they_are_given():
    class Closed(SayEnv):
        def __init__(self, colour="red"):
            super().__init__()

    class Popping(SayEnv):
        def __init__(self, **kwargs):
            self.colour = kwargs.pop("colour")
            super().__init__(**kwargs)

    class Broken(SayEnv):
        def __init__(self, colour="red"):
            sorted([], colour=colour)

    assert Popping(colour="red", split="test").split == "test"
    for make, message in (
        (lambda: Popping(colour="red", size=1), "^Popping does not take 'size'"),
        (lambda: SayEnv(splt="test"), "^SayEnv does not take 'splt'. Did you mean 'split'"),
        (lambda: Closed(color="red"), "^Closed does not take 'color'. Did you mean 'colour'. There are: 'colour'.$"),
        (lambda: gym.make("AgentR1/Remote-v0", ur="http://x"), "^RemoteEnv does not take 'ur'. Did you mean 'url'"),
        (lambda: make_env("CartPole-v1", rendermode="ansi"), "^CartPole-v1 does not take 'rendermode'. Did you mean"),
    ):
        with pytest.raises(ConfigError, match=message):
            make()
    with pytest.raises(TypeError, match="sort"):  # not the user's mistake
        Broken(colour="red")


@pytest.mark.parametrize("name", wrapper_names())
def test_an_unknown_argument_of_a_wrapper_is_refused_with_the_names_that_it_takes(name):
    wrapper = getattr(agent_envs.wrappers, name)
    with pytest.raises(ConfigError, match=f"^{name} does not take 'penlty'. ") as raised:
        wrapper(SayEnv(), penlty=1)
    with pytest.raises(ConfigError, match=re.escape(str(raised.value))):
        apply_wrappers(SayEnv(), [f"{name}(penlty=1)"])
    taken = re.findall(r"'(\w+)'", str(raised.value).partition("There are:")[2])
    assert taken == sorted(inspect.signature(wrapper).parameters.keys() - {"env"})


class Tasks:
    name, split = "generated", "train"

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return type("Task", (), {"task_id": f"say/{index}", "word": f"word{index}"})()


class SayEnv(TextEnv):
    """Say the word; subclasses break one promise each."""

    instructions = "Say the word."

    def open_tasks(self):
        return Tasks()

    def begin(self, task):
        return f"Say {task.word}.", []

    def act(self, action):
        self.state.append(action)
        right = action == self.task.word
        return Outcome("Right." if right else "No.", float(right), right, score=float(right), success=right)

    def expert_action(self):
        return self.task.word


class GivesUp(SayEnv):
    def expert_action(self):
        return "nonsense" if len(self.state) < 2 else None


class FallsOver(SayEnv):
    def act(self, action):
        action.encode("latin-1")
        return super().act(action)


class ForgetsState(SayEnv):
    seen = 0

    def act(self, action):
        self.seen += 1
        return Outcome(f"Action {self.seen}.")


class HasNone(SayEnv):
    def act(self, action):
        return Outcome("No.", extra={"best": None})


class PassesUnclean(SayEnv):
    def act(self, action):
        return Outcome("No.", reward=float("nan"))


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (SayEnv, None),
        (GivesUp, "the expert has no action before the task ends"),
        (FallsOver, "UnicodeEncodeError"),
        (ForgetsState, "not equivalent for the same seed"),
        (HasNone, r"'best'\] is None"),
        (PassesUnclean, "reward"),
    ],
)
def test_the_check_notices_broken_promises(env, problem):
    env_id = f"Test/{env.__name__}-v0"
    gym.register(env_id, entry_point=env, max_episode_steps=5)
    try:
        if problem is None:
            check_text_env(env_id, vectors=False)
        else:
            with pytest.raises(ContractError, match=problem):
                check_text_env(env_id, vectors=False)
    finally:
        del gym.registry[env_id]


def test_format_reward_pays_for_well_formed_steps_at_the_tasks_end():
    class Strict(SayEnv):
        def act(self, action):
            outcome = super().act(action)
            return Outcome(outcome.observation, outcome.reward, outcome.terminated, invalid_action=action == "bad")

    def rewards(*actions, limit=10):
        env = FormatReward(gym.wrappers.TimeLimit(Strict(), limit), weight=0.2)
        env.reset(options={"index": 1})
        return [env.step(a)[1] for a in actions]

    assert rewards("word1") == [1.2]
    assert rewards("bad", "x", "word1") == [0.0, 0.0, pytest.approx(1 + 0.2 * 2 / 3)]
    assert rewards("x", "x", limit=2) == [0.0, 0.0]  # cut by the limit: never came to an end


def test_instructions_are_shown_once():
    env = PrependInstructions(SayEnv(), separator=" ")
    assert env.reset(options={"index": 2})[0] == "Say the word. Say word2."
    assert env.get_wrapper_attr("instructions") == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("FormatRewrd", "Did you mean 'FormatReward'"),
        ("FormatReward(0.1)", "Name\\(key=value"),
        ("FormatReward(weight=__import__('os'))", "must be a literal"),
        ("FormatReward(**{})", "Name\\(key=value"),
        ("FormatReward(weight=1, weight=2)", "weight is given twice"),
        ("no_such_module:Wrapper", "wrapper no_such_module:Wrapper cannot be loaded"),
        ("(", "a wrapper is written"),
        ("", "a wrapper is written"),
    ],
)
def test_wrapper_specs_that_cannot_be_read(spec, message):
    with pytest.raises(ValueError, match=message):
        apply_wrappers(SayEnv(), [spec])


def test_wrapper_specs_and_callables_apply_in_order():
    env = apply_wrappers(SayEnv(), ["FormatReward(weight=0.5)", PrependInstructions])
    assert isinstance(env, PrependInstructions) and isinstance(env.env, FormatReward) and env.env.weight == 0.5
    wrapper, arguments = parse_wrapper("agent_envs.wrappers.augment:PrependInstructions(separator='|')")
    assert wrapper is PrependInstructions and arguments == {"separator": "|"}


def test_an_episode_branches_with_its_wrappers():
    env = FormatReward(gym.wrappers.TimeLimit(SayEnv(), 3))
    env.reset(options={"index": 0})
    env.step("x")
    point = agent_envs.snapshot(env)
    env.step("x")
    assert env.step("x")[3]  # the limit
    agent_envs.restore(env, point)
    assert not env.step("x")[3]
    assert env.step("word0")[1] == pytest.approx(1.1)
    other = FormatReward(gym.wrappers.TimeLimit(SayEnv(), 3))
    agent_envs.restore(other, point)
    other.step("x")
    assert other.step("x")[3]
    with pytest.raises(ValueError, match="with the wrappers"):
        agent_envs.restore(SayEnv(), point)
    with pytest.raises(gym.error.ResetNeeded):
        agent_envs.snapshot(SayEnv())
