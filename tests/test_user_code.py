"""What the code of a user gets wrong is one sentence that says what was expected, what came and where."""

import re
from concurrent.futures import Future

import gymnasium as gym
import pytest

from agent_envs import Outcome, Problem, ProblemEnv, TextEnv, evaluate, run_episode
from agent_envs.checks import naming_arguments
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, run_command, what_failed
from agent_envs.policies import RandomPolicy
from agent_envs.registration import make_env
from agent_envs.tasks import ListedTasks
from agent_envs.testing import ContractError, check_text_env
from agent_envs.text import cut

COMMANDS = (("audit", "--env"), ("eval", "--policy", "random", "--env"))
PROBLEMS = [Problem(f"sums/{i}", f"What is {i} and {i} together?", str(2 * i)) for i in range(9)]


class Task(TextEnv):
    """A task whose methods return what a test says."""

    returned: dict = {}

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._told("made")

    def _told(self, method, usual=None):
        value = self.returned.get(method, usual)
        if isinstance(value, Exception):
            raise value
        return value

    def open_tasks(self):
        return self._told("open_tasks", ListedTasks(PROBLEMS, "generated", self.split))

    def begin(self, task):
        return self._told("begin", (task.question, {}))

    def act(self, action):
        return self._told("act", Outcome("Done.", reward=1.0, terminated=True))


class Answered(ProblemEnv):
    """A question that a test judges."""

    def open_tasks(self):
        return ListedTasks(PROBLEMS, "generated", self.split)


class Wrong(Answered):
    """No answer is right."""

    def check(self, task, text):
        return False


class Nothing(TextEnv):
    """Has none of the methods."""


def task_that(**returned):
    return type("Broken", (Task,), {"returned": returned})


@pytest.fixture
def registered():
    def register(maker, **more):
        gym.register("Me/Broken-v0", maker, **more)
        return "Me/Broken-v0"

    yield register
    gym.registry.pop("Me/Broken-v0", None)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"open_tasks": PROBLEMS}, r"Broken.open_tasks must return tasks with a name and a split.*got \[Problem"),
        ({"open_tasks": ListedTasks([], "generated", "test")}, "the split 'test' of Broken has no tasks"),
        ({"open_tasks": ListedTasks(["a"], "generated", "test")}, "a task must have a task_id, .* got 'a'"),
        ({"begin": "Which?"}, "Broken.begin must return two values, the first observation .* got 'Which"),
        ({"begin": (None, {})}, "an observation of Broken must be a string, got None"),
        ({"act": None}, "Broken.act must return an Outcome; got None"),
        ({"act": ("Done.", 1.0, True, False, {})}, r"Broken.act must return an Outcome; got \('Done.'"),
        ({"act": Outcome(None)}, "an observation of Broken must be a string, got None"),
        ({"act": Outcome("Done.", reward=float("nan"))}, "a reward must be a finite number, got nan"),
        ({"act": Outcome("Done.", reward="1")}, "a reward must be a finite number, got '1'"),
        ({"act": Outcome("Done.", score=None)}, "a score must be a finite number, got None"),
    ],
)
def test_what_a_method_returns_is_checked(returned, message):
    env = task_that(**returned)()
    with pytest.raises(AgentEnvsError, match=message):
        env.reset(seed=0)
        env.step("a")


@pytest.mark.parametrize("returned", ["right", None, float("inf")])
def test_what_check_returns_is_a_number(returned):
    env = type("Asked", (Answered,), {"check": lambda self, task, text: returned})()
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="what Asked.check returns must be a finite number, got"):
        env.step("a")


def test_an_episode_that_does_not_begin_is_no_episode():
    env = task_that(begin=KeyError("words"))()
    with pytest.raises(KeyError):
        env.reset(seed=0)
    with pytest.raises(gym.error.ResetNeeded):
        env.step("a")
    with pytest.raises(gym.error.ResetNeeded):
        env.snapshot()


@pytest.mark.parametrize(
    "error", [KeyError("words"), TypeError("no words"), FileNotFoundError(2, "No such file", "w.txt")]
)
def test_a_constructor_that_raises_is_told_with_its_place(error, registered, agentr1):
    env_id = registered(task_that(made=error))
    place = f"{env_id} cannot be made: {type(error).__name__}: .*test_user_code.py, line"
    with pytest.raises(ConfigError, match=place):
        make_env(env_id)
    for command in (*COMMANDS, ("play", "--env")):
        said = agentr1(*command, env_id, status=2)
        assert said.startswith(f"agentr1: {env_id} cannot be made") and said.count("\n") == 1
    assert "Problem: " in agentr1("list", env_id)


@pytest.mark.parametrize(
    ("constructor", "message"),
    [
        (lambda self, **kwargs: cut(None, 5), r"TypeError: .* \(.*test_user_code.py, line"),  # a wrong call of ours
        (lambda self: None, "The environment must specify an action space"),  # without that of its base class
    ],
)
def test_a_constructor_that_is_wrong_is_told(constructor, message, registered):
    with pytest.raises(ConfigError, match=f"cannot be made: {message}"):
        make_env(registered(type("Broken", (Task,), {"__init__": constructor})))


@pytest.mark.parametrize("command", COMMANDS)
def test_other_code_that_raises_is_one_line_with_its_place(command, registered, agentr1):
    said = agentr1(*command, registered(task_that(open_tasks=KeyError("rows"))), status=2)
    assert "your code failed: KeyError: 'rows' (" in said and "test_user_code.py, line" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_method_that_is_not_written_is_named(command, registered, agentr1):
    assert "a subclass must define open_tasks()" in agentr1(*command, registered(Nothing), status=2)


def test_a_fault_of_this_package_keeps_its_traceback(monkeypatch, agentr1):
    monkeypatch.setattr("agent_envs.cli.list.NEEDS", None)
    assert "Traceback" in agentr1("list", "GSM8K", status=1)


def test_a_fault_of_this_package_below_a_users_code_keeps_its_traceback(capsys):
    assert run_command(lambda: cut(None, 5)) == 1
    assert capsys.readouterr().err.startswith("Traceback")


def test_a_file_that_is_missing_is_not_the_current_folder(capsys):
    loaded = Future()
    loaded.set_exception(FileNotFoundError("there is no checkpoint"))
    assert run_command(loaded.result) == 1
    assert "FileNotFoundError: there is no checkpoint" in capsys.readouterr().err


def test_an_argument_that_a_call_within_lacks_is_not_missed_where_it_was_given():
    def shortened(text):
        return cut(limit=len(text))

    with pytest.raises(TypeError, match="cut"), naming_arguments("shortened", shortened, {"text": "a"}):
        shortened(text="a")


def test_an_error_of_several_lines_is_told_whole():
    told = 'Traceback (most recent call last):\n  File "/me/a.py", line 3, in act\nValueError: 1 error\n  name: missing'
    assert what_failed(told) == "ValueError: 1 error name: missing (/me/a.py, line 3)"


def test_a_group_of_errors_is_told():
    episode = run_episode(task_that(act=ExceptionGroup("two", [KeyError("a"), OSError("b")]))(), RandomPolicy(), seed=0)
    place = r"ExceptionGroup: two \(2 sub-exceptions\) KeyError: 'a' OSError: b \(.*test_user_code.py, line \d+\)"
    assert re.fullmatch(place, what_failed(episode.error))


def test_only_a_method_that_is_not_written_is_called_so():
    told = "  File 'a.py', line 3, in act\n    raise NotImplementedError\nNotImplementedError\nValueError: bad"
    assert what_failed(told).endswith("ValueError: bad")


def test_tasks_and_beginnings_of_other_types_are_played():
    class Some:  # stands for other tasks
        def __init__(self, tasks):
            self._tasks = tasks

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return self._tasks[index]

        def __getattr__(self, name):
            return getattr(self.__dict__["_tasks"], name)

    env = task_that(open_tasks=Some(ListedTasks(PROBLEMS, "generated", "test")), begin=["Go.", {}])()
    assert env.reset(seed=0)[0] == "Go." and env.num_tasks == 2


def test_an_episode_says_where_it_broke():
    episode = run_episode(task_that(act=KeyError("words"))(), RandomPolicy(), seed=0)
    place = r"KeyError: 'words' \(.*test_user_code.py, line \d+\)"
    assert re.fullmatch(place, what_failed(episode.error))
    with pytest.raises(BackendError, match=place):
        evaluate(lambda: task_that(act=KeyError("words"))(), RandomPolicy(), n=3, give_up_after=2, progress=False)


def test_the_ids_of_a_module_are_found_wherever_its_classes_are(registered):
    registered(f"{__name__}:Task")
    with pytest.raises(ConfigError, match="does not register 'Me/Brokn-v0'. Did you mean 'Me/Broken-v0'"):
        make_env(f"{__name__}:Me/Brokn-v0")


def test_a_limit_of_one_step_is_told(registered):
    env_id = registered(Wrong, max_episode_steps=1)
    with pytest.raises(ContractError, match="both true: .* register it with a higher max_episode_steps"):
        check_text_env(env_id, vectors=False)
