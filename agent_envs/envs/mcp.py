"""Tasks of your own, solved with the tools of any server of the Model Context Protocol.

    row     {"question": "How many notes are there?", "answer": "2",
             "setup": [{"name": "add_note", "arguments": {"text": "Milk"}}, ...]}
    check   "exact", or "my_module:check" with  check(row, text, call) -> from 0 to 1

The protocol is https://modelcontextprotocol.io; the package mcp speaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_envs.checks import boolean, load_function, number, shown, string
from agent_envs.datasets.fields import answer_field, as_list, as_object, text_field
from agent_envs.datasets.files import file_tasks
from agent_envs.envs.answers import judged
from agent_envs.envs.replayed import ReplayedEnv, Trail
from agent_envs.errors import BackendReplyError, ConfigError, DataError, ToolError
from agent_envs.rewards.short_answers import exact_match
from agent_envs.rewards.tagged import bare
from agent_envs.tasks import FileTasks
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools.listed import OfferedTool
from agent_envs.tools.mcp.server import Reply, Server
from agent_envs.tools.mcp.transports import Address

_SUFFIXES = (".jsonl", ".json", ".parquet")
_INSTRUCTIONS = "Solve the task with the tools. Then write the final answer alone, without a call."
_LONGEST_INSTRUCTIONS = 20_000  # characters of a server's own
_LONGEST_ANCHOR = 10_000


class _Call(NamedTuple):
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MCPTask:
    """A row of the user's file."""

    task_id: str
    question: str
    answers: tuple[str, ...]
    """The right answers, which `check="exact"` compares with."""
    setup: tuple[_Call, ...]
    """Calls that are made before the episode begins."""
    solution: tuple[_Call, ...]
    """Calls that solve the task; the answer follows."""
    row: Mapping[str, Any]


class _Session(Server):
    """An episode's server."""

    @property
    def first(self) -> Any:
        return self.tools

    def act(self, call: _Call) -> Reply:
        return self.call(call.name, call.arguments)


class MCPEnv(ReplayedEnv, ToolEnv):
    """Solve your own tasks with the tools of any MCP server.

    ## Description
    The tools are those that the server lists; the tasks and the check of answers are yours. The server is a program,
    which is run without a shell and ended with the environment, or an address. Every episode gets a server of its own,
    so that none sees what another did.

    ## Action Space
    Text: calls of the tools, or the final answer without a call. A tool whose schema is not valid is left out, as the
    log says.

    ## Observation Space
    Text: the question at reset, the results of calls, and whether the answer is right. Pictures and sounds in results
    are named, not shown.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`. The calls of its `setup` have been made.

    ## Rewards
    What `check` returns for the final answer, from 0 to 1.

    ## Episode End
    Terminates with the first action that calls no tool. A server that ends, does not answer in time or breaks the
    protocol raises a `BackendError`: it is never the policy's failure. An error in its answer is the call's result.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question, calls and results), `invalid_action` (a malformed
    call), `tool_results`, `score`, `success` (the score is 1), `reward_components` (`answer`).

    ## Arguments
    `gym.make("AgentR1/MCP-v0", command=["python", "my_server.py"], data="tasks.jsonl")`
    - `command`: the program and its arguments, as a list. It sees few environment variables.
    - `url`: instead, the address of a server over HTTP, such as "http://127.0.0.1:8000/mcp".
    - `data`: a file or folder of rows `{"question", "answer"}`. `answer` is a text or a list of accepted ones;
      `setup` and `solution` are lists of calls `{"name", "arguments"}`. `solution` makes an expert.
    - `split`: a split of the folder; a single file is "train".
    - `check`: "exact" (the same text up to case, punctuation and articles), or the name of a function
      "module:function" of the row, the answer and `call(name, arguments)`, which asks a tool for the server's state.
    - `fresh`: whether every episode gets a server, or a session over HTTP, of its own. `False` is faster, and suits a
      server that keeps no state.
    - `environment`: names of environment variables that the program gets.
    - `token_variable`: the environment variable with the token of a server over HTTP.
    - `timeout`, `start_timeout`: seconds to wait for an answer, and for a server to start.

    A snapshot is the calls so far. If another episode has been played since, they are made again on a new server; if
    that answers differently, it is a `BackendReplyError`.

    ## Data
    Yours. The server's own instructions follow this environment's. A run's record may not set them without trust,
    since they start a program.
    """

    settled_arguments = ("tools", "tool_timeout")
    harmless_arguments = ("timeout", "start_timeout")

    def __init__(
        self,
        *,
        command: Sequence[str] = (),
        url: str = "",
        data: str = "",
        check: str | Callable[..., float] = "exact",
        fresh: bool = True,
        environment: Sequence[str] = (),
        token_variable: str = "",
        timeout: float = 30.0,
        start_timeout: float = 30.0,
        **kwargs: Any,
    ) -> None:
        self._address = Address(
            _texts("command", command), string("url", url), _texts("environment", environment),
            string("token_variable", token_variable),
        )  # fmt: skip
        self.live_name = str(self._address)
        self._waits = {
            "timeout": number("timeout", timeout, above=0, maximum=1e6),
            "start_timeout": number("start_timeout", start_timeout, above=0, maximum=1e6),
        }
        self._fresh = boolean("fresh", fresh)
        self._check = None if check == "exact" else load_function(check, "check")
        if not data or data in ("generated", "official"):
            raise ConfigError(f"data must be the path of a file or folder of your tasks, got {shown(data)}")
        server = _Session(self._address, **self._waits)
        self._listed = server.tools
        self._waiting: _Session | None = server  # for the first episode, or for every call if all share it
        try:
            super().__init__(data=data, tools=[OfferedTool(tool, self._ask) for tool in server.tools], **kwargs)
            _ = self.tasks  # opened here, so that gym.make refuses a wrong path or row
        except BaseException:
            server.close()
            raise
        self.instructions = "\n\n".join(filter(None, [_INSTRUCTIONS, server.instructions[:_LONGEST_INSTRUCTIONS]]))

    # -- the task ------------------------------------------------------------------------------------------------

    def open_tasks(self) -> FileTasks[MCPTask]:
        return file_tasks(self.data, self.split, _parse_row, task="mcp", suffixes=_SUFFIXES)

    def begin(self, task: MCPTask) -> tuple[str, Trail]:
        if self._check is None and not task.answers:
            raise DataError(f"{task.task_id} has no 'answer', which check='exact' compares with; add it, or give check")
        self.state = self.replayed.begin(None) if self._fresh else Trail(None, self._listed)
        for call in task.setup:
            reply = self._asked(call)
            if reply.error:
                raise BackendReplyError(f"{task.task_id}: the set-up {call.name!r} failed: {reply.text:.500}")
        return task.question, self.state

    def answer(self, text: str) -> Outcome:
        answer = text.rpartition("</think>")[2].strip()
        if self._check is None:
            score = exact_match(bare(answer), self.task.answers)
        else:
            score = number(
                "the check's score", float(self._check(self.task.row, answer, self._ask)), minimum=0, maximum=1
            )
        said = {1.0: "is right", 0.0: "is wrong"}.get(score, f"scores {score:g}")
        return judged(f"The answer {said}.", score)

    act = ToolEnv.act
    step = ToolEnv.step

    def anchor(self) -> str:
        made = [f"{call.name}({call.arguments!r}): {reply.text}" for call, reply in self._done()]
        return "\n".join([self.task.question, *made])[:_LONGEST_ANCHOR]

    def right_answer(self) -> str:
        return next(iter(self.task.answers), "")

    def expert_action(self) -> str | None:
        """Return the next call of the row's `solution`, then its answer; None if the row has no solution or answer."""
        if not (self.task.solution and self.task.answers):
            return None
        waiting = list(self.task.solution)
        for call, _ in self._done():
            if waiting and call == waiting[0]:
                del waiting[0]
        return self.format_call(waiting[0].name, waiting[0].arguments) if waiting else self.task.answers[0]

    # -- the server ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the server."""
        if self._waiting is not None:
            self._waiting.close()
        self._waiting = None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_waiting": None}

    def open_live(self, start: None) -> _Session:
        server, self._waiting = self._waiting, None
        if server is None or not server.alive:
            server = _Session(self._address, **self._waits)
        if server.tools != self._listed:
            server.close()
            raise BackendReplyError(f"{self._address} does not list the same tools as when this environment was made")
        return server

    def _done(self) -> list[tuple[_Call, Reply]]:
        """Return the calls of the episode with their replies, without those of the set-up."""
        return self.state.done[len(self.task.setup) :]

    def _asked(self, call: _Call) -> Reply:
        if self._fresh:
            return self.replayed.act(self.state, call)
        self._waiting = self.open_live(None)
        reply = self._waiting.act(call)
        self.state.done.append((call, reply))
        return reply

    def _ask(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool of the server; a ToolError has the text of one that failed."""
        reply = self._asked(_Call(name, arguments))
        if reply.error:
            raise ToolError(reply.text)
        return reply.text


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(entry, str) and "\0" not in entry for entry in value):
        return tuple(value)
    raise ConfigError(f"{name} must be a list of strings such as ['python', 'server.py'], got {shown(value)}")


def _parse_row(row: Any, where: str, task_id: str) -> MCPTask:
    fields = as_object(row, "an object with 'question' and 'answer'", where)
    answer = [] if fields.get("answer") is None else fields["answer"]
    values = [answer] if isinstance(answer, (str, int, float)) else as_list(answer, "answer", where)
    answers = [answer_field({"answer": one}, "answer", where) for one in values]
    setup, solution = (_calls(fields.get(key, []), key, where) for key in ("setup", "solution"))
    return MCPTask(task_id, text_field(fields, "question", where), tuple(answers), setup, solution, fields)


def _calls(value: Any, key: str, where: str) -> tuple[_Call, ...]:
    calls = []
    for entry in as_list(value, key, where):
        fields = as_object(entry, f"calls with 'name' and 'arguments' under {key!r}", where)
        arguments = as_object(fields.get("arguments", {}), "an object under 'arguments'", where)
        calls.append(_Call(text_field(fields, "name", where), arguments))
    return tuple(calls)
