"""Every exception the library raises on purpose.

A bad action raises none of these: the environment answers it with an observation that says what was expected.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any

from agent_envs.text import clean_output

_HEADER = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^[ |]*File "([^<"][^"]*)", line (\d+)', re.MULTILINE)
_PYTHON, _HERE = (os.path.dirname(module) + os.sep for module in (os.__file__, __file__))
_LIBRARY = re.compile(rf"(?!{re.escape(_HERE)})(?:{re.escape(_PYTHON)}|.*[\\/](?:site|dist)-packages[\\/])")
_UNWRITTEN = re.compile(r"in (\w+)\n +raise NotImplementedError\n")


class AgentEnvsError(Exception):
    """Base of every error of this library."""


class ConfigError(AgentEnvsError, ValueError):
    """An argument names something that does not exist, or values that do not fit together."""


class DataError(AgentEnvsError, ValueError):
    """A data file or one of its rows cannot be used; names the file and the line."""


class TaskIndexError(AgentEnvsError, IndexError):
    """A task index is outside its split; names the range."""


class MissingExtraError(AgentEnvsError, ImportError):
    """An optional package is needed here and is not installed; names the extra of this project that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        how = f"pip install 'agent-envs[{extra}]'"
        super().__init__(f"the package {package!r} is not installed; install it with: {how}")
        self.package, self.extra = package, extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return type(self), (self.package, self.extra)


class ToolError(AgentEnvsError):
    """A tool failed. The policy sees the message as the tool's result."""


class UnknownPaperError(ToolError):
    """A backend of paper search has no paper with this id."""


class BackendError(AgentEnvsError):
    """Something that an environment or a policy depends on is broken: a server, an index, an engine."""


class BackendAbortedError(BackendError):
    """A service ended a request before its answer was complete."""


class BackendBusyError(BackendError):
    """A service is overloaded or limits the rate of requests."""


class BackendDownError(BackendError):
    """Nothing answers, or the answer is cut off."""


class BackendRefusedError(BackendError):
    """A service rejects this request and would reject it again: unknown model, wrong key."""


class BackendReplyError(BackendError):
    """A service's answer is not what was expected."""


class BackendSlowError(BackendError):
    """A service does not answer in time."""


class NotRecordedError(BackendError):
    """A replay has no answer to this request."""


class VectorEnvError(AgentEnvsError):
    """Some environments of a vector failed. The others carried out their commands; the failed ones need a reset.

    Args:
        errors: The exceptions, by the environment's number.
        num_envs: Number of environments in the vector.
        results: What the call would have returned; in it a failed environment has its last observation, reward 0 and
            no info.
    """

    def __init__(self, errors: Mapping[int, BaseException], num_envs: int, results: Any = None) -> None:
        each = "; ".join(f"environment {i}: {type(e).__name__}: {e}" for i, e in sorted(errors.items()))
        super().__init__(f"{len(errors)} of {num_envs} environments failed: {each}")
        self.errors, self.num_envs, self.results = dict(errors), num_envs, results

    def __reduce__(self) -> tuple[type[VectorEnvError], tuple[dict[int, BaseException], int, Any]]:
        return type(self), (self.errors, self.num_envs, self.results)


class PolicyError(AgentEnvsError):
    """A policy has no action for this state."""


class PromptError(AgentEnvsError):
    """Messages cannot be turned into a prompt with this tokenizer."""


class EpisodeStop(AgentEnvsError):  # noqa: N818  a stop is not a failure
    """Raised by an actor to end its episode; the rollout records the reason."""


class ContextLengthExceeded(EpisodeStop):
    """The model's context leaves no room for a response, or has cut it off."""


class CallLimitReached(EpisodeStop):
    """The agent has used up the episode's calls of the model."""


class EmptyGeneration(EpisodeStop):
    """The model returned no token."""


class RunBudgetSpent(EpisodeStop):
    """The run has used up its tokens."""


class TokenLimitReached(EpisodeStop):
    """The episode has used up its tokens."""


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """Return the end of an error message: a close name, or all of them. Policies read it too, in answers of tools.

    >>> did_you_mean("grop", ["gae", "grpo"])
    " Did you mean 'grpo'? There are: 'gae', 'grpo'."
    >>> did_you_mean("x", ["gae", "grpo"])
    " There are: 'gae', 'grpo'."
    """
    names = list(choices)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} There are: {', '.join(map(repr, names))}."


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not blank, or the error's type where it has no text."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def own_code(told: str, *, blamed: bool = False) -> str:
    """Return a traceback's last place in the user's code; "" for none, or if `blamed` and it called this package."""
    stacks = ([frame for frame in _FRAME.findall(each) if not _LIBRARY.match(frame[0])] for each in told.split(_HEADER))
    frames = [frame for stack in stacks for frame in (stack[-1:] if blamed else stack)]
    return next((f"{file}, line {line}" for file, line in reversed(frames) if not file.startswith(_HERE)), "")


def what_failed(told: str) -> str:
    """Return the error at the end of a traceback's text, as one line, and in brackets where in the user's own code.

    >>> what_failed('  File "/home/me/task.py", line 3, in act\\nZeroDivisionError: division by zero')
    'ZeroDivisionError: division by zero (/home/me/task.py, line 3)'
    """
    told = re.sub(r"(?m)^ *(?:\| ?|\+.*\n?)", "", told)  # without the margins of a group of exceptions
    error = " ".join(re.sub(r"\A(?:[ \t].*\n)+", "", told.split(_HEADER)[-1]).split())  # what follows the frames
    place, last = own_code(told), error.removeprefix("agent_envs.errors.")[:400]
    if last == "NotImplementedError" and (missing := _UNWRITTEN.search(told)):
        return f"{last}: a subclass must define {missing[1]}()"
    return f"{last} ({place})" if place else last


@contextlib.contextmanager
def needs_extra(extra: str, package: str | None = None) -> Iterator[None]:
    """Turn a failed import within the block into a MissingExtraError for ``package``, else for the module itself."""
    try:
        yield
    except ImportError as e:
        raise MissingExtraError(package or e.name or extra, extra) from e


def check_release(package: str, extra: str) -> None:
    """Check that a package is installed in a release that this project's extra asks for.

    Args:
        package: The distribution's name.
        extra: The extra of this project that installs it.

    Raises:
        MissingExtraError: It is not installed.
        ConfigError: Another release is installed.
    """
    from packaging.requirements import Requirement

    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError as e:
        raise MissingExtraError(package, extra=extra) from e
    try:
        requirements = map(Requirement, metadata.requires("agent-envs") or ())
    except metadata.PackageNotFoundError:  # imported from a folder
        return
    for needed in requirements:
        chosen = needed.name == package and needed.marker and needed.marker.evaluate({"extra": extra})
        if chosen and not needed.specifier.contains(installed, prereleases=True):
            wanted = f"{package}{needed.specifier}"
            how = f"pip install '{wanted}' (or 'agent-envs[{extra}]' with the project's constraints file)"
            raise ConfigError(f"agent_envs works with {wanted}, found {package} {installed}; install it with: {how}")


def run_command(action: Callable[[], str | tuple[str, int]]) -> int:
    """Run a command and write its result to standard output.

    Errors of this library or of the user's code, and files that cannot be read or written, become one message on
    standard error instead of a traceback. A result may come with an exit status of its own.

    Returns:
        The exit status. 0: done; 1: a backend or the disk failed, nothing reads the output any more, or a fault of the
        program, with its traceback; 2: bad input; 130: interrupted.
    """
    with clean_output():
        try:
            done = action()
            text, status = (done, 0) if isinstance(done, str) else done
            sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")
            sys.stdout.flush()
            return status
        except AgentEnvsError as e:
            problem, status = str(e), 1 if isinstance(e, BackendError) else 2
        except KeyboardInterrupt:
            problem, status = "interrupted; the same command starts again, or resumes where it can", 130
        except BrokenPipeError:  # as with `| head`; the rest is discarded when the interpreter exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
            return 1
        except Exception as e:  # noqa: BLE001  the interpreter would show a traceback with its texts unescaped
            disk = isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
            told = traceback.format_exc()
            if (type(e) is NotImplementedError and not e.args) or (own_code(told, blamed=True) and not disk):
                problem, status = f"your code failed: {what_failed(told)}", 2
            elif isinstance(e, FileNotFoundError) and e.filename is None and e.errno:  # of getcwd
                problem, status = "the current folder was deleted; change to another one", 2
            elif not isinstance(e, OSError) or (e.filename is None and not disk):
                sys.stderr.write(told)
                return 1
            else:
                place = "a file cannot be written" if e.filename is None else os.fsdecode(e.filename)[:200]
                problem, status = f"{place}: {e.strerror}", 1 if disk else 2
        sys.stderr.write(f"agentr1: {problem}\n")
        return status
