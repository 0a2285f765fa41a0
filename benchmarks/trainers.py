"""Trainers beside each other: iterations of GRPO on the same model, tasks and limits, each arm in its own processes.

    python -m benchmarks.trainers --model tiny-base --out runs/tiny           # a rehearsal of a few minutes
    python -m benchmarks.trainers --out runs/trainers --dtype bfloat16        # SmolLM2-135M (`agentr1 model`)

GSM8KTool, `level="1-2"`, 8 tasks x 4 episodes of at most 4 steps, temperature 1, one update of AdamW an iteration; the
first iteration is not counted. All arms start from one folder: the model after a warm start, with a chat template that
knows tools, without which TRL's and verl's own interfaces do not work.

    seconds, processor seconds   of playing and of the rest; the latter, of all processes of the arm, depend less on
                                 what else the machine does
    processed                    tokens of forward passes with gradients, padding included, counted in the model; over
                                 those of one prefix tree of the iteration's rows, the least that can be computed
    memory                       most of the proportional set sizes of all processes together, looked at each second

results.json is written after each arm; a rerun goes on with those that are missing or failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

from agent_envs.adapters.tiny.supervised import computes_bfloat16
from benchmarks.arms import OUT, note, rows, run, span, table

ROOT = Path(__file__).resolve().parents[1]
ENV, KWARGS = "AgentR1/GSM8KTool-v0", {"level": "1-2", "max_episode_steps": 4}
TASKS, GROUP, STEPS = 8, 4, 4
RESPONSE, CONVERSATION = 64, 320
"""Most tokens of a response, and of all that follows the prompt where a trainer's interface knows that alone."""
RATE, ROWS, TOKENS = 1e-6, 4, 1024
"""The learning rate, at which the policy stays as it is; rows of a micro-batch, and tokens of one of the loop's."""
WARM_START = 60
"""Supervised steps, as of `benchmarks.real_model --cell GSM8KTool-two`, for a model other than tiny-base."""
TEMPLATE = "".join((
    "{% for m in messages %}{% set before = messages[loop.index0 - 1].role if loop.index0 else '' %}",
    "{% set after = messages[loop.index0 + 1].role if not loop.last else '' %}",
    "{% if m.role == 'tool' %}{{ ('\\n' if before == 'tool' else '<|im_start|>user\\n') + m.content }}",
    "{{ '' if after == 'tool' else '<|im_end|>\\n' }}",
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}",
    "{% if loop.first and tools %}{{ '\\n\\nTools:\\n' }}",
    "{% for t in tools %}{{ t.function | tojson + '\\n' }}{% endfor %}",
    """{{ 'Call a tool like this: <tool_call>{"name": <tool>, "arguments": {...}}</tool_call>' }}{% endif %}""",
    "{% for c in m.tool_calls or [] %}{% set given = c.function.arguments %}",
    """{{ '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}""",
    "{{ (given if given is string else given | tojson) + '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}",
    "{% endif %}{% endfor %}{{ '<|im_start|>assistant\\n' if add_generation_prompt else '' }}",
))  # fmt: skip
"""What a model reads whose own template has no tools, with the tools in words."""


def episode_rows(number: int, episodes: Sequence[Any]) -> None:
    steps = [step for episode in episodes for step in episode.steps]
    rows(number, [step.prompt_ids + step.response_ids for step in steps], sum(len(s.response_ids) for s in steps))


def watch() -> None:
    """Count the tokens of every forward pass, and write down what verl's own agent loop plays, once they are there."""
    from wrapt import when_imported

    def count(name: str, module: Any) -> None:
        kind = getattr(module, name)
        own = kind.forward

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            import torch

            given = kwargs.get("input_ids", args[0] if args else None)
            if torch.is_grad_enabled() and given is not None:
                note("passes.jsonl", time=time.time(), tokens=given.numel())
            return own(self, *args, **kwargs)

        kind.forward = forward

    for name, module in (("LlamaModel", "llama.modeling_llama"), ("Qwen2Model", "qwen2.modeling_qwen2")):
        when_imported(f"transformers.models.{module}")(partial(count, name))

    @when_imported("verl.utils.tracking")
    def time_steps(module: Any) -> None:
        log = module.Tracking.log

        def timed(self: Any, data: dict[str, Any], step: int, *args: Any, **kwargs: Any) -> None:
            if "timing_s/step" in data:
                end = time.time()
                begin = end - data["timing_s/step"]
                note("spans.jsonl", what="iteration", number=step, begin=begin, end=end)
                note("spans.jsonl", what="play", number=step, begin=begin, end=begin + data["timing_s/gen"])
            log(self, data, step, *args, **kwargs)

        module.Tracking.log = timed

    @when_imported("verl.experimental.agent_loop.tool_agent_loop")
    def score(module: Any) -> None:
        from agent_envs.envs.gsm8k.reward import judge

        own = module.ToolAgentLoop.run

        async def run(self: Any, sampling_params: dict[str, Any], **row: Any) -> Any:
            out = await own(self, sampling_params, **row)
            mask = out.response_mask
            last = max((i + 1 for i, wrote in enumerate(mask) if not wrote), default=0)  # begin of the last response
            text = self.tokenizer.decode(out.response_ids[last:], skip_special_tokens=True)
            right = judge(text, row["reward_model"]["ground_truth"]).reward
            out.reward_score = 0.0 if "<tool_call>" in text else right
            rows(int(row["global_steps"]), [[*out.prompt_ids, *out.response_ids]], sum(mask))
            return out

        module.ToolAgentLoop.run = run


def loop(layout: str, options: argparse.Namespace, out: Path) -> None:
    from agent_envs.adapters.torch import loop as module
    from agent_envs.adapters.torch.settings import LoopConfig

    play, iterate = module.play_iteration, module.iterate

    def timed_play(run: Any, number: int) -> Any:
        with span("play", number):
            groups, unused = play(run, number)
        episode_rows(number, [episode for group in groups for episode in group.episodes])
        return groups, unused

    def timed_iterate(run: Any, number: int, failures: Any) -> Any:
        with span("iteration", number):
            return iterate(run, number, failures)

    module.play_iteration, module.iterate = timed_play, timed_iterate
    module.train(LoopConfig(
        env=ENV, env_kwargs=KWARGS, model=options.start, out=str(out / "run"), steps=options.iterations, tasks=TASKS,
        group=GROUP, eval_tasks=0, mini_batches=1, warmup=0, learning_rate=RATE, max_response_tokens=RESPONSE,
        max_tokens=1024, micro_tokens=TOKENS, layout=layout, dtype=options.dtype, device="cpu",
    ))  # fmt: skip


def trl(own_interface: bool, options: argparse.Namespace, out: Path) -> None:
    import trl as library
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl.chat_template_utils import qwen3_schema

    from agent_envs.adapters import trl as envs

    class Spans(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.begin = time.time()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            note("spans.jsonl", what="iteration", number=state.global_step, begin=self.begin, end=time.time())

    class Tools(library.GRPOTrainer):
        def _generate(self, prompts: Any) -> Any:
            with span("play", number := self.state.global_step + 1):
                found = super()._generate(prompts)
            rows(number, [[*p, *c] for p, c in zip(*found[:2], strict=True)], sum(map(sum, found[2])))
            return found

    class Episodes(envs.EpisodeTrainer):
        def _play(self, tasks: Any, step: int, mode: str) -> Any:
            with span("play", step):
                episodes = super()._play(tasks, step, mode)
            episode_rows(step, episodes)
            return episodes

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    tokenizer = AutoTokenizer.from_pretrained(options.start)
    tokenizer.response_schema = qwen3_schema
    config = library.GRPOConfig(
        output_dir=str(out / "run"), per_device_train_batch_size=ROWS, num_generations=GROUP, learning_rate=RATE,
        gradient_accumulation_steps=TASKS * GROUP // ROWS, max_steps=options.iterations, temperature=1.0, beta=0.0,
        max_completion_length=CONVERSATION if own_interface else RESPONSE, max_tool_calling_iterations=STEPS - 1,
        gradient_checkpointing=False, bf16=options.dtype == "bfloat16", use_cpu=True, report_to=[], seed=0,
        shuffle_dataset=False, save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(options.start, dtype="float32")
    common: dict[str, Any] = {"processing_class": tokenizer, "callbacks": [Spans()]}
    indices = range(TASKS * options.iterations)
    if own_interface:
        data = envs.environment_dataset(ENV, indices, env_kwargs=KWARGS)
        common["environment_factory"] = envs.environment_class(ENV, env_kwargs=KWARGS)
        Tools(model, envs.episode_reward, config, data, **common).train()
    else:
        data = envs.episode_dataset(ENV, indices, env_kwargs=KWARGS)
        Episodes(model, config, data, model_context=1024, **common).train()


def verl(layout: str | None, options: argparse.Namespace, out: Path) -> None:
    """As `agentr1 train` runs it; without a layout, verl's own trainer and agent loop on the same server."""
    from agent_envs.adapters.verl.config.compose import compose_run
    from agent_envs.adapters.verl.run import process, training
    from agent_envs.adapters.verl.run.folder import RunFolder
    from agent_envs.episodes.record import read_episodes

    environment = process.process_environment

    def watched(**how: Any) -> dict[str, str]:
        found = environment(**how)
        modules = f"{found['VERL_USE_EXTERNAL_MODULES']},benchmarks.trainers"
        return {**found, "VERL_USE_EXTERNAL_MODULES": modules, "OMP_NUM_THREADS": str(options.threads)}

    process.process_environment = watched
    os.environ["PYTHONPATH"] = str(ROOT)
    settings = [
        f"data.train_batch_size={TASKS}", f"actor_rollout_ref.rollout.n={GROUP}", "data.max_prompt_length=1024",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={TASKS}", f"actor_rollout_ref.actor.optim.lr={RATE}",
        f"data.max_response_length={RESPONSE if layout else CONVERSATION}", "run.wrappers=[]",
        "actor_rollout_ref.actor.optim.lr_warmup_steps=0", "trainer.val_before_train=False", "trainer.test_freq=-1",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={ROWS}", "trainer.save_freq=-1",
        *([f"agentr1.layout={layout}"] if layout else []),
    ]  # fmt: skip
    if options.dtype == "bfloat16":
        settings.append("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16")
        settings.append("actor_rollout_ref.rollout.dtype=bfloat16")
    composed = compose_run(
        env=ENV, algo="grpo", preset="cpu-tiny", steps=options.iterations, data=None, split="train",
        env_kwargs=json.dumps(KWARGS), wrappers=[], out=str(out / "run"), model=options.start, seed=0, warm_start=0,
        demo_noise=None, val_fraction=0.1, overrides=settings,
    )  # fmt: skip
    folder = RunFolder((out / "run").resolve())
    if layout:
        training.train(composed)
        for path in sorted(folder.episodes.glob("train-*.jsonl")):
            episode_rows(int(path.stem.rpartition("-")[2]), list(read_episodes(path)))
        return
    config = composed.verl()
    config.trainer.v1.trainer_mode = "sync"
    rollout = config.actor_rollout_ref.rollout
    rollout.agent.default_agent_loop, rollout.multi_turn.enable = "tool_agent", True
    rollout.multi_turn.max_assistant_turns, rollout.multi_turn.format = STEPS, "hermes"
    rollout.multi_turn.function_tool_path = str(out / "tools.py")
    (out / "tools.py").write_text(CALCULATOR)
    own_rows(folder.train_rows, range(TASKS * options.iterations))
    own_rows(folder.validation_rows, range(1))
    folder.starts.mkdir(parents=True)
    process.run_verl(config, folder, folder.starts / "000-from-0.jsonl", 0)


CALCULATOR = """
from agent_envs.tools.calculator import calculator
from verl.tools.function_tool import function_tool


@function_tool("calculator", schema=calculator.spec)
def calculate(expression: str) -> str:
    return calculator.call(expression=expression)
"""


def own_rows(path: Path, indices: range) -> None:
    """Write tasks as verl's own data loader reads them."""
    import gymnasium as gym

    from agent_envs.adapters.verl.run.tasks import write_rows

    env, found = gym.make(ENV, **KWARGS), list[dict[str, Any]]()
    for index in indices:
        question, _ = env.reset(options={"index": index})
        prompt = [("system", env.unwrapped.instructions), ("user", question)]
        answer = {"style": "rule", "ground_truth": env.unwrapped.task.answer}
        of_all = {"data_source": ENV, "agent_name": "tool_agent", "extra_info": {"index": index}}
        messages = [{"role": role, "content": content} for role, content in prompt]
        found.append({**of_all, "prompt": messages, "reward_model": answer})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, found)


ARMS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "loop, tree": partial(loop, "tree"),
    "loop, merged": partial(loop, "merged"),
    "loop, steps": partial(loop, "steps"),
    "verl adapter, tree": partial(verl, "tree"),
    "verl adapter, steps": partial(verl, "steps"),
    "verl's tool loop": partial(verl, None),
    "TRL's environments": partial(trl, True),
    "EpisodeTrainer in TRL": partial(trl, False),
}
"""The PyTorch loop in three layouts, the first of which is its default; the verl adapter, by default and with a row for
each step, as Agent-R1 lays them out; verl's ToolAgentLoop in verl's own trainer (the CPU's platform and generation
server are ours: verl has none); TRL's GRPOTrainer with environment_factory, and our trainer in TRL."""


def make_start(model: str, warmed: Path | None, folder: Path) -> None:
    """Write the model that all arms start from, with a chat template that has tools."""
    from agent_envs.adapters.tiny.warm_start import make_warm_model
    from agent_envs.policies.named import model_path

    if model == "tiny-base":
        make_warm_model(folder, ENV, steps=0, noise=0.0, seed=0)
        return
    made = warmed or folder.with_name("warmed")
    if not made.exists():
        how = {"model": model_path(model), "steps": WARM_START, "noise": 0.3, "max_length": 1024}
        make_warm_model(made, ENV, seed=0, env_kwargs=KWARGS, **how)
    shutil.copytree(made, folder.with_name("copy"), dirs_exist_ok=True)
    folder.with_name("copy").joinpath("chat_template.jinja").write_text(TEMPLATE)
    folder.with_name("copy").rename(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and of results.json")
    parser.add_argument("--model", default="smollm2-135m", help="tiny-base, or as for agentr1 (default: %(default)s)")
    parser.add_argument("--warmed", type=Path, help="the model after a warm start (default: made, which takes long)")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS, metavar="ARM", help=f"of {list(ARMS)}")
    parser.add_argument("--iterations", type=int, default=3, help="the first is not counted (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of every process (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of passes over the model")
    parser.add_argument("--minutes", type=float, default=20.0, help="for each arm (default: %(default)s)")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--start", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.iterations < 2:
        parser.error(f"--iterations {options.iterations}: the first is not counted, so give 2 or more")
    if options.dtype == "bfloat16" and not computes_bfloat16(torch.device("cpu")):
        parser.error("--dtype bfloat16: this CPU has no instructions for it, and not every arm would leave it out")
    if options.arm:
        ARMS[options.arm](options, Path(os.environ[OUT]))
        return
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    options.start = str(out / "start")
    if not (out / "start").exists():
        make_start(options.model, options.warmed, out / "start")
    path = out / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    settings = {name: getattr(options, name) for name in ("model", "iterations", "threads", "dtype")} | {
        "env": ENV, "env_kwargs": KWARGS, "tasks": TASKS, "group": GROUP, "response_tokens": RESPONSE,
        "conversation_tokens": CONVERSATION, "learning_rate": RATE, "rows": ROWS, "tokens": TOKENS,
        "warm_start": 0 if options.model == "tiny-base" else WARM_START,
    }  # fmt: skip
    if known and known["settings"] != settings:
        sys.exit(f"{path} is of other settings, {known['settings']}: give another --out")
    wanted = ("torch", "transformers", "trl", "verl", "ray", "accelerate")
    known_versions = {each.name: each.version for each in distributions() if each.name in wanted}
    result = {"settings": settings, "versions": known_versions, "arms": known.get("arms", {})}
    threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}
    for number, arm in enumerate(ARMS):
        if arm in options.arms and "failed" in result["arms"].get(arm, {"failed": ""}):
            command = [
                sys.executable,
                "-m",
                "benchmarks.trainers",
                *sys.argv[1:],
                "--arm",
                arm,
                "--start",
                options.start,
            ]
            result["arms"][arm] = run(command, out / f"arm-{number}", threads, options.minutes)
            print(arm, json.dumps(result["arms"][arm]), flush=True)
            path.write_text(json.dumps(result, indent=1) + "\n")
    print(table({name: result["arms"][name] for name in ARMS if name in result["arms"]}, next(iter(ARMS))))


if OUT in os.environ:
    watch()
if __name__ == "__main__":
    main()
