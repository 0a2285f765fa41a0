"""A model behind a server as teacher.

1. the gradient of an update is that of the formula to 1e-6, in every mode and in every layout, and the weight falls
2. a teacher with another tokenizer, and a server without log-probabilities of a prompt, are refused
3. a server that dies is one error, the run keeps all that it did, and goes on exactly; the policy comes nearer
"""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from comparisons import assert_same_records, weights_of  # noqa: E402
from small_runs import small_run  # noqa: E402

from agent_envs.adapters.teacher import MODES, Teacher  # noqa: E402
from agent_envs.adapters.torch import distillation  # noqa: E402
from agent_envs.adapters.torch.batch import assemble  # noqa: E402
from agent_envs.adapters.torch.distillation import TeacherServer  # noqa: E402
from agent_envs.adapters.torch.loop import Scores, accumulate, actor_loss, credit, main, score, train  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.adapters.verl.config.settings import Settings  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402
from agent_envs.http.pool import HTTPPool  # noqa: E402
from tests.adapters.test_teacher import gradient, model, played  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore")


class Served:
    """vLLM's /v1/completions with ``prompt_logprobs``, of a model in this process; mute once ``left`` are answered."""

    def __init__(self, fake_service, policy, decode):
        self.model, self.decode, self.left, self.change = policy, decode, 10**9, lambda reply: reply
        self.service = fake_service(self.answer)
        self.url = f"{self.service.url}/v1"

    @torch.no_grad()
    def answer(self, asked, number):
        self.left -= 1
        if self.left < 0:
            return None
        ids = json.loads(asked.body)["prompt"]
        log_probs = self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        found = [
            {str(i): {"logprob": float(log_probs[t, i]), "decoded_token": self.decode(i)}}
            for t, i in enumerate(ids[1:])
        ]
        reply = self.change({"choices": [{"text": "", "prompt_logprobs": [None, *found]}]})
        return 400 if "error" in reply else 200, reply


class Tokens:
    """A tokenizer of twelve letters."""

    def __len__(self):
        return 12

    def decode(self, ids):
        return "abcdefghijkl"[ids[0]]


def noisy(policy, scale):
    other = type(policy)(policy.config).to(next(policy.parameters()).dtype).eval()
    other.load_state_dict(policy.state_dict())
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) * scale)
    return other


@pytest.fixture
def served(model, fake_service):  # noqa: F811
    return Served(fake_service, noisy(model, 0.3), lambda token: Tokens().decode([token]))


@pytest.mark.parametrize(
    ("mode", "layout"), [*((mode, "merged") for mode in MODES), ("mixed", "steps"), ("mixed", "tree")]
)
def test_the_gradient_is_that_of_the_formula(model, served, mode, layout, monkeypatch):  # noqa: F811
    monkeypatch.setenv("OPENAI_API_KEY", "sk-teach")
    episodes, groups, _ = played()
    c = LoopConfig(env="Toy-v0", out="x", group=3)
    batch = assemble(episodes, groups, layout=layout)
    scores = Scores(score(model, batch, c))
    advantages, _, _ = credit(batch, c, scores)
    teacher = TeacherServer(Teacher(f"toy@{served.url}", 0.5, until=4, mode=mode), Tokens())
    taught, metrics = teacher.credit(batch, scores.old, advantages, 3)
    weights = weights_of(batch, "trajectory")
    accumulate(model, batch, weights, partial(actor_loss, batch, c, scores, taught), c)
    found, gaps = gradient(model), []
    for i, (group, step) in enumerate((g, s) for g, e in zip(groups, episodes, strict=True) for s in e.steps):
        row, wrote = torch.tensor([[*step.prompt_ids, *step.response_ids]]), torch.tensor(step.response_ids)[:, None]
        log_p, log_t = (
            m(row).logits.log_softmax(-1)[0, len(step.prompt_ids) - 1 : -1].gather(1, wrote).squeeze(1)
            for m in (model, served.model)
        )
        own, gap = advantages[batch.step == i].double(), (log_t - log_p).detach()
        gaps.append(gap)
        share = 0.25 * (mode != "silent" or group == 0)  # the group in which all are paid alike
        a = (0.0 if mode == "alone" else own) + share * gap
        (-(weights[batch.step == i] * a * log_p).sum()).backward()
    expected = gradient(model)
    assert float(expected.norm()) > 0.01 and float((found - expected).abs().max()) < 1e-6
    assert metrics == {"teacher/kl": pytest.approx(-float(torch.cat(gaps).mean()), abs=1e-5), "teacher/weight": 0.25}
    first, *_ = asked = served.service.asked
    assert first.path == "/v1/completions" and first.headers["Authorization"] == "Bearer sk-teach"
    assert json.loads(first.body) | {"model": "toy", "prompt_logprobs": 0} == json.loads(first.body)
    assert len(asked) == 1 + int(batch.row.max()) + 1
    assert teacher.credit(batch, scores.old, advantages, 5) == (advantages, {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda reply: {"choices": [{"text": ""}]}, "gives no prompt_logprobs of the tokens sent"),
        (lambda reply: {"choices": [{"prompt_logprobs": [None] * 12}]}, "gives no prompt_logprobs"),
        (lambda reply: json.loads(re.sub('"logprob": [-.e0-9]+', '"logprob": NaN', json.dumps(reply))), "at most 0"),
        (lambda reply: json.loads(json.dumps(reply).replace('"logprob": -', '"logprob": ')), "at most 0"),
        (lambda reply: {"error": "Token id 11 is out of vocabulary"}, "status 400.*Token id 11 is out of vocabulary"),
        (lambda reply: json.loads(json.dumps(reply).replace('"e"', '"E"')), "token 4 is 'E', and 'e' for the policy"),
    ],
)
def test_what_cannot_teach_is_refused(served, change, says):
    served.change = change
    with pytest.raises(ConfigError, match=f"the teacher toy@{served.url}.*{says}"):
        TeacherServer(Teacher(f"toy@{served.url}"), Tokens())


def test_a_server_teaches_any_loop_of_ours_and_no_other_trainer():
    taught = {"env": "Toy-v0", "out": "x", "teacher": "toy@http://host/v1"}
    assert LoopConfig(**taught, agent="compact(after=6000)").teaching.server == ("toy", "http://host/v1")
    with pytest.raises(ConfigError, match="teaches in the PyTorch loop; here the teacher is expert"):
        Settings(teacher=taught["teacher"])


def test_a_token_that_the_teacher_cannot_write_costs_no_update(served):
    teacher = TeacherServer(Teacher(f"toy@{served.url}"), Tokens())
    served.change = lambda reply: json.loads(json.dumps(reply).replace('"logprob": -', '"logprob": -9999'))
    assert teacher.log_probs([[1, 2, 3]]).tolist() == [0.0, -50.0, -50.0]


def settings(out, model_path, server):
    taught = {"teacher": f"some/model@{server.url}", "teacher_mode": "alone", "learning_rate": 5e-3, "save_every": 100}
    how = {"tasks": 8, "group": 1, "max_response_tokens": 12, "concurrency": 4, "steps": 6}
    return small_run(out, model_path, **taught, **how)


def test_a_server_that_dies_costs_nothing(model_path, tmp_path, monkeypatch, capsys, fake_service):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path)
    teacher = noisy(transformers.AutoModelForCausalLM.from_pretrained(model_path), 0.05)
    server = Served(fake_service, teacher, lambda token: tokenizer.decode([token]))
    monkeypatch.setattr(distillation, "HTTPPool", partial(HTTPPool, backoff=0.01))
    whole = train(settings(tmp_path / "whole", model_path, server))
    assert whole[-1]["teacher/kl"] < 0.7 * whole[1]["teacher/kl"] and whole[1]["teacher/weight"] == 1.0
    server.left = 1 + 3 * int(whole[1]["env/rows"]) - 2  # in the third iteration
    parts = settings(tmp_path / "parts", model_path, server)
    monkeypatch.setattr("agent_envs.adapters.torch.loop.read_command_line", lambda argv: parts)
    assert main([]) == 1
    error = capsys.readouterr().err
    assert f"{server.url}/completions failed" in error and "Traceback" not in error
    assert json.loads((tmp_path / "parts" / "checkpoint" / "step.json").read_text()) == {"step": 2}
    server.left = 10**9
    assert_same_records(train(parts), whole)
    with pytest.raises(ConfigError, match="leave out agent or teacher"):
        dataclasses.replace(parts, teacher="expert", agent="agent_envs.agents:loop")
