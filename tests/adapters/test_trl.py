"""TRL's own GRPOTrainer on environments, through an environment class and through a rollout function.

1. the class has one public method per tool and `reset`, TRL exposes exactly these, with names, types and words that
   survive: its prompts are, token for token, those of every other adapter
2. an answer ends the episode, once; what TRL cuts has none; a broken environment is not scored; rows name their task
3. a rollout's row is its episode's tokens as sampled, the environment's masked out, log-probabilities the model's
4. an episode ends at the completion's budget; broken ones train nothing; rebuilt prompts are refused
5. two steps of GRPO change the model, with both, and with commands
6. other versions of TRL are refused; `import trl` is TRL wherever Python is started
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Literal, NotRequired, TypedDict

import gymnasium as gym
import pytest

trl = pytest.importorskip("trl", minversion="1.16")
torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets", minversion="2.0")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from transformers.utils import get_json_schema  # noqa: E402
from trl.chat_template_utils import qwen3_schema  # noqa: E402

from agent_envs.adapters import trl as envs  # noqa: E402
from agent_envs.adapters.failures import FailureBudget  # noqa: E402
from agent_envs.adapters.tiny import warm_start  # noqa: E402
from agent_envs.adapters.tiny.warm_start import make_warm_model  # noqa: E402
from agent_envs.adapters.tool_methods import tool_method, type_hint  # noqa: E402
from agent_envs.episodes.record import StopReason  # noqa: E402
from agent_envs.errors import BackendError, ConfigError, DataError, MissingExtraError  # noqa: E402
from agent_envs.messages import ToolCall  # noqa: E402
from agent_envs.policies import ScriptedPolicy, TransformersPolicy  # noqa: E402
from agent_envs.policies.policy import Response  # noqa: E402
from agent_envs.prompts.builder import PromptBuilder  # noqa: E402
from agent_envs.text_env import Outcome  # noqa: E402
from agent_envs.tool_env import ToolEnv  # noqa: E402
from agent_envs.tools import ToolRegistry, tool  # noqa: E402
from tests.adapters.trl_prompts import prompts_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
GSM = "AgentR1/GSM8KTool-v0"
EASY = {"level": 1}


class Stop(TypedDict):
    city: str
    nights: NotRequired[int]


@tool
def plan(
    stops: list[Stop], budget: float, style: Literal["cheap", "fast"] = "cheap", tags: list[str] | None = None
) -> str:
    """Plan a journey.

    Args:
        stops: Where to stay, in order.
        budget: Money there is.
    """
    return json.dumps([stops, budget, style, tags])


@tool(name="look-up")
def look_up(word: str) -> str:
    """Look a word up: what it means.

    Args:
        word: The word.
    """
    if word == "broken":
        raise BackendError("the dictionary is gone")
    return f"{word} is a word"


class Tasks:
    name = "generated"

    def __init__(self, split: str) -> None:
        self.split = split

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(task_id=f"journey/{self.split}/{index}", number=index)


class JourneyEnv(ToolEnv):
    """A journey with nested arguments."""

    instructions = "Plan it."

    def __init__(self, **kwargs) -> None:
        super().__init__(tools=ToolRegistry([plan, look_up]), **kwargs)

    def open_tasks(self) -> Tasks:
        return Tasks(self.split)

    def begin(self, task: SimpleNamespace) -> tuple[str, None]:
        return f"Journey {task.number} of {self.split}", None

    def answer(self, text: str) -> Outcome:
        right = text == "done"
        return Outcome("Right." if right else "Wrong.", reward=float(right), terminated=right, score=1.0, success=right)


@pytest.fixture(scope="module", autouse=True)
def journey():
    gym.register("Test/Journey-v0", entry_point=JourneyEnv, max_episode_steps=4)
    yield
    gym.registry.pop("Test/Journey-v0")


# ------------------------------------------------------------------------------------------------ the class


def public(cls):
    return {name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("env_id", "wrappers", "tools"),
    [
        (GSM, [], {"calculator"}),
        ("AgentR1/PaperSearch-v0", [], {"search", "expand", "finish"}),
        ("AgentR1/HotpotQA-v0", ["FormatReward(weight=0.1)"], {"search"}),
        ("AgentR1/ALFWorld-v0", ["AsTool"], {"env_step"}),
        ("Test/Journey-v0", [], {"plan", "look-up"}),
    ],
)
def test_a_public_method_per_tool_and_reset(env_id, wrappers, tools):
    cls = envs.environment_class(env_id, wrappers=wrappers)
    assert public(cls) == tools | {"reset"}
    for name in tools:
        method = getattr(cls, name)
        (spec,) = (spec for spec in cls()._specs if spec["function"]["name"] == name)
        schema = get_json_schema(method)["function"]
        assert schema["name"] == name
        assert schema["description"] == " ".join(spec["function"]["description"].split())
        ours, theirs = spec["function"]["parameters"], schema["parameters"]
        assert list(theirs["properties"]) == list(ours["properties"])
        assert theirs.get("required", []) == ours.get("required", [])
        for key, argument in ours["properties"].items():
            if argument.get("description"):
                assert theirs["properties"][key]["description"].startswith(" ".join(argument["description"].split()))


def test_nested_types_survive():
    cls = envs.environment_class("Test/Journey-v0")
    stops = inspect.signature(cls.plan).parameters["stops"].annotation
    assert stops.__args__[0].__required_keys__ == {"city"} and stops.__args__[0].__annotations__["city"] is str
    assert str(inspect.signature(cls.plan).parameters["tags"]) == "tags: list[str] | None = None"
    theirs = get_json_schema(cls.plan)["function"]["parameters"]["properties"]
    assert theirs["budget"] == {"type": "number", "description": "Money there is."}
    assert theirs["style"] == {"type": "string", "enum": ["cheap", "fast"], "description": "style"}
    assert theirs["tags"]["items"] == {"type": "string"}
    # what no type hint says is in the words
    words, _, schema = theirs["stops"]["description"].partition(" JSON schema: ")
    ours = plan.spec["function"]["parameters"]["properties"]["stops"]
    assert words == "Where to stay, in order." and json.loads(schema) == {"type": "array", "items": ours["items"]}
    # and what TRL shows to a model is the specification itself
    environment = cls()
    assert environment.plan == plan.spec and getattr(environment, "look-up") == look_up.spec
    environment.reset(index=1)
    assert json.loads(environment.plan(stops=[{"city": "Oslo"}], budget=3))[:2] == [[{"city": "Oslo"}], 3]
    assert "wrong arguments for plan at ['stops'][0]" in environment.plan(stops=[{"town": "Oslo"}], budget=3)
    assert environment.record.info["invalid_action"]


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"type": "string"}, str),
        ({}, object),
        ({"type": ["integer", "null"]}, int | None),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, tuple[int, str]),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, list),
        (
            {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
            dict[str, list[float]],
        ),
        ({"type": "object"}, dict),
        ({"const": 3}, Literal[3]),
        ({"enum": ["a", None]}, Literal["a", None]),
        ({"$ref": "#/somewhere"}, object),
    ],
)
def test_type_hints_of_schemas(schema, hint):
    from typing import Any

    assert type_hint(schema) == (Any if hint is object else hint)


def test_arguments_with_names_that_python_has_taken():
    parameters = {"type": "object", "properties": {"from": {"type": "string"}}, "required": ["from"]}
    spec = {"type": "function", "function": {"name": "go", "description": "Go.", "parameters": parameters}}
    method = tool_method(spec, lambda self, name, arguments: f"{name} {arguments}")
    assert method(None, **{"from": "here"}) == "go {'from': 'here'}" and "from: from" in method.__doc__


def answer(text, **more):
    return [{"role": "assistant", "content": text, **more}]


def test_an_answer_ends_the_episode_once():
    cls, logged = envs.environment_class(GSM), []
    solved, wrong, cut, fresh = (cls() for _ in range(4))
    questions = {environment.reset(index=0, prompt="ignored") for environment in (solved, wrong, cut, fresh)}
    assert len(questions) == 1 and len({id(e._env) for e in (solved, wrong, cut)}) == 3
    assert solved.calculator(expression="6*7") == "42"
    gold = gym.make(GSM)
    gold.reset(options={"index": 0})
    while "<tool_call>" in (said := gold.unwrapped.expert_action()):
        gold.step(said)
    call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": "1"}}}
    completions = [
        answer(said),
        answer("#### -12345"),
        answer("", tool_calls=[call]),
        [{"role": "tool", "content": "1"}],
    ]
    for _ in range(2):  # a second reward function changes nothing
        rewards = envs.episode_reward(
            completions=completions,
            environments=[solved, wrong, cut, fresh],
            log_metric=lambda name, value: logged.append((name, value)),
        )
        assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert logged == [("env/success", 0.25)] * 2
    assert len(solved.record.rewards) == 2 and solved.record.info["success"]
    assert solved.calculator(expression="1") == "The episode has ended."
    assert solved.reset(index=1) not in questions and solved.record.rewards == [] and not solved.record.done


def test_environments_are_closed_with_their_episodes(monkeypatch):
    states: dict[int, str] = {}
    make, close = JourneyEnv.__init__, JourneyEnv.close
    monkeypatch.setattr(JourneyEnv, "__init__", lambda s, **how: (states.update({id(s): "open"}), make(s, **how))[1])
    monkeypatch.setattr(JourneyEnv, "close", lambda s: (states.update({id(s): "closed"}), close(s))[1])

    def opened():
        return list(states.values()).count("open")

    cls = envs.environment_class("Test/Journey-v0")
    assert opened() == 0
    group = [cls() for _ in range(4)]
    for _ in range(2):
        for each in group:
            each.reset(index=0)
        assert opened() == 4
        getattr(group[1], "look-up")(word="broken")
        group[2].reset(index=1)  # TRL gives an episode up
        assert opened() == 3
        call = {"type": "function", "function": {"name": "plan", "arguments": {}}}
        completions = [answer("done"), answer(""), answer("", tool_calls=[call]), answer("no")]
        envs.episode_reward(completions=completions, environments=group)
        assert opened() == 0
    with pytest.raises(IndexError):
        group[0].reset(index=99)
    assert opened() == 0


def test_a_broken_environment_is_not_scored():
    environment = envs.environment_class("Test/Journey-v0")()
    environment.reset(index=0)
    assert getattr(environment, "look-up")(word="broken") == "error: the environment is not available"
    assert "the dictionary is gone" in environment.record.error
    other = type(environment)()
    other.reset(index=0)
    both = [environment, other]
    assert envs.episode_reward(completions=[answer("done")] * 2, environments=both) == [None, 1.0]
    environment.reset(index=0)
    assert envs.episode_reward(completions=[answer("done")], environments=[environment]) == [1.0]
    for each in both:
        each.reset(index=0)
        getattr(each, "look-up")(word="broken")
    with pytest.raises(BackendError, match="(?s)all 2 episodes of a step broke.*the dictionary is gone"):
        envs.episode_reward(completions=[answer("done")] * 2, environments=both)


def test_rows_name_their_task_and_may_change_the_split():
    cls = envs.environment_class("Test/Journey-v0")
    environment = cls()
    assert environment.reset(index=3) == "Journey 3 of train"
    rows = envs.environment_dataset("Test/Journey-v0", range(2), env_kwargs={"split": "test"})
    assert environment.reset(**rows[1]) == "Journey 1 of test"
    assert rows[0]["prompt"] == [{"role": "system", "content": "Plan it."}, {"role": "user", "content": ""}]
    with pytest.raises(ConfigError, match="column 'index'"):
        environment.reset(prompt=[])
    with pytest.raises(IndexError):
        environment.reset(index=10)
    with pytest.raises(ConfigError, match="whole prompts as messages.*EpisodeRollout"):
        envs.environment_class("Test/Journey-v0", wrappers=["ChatMessages"])().reset(index=0)
    with pytest.raises(ConfigError, match="has no tools.*AsTool"):
        envs.environment_class("AgentR1/WebShop-v0")
    for make in (envs.environment_class, lambda *args, **kwargs: envs.environment_dataset(*args, [0], **kwargs)):
        with pytest.raises(ConfigError, match="unknown environment 'Test/Jorney-v0'"):
            make("Test/Jorney-v0")
        with pytest.raises(ConfigError, match="unknown environment 'no_such:Mine-v0': No module named 'no_such'"):
            make("no_such:Mine-v0")
        with pytest.raises(ConfigError, match="does not take 'levle'. Did you mean 'level'"):
            make(GSM, env_kwargs={"levle": 1})
        with pytest.raises(ConfigError, match="not a text environment.*TextGame"):
            make("CartPole-v1")
    with pytest.raises(ConfigError, match="JSON values"):
        envs.environment_dataset("Test/Journey-v0", [0], env_kwargs={"split": "train", "x": object()})


def test_what_an_environment_draws_is_the_same_for_a_group(monkeypatch):
    monkeypatch.setattr(JourneyEnv, "begin", lambda self, task: (f"{task.number} {self.np_random.random()}", None))
    cls = envs.environment_class("Test/Journey-v0")
    group = [cls() for _ in range(3)]
    assert len({environment.reset(index=2) for environment in group}) == 1
    assert group[0].reset(index=2) == group[1].reset(index=2)  # and again in a later step


@pytest.mark.parametrize("name", ["reset", "get_reward", "record", "_hidden"])
def test_names_that_trl_reads_otherwise_are_refused(monkeypatch, name):
    monkeypatch.setattr(JourneyEnv, "tools", [{"type": "function", "function": {"name": name, "parameters": {}}}])
    with pytest.raises(ConfigError, match=f"'{name}' cannot be a method"):
        envs.environment_class("Test/Journey-v0")


# ------------------------------------------------------------------------------------------------ GRPO itself


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A tiny model that knows the format of calls, and its tokenizer, which TRL is told how to read."""
    folder = tmp_path_factory.mktemp("trl") / "model"
    make_warm_model(folder, GSM, steps=0, noise=0.0, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.response_schema = qwen3_schema
    return str(folder), tokenizer


def trainer_on(warm, tmp_path, **how):
    args = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=4, num_generations=4, max_completion_length=120,
        max_steps=2, learning_rate=1e-3, report_to=[], use_cpu=True, logging_steps=1, save_strategy="no",
        disable_tqdm=True, bf16=False, max_tool_calling_iterations=4, seed=1,
    )  # fmt: skip
    path, tokenizer = warm
    model = AutoModelForCausalLM.from_pretrained(path)
    return trl.GRPOTrainer(model, reward_funcs=envs.episode_reward, args=args, processing_class=tokenizer, **how)


def train(trainer):
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    logs = [line for line in trainer.state.log_history if "reward" in line]
    assert len(logs) == 2 and all(0 <= line["env/success"] <= 1 for line in logs)
    if any(line["grad_norm"] for line in logs):
        assert any(not torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    return logs


def test_two_steps_with_an_environment_class(warm, tmp_path):
    dataset = envs.environment_dataset(GSM, range(4), env_kwargs=EASY)
    cls = envs.environment_class(GSM, env_kwargs=EASY)
    trainer = trainer_on(warm, tmp_path, train_dataset=dataset, environment_factory=cls)
    assert [t.__name__ for t in trainer.tools] == ["calculator"]
    asked = prompts_of(trainer)
    logs = train(trainer)
    assert max(line["tools/call_frequency"] for line in logs) > 0
    env = gym.make(GSM, **EASY)
    builder = PromptBuilder(warm[1], env.unwrapped.tools)
    expected = []
    for index in range(4):
        question, _ = env.reset(options={"index": index})
        system = {"role": "system", "content": env.unwrapped.instructions}
        expected.append(builder.start([system, {"role": "user", "content": question}]))
    for batch in asked:
        assert len({tuple(ids) for ids in batch}) == 1  # a group plays one task
        assert list(batch[0]) in expected  # and is shown what every other adapter shows


def test_two_steps_with_a_rollout_function(warm, tmp_path):
    dataset = envs.rollout_dataset(GSM, range(4), env_kwargs=EASY, wrappers=["FormatReward(weight=0.1)"])
    kept, rollout = [], envs.EpisodeRollout(max_tokens=40)

    def keep(prompts, trainer):
        model = trainer.accelerator.unwrap_model(trainer.model)
        was_training = model.training
        out = rollout(prompts, trainer)
        assert model.training == was_training
        for prompt, completion, logprobs, mask in zip(
            out["prompt_ids"], out["completion_ids"], out["logprobs"], out["env_mask"], strict=True
        ):
            ids = torch.tensor([[*prompt, *completion]])
            with torch.no_grad():
                said = torch.log_softmax(model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float(), -1)
            said = said.gather(1, ids[0, len(prompt) :, None])[:, 0]
            for own, found, sampled in zip(mask, said.tolist(), logprobs, strict=True):
                assert sampled == pytest.approx(found if own else 0.0, abs=1e-3)
        kept.append(out)
        return out

    logs = train(trainer_on(warm, tmp_path, train_dataset=dataset, rollout_func=keep))
    assert len(kept) == 2 and any(line["grad_norm"] > 0 for line in logs)
    several = 0
    assert any(len({tuple(ids) for ids in out["completion_ids"]}) > 1 for out in kept)  # a group's episodes differ
    for out in kept:
        assert len({episode.index for episode in out["episode"]}) == 1
        for i, episode in enumerate(out["episode"]):
            written = [token for step in episode.steps for token in step.response_ids]
            mask = out["env_mask"][i]
            assert [t for t, own in zip(out["completion_ids"][i], mask, strict=True) if own] == written
            assert (0 in mask) == (len(episode.steps) > 1)
            several += len(episode.steps) > 1
            assert out["episode_return"][i] == pytest.approx(episode.reward)
    assert several  # some called the tool


def test_whole_prompts_as_messages_are_the_same_row(warm):
    model = AutoModelForCausalLM.from_pretrained(warm[0]).eval()
    played = []
    for wrappers in ([], ["ChatMessages"]):
        policy = TransformersPolicy(model, tokenizer=warm[1], max_tokens=40, context_length=1024)
        trainer = SimpleNamespace(max_completion_length=300, _tokenizer=warm[1])
        prompts = envs.rollout_dataset(GSM, [*range(4)] * 2, env_kwargs=EASY, wrappers=wrappers)["prompt"]
        played.append(envs.EpisodeRollout(policy=policy, concurrency=1)(list(prompts), trainer))
        policy.close()
    plain, messages = played
    for name in ("prompt_ids", "completion_ids", "env_mask"):
        assert plain[name] == messages[name]
    assert max(len(episode.steps) for episode in plain["episode"]) > 1


def test_two_steps_on_commands(warm, tmp_path):
    kwargs = {"size": 1, "max_episode_steps": 2}
    dataset = envs.rollout_dataset("AgentR1/ALFWorld-v0", range(4), env_kwargs=kwargs, wrappers=["StepPenalty"])
    rollout = envs.EpisodeRollout(max_tokens=6, context_length=1024)
    logs = train(trainer_on(warm, tmp_path, train_dataset=dataset, rollout_func=rollout))
    assert all(line["completions/max_length"] <= 12 for line in logs)  # its own tokens, not the environment's


def test_the_pages_examples_train(root, warm, tmp_path, monkeypatch):
    make = inspect.signature(warm_start.make_warm_model)

    def copy(folder, *args, **kwargs):  # quicker than making another
        make.bind(folder, *args, **kwargs)
        shutil.copytree(warm[0], folder)

    monkeypatch.setattr(warm_start, "make_warm_model", copy)
    text = (root / "docs" / "trl.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in blocks:
        for shown, small in (
            ("max_steps=20", "max_steps=2, use_cpu=True, logging_steps=1"),
            ("num_generations=8", "num_generations=4, per_device_train_batch_size=4"), ("1000", "4"), ("256", "24"),
        ):  # fmt: skip
            block = block.replace(shown, small)
        exec(compile(block, "docs/trl.md", "exec"), namespace)
    assert namespace["trainer"].state.global_step == 2
    assert namespace["short"]([], [SimpleNamespace(steps=[1, 2])]) == [-0.02]


# ------------------------------------------------------------------------------------------------ rollouts


class Told:
    """A policy with made-up tokens: each text is its characters, each prompt the one before and what was said."""

    def __init__(self, *texts, rebuilt=False, log_probs=True):
        self.texts, self.rebuilt, self.log_probs = texts, rebuilt, log_probs

    def start(self, env):
        return ToldActor(self)


class ToldActor:
    def __init__(self, policy):
        self.policy, self.ids, self.step = policy, [], 0

    def act(self, observation, info):
        start = [] if self.policy.rebuilt else self.ids
        prompt = (*start, *observation.encode()[:5])
        text = self.policy.texts[min(self.step, len(self.policy.texts) - 1)]
        self.step += 1
        response = tuple(text.encode()[:8])
        self.ids = [*prompt, *response]
        return Response(text, prompt, response, (-0.5,) * len(response) if self.policy.log_probs else None)


def roll(policy, tasks=1, budget=1000, **how):
    prompts = envs.rollout_dataset("Test/Journey-v0", range(tasks))["prompt"]
    trainer = SimpleNamespace(max_completion_length=budget, use_vllm=False, _tokenizer=SimpleNamespace(eos_token_id=7))
    return envs.EpisodeRollout(policy=policy, **how)(list(prompts), trainer)


def test_an_episode_is_one_row():
    out = roll(Told("hello", "done"), tasks=3)
    assert out["episode_return"] == [1.0] * 3 and out["stop_reason"] == ["terminated"] * 3
    assert [episode.index for episode in out["episode"]] == [0, 1, 2]
    assert out["prompt_ids"] == [list(b"Journ")] * 3
    assert out["completion_ids"] == [list(b"helloWrongdone")] * 3
    assert out["env_mask"] == [[1] * 5 + [0] * 5 + [1] * 4] * 3
    assert out["logprobs"] == [[-0.5] * 5 + [0.0] * 5 + [-0.5] * 4] * 3
    assert (
        envs.episode_reward(completions=["x"] * 3, **{k: out[k] for k in ("episode_return", "episode_success")})
        == [1.0] * 3
    )
    assert roll(Told("done", log_probs=False))["logprobs"] is None


def test_the_budget_ends_an_episode():
    out = roll(Told("hello", "hello", "done"), budget=16)
    (episode,) = out["episode"]
    assert episode.stop_reason is StopReason.CONTEXT_LENGTH and len(episode.steps) == 2
    assert out["completion_ids"] == [list(b"helloWronghello")]


def test_broken_episodes_train_nothing(monkeypatch):
    call = JourneyEnv().format_call("look-up", {"word": "broken"})
    with pytest.raises(BackendError, match="all 1 episodes of a step broke"):
        roll(Told(call))
    monkeypatch.setattr(FailureBudget, "note", lambda self, ended: {})
    out = roll(Told("hello", call))
    assert out["stop_reason"] == ["error"] and out["episode_return"] == [None]
    assert out["env_mask"] == [[0] * 5] and out["completion_ids"] == [list(b"hello")]
    out = roll(Told(call))
    assert (out["prompt_ids"], out["completion_ids"], out["env_mask"]) == ([[7]], [[7]], [[0]])
    assert envs.episode_reward(completions=["x"], episode_return=[None], episode_success=[False]) == [None]


def test_what_cannot_be_one_row_or_names_no_task_is_refused():
    with pytest.raises(DataError, match="task 0.*TRL takes one row per episode"):
        roll(Told("hello", "done", rebuilt=True))
    with pytest.raises(ConfigError, match="rollout_dataset"):
        envs.EpisodeRollout(policy=Told("x"))(["What is 1 + 1?"], SimpleNamespace(max_completion_length=5))
    vllm = SimpleNamespace(mode="colocate", tensor_parallel_size=2)
    trainer = SimpleNamespace(
        max_completion_length=5, use_vllm=True, vllm_generation=vllm, accelerator=SimpleNamespace(num_processes=2)
    )
    prompts = list(envs.rollout_dataset("Test/Journey-v0", [0])["prompt"])
    with pytest.raises(ConfigError, match="wait for each other.*tensor_parallel_size=1"):
        envs.EpisodeRollout()(prompts, trainer)
    with pytest.raises(ConfigError, match="environment_class"):
        envs.episode_reward(completions=["x"])
    with pytest.raises(BackendError, match="(?s)all 1 episodes .*needs a policy that reports them"):
        roll(ScriptedPolicy(["done"]))  # text alone


class VLLM:
    """TRL's vLLM generation as far as a rollout sees it: batches of prompts in, tokens out."""

    mode, tensor_parallel_size, max_completion_length = "colocate", 1, 99

    def __init__(self, tokenizer, fails=False):
        self.tokenizer, self.fails, self.asked = tokenizer, fails, []

    def generate(self, prompts, images, num_generations, profiler=None):
        assert images is None and num_generations == 1
        self.asked.append((len(prompts), self.max_completion_length))
        if self.fails:
            raise RuntimeError("out of memory")
        texts = ["done" if b"Wrong" in self.tokenizer.decode(ids).encode() else "hello" for ids in prompts]
        ids = [[*self.tokenizer.encode(text), self.tokenizer.eos_token_id] for text in texts]
        return prompts, ids, [[[-0.25] for _ in own] for own in ids], None


def test_no_budget_is_the_context(warm, tmp_path):
    dataset = envs.rollout_dataset(GSM, range(4), env_kwargs=EASY)
    trainer = trainer_on(warm, tmp_path, train_dataset=dataset, rollout_func=envs.EpisodeRollout())
    trainer.max_completion_length = None
    out = trainer.rollout_func(list(dataset["prompt"]), trainer)
    assert all(episode.steps and not episode.stop_reason.broken for episode in out["episode"])


@pytest.mark.parametrize("fails", [False, True])
def test_the_trainers_vllm_answers_in_batches(warm, fails):
    vllm, tokenizer = VLLM(warm[1], fails), warm[1]
    text = SimpleNamespace(to_dict=lambda: {"max_position_embeddings": 1024})
    config = SimpleNamespace(get_text_config=lambda: text)
    trainer = SimpleNamespace(
        max_completion_length=500, use_vllm=True, vllm_generation=vllm, accelerator=SimpleNamespace(num_processes=2),
        model=SimpleNamespace(config=config), _tokenizer=tokenizer,
    )  # fmt: skip
    rollout, prompts = envs.EpisodeRollout(max_tokens=30), envs.rollout_dataset("Test/Journey-v0", range(6))["prompt"]
    if fails:
        with pytest.raises(BackendError, match="(?s)all 6 episodes of a step broke.*out of memory"):
            rollout(list(prompts), trainer)
        return
    out = rollout(list(prompts), trainer)
    assert vllm.max_completion_length == 99 and {limit for _, limit in vllm.asked} == {30}
    assert out["episode_return"] == [1.0] * 6 and max(count for count, _ in vllm.asked) > 1
    assert sum(count for count, _ in vllm.asked) == 12
    for ids, mask, logprobs in zip(out["completion_ids"], out["env_mask"], out["logprobs"], strict=True):
        own = [token for token, written in zip(ids, mask, strict=True) if written]
        assert tokenizer.decode(own) == "hello<|im_end|>done<|im_end|>"
        assert logprobs == [-0.25 if written else 0.0 for written in mask]


# ------------------------------------------------------------------------------------------------ versions, names


@pytest.mark.parametrize("installed", ["0.19.1", "1.15.2", "1.17.0.dev0", "2.0"])
def test_other_versions_are_refused(monkeypatch, installed):
    monkeypatch.setattr(metadata, "version", lambda name: installed)
    for make in (envs.EpisodeRollout, lambda: envs.environment_class(GSM)):
        with pytest.raises(ConfigError, match=f"trl<1.17,>=1.16, found trl {installed};"):
            make()


def test_a_missing_trl_names_the_extra(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(MissingExtraError, match=r"agent-envs\[trl\]"):
        envs.EpisodeRollout()


def test_import_trl_is_trl(root):
    code = "import agent_envs.adapters.trl as ours, trl; print(ours.__file__, trl.__file__, trl.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, timeout=120
    )
    ours, theirs, version = done.stdout.split()
    assert "site-packages" in theirs and ours.endswith("adapters/trl/__init__.py") and version == trl.__version__
    assert dataclasses.is_dataclass(envs.EnvironmentRecord) and ToolCall("x", {}).name == "x"
