"""CodeEnv, the base class of tasks that are solved by writing programs: the python tool in three published forms.

    tool      <tool_call>{"name": "python", "arguments": {"code": "6 * 7"}}</tool_call>       42
    retool    <code>                                                  <interpreter>
              print(6 * 7)                                            42
              </code>                                                 </interpreter>
    mathtir   ```python                                               ```output
              print(6 * 7)                                            42
              ```                                                     ```

The forms follow ReTool (arXiv 2504.11536) and ToRA's tool-integrated reasoning (arXiv 2309.17452).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from agent_envs.checks import choice, integer, number
from agent_envs.errors import ConfigError
from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.sandbox import Sandbox, Session, check_sandbox, keeps_variables, open_sandbox
from agent_envs.sandbox.sandbox import LONGEST
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolResult, tool_spec
from agent_envs.tools.python import MAX_CHARS, PythonTool

STYLES = ("tool", "retool", "mathtir")
"""How programs are written and answered."""

ANCHOR_LENGTH = 10_000
"""The most characters of an anchor, so that a step costs the same in an episode of any length."""

_PARSERS = {"tool": "hermes", "retool": "retool", "mathtir": "fenced_python"}
_SHOWN = {"tool": "{}", "retool": "\n<interpreter>\n{}\n</interpreter>\n", "mathtir": "```output\n{}\n```\n"}
_ERROR = "error: "


@dataclass(slots=True)
class CodeState:
    """An episode: its interpreter, and what the policy has seen of it."""

    session: Session
    """The interpreter; a copy of the state continues it by itself."""
    anchor: str
    """The question and the outputs so far."""
    outputs: list[str] = field(default_factory=list)
    """What the programs printed that did not fail, in order."""
    steps: int = 0
    """Actions so far."""
    failed: bool = False
    """Whether a program failed."""


class CodeEnv(ToolEnv):
    """A tool environment whose tool runs Python in a sandbox. Variables stay for the episode.

    A subclass defines tasks and ``answer`` as in ``ToolEnv``, what the policy is asked (``question``) and which files
    its programs can open (``files``).

    Args:
        style: One of `STYLES`.
        parser: The format of the calls in style "tool".
        sandbox: As for `agent_envs.sandbox.open_sandbox`.
        code_timeout: Seconds that a program may run.
        memory_mb: Megabytes of memory that a program may use.
        max_output: Characters of a program's output that are shown.
        **kwargs: See ``ToolEnv``.
    """

    settled_arguments = ("tools", "tool_timeout")
    recorded_arguments: ClassVar[tuple[str, ...]] = ("style", "max_output")
    answer_format = ""
    """How the final answer is written, for the instructions."""

    def __init__(
        self,
        *,
        style: str = "tool",
        parser: str | None = None,
        sandbox: str | Sandbox = "forked",
        code_timeout: float = 10.0,
        memory_mb: int = 512,
        max_output: int = MAX_CHARS,
        **kwargs: Any,
    ) -> None:
        self.style = choice("style", style, STYLES)
        if parser is not None and style != "tool":
            raise ConfigError(f"style={style!r} has its own format; leave out parser={parser!r}")
        self.sandbox = check_sandbox(sandbox)
        python = PythonTool(
            self._session,
            timeout=number("code_timeout", code_timeout, above=0, maximum=LONGEST),
            memory=integer("memory_mb", memory_mb, minimum=16) << 20,
            max_chars=integer("max_output", max_output, minimum=1),
        )
        super().__init__(tools=[python], parser=parser or _PARSERS[style], **kwargs)
        way = {"tool": "with the tool", "retool": "between <code> and </code>", "mathtir": "in a ```python block"}
        stay = "variables stay" if keeps_variables(self.sandbox) else "every program starts without variables"
        how = f"Write Python {way[style]} and read what it prints; {stay}."
        self.instructions = f"Solve the problem. {how} {self.answer_format}"

    # -- what a task implements ----------------------------------------------------------------------------------

    def question(self, task: Any) -> str:
        """Return the question of a task."""
        return task.question

    def files(self, task: Any) -> Mapping[str, str | bytes]:
        """Return the files that the task's programs can open."""
        return {}

    # -- what it does --------------------------------------------------------------------------------------------

    @property
    def tools(self) -> list[ToolSpec]:
        """The python tool in style "tool"; empty in the other styles, whose actions are plain text."""
        return [tool_spec(PythonTool)] if self.style == "tool" else []

    def begin(self, task: Any) -> tuple[str, CodeState]:
        self._end_session()
        question = self.question(task)
        session = open_sandbox(self.sandbox).session(files=self.files(task), seed=max(self._index, 0))
        return question, CodeState(session, question)

    def act(self, action: str) -> Outcome:
        self.state.steps += 1
        outcome = super().act(action)
        if outcome.terminated:
            self._end_session()
        return outcome

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        state: CodeState = self.state
        for result in results:
            state.anchor = f"{state.anchor}\n{result.content}"[-ANCHOR_LENGTH:]
            if result.error:
                state.failed = True
            else:
                state.outputs.append(result.content)
        if self.style == "tool":
            return outcome
        shown = "".join(_SHOWN[self.style].format(r.content.removeprefix(_ERROR)) for r in results)
        return replace(outcome, observation=shown, extra={"tool_results": [], "calls": len(results)})

    def anchor(self) -> str:
        return self.state.anchor

    def prompt_state(self) -> dict[str, Any]:
        return {"question": self.question(self.task), "outputs": list(self.state.outputs)}

    def close(self) -> None:
        self._end_session()
        super().close()

    def write_program(self, code: str) -> str:
        """Write a program as the policy would."""
        return self.format_call("python", {"code": code})

    def _session(self) -> Session:
        return self.state.session

    def _end_session(self) -> None:
        if self.state is not None:
            self.state.session.close()
