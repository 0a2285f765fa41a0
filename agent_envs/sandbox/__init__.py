"""A sandbox for programs that a model writes: they run in milliseconds and can touch nothing outside.

>>> from agent_envs.sandbox import open_sandbox
>>> sandbox = open_sandbox()
>>> sandbox.run("print(6 * 7)").stdout
'42\\n'
>>> with sandbox.session() as session:
...     _ = session.run("x = 20")
...     session.run("x + 1", echo=True).stdout
'21\\n'
"""

from agent_envs.sandbox.kinds import check_sandbox, keeps_variables, open_sandbox, run
from agent_envs.sandbox.sandbox import STATUSES, Interpreter, Program, Result, Sandbox, Session

__all__ = [
    "STATUSES",
    "Interpreter",
    "Program",
    "Result",
    "Sandbox",
    "Session",
    "check_sandbox",
    "keeps_variables",
    "open_sandbox",
    "run",
]


def __dir__() -> list[str]:
    return __all__
