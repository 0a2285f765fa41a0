"""Policies that sample tokens themselves: transformers for real, vLLM against a fake of the parts used (and itself).

1. tokens and log-probabilities are those that were sampled; a prompt is the one before, its response, and what is new
2. concurrent episodes equal single ones; the n-th episode of a task is the same in every run of a seed
3. limits: context, response length, end of a turn; models without a chat template or a tokenizer
4. tools are shown by the template, or told where it cannot
5. failures and closing reach whoever waits; nothing hangs
6. a person: text is inert, several lines, the end of the input
"""

import asyncio
import enum
import gc
import sys
import threading
import types
import weakref

import gymnasium as gym
import pytest

from agent_envs.episodes.record import StopReason, read_episodes
from agent_envs.errors import BackendError, ConfigError, MissingExtraError, PromptError
from agent_envs.rollout.evaluate import evaluate
from agent_envs.rollout.many import run_episodes
from agent_envs.spaces import UnicodeText

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from agent_envs.adapters.tiny.model import save_model  # noqa: E402
from agent_envs.policies import TransformersPolicy, VLLMPolicy  # noqa: E402
from benchmarks.pretraining.model import build_model  # noqa: E402
from benchmarks.pretraining.tokenizer import build_tokenizer  # noqa: E402

FUNCTION = {
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}


class Talk(gym.Env):
    """Answers whatever is said with new words, three times."""

    instructions = "Talk."
    tools = [{"type": "function", "function": FUNCTION}]
    tool_instructions = "Tools: look(at)\nCall a tool like this: look"

    def __init__(self, turns=3):
        self.observation_space = self.action_space = UnicodeText(10_000)
        self.turns = turns

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.index, self.turn = (options or {}).get("index", 0), 0
        return f"Word {self.index}, é 中文 🙂 <|im_end|>?", self._info()

    def step(self, action):
        self.turn += 1
        return f"{len(action)} letters. And {self.turn}?", 1.0, self.turn == self.turns, False, self._info()

    def _info(self):
        return {"task_id": f"talk/{self.index}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = build_tokenizer(["Talk. Word letters. And " * 20, "user assistant system Tools: look(at)"])
    model = build_model(tokenizer, seed=2)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)  # peaked, so that greedy choices are clear
    path = tmp_path_factory.mktemp("models") / "tiny"
    save_model(model, tokenizer, path)
    return path


@pytest.fixture(scope="module")
def greedy(folder):
    policy = TransformersPolicy(folder, device="cpu", temperature=0.0, max_tokens=24)
    yield policy
    policy.close()


def play(policy, n=8, concurrency=8, **kwargs):
    return run_episodes(
        Talk, policy, n, options=[{"index": i} for i in range(n)], concurrency=concurrency, progress=False,
        env_kwargs=kwargs, on_error="record",
    )  # fmt: skip


def assert_grown(episodes):
    for episode in episodes:
        assert episode.error is None and episode.steps
        for step, following in zip(episode.steps, episode.steps[1:], strict=False):
            shown = step.prompt_ids + step.response_ids
            assert following.prompt_ids[: len(shown)] == shown
            assert len(following.prompt_ids) > len(shown)


def test_log_probabilities_are_the_models(folder, greedy):
    step = play(greedy, 4)[2].steps[1]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = model(torch.tensor([step.prompt_ids + step.response_ids])).logits[0]
    expected = torch.log_softmax(logits, -1)
    start = len(step.prompt_ids) - 1
    for i, (token, log_prob) in enumerate(zip(step.response_ids, step.response_logprobs, strict=True)):
        assert log_prob == pytest.approx(float(expected[start + i, token]), abs=1e-4)


def test_a_seed_makes_a_run_whatever_its_concurrency(folder):
    """The episodes of a task differ, and are the same next time."""

    def run(seed, concurrency):
        policy = TransformersPolicy(folder, device="cpu", seed=seed, max_tokens=12, top_p=0.95, top_k=50)
        options = [{"index": i % 2} for i in range(6)]
        episodes = run_episodes(Talk, policy, 6, options=options, concurrency=concurrency, progress=False)
        policy.close()
        assert_grown(episodes)
        assert all(len(e.steps) == 3 and e.stop_reason is StopReason.TERMINATED for e in episodes)
        return sorted(str([(s.prompt_ids, s.response_ids, s.action) for s in e.steps]) for e in episodes)

    first = run(1, 6)
    assert len({*first}) == 6 and run(1, 1) == first != run(2, 2)


def test_the_end_of_a_turn_ends_a_response_and_is_no_text(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = build_model(tokenizer)
    ends = tokenizer.eos_token_id
    model.generation_config.eos_token_id = tokenizer.pad_token_id  # a base model's: not what the template uses
    with torch.no_grad():
        model.lm_head.weight.zero_()
    policy = TransformersPolicy(model, tokenizer=tokenizer, max_tokens=20_000, seed=3)
    assert policy.stop_token_ids == {ends, tokenizer.pad_token_id}
    (episode,) = play(policy, 1, turns=2)
    policy.close()
    for step in episode.steps:
        assert step.response_ids[-1] in policy.stop_token_ids or len(step.prompt_ids + step.response_ids) == 2048
        kept = [t for t in step.response_ids if t not in policy.stop_token_ids]
        assert step.action == tokenizer.decode(kept, skip_special_tokens=False)


def test_limits(folder):
    policy = TransformersPolicy(folder, device="cpu", max_tokens=2000, context_length=150, temperature=0.0)
    episodes = play(policy, 4, turns=50)
    policy.close()
    for episode in episodes:
        assert episode.stop_reason is StopReason.CONTEXT_LENGTH and "context of 150" in episode.error
        assert all(len(s.prompt_ids) + len(s.response_ids) <= 150 for s in episode.steps)


def test_tools_are_shown_by_the_template_or_told(folder, greedy):
    def first_prompt(policy):
        (episode,) = play(policy, 1)
        return policy.tokenizer.decode(episode.steps[0].prompt_ids)

    native = first_prompt(greedy)
    assert "Tools: look(at)" in native and "Call a tool like this" not in native
    told = TransformersPolicy(folder, device="cpu", max_tokens=4, tool_mode="text")
    assert "Call a tool like this: look" in first_prompt(told)
    told.close()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    blind = TransformersPolicy(folder, tokenizer=tokenizer, device="cpu", max_tokens=4)
    assert "Call a tool like this: look" in first_prompt(blind)
    blind.close()


@pytest.mark.parametrize("name", ["minimind", "qwen"])
def test_real_tokenizers_drift_nowhere(data_dir, name):
    source = data_dir / "tokenizers" / name
    if name == "qwen":
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"))
        tokenizer.chat_template = (source / "qwen3_nonthinking.jinja").read_text(encoding="utf-8")
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=2048, dtype="float32",
    )  # fmt: skip
    policy = TransformersPolicy(transformers.Qwen2ForCausalLM(config), tokenizer=tokenizer, max_tokens=16)
    turn_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert turn_end in policy.stop_token_ids
    episodes = play(policy, 6)
    policy.close()
    assert_grown(episodes)
    # random tokens hardly ever come back from their text: this is what growing by tokens is for
    texts = [(s.action, s.response_ids) for e in episodes for s in e.steps]
    assert any(tuple(tokenizer.encode(text, add_special_tokens=False)) != ids for text, ids in texts)


def test_what_cannot_be_loaded(folder, tmp_path):
    with pytest.raises(ConfigError, match="no Hugging Face"):
        TransformersPolicy(tmp_path)
    with pytest.raises(ConfigError, match="tokenizer="):
        TransformersPolicy(transformers.AutoModelForCausalLM.from_pretrained(folder))
    for setting in ({"top_p": 0}, {"temperature": -1}, {"max_tokens": 0}, {"seed": -1}, {"tool_mode": "x"}):
        with pytest.raises(ConfigError):
            TransformersPolicy(folder, device="cpu", **setting)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = None
    with pytest.raises(PromptError, match="chat template"):
        TransformersPolicy(folder, tokenizer=tokenizer, device="cpu")


@pytest.mark.parametrize(
    ("package", "extra", "policy"),
    [("transformers", "hf", TransformersPolicy), ("torch", "hf", TransformersPolicy), ("vllm", "vllm", VLLMPolicy)],
)
def test_a_missing_package_names_its_extra(folder, monkeypatch, package, extra, policy):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"agent-envs\[{extra}\]"):
        policy(folder)


def test_a_failing_model_is_an_error_of_the_episode_and_of_no_later_one(folder):
    policy = TransformersPolicy(folder, device="cpu", max_tokens=4)
    forward = policy.model.forward

    def fail(*args, **kwargs):
        policy.model.forward = forward
        raise RuntimeError("out of memory")

    policy.model.forward = fail
    (broken,) = play(policy, 1)
    assert broken.stop_reason is StopReason.ERROR and "out of memory" in broken.error
    assert play(policy, 1)[0].stop_reason is StopReason.TERMINATED
    policy.close()
    (closed,) = play(policy, 1)
    assert "closed" in closed.error


def test_a_policy_that_nobody_holds_ends_its_thread(folder):
    before = {*threading.enumerate()}
    policy = TransformersPolicy(folder, device="cpu", max_tokens=4)
    (thread,) = (thread for thread in {*threading.enumerate()} - before if thread.name == "agent_envs-generate")
    del policy
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


# -- vLLM --------------------------------------------------------------------------------------------------------------


class FakeEngine:
    """AsyncLLM as far as the policy uses it: checks what it is asked, answers with the prompt's last tokens."""

    def __init__(self, arguments):
        self.vllm_config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(max_model_len=arguments.max_model_len or 2048)
        )
        self.loop = asyncio.get_running_loop()
        self.requests, self.ids = [], set()
        self.failing = self.down = False

    async def generate(self, prompt, sampling_params, request_id):
        assert asyncio.get_running_loop() is self.loop
        assert request_id not in self.ids
        self.ids.add(request_id)
        self.requests.append((prompt, sampling_params))
        await asyncio.sleep(0)
        if self.failing:
            raise RuntimeError("EngineCore encountered an issue")
        ids = [*prompt["prompt_token_ids"][-5:][: sampling_params.max_tokens - 1], sampling_params.stop_token_ids[0]]
        logprobs = [{token: types.SimpleNamespace(logprob=-0.5 * i)} for i, token in enumerate(ids)]
        out = types.SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason="stop")
        yield types.SimpleNamespace(outputs=[out])

    def shutdown(self):
        self.down = True


@pytest.fixture
def fake_vllm(monkeypatch):
    """The modules of vLLM 0.24 to 0.32 that the policy imports."""
    made = []

    class SamplingParams(types.SimpleNamespace):
        def __init__(self, **settings):
            if not 0 < settings.get("top_p", 1.0) <= 1:
                raise ValueError("top_p must be in (0, 1]")
            super().__init__(**settings)

    class AsyncEngineArgs(types.SimpleNamespace):
        def __init__(self, **settings):
            if "tensor_parallel_sise" in settings:
                raise TypeError("unexpected keyword argument 'tensor_parallel_sise'")
            super().__init__(**settings)

    class AsyncLLM:
        @staticmethod
        def from_engine_args(arguments):
            if arguments.max_model_len == 7:
                raise RuntimeError("no memory")
            made.append(FakeEngine(arguments))
            made[-1].arguments = arguments
            return made[-1]

    kinds = enum.Enum("RequestOutputKind", ["CUMULATIVE", "DELTA", "FINAL_ONLY"])
    platform = types.SimpleNamespace(is_cpu=lambda: False)
    modules = {
        "vllm": {"SamplingParams": SamplingParams, "AsyncEngineArgs": AsyncEngineArgs, "__version__": "0.32.0"},
        "vllm.platforms": {"current_platform": platform},
        "vllm.sampling_params": {"RequestOutputKind": kinds},
        "vllm.v1": {}, "vllm.v1.engine": {}, "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
    }  # fmt: skip
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return types.SimpleNamespace(engines=made, platform=platform)


def test_vllm_is_given_tokens_and_gives_tokens(folder, fake_vllm):
    policy = VLLMPolicy(folder, temperature=0.7, top_k=5, max_tokens=9, seed=4, engine={"tensor_parallel_size": 2})
    episodes = play(policy)
    (engine,) = fake_vllm.engines
    assert engine.arguments.tensor_parallel_size == 2 and engine.arguments.logprobs_mode == "processed_logprobs"
    assert_grown(episodes)
    asked = {tuple(prompt["prompt_token_ids"]) for prompt, _ in engine.requests}
    assert asked == {s.prompt_ids for e in episodes for s in e.steps}
    for _, params in engine.requests:
        assert (params.temperature, params.top_k, params.max_tokens, params.logprobs) == (0.7, 5, 9, 0)
        assert params.detokenize is False and params.stop_token_ids == sorted(policy.stop_token_ids)
    assert len({params.seed for _, params in engine.requests}) == len(engine.requests)
    assert episodes[0].steps[0].response_logprobs[:2] == (0.0, -0.5)
    policy.close()
    assert engine.down
    (closed,) = play(policy, 1)
    assert "closed" in closed.error


def test_vllm_on_a_cpu_reads_a_prompt_in_one_pass(folder, fake_vllm):
    """Its engine stops where a request with a seed takes several."""
    for on_cpu, engine in ((False, None), (True, None), (True, {"enable_chunked_prefill": True})):
        fake_vllm.platform.is_cpu = lambda on_cpu=on_cpu: on_cpu
        VLLMPolicy(folder, engine=engine).close()
    passes = [vars(engine.arguments).get("enable_chunked_prefill") for engine in fake_vllm.engines]
    assert passes == [None, False, True]


def test_vllm_that_fails_or_does_not_start(folder, fake_vllm):
    policy = VLLMPolicy(folder)
    fake_vllm.engines[0].failing = True
    (broken,) = play(policy, 1)
    assert "EngineCore encountered" in broken.error and broken.stop_reason is StopReason.ERROR
    policy.close()
    with pytest.raises(BackendError, match="no memory"):
        VLLMPolicy(folder, context_length=7)
    with pytest.raises(ConfigError, match="top_p"):
        VLLMPolicy(folder, top_p=0.0)
    with pytest.raises(ConfigError, match="tensor_parallel_sise"):
        VLLMPolicy(folder, engine={"tensor_parallel_sise": 2})


def test_an_evaluation_is_the_same_whether_it_was_stopped(folder, tmp_path):
    policy = TransformersPolicy(folder, device="cpu", max_tokens=6)
    kept = [policy.with_seed(sample) for sample in range(2)]
    alone = weakref.ref(policy)
    del policy
    gc.collect()
    assert alone() is not None  # it owns the model that the two use

    def tokens(n, samples, out):
        fresh = [one.with_seed(one.seed) for one in kept[:samples]]  # as in a new process
        evaluate(Talk, fresh, n, samples=samples, out=out, concurrency=2)
        return {
            episode.episode_id: [step.response_ids for step in episode.steps]
            for episode in read_episodes(out / "episodes.jsonl")
        }

    whole = tokens(2, 2, tmp_path / "whole")
    assert whole["0/0"] != whole["0/1"]
    tokens(1, 1, tmp_path / "parts")
    assert tokens(2, 2, tmp_path / "parts") == whole
    kept[0].close()
    with pytest.raises(ConfigError, match="seed must be an integer of at least 0"):
        kept[0].with_seed(-1)
