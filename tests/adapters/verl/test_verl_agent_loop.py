"""verl's agent loop on a stub generation client: no Ray, no model.

1. prompt and response ids of every row are bit for bit what the server saw and sampled, whatever the text
2. steps share a row where prompts extend each other, or have one each; every step has its own reward, terminated,
   truncated and index; the same extra fields in all rows; the greedy episode of remax is a row without tokens
3. limits: a prompt over the context cuts the episode with its reason; no step at all is one masked row; so is an error
4. a cut episode brings the state after its last step for the critic, in training alone
5. environments are made once and used again; a broken one is not
6. a rebuilt observation begins a new prompt
7. under wrappers that choose what is shown, prompts are what they show, and steps share a row where prompts grow
8. control tokens of tool calls reach the environment
9. with branches a session is a tree of episodes, whose shared steps are rows once
10. a prompt's episodes play in one world with seeds of their own, another prompt of the same task in another; the same
    episode has the same seeds again, and none without ``request_seeds``
"""

from __future__ import annotations

import asyncio
import itertools
import json

import gymnasium as gym
import pytest
from agent_loops import play_session
from omegaconf import OmegaConf
from verl.workers.rollout.replica import TokenOutput

from agent_envs.adapters.verl.rollout import agent_loop
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.policies.policy import Response
from agent_envs.spaces import UnicodeText
from benchmarks.pretraining.tokenizer import build_tokenizer

AWKWARD = [
    "😀👩‍👩‍👧 emoji",
    '<tool_call>\n{"name": "x"',
    "</tool_call> <tool_response>",
    "   leading spaces",
    "trailing \n\n",
    "<|im_end|> <|im_start|>assistant",
    "ünïcödé é\u0301 \u200b",
    "1234567890",
]


class EchoEnv(gym.Env):
    """Says back what it was told, in awkward words; four steps, reward = step number, broken on demand."""

    instructions = "Repeat  after me: 😀"
    tools: list = []
    made = 0
    drawn: list = []

    def __init__(self, steps=4, fail_at=None):
        EchoEnv.made += 1
        self.steps, self.fail_at = steps, fail_at
        self.observation_space = self.action_space = UnicodeText()

    def info(self, success=False):
        return {"task_id": "t", "split": "train", "index": 0, "source": "test", "invalid_action": False, "score": 0.0,
                "success": success, "reward_components": {}, "anchor": f"s{self.t}"}  # fmt: skip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        EchoEnv.drawn.append(int(self.np_random.integers(1 << 30)))
        self.t = 0
        return AWKWARD[options["index"] % len(AWKWARD)], self.info()

    def step(self, action):
        self.t += 1
        if self.t == self.fail_at:
            raise RuntimeError("the backend is gone")
        said = f"{AWKWARD[self.t % len(AWKWARD)]} | {action}"
        return said, float(self.t), self.t >= self.steps, False, self.info(True)


@pytest.fixture(autouse=True)
def echo_env():
    gym.register("Echo-v0", entry_point=EchoEnv)
    gym.register("EchoCut-v0", entry_point=EchoEnv, max_episode_steps=2)
    EchoEnv.made, EchoEnv.drawn = 0, []
    yield
    agent_loop._pool.close()
    del gym.registry["Echo-v0"], gym.registry["EchoCut-v0"]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer([text * 3 for text in AWKWARD])


class StubServer:
    """Answers with given token ids and remembers every prompt."""

    def __init__(self, answers):
        self.answers, self.prompts = answers, []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        ids = self.answers[len(self.prompts) % len(self.answers)]
        self.prompts.append((list(prompt_ids), dict(sampling_params)))
        await asyncio.sleep(0)
        log_probs, versions = [-0.125 * (i + 1) for i in range(len(ids))], ("global", "min_global", "max_global")
        return TokenOutput(token_ids=list(ids), log_probs=log_probs, stop_reason="completed",
                           extra_fields={f"{name}_steps": 3 for name in versions})  # fmt: skip


_numbers = itertools.count()


def play(
    tokenizer, server, env_id="Echo-v0", *, index=0, session=2, number=None, phase="train", algo="grpo",
    prompt_length=512, response_length=32, engine="agentr1_cpu", settings=None, merge=False, **how,
):  # fmt: skip
    """Play an episode of a prompt: the next one, or in training that of a number."""
    number = next(_numbers) if number is None else number
    rollout = {"name": engine, "prompt_length": prompt_length, "response_length": response_length, "n": 3}
    config = OmegaConf.create({
        "actor_rollout_ref": {"model": {"path": "."}, "rollout": rollout},
        "algorithm": {"adv_estimator": algo},
        "data": {"apply_chat_template_kwargs": {}},
        "agentr1": {"seed": 0, "trust": True, "layout": "merged" if merge else "steps", **(settings or {})},
    })  # fmt: skip
    how |= {"prompt_number": number} if phase == "train" else {}
    return asyncio.run(play_session(
        config, server, tokenizer, env_id, index=index, session=session, phase=phase, step=4, **how
    ))  # fmt: skip


def answers(tokenizer, texts):
    """Sampled ids that re-tokenizing the text would not give: one token per character, then the end token or none."""
    out = []
    for i, text in enumerate(texts):
        ids = [token for character in text for token in tokenizer.encode(character, add_special_tokens=False)][:32]
        out.append([*ids, *([tokenizer.eos_token_id] if i % 2 else [])][:32])
    return out


def test_a_teacher_labels_the_states_of_training(tokenizer):
    """What the policy did is no row of its own; any other label is one, after the prompt of its state."""
    env = gym.make("AgentR1/GSM8KTool-v0", level=1, split="train")
    env.reset(options={"index": 3})
    call = env.unwrapped.expert_action()
    ids = [*tokenizer.encode(call, add_special_tokens=False), tokenizer.eos_token_id]
    wrong = tokenizer.encode("<tool_call>", add_special_tokens=False)
    how = {"index": 3, "env_kwargs": {"level": 1, "split": "train"}, "merge": True, "response_length": len(ids),
           "prompt_length": 4096, "settings": {"teacher": "expert"}}  # fmt: skip
    server = StubServer([wrong, ids])
    outputs = play(tokenizer, server, "AgentR1/GSM8KTool-v0", **how)
    labels = [(o.extra_fields["kind"], o.extra_fields["labels"]) for o in outputs]
    steps, first = outputs[0], outputs[1]
    assert labels[:2] == [("step", labels[0][1]), ("label", [[0, 0, len(ids)]])]
    (index, start, end), *_ = labels[0][1]  # the second step did what the expert would have done
    assert index == 1 and steps.response_ids[start:end] == ids
    assert first.prompt_ids == server.prompts[0][0] and first.response_ids == ids
    assert not any(first.response_mask) and set(first.step_ids) == {-1}
    for changed in ({"settings": {}}, {"settings": {"teacher": "expert", "teacher_until": 2}}, {"phase": "validation"}):
        rows = play(tokenizer, StubServer([wrong, ids]), "AgentR1/GSM8KTool-v0", **{**how, **changed})
        assert all(o.extra_fields["kind"] == "step" and not o.extra_fields["labels"] for o in rows)


def test_a_session_plays_a_tree_whose_shared_steps_are_rows_once(tokenizer):
    server = StubServer(answers(tokenizer, AWKWARD))
    how = {"algo": "rloo", "settings": {"branch": "2:1"}, "merge": True, "session": 1}
    fields = [output.extra_fields for output in play(tokenizer, server, **how)]
    places = {}
    for row in fields:
        steps = [step.get("place", step["index"]) for step in row["steps"]]
        places.setdefault((row["trajectory"], row["part"], row["peers"], row["share"]), []).extend(steps)
    assert places == {
        ("u_2", "", "", 0.5): [0, 1], ("u_2", "/", "u_2", 0.25): [2, 3], ("u_3", "/", "u_2", 0.25): [2, 3],
    }  # fmt: skip
    assert len(server.prompts) == 4 + 2
    shared = [step["reward"] for row in fields if not row["part"] for step in row["steps"]]
    assert shared == [1.0, 2.0 + 3.0 + 4.0]  # the mean return of what followed
    trunk, other = (Episode.from_dict(json.loads(row["episode"])) for row in fields if row["episode"])
    assert (trunk.episode_id, other.episode_id, trunk.group_id, other.group_id) == ("u_2", "u_3", "u", "u")
    same = [a.response_ids == b.response_ids for a, b in zip(trunk.steps, other.steps, strict=True)]
    assert same == [True, True, False, False]
    assert all(
        row["record"]["return"] == 10.0 and bool(row["timing"]) == (row["trajectory"] == "u_2") for row in fields
    )
    broken = play(tokenizer, StubServer(answers(tokenizer, AWKWARD)), **how, env_kwargs={"fail_at": 3})
    assert [(o.extra_fields["kind"], o.extra_fields["trajectory"]) for o in broken] == [
        ("masked", "u_2"),
        ("masked", "u_3"),
    ]
    assert all("the backend is gone" in output.extra_fields["error"] for output in broken)
    validation = play(tokenizer, StubServer(answers(tokenizer, AWKWARD)), **how, phase="validation")
    assert {output.extra_fields["trajectory"] for output in validation} == {"u_1"}


@pytest.mark.parametrize("index", [1, 5])  # four steps each, so that every text is sampled once
def test_tokens_are_trained_as_sampled(tokenizer, index):
    sampled = answers(tokenizer, AWKWARD[index:] + AWKWARD[:index])
    server = StubServer(sampled)
    outputs = play(tokenizer, server, index=index, prompt_length=4096)
    assert len(outputs) == len(server.prompts) == 4
    for i, output in enumerate(outputs):
        assert output.prompt_ids == server.prompts[i][0]
        assert output.response_ids == sampled[i]
        assert output.response_logprobs == [-0.125 * (k + 1) for k in range(len(sampled[i]))]
        assert output.response_mask == [1] * len(sampled[i])
        fields = output.as_dict()
        assert fields["prompts"].tolist() + fields["responses"].tolist() == server.prompts[i][0] + sampled[i]
        if i:  # the next prompt begins with the previous prompt and response, bit for bit
            before = outputs[i - 1].prompt_ids + outputs[i - 1].response_ids
            assert output.prompt_ids[: len(before)] == before
    (merged,) = play(tokenizer, StubServer(sampled), index=index, prompt_length=4096, merge=True)
    fields = merged.as_dict()
    assert merged.prompt_ids + merged.response_ids == outputs[-1].prompt_ids + outputs[-1].response_ids
    assert fields["step_ids"].tolist() == merged.step_ids and len(merged.step_ids) == len(merged.response_ids)
    for i, output in enumerate(outputs):
        record = merged.extra_fields["steps"][i]
        span = slice(record["start"], record["end"])
        assert merged.response_ids[span] == sampled[i]
        assert merged.response_logprobs[span] == output.response_logprobs
        assert merged.step_ids[span] == [i] * len(sampled[i]) and merged.response_mask[span] == output.response_mask
        assert len(merged.prompt_ids) + record["start"] == len(output.prompt_ids) == record["prompt_tokens"]
    assert sum(merged.response_mask) == sum(map(len, sampled[:4]))
    # the characters were sampled one by one: tokenizing the text again gives fewer tokens, so nothing was re-tokenized
    assert any(len(tokenizer.encode(tokenizer.decode(ids))) < len(ids) for ids in sampled)


class RebuiltEcho(EchoEnv):
    def step(self, action):
        observation, *rest, info = super().step(action)
        return observation, *rest, {**info, "rebuilt": True}


def test_a_rebuilt_observation_is_a_prompt_of_its_own(tokenizer):
    gym.register("EchoRebuilt-v0", entry_point=RebuiltEcho)
    try:
        outputs = play(tokenizer, StubServer(answers(tokenizer, ["abc"])), "EchoRebuilt-v0")
    finally:
        del gym.registry["EchoRebuilt-v0"]
    texts = [tokenizer.decode(output.prompt_ids) for output in outputs]
    assert len(texts) == 4 and all(EchoEnv.instructions in text for text in texts)
    assert AWKWARD[0] not in texts[1] and AWKWARD[1].split()[0] in texts[1] and AWKWARD[1].split()[0] not in texts[2]


TOOL = "AgentR1/GSM8KTool-v0"
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("wrappers", "steps_per_row"),
    [
        ([], [6]),
        (["ChatMessages"], [6]),
        (["ChatMessages(tools='text')"], [6]),
        (["StripReasoning", "ChatMessages"], [6]),
        (["ChatMessages(reasoning='strip')"], [1] * 6),
        (["ChatMessages", "SlidingWindow(k=2)"], [3, 1, 1, 1]),
        (["ChatMessages", "TokenBudget(n=9000, tokenizer={folder!r})"], [6]),
        (["ChatMessages", "TokenBudget(n={budget}, tokenizer={folder!r})"], None),
        (["RebuildPrompt"], [1] * 6),
        (["RebuildPrompt", "ChatMessages"], [1] * 6),
    ],
)
def test_prompts_are_what_wrappers_show_and_rows_what_grows(tokenizer, tmp_path, wrappers, steps_per_row):
    from agent_envs.wrappers import apply_wrappers

    tokenizer.save_pretrained(tmp_path)
    texts = [f"<think>Step {i}: é😀 </think>{CALL}" for i in range(5)] + ["#### 1"]
    sampled = [
        [*(t for character in text for t in tokenizer.encode(character, add_special_tokens=False)),
         tokenizer.eos_token_id] for text in texts
    ]  # fmt: skip
    env = gym.make(TOOL)
    question, _ = env.reset(options={"index": 0})
    messages = [{"role": "system", "content": env.unwrapped.instructions}, {"role": "user", "content": question}]
    first = tokenizer.apply_chat_template(messages, tools=env.unwrapped.tools, return_dict=False)
    budget = len(first) + len(sampled[0]) + 80  # the second prompt fits, the third does not
    wrappers = [spec.format(folder=str(tmp_path), budget=budget) if "{folder" in spec else spec for spec in wrappers]
    server = StubServer(sampled)
    rows = play(
        tokenizer, server, TOOL, wrappers=wrappers, merge=True, prompt_length=20_000, response_length=1000,
        settings={"trust": True},
    )  # fmt: skip
    assert rows[-1].extra_fields["reward_extra_info"]["stop_reason"] == "terminated"
    prompts = [prompt for prompt, _ in server.prompts]
    # the prompts say what the wrappers show
    env = apply_wrappers(gym.make(TOOL), wrappers)
    observation, info = env.reset(options={"index": 0})
    shown: list = []
    for i, prompt in enumerate(prompts):
        if not isinstance(observation, str):
            shown = observation
        elif not shown or info.get("rebuilt"):
            shown = [{"role": "system", "content": env.get_wrapper_attr("instructions")},
                     {"role": "user", "content": observation}]  # fmt: skip
        else:
            shown = [*shown, {"role": "assistant", "content": texts[i - 1]}, {"role": "tool", "content": observation}]
        tools = env.get_wrapper_attr("tools") or None
        told = tokenizer.apply_chat_template(shown, tools=tools, add_generation_prompt=True, tokenize=False)
        assert tokenizer.decode(prompt) == told
        if "TokenBudget" in str(wrappers):
            env.note_response(Response(texts[i], response_ids=sampled[i]))
        observation, _, terminated, _, info = env.step(texts[i])
    assert terminated and len(prompts) == 6
    # every sampled token is trained once, in a row that holds its prompt bit for bit
    steps = {}
    for row in rows:
        whole = row.prompt_ids + row.response_ids
        for record in row.extra_fields["steps"]:
            i, start, end = record["index"], record["start"], record["end"]
            steps[i] = row
            assert row.response_ids[start:end] == sampled[i] and row.step_ids[start:end] == [i] * len(sampled[i])
            assert whole[: len(row.prompt_ids) + start] == prompts[i]
        assert sum(row.response_mask) == sum(len(sampled[r["index"]]) for r in row.extra_fields["steps"])
    assert sorted(steps) == list(range(6))
    counts = [len(row.extra_fields["steps"]) for row in rows]
    if steps_per_row is not None:
        assert counts == steps_per_row
    else:
        assert counts[0] == 2 and all(len(prompt) <= budget for prompt in prompts)


def test_control_tokens_of_calls_reach_the_environment(tokenizer):
    import copy

    own = copy.deepcopy(tokenizer)
    own.add_special_tokens({"additional_special_tokens": ["[TOOL_CALLS]"]})
    text = '[TOOL_CALLS][{"name": "calculator", "arguments": {"expression": "6*7"}}]'
    sampled = [*own.encode(text, add_special_tokens=False), own.eos_token_id]
    assert own.convert_tokens_to_ids("[TOOL_CALLS]") == sampled[0]
    server = StubServer([sampled, own.encode("#### 1", add_special_tokens=False)])
    rows = play(
        own, server, TOOL, env_kwargs={"parser": "mistral"}, merge=True, prompt_length=9000, response_length=500
    )  # fmt: skip
    episode = Episode.from_dict(json.loads(rows[-1].extra_fields["episode"]))
    assert episode.steps[0].action == text and episode.steps[0].info["tool_results"][0]["content"] == "42"


def test_every_step_has_its_own_fields(tokenizer):
    outputs = play(tokenizer, StubServer(answers(tokenizer, ["ab"])))
    fields = [o.extra_fields for o in outputs]
    for steps in (
        [step for f in fields for step in f["steps"]],
        play(tokenizer, StubServer(answers(tokenizer, ["ab"])), merge=True)[0].extra_fields["steps"],
    ):
        assert [step["reward"] for step in steps] == [1.0, 2.0, 3.0, 4.0]
        assert [step["terminated"] for step in steps] == [False, False, False, True]
        assert [step["index"] for step in steps] == [0, 1, 2, 3]
        assert [step["anchor"] for step in steps] == [""] * 4
    assert {f["trajectory"] for f in fields} == {"u_2"}
    assert {frozenset(f) for f in fields} == {frozenset(fields[0])}
    assert {(f["min_global_steps"], f["max_global_steps"]) for f in fields} == {(3, 3)}
    assert {o.reward_score for o in outputs} == {10.0}
    info = fields[-1]["reward_extra_info"]
    assert (info["return"], info["success"], info["stop_reason"], info["num_steps"]) == (10.0, 1.0, "terminated", 4.0)
    episode = Episode.from_dict(json.loads(fields[-1]["episode"]))
    assert [list(s.response_ids) for s in episode.steps] == [o.response_ids for o in outputs]
    assert [f["episode"] for f in fields[:-1]] == ["", "", ""]


def test_sampling_is_limited_and_seeded(tokenizer):
    def seeds(**how):
        server = StubServer(answers(tokenizer, ["ab"]))
        play(tokenizer, server, **how)
        assert [p["max_tokens"] for _, p in server.prompts] == [32] * 4
        return [p.get("seed") for _, p in server.prompts]

    first, again = seeds(number=7), seeds(number=7)
    others = [seeds(number=7, session=1), seeds(number=8), seeds(phase="validation"), seeds(number=7, index=1)]
    assert first == again and len({*first, *itertools.chain(*others)}) == 20
    world, *worlds = EchoEnv.drawn
    assert [drawn == world for drawn in worlds] == [True, True, False, False, False]
    seeds(phase="validation")
    assert EchoEnv.drawn[-1] == EchoEnv.drawn[4]  # tasks that are held out stay what they are
    assert not {*seeds(number=7, settings={"seed": 1})} & {*first}  # another run
    assert seeds(number=7, settings={"request_seeds": False}) == [None] * 4


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"prompt_length": 3}, "context_length"),
        ({"env_kwargs": {"fail_at": 1}}, "error"),
        ({"env_kwargs": {"nonsense": 1}}, "error"),
    ],
)
def test_an_episode_without_steps_is_one_masked_row(tokenizer, how, reason):
    (output,) = play(tokenizer, StubServer(answers(tokenizer, ["ab"])), **how)
    assert output.response_mask == [0] and output.reward_score == 0.0
    assert output.extra_fields["kind"] == "masked"
    assert output.extra_fields["reward_extra_info"]["stop_reason"] == reason
    assert ("Error" in output.extra_fields["error"]) == (reason == "error")
    assert output.extra_fields["min_global_steps"] == 3  # known even where nothing was sampled


@pytest.mark.parametrize(("algo", "session", "kind"), [("grpo", 2, "masked"), ("remax", 3, "baseline")])
def test_whatever_fails_leaves_a_row(tokenizer, monkeypatch, algo, session, kind):
    def fail(*args, **kwargs):
        raise ZeroDivisionError("of the loop itself")

    monkeypatch.setattr(agent_loop, "arun_episode", fail)
    (output,) = play(tokenizer, StubServer(answers(tokenizer, ["ab"])), algo=algo, session=session)
    assert (output.extra_fields["kind"], output.response_mask) == (kind, [0])
    assert "ZeroDivisionError: of the loop itself" in output.extra_fields["error"]


def test_an_empty_generation_ends_the_episode(tokenizer):
    outputs = play(tokenizer, StubServer([*answers(tokenizer, ["ab"]), []]))
    assert [o.extra_fields["kind"] for o in outputs] == ["step"]
    assert outputs[0].extra_fields["reward_extra_info"]["stop_reason"] == "empty_generation"


def test_a_broken_episode_is_masked_and_its_environment_not_used_again(tokenizer):
    outputs = play(tokenizer, StubServer(answers(tokenizer, ["ab"])), env_kwargs={"fail_at": 3})
    assert [(o.extra_fields["kind"], sum(o.response_mask)) for o in outputs] == [("masked", 0)] * 2
    assert "the backend is gone" in outputs[-1].extra_fields["error"]
    play(tokenizer, StubServer(answers(tokenizer, ["ab"])), env_kwargs={"fail_at": 3})
    assert EchoEnv.made == 2


def test_environments_are_used_again(tokenizer):
    for _ in range(3):
        play(tokenizer, StubServer(answers(tokenizer, ["ab"])))
    assert EchoEnv.made == 1
    play(tokenizer, StubServer(answers(tokenizer, ["ab"])), env_kwargs={"steps": 2})
    assert EchoEnv.made == 2


def test_a_cut_episode_brings_its_final_state_for_the_critic(tokenizer):
    server = StubServer(answers(tokenizer, ["ab"]))
    *steps, value = play(tokenizer, server, "EchoCut-v0", algo="gae")
    assert [o.extra_fields["kind"] for o in steps] == ["step", "step"]
    assert (value.extra_fields["kind"], value.extra_fields["value_at"], value.response_mask) == ("value", 0, [0])
    before = steps[-1].prompt_ids + steps[-1].response_ids
    assert value.prompt_ids[: len(before)] == before and len(value.prompt_ids) > len(before)
    agent = {"agent": "tests.helpers:tells_the_last_prompt"}
    *_, told = play(tokenizer, StubServer(answers(tokenizer, ["ab"])), "EchoCut-v0", algo="gae", settings=agent)
    assert (told.extra_fields["kind"], told.prompt_ids) == ("value", value.prompt_ids)
    (row,) = play(tokenizer, StubServer(answers(tokenizer, ["ab"])), "EchoCut-v0", algo="gae", merge=True)
    assert row.prompt_ids + row.response_ids == value.prompt_ids + value.response_ids
    assert row.extra_fields["value_at"] == len(row.response_ids) - 1 and row.response_mask[-1] == 0
    for how in ({"algo": "grpo"}, {"algo": "gae", "phase": "validation"},
                {"algo": "gae", "settings": {"bootstrap_truncated": False}}):  # fmt: skip
        kinds = [o.extra_fields["kind"] for o in play(tokenizer, server, "EchoCut-v0", **how)]
        assert kinds == ["step", "step"]
    assert [o.extra_fields["kind"] for o in play(tokenizer, server, algo="gae")] == ["step"] * 4  # terminated


def test_the_final_state_of_a_context_cut_is_the_prompt_that_was_too_long(tokenizer):
    sampled = answers(tokenizer, ["abcd" * 8])
    lengths = [len(prompt) for prompt, _ in play_all(tokenizer, sampled)]
    server = StubServer(sampled)
    *steps, value = play(tokenizer, server, prompt_length=lengths[2] - 1, algo="gae")
    assert [(o.extra_fields["kind"], bool(sum(o.response_mask))) for o in steps] == [("step", True)] * 2
    assert steps[-1].extra_fields["reward_extra_info"]["stop_reason"] == "context_length"
    (last,) = steps[-1].extra_fields["steps"]
    assert (last["terminated"], last["truncated"]) == (False, True)
    assert (value.extra_fields["kind"], len(value.prompt_ids)) == ("value", lengths[2])
    assert value.prompt_ids[: len(steps[-1].prompt_ids)] == steps[-1].prompt_ids
    # longer than the whole context: no value, and the estimator falls back to 0
    short = play(tokenizer, StubServer(sampled), prompt_length=lengths[2] - 33, algo="gae")
    assert [o.extra_fields["kind"] for o in short] == ["step", "step"]


def test_the_greedy_episode_of_remax_brings_its_return_alone(tokenizer):
    server = StubServer(answers(tokenizer, ["ab"]))
    (row,) = play(tokenizer, server, algo="remax", session=3, merge=True)
    assert {(p["temperature"], p["top_p"], p["top_k"]) for _, p in server.prompts} == {(0.0, 1.0, -1)}
    assert (row.extra_fields["kind"], row.response_mask, row.extra_fields["steps"]) == ("baseline", [0], [])
    assert row.extra_fields["reward_extra_info"]["return"] == 10.0
    for how in ({"session": 2}, {"session": 3, "phase": "validation"}):
        server = StubServer(answers(tokenizer, ["ab"]))
        (row,) = play(tokenizer, server, algo="remax", merge=True, **how)
        assert row.extra_fields["kind"] == "step" and {p["temperature"] for _, p in server.prompts} == {1.0}


def test_states_travel_where_they_are_compared(tokenizer):
    (row,) = play(tokenizer, StubServer(answers(tokenizer, ["ab"])), algo="gigpo", merge=True)
    assert [step["anchor"] for step in row.extra_fields["steps"]] == ["s0", "s1", "s2", "s3"]


@pytest.mark.parametrize(
    ("env_id", "whose", "rewards"),
    [
        ("Echo-v0", "won", [1, 2, 3, 0, 4]),
        ("EchoCut-v0", "won", [1, 2]),
        ("EchoCut-v0", "ended", [1, 0, 2]),
    ],
)
def test_the_last_step_can_have_a_twin_with_its_reward(env_id, whose, rewards, tokenizer):
    sampled = answers(tokenizer, ["ab"])
    rows = play(tokenizer, StubServer(sampled), env_id, algo="gigpo", settings={"twin_final": whose})
    steps = [step for row in rows for step in row.extra_fields["steps"]]
    assert [step["reward"] for step in steps] == rewards
    if 0 in rewards:
        assert rows[-2].prompt_ids == rows[-1].prompt_ids and steps[-2]["anchor"] == steps[-1]["anchor"]
        ends = [step["terminated"] or step["truncated"] for step in steps]
        assert ends == [False] * (len(steps) - 1) + [True]
    assert rows[0].extra_fields["reward_extra_info"]["num_steps"] == len(steps) - (0 in rewards)


def play_all(tokenizer, sampled):
    server = StubServer(sampled)
    play(tokenizer, server, prompt_length=4096)
    return server.prompts


def test_validation_hands_over_the_episode_with_its_record(tokenizer):
    outputs = play(tokenizer, StubServer(answers(tokenizer, ["ab"])), phase="validation")
    assert [o.extra_fields["episode"] for o in outputs] == [""] * 4
    line = outputs[-1].extra_fields["reward_extra_info"]["episode"]
    assert Episode.from_dict(json.loads(line)).stop_reason is StopReason.TERMINATED


def test_timeouts_mask_the_episode(tokenizer):
    class Slow(StubServer):
        async def generate(self, *args, **kwargs):
            if self.prompts:
                await asyncio.sleep(30)
            return await super().generate(*args, **kwargs)

    outputs = play(tokenizer, Slow(answers(tokenizer, ["ab"])), settings={"step_timeout": 0.3})
    assert [o.extra_fields["kind"] for o in outputs] == ["masked"]
    assert outputs[0].extra_fields["reward_extra_info"]["stop_reason"] == "step_timeout"
