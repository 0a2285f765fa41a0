"""GSM8K with programs: the word problems of `env.py`, solved by running Python.

Agent-R1's paper reports GSM8K with sandboxed code; no part of that task was released, so its form here is ours.
"""

from __future__ import annotations

from agent_envs.envs.code_env import CodeEnv
from agent_envs.envs.gsm8k.env import StepwiseGSM8K
from agent_envs.envs.gsm8k.reward import judge
from agent_envs.rewards.math_answers import extract_answer
from agent_envs.text_env import Outcome


class GSM8KCodeEnv(StepwiseGSM8K, CodeEnv):
    """Answer a word problem with the help of Python.

    ## Description
    The problems of GSM8K-v0, whose page covers the rest. The policy may run a program in every step; its first text
    without one is the answer.

    ## Action Space
    Any text: programs, or the final answer, read as in GSM8K-v0. How programs are written depends on `style`:
    - "tool": Hermes calls, `<tool_call>{"name": "python", "arguments": {"code": "12*7"}}</tool_call>`, up to 4 a step.
    - "retool": `<code>` and `</code>` around a program; the first complete pair counts.
    - "mathtir": a fenced block of Python; the first counts.

    ## Observation Space
    Text: the question at reset; then what the programs print, with the value of their last expression, or the end of
    the traceback of one that fails. "retool" puts it between `<interpreter>` tags, "mathtir" in an output block.

    ## Starting State
    As in GSM8K-v0. Variables stay for the episode; `random` is seeded with the task's index.

    ## Rewards
    1 if the answer equals the gold number exactly, else 0.

    ## Episode End
    Terminates with the answer. Truncated after 10 steps.

    ## Information
    As in GSM8K-v0, and `tool_results` (style "tool": list of `name`, `content`, `error`), `calls` (other styles:
    how many). `anchor` is the question and the outputs so far, its last 10,000 characters; `invalid_action` also means
    a call that cannot be read.

    ## Arguments
    `gym.make("AgentR1/GSM8KCode-v0", split="train", data="generated", level="1-8", style="tool", sandbox="forked")`
    - `split`, `data`, `level`: as in GSM8K-v0.
    - `style`: see above. `parser`: the format of the calls in style "tool".
    - `sandbox`: "forked" or another of docs/sandbox.md. `code_timeout` (10 s), `memory_mb` (512), `max_output`
      (8192 characters).
    - `max_parallel_calls`: programs per step.
    """

    answer_format = "Write the final answer as a number after ####."

    def answer(self, text: str) -> Outcome:
        return judge(text, self.task.answer)

    def seen(self) -> list[str]:
        """Return what the programs printed as numbers in plain form: 12.0 is 12."""
        return [extract_answer(output) or output for output in self.state.outputs]

    def calculate(self, calculation: str) -> str:
        return self.write_program(calculation if self.style == "tool" else f"print({calculation})")
