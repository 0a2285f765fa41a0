"""TRL's own GRPOTrainer on environments: through an environment class, and as a trainer of whole episodes.

1. the class has one public method per tool and `reset`, TRL exposes exactly these, with names, types and words that
   survive: its prompts are, token for token, those of every other adapter
2. an answer ends the episode, once; what TRL cuts has none; a broken environment is not scored; rows name their task
3. EpisodeTrainer trains exactly what was sampled, in as many rows as an episode's prompts make, and its gradient is the
   PyTorch loop's for every weighting and for agents with roles
4. broken episodes train nothing and are not scored; what would train something else is refused
5. two steps of GRPO change the model, with both, and with commands
6. other versions of TRL are refused
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
from functools import partial
from importlib import metadata
from types import SimpleNamespace
from typing import Literal, NotRequired, TypedDict

import gymnasium as gym
import pytest

trl = pytest.importorskip("trl", minversion="1.16")
torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets", minversion="2.0")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from trl.chat_template_utils import qwen3_schema  # noqa: E402

from agent_envs.adapters import trl as envs  # noqa: E402
from agent_envs.adapters.teacher import Labels  # noqa: E402
from agent_envs.adapters.tiny import warm_start  # noqa: E402
from agent_envs.adapters.tiny.warm_start import make_warm_model  # noqa: E402
from agent_envs.adapters.torch.batch import assemble  # noqa: E402
from agent_envs.adapters.torch.loop import Scores, accumulate, actor_loss, credit, score  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.episodes.record import read_episodes  # noqa: E402
from agent_envs.errors import BackendError, ConfigError, MissingExtraError, check_release  # noqa: E402
from agent_envs.policies import ScriptedPolicy  # noqa: E402
from agent_envs.policies.policy import Response  # noqa: E402
from agent_envs.prompts.builder import PromptBuilder  # noqa: E402
from agent_envs.text_env import Outcome  # noqa: E402
from agent_envs.tool_env import ToolEnv  # noqa: E402
from agent_envs.tools import ToolRegistry, tool  # noqa: E402
from tests.adapters.comparisons import weights_of  # noqa: E402
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
        ("AgentR1/PaperSearch-v0", ["FormatReward(weight=0.1)"], {"search", "expand", "finish"}),
        ("AgentR1/ALFWorld-v0", ["AsTool"], {"env_step"}),
        ("Test/Journey-v0", [], {"plan", "look-up"}),
    ],
)
def test_a_public_method_per_tool_and_reset(env_id, wrappers, tools):
    cls = envs.environment_class(env_id, wrappers=wrappers)
    assert public(cls) == tools | {"reset"}
    instance = cls()
    for spec in instance._specs:
        name = spec["function"]["name"]
        assert inspect.isfunction(getattr(cls, name)) and getattr(instance, name) == spec  # TRL lists, and then takes


def test_nested_types_survive():
    cls = envs.environment_class("Test/Journey-v0")
    environment = cls()
    assert environment.plan == plan.spec and getattr(environment, "look-up") == look_up.spec
    environment.reset(index=1)
    assert json.loads(environment.plan(stops=[{"city": "Oslo"}], budget=3))[:2] == [[{"city": "Oslo"}], 3]
    assert "wrong arguments for plan at ['stops'][0]" in environment.plan(stops=[{"town": "Oslo"}], budget=3)
    assert environment.record.info["invalid_action"]


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
    unanswered = [{"role": "tool", "content": "1"}]
    completions = [answer(said), answer("#### -12345"), answer("", tool_calls=[call]), unanswered]
    played = {"completions": completions, "environments": [solved, wrong, cut, fresh]}
    for _ in range(2):  # a second reward function changes nothing
        rewards = envs.episode_reward(**played, log_metric=lambda name, value: logged.append((name, value)))
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
    with pytest.raises(ConfigError, match="whole prompts as messages.*EpisodeTrainer"):
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


def episodes_on(warm, tmp_path, dataset, *, config=None, **how):
    path, tokenizer = warm
    args = trl.GRPOConfig(
        output_dir=str(tmp_path), num_generations=4, max_steps=2, learning_rate=1e-3, report_to=[], use_cpu=True,
        logging_steps=1, save_strategy="no", disable_tqdm=True, bf16=False, seed=1,
        **{"per_device_train_batch_size": 8, "max_completion_length": 40, **(config or {})},
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(path)
    return envs.EpisodeTrainer(model, args, dataset, processing_class=tokenizer, **how)


def batch_of(trainer, dataset, group=4):
    """The trainer's batch of some tasks, each played as a group."""
    trainer.model.train()
    return trainer._generate_and_score_completions([row for row in dataset for _ in range(group)])


def test_two_steps_of_episodes(warm, tmp_path):
    dataset = envs.episode_dataset(GSM, range(4), env_kwargs=EASY, wrappers=["FormatReward(weight=0.1)"])
    logs = train(episodes_on(warm, tmp_path, dataset))
    assert any(line["grad_norm"] > 0 for line in logs) and all(line["env/rows"] == 1 for line in logs)
    files = sorted((tmp_path / "episodes").iterdir())
    assert [path.name for path in files] == ["000001-train.jsonl", "000002-train.jsonl"]
    episodes = [list(read_episodes(path)) for path in files]
    for line, played in zip(logs, episodes, strict=True):
        assert line["reward"] == pytest.approx(sum(e.reward for e in played) / 8)
        assert line["env/success"] == sum(e.success for e in played) / 8
        assert [e.index for e in played] == [played[0].index] * 4 + [played[4].index] * 4
    assert any(len(e.steps) > 1 for played in episodes for e in played)  # some called the tool


def test_a_resumed_run_and_evaluations_keep_their_episodes(warm, tmp_path):
    dataset = envs.episode_dataset(JOURNEYS, range(2))
    how = {"policy": Told("done"), "eval_dataset": dataset, "config": {"per_device_eval_batch_size": 4}}
    files = lambda: {path.name: path.read_text() for path in (tmp_path / "episodes").iterdir()}  # noqa: E731
    trainer = episodes_on(warm, tmp_path, dataset, **how)
    trainer.args.save_strategy, trainer.args.max_steps = "steps", 1
    trainer.args.save_steps = trainer.state.save_steps = 1
    trainer.train()
    trainer.evaluate()
    first = files()
    assert sorted(first) == ["000001-eval.2.jsonl", "000001-eval.jsonl", "000001-train.jsonl"]
    seeds = []
    trainer = episodes_on(warm, tmp_path, dataset, **how)
    monkeypatched = trainer._policies
    trainer._policies = lambda seed: (seeds.append(seed), monkeypatched(seed))[1]
    trainer.train(resume_from_checkpoint=True)
    trainer.evaluate()
    assert {name: text for name, text in files().items() if name in first} == first
    assert sorted(files().keys() - first) == ["000002-eval.2.jsonl", "000002-eval.jsonl", "000002-train.jsonl"]
    assert len({*seeds}) == 3


def test_sampling_is_as_asked_for(warm, tmp_path):
    dataset = envs.episode_dataset(GSM, [0], env_kwargs=EASY)
    greedy = episodes_on(warm, tmp_path, dataset, config={"top_k": 1})
    batch_of(greedy, dataset)
    assert len({tuple(step.action for step in e.steps) for e in greedy._episodes}) == 1
    thoughtless = episodes_on(warm, tmp_path, dataset, config={"chat_template_kwargs": {"tools": None}})
    with pytest.raises(Exception, match="tools"):
        batch_of(thoughtless, dataset)


def test_what_is_trained_is_what_was_sampled(warm, tmp_path):
    dataset = envs.episode_dataset(GSM, range(2), env_kwargs=EASY)
    trainer = episodes_on(warm, tmp_path, dataset)
    batch = batch_of(trainer, dataset)
    mask = batch["completion_mask"] * batch["tool_mask"]
    written = [batch["completion_ids"][i][mask[i].bool()].tolist() for i in range(8)]
    assert written == [[token for step in e.steps for token in step.response_ids] for e in trainer._episodes]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    seen = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    trainer.model.eval()
    with torch.no_grad():
        found, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, seen, mask.shape[1])
    assert (found - batch["sampling_per_token_logps"])[mask.bool()].abs().max() < 1e-3


def plan_and_work(env, model):
    """Two contexts: a plan, then a new conversation with it; a role of its own for the plan."""
    plan = model.role("planner").chat([{"role": "user", "content": env.observation}])
    model.role("planner").pay(0.25 * (len(plan.text) % 3))
    messages = [{"role": "system", "content": env.instructions}, {"role": "user", "content": plan.text[:20]}]
    while not env.over:
        reply = model.chat([*messages, *env.messages], env.tools)
        env.step(reply)


@pytest.mark.parametrize(
    ("estimator", "gamma", "weighting", "how"),
    [
        ("reinforce", 0.9, "token", {}),
        ("gigpo", 0.9, "row", {}),
        ("rloo", 1.0, "trajectory", {"agent": plan_and_work}),
        ("grpo", 1.0, "row", {"agent": plan_and_work, "train_roles": ["planner"]}),
        *(("grpo", 1.0, "trajectory", {"teacher_mode": mode}) for mode in ("mixed", "alone", "silent")),
    ],
)
def test_the_gradient_is_the_loops(warm, tmp_path, estimator, gamma, weighting, how):
    mode = how.get("teacher_mode")
    wrappers = [] if mode else ["FormatReward(weight=0.1)"]
    teacher = {"teacher": "expert", "teacher_weight": 0.5} if mode else {}
    dataset = envs.episode_dataset(GSM, range(2), env_kwargs={"max_episode_steps": 4, **EASY}, wrappers=wrappers)
    options = {"estimator": estimator, "gamma": gamma, "weighting": weighting, **teacher}
    trainer = episodes_on(warm, tmp_path, dataset, **options, **how)
    batch = batch_of(trainer, dataset)
    assert how.get("train_roles") or "agent" not in how or len(batch["prompt_ids"]) > 8
    assert mode in (None, "silent") or trainer._metrics["train"]["teacher/labels"][0] > 0
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation
    trainer.model.zero_grad()
    trainer._compute_loss(trainer.model, batch).backward()
    theirs = {name: p.grad.clone() for name, p in trainer.model.named_parameters()}

    config = LoopConfig(env=GSM, group=4, mini_batches=1, **options, **({"teacher_mode": mode} if mode else {}))
    roles, labels_of = how.get("train_roles", ()), trainer._labels if mode else None
    ours = assemble(trainer._episodes, [0] * 4 + [1] * 4, gamma=gamma, roles=roles, labels_of=labels_of)
    scores = Scores(score(trainer.model, ours, config))
    advantages, _, _ = credit(ours, config, scores)
    weights = weights_of(ours, weighting)
    loss, taught = partial(actor_loss, ours, config, scores, advantages), None
    if mode:
        labels = Labels(ours.label, 0.5)
        labels = labels.without_signal(ours.steps.group, ours.step, advantages) if mode == "silent" else labels
        taught = labels.weights(weighting, ours.steps.trajectory, torch.zeros_like(ours.steps.trajectory))
    if mode == "alone":
        loss, weights = None, 0 * weights
    trainer.model.zero_grad()
    accumulate(trainer.model, ours, weights, loss, config, taught)
    largest = max(float(p.grad.abs().max()) for p in trainer.model.parameters())
    assert largest > 0
    for name, p in trainer.model.named_parameters():
        assert (theirs[name] - p.grad).abs().max() < 1e-4 * largest, name


def test_two_steps_on_commands_in_rebuilt_prompts_and_an_evaluation(warm, tmp_path):
    kwargs = {"size": 1, "max_episode_steps": 2}
    wrappers = ["StepPenalty", "RebuildPrompt"]
    dataset = envs.episode_dataset("AgentR1/ALFWorld-v0", range(2), env_kwargs=kwargs, wrappers=wrappers)
    trainer = episodes_on(
        warm, tmp_path, dataset, eval_dataset=dataset.select([0]), model_context=1024,
        config={"steps_per_generation": 2, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2,
                "per_device_eval_batch_size": 4, "max_completion_length": 8},
    )  # fmt: skip
    logs = train(trainer)
    assert all(line["env/rows"] == 2 for line in logs)
    assert 0 <= trainer.evaluate()["eval_env/success"] <= 1


def test_the_pages_examples_train(root, warm, tmp_path, monkeypatch):
    make = inspect.signature(warm_start.make_warm_model)

    def copy(folder, *args, **kwargs):  # quicker than making another
        make.bind(folder, *args, **kwargs)
        shutil.copytree(warm[0], folder)

    monkeypatch.setattr(warm_start, "make_warm_model", copy)
    text = (root / "docs" / "trl.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in blocks:
        for shown, small in (
            ("max_steps=20", "max_steps=1, use_cpu=True, logging_steps=1, report_to=[]"),
            ("num_generations=8", "num_generations=4, per_device_train_batch_size=4"), ("1000", "4"), ("256", "24"),
        ):  # fmt: skip
            block = block.replace(shown, small)
        exec(compile(block, "docs/trl.md", "exec"), namespace)
    assert namespace["trainer"].state.global_step == 1


# ------------------------------------------------------------------------------------------------ what breaks, vLLM


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


JOURNEYS = "Test/Journey-v0"


def test_broken_episodes_train_nothing(warm, tmp_path, monkeypatch):
    call, dataset = JourneyEnv().format_call("look-up", {"word": "broken"}), envs.episode_dataset(JOURNEYS, [0, 1])
    trainer = episodes_on(warm, tmp_path, dataset, policy=Told(call), max_broken=1.0)
    with pytest.raises(BackendError, match="all 8 episodes of a step broke"):
        batch_of(trainer, dataset)
    policies = iter([Told("hello", call), *[Told("done")] * 7])
    monkeypatch.setattr(Told, "start", lambda self, env: ToldActor(next(policies)))
    batch = batch_of(trainer, dataset)
    assert trainer._metrics["train"]["reward"][-1] == 1.0 and trainer._metrics["train"]["env/success"][-1] == 1.0
    assert int(batch["num_items_in_batch"]) == 7 * 4 and torch.isfinite(batch["advantages"]).all()
    assert (batch["completion_mask"] * batch["tool_mask"]).sum(1).tolist() == [4] * 7
    assert "sampling_per_token_logps" in batch
    policies = iter([Told("done", log_probs=False)] * 8)
    assert "sampling_per_token_logps" not in batch_of(trainer, dataset)


def test_what_would_train_something_else_is_refused(warm, tmp_path):
    dataset = envs.episode_dataset(JOURNEYS, [0])
    for config, words in (
        ({"loss_type": "grpo"}, "TRL's loss_type must be 'dapo', by which EpisodeTrainer weighs tokens; remove"),
        ({"importance_sampling_level": "sequence"}, "several responses"),
        ({"mask_truncated_completions": True}, "mask_truncated_completions must be False"),
        ({"repetition_penalty": 1.1}, "only TRL's vLLM reads repetition_penalty: remove"),
    ):
        with pytest.raises(ConfigError, match=words):
            episodes_on(warm, tmp_path, dataset, config=config)
    for how, words in (
        ({"estimator": "gae"}, "needs a critic"),
        ({"estimator": "remax"}, "needs a greedy episode"),
        ({"estimator": "optimal_token_baseline"}, "needs a distribution of each token"),
        ({"estimator": "gropo"}, "grpo"),
        ({"weighting": "tokens"}, "weighting"),
        ({"agent": "compct"}, "Did you mean 'compact'"),
        ({"reward_funcs": len}, "leave out reward_funcs="),
    ):
        with pytest.raises(ConfigError, match=words):
            episodes_on(warm, tmp_path, dataset, **how)
    trainer = episodes_on(warm, tmp_path, dataset, policy=ScriptedPolicy(["done"]), train_roles=["x"])
    with pytest.raises(ConfigError, match="lacks the column 'env_id'.*episode_dataset"):
        trainer._generate_and_score_completions([{"prompt": "What is 1 + 1?"}])
    with pytest.raises(ConfigError, match="role 'x' is not among those that play"):
        batch_of(trainer, dataset)


class VLLM:
    """TRL's vLLM generation as far as a rollout sees it: batches of prompts in, tokens out."""

    mode, tensor_parallel_size, synced = "colocate", 1, 0

    def __init__(self, tokenizer, fails=False):
        self.tokenizer, self.fails, self.asked = tokenizer, fails, []

    def sync_weights(self):
        self.synced += 1

    def generate(self, prompts, images, num_generations, profiler=None):
        assert images is None and num_generations == 1
        self.asked.append(len(prompts))
        if self.fails:
            raise RuntimeError("out of memory")
        texts = ["done" if b"Wrong" in self.tokenizer.decode(ids).encode() else "hello" for ids in prompts]
        ids = [[*self.tokenizer.encode(text), self.tokenizer.eos_token_id] for text in texts]
        return prompts, ids, [[[-0.25] for _ in own] for own in ids], None


@pytest.mark.parametrize("fails", [False, True])
def test_the_trainers_vllm_answers_in_batches(warm, tmp_path, fails):
    dataset, tokenizer = envs.episode_dataset(JOURNEYS, range(2)), warm[1]
    trainer = episodes_on(warm, tmp_path, dataset)
    vllm, trainer.use_vllm, trainer._last_loaded_step = VLLM(tokenizer, fails), True, -1
    trainer.vllm_generation, trainer.vllm_importance_sampling_correction = vllm, False
    if fails:
        with pytest.raises(BackendError, match="(?s)all 8 episodes of a step broke.*out of memory"):
            batch_of(trainer, dataset)
        return
    batch = batch_of(trainer, dataset)
    assert vllm.synced == 1 and max(vllm.asked) > 1 and sum(vllm.asked) == 16
    mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
    for i in range(8):
        assert tokenizer.decode(batch["completion_ids"][i][mask[i]]) == "hello<|im_end|>done<|im_end|>"
    assert batch["sampling_per_token_logps"][mask].unique().tolist() == [-0.25]
    trainer.accelerator.state.num_processes, vllm.tensor_parallel_size = 2, 2
    with pytest.raises(ConfigError, match="wait for each other.*tensor_parallel_size=1"):
        trainer._vllm()
    trainer.accelerator.state.num_processes = 1


# ------------------------------------------------------------------------------------------------ versions, names


@pytest.mark.parametrize("installed", ["0.19.1", "1.15.2", "1.17.0.dev0", "2.0"])
def test_other_versions_are_refused(monkeypatch, installed):
    monkeypatch.setattr(metadata, "version", lambda name: installed)
    for make in (lambda: envs.EpisodeTrainer(None), lambda: envs.environment_class(GSM)):
        with pytest.raises(ConfigError, match=f"trl<1.17,>=1.16, found trl {installed};"):
            make()
    monkeypatch.setattr(metadata, "version", lambda name: "1.16.2rc1")
    check_release("trl", "trl")


def test_a_missing_trl_names_the_extra(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(MissingExtraError, match=r"agent-envs\[trl\]"):
        envs.EpisodeTrainer(None)
