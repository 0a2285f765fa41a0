"""An environment that does what it is told, odd and hostile things too, and the command that serves it."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np

from agent_envs import errors
from agent_envs.text_env import Outcome, TextEnv

ODD_ID = "Test/Odd-v0"
ODD = f"odd_env:{ODD_ID}"
"""The id as workers find it; other packages too install one that is called `tests`."""
sys.path.append(str(Path(__file__).parent))
sys.modules.setdefault("odd_env", sys.modules[__name__])


class Tasks:
    name, split = "generated", "train"

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return type("Task", (), {"task_id": f"word/{index}"})()


class OddEnv(TextEnv):
    """The first word of an action names what it does; any other is done at once."""

    instructions = "Say what is to happen."

    def open_tasks(self):
        return Tasks()

    def begin(self, task):
        return "Begin.", []

    def act(self, action):
        kind, _, rest = action.partition(" ")
        match kind:
            case "pid":
                return Outcome(str(os.getpid()))
            case "say":
                return Outcome("x" * int(rest))
            case "odd":
                extra = {"n": np.int64(3), "a": np.arange(2)}
                return Outcome("\x00\u2028 \U0001f600", reward=np.float64(0.1), extra=extra)
            case "object":
                return Outcome("", extra={"thing": object()})
            case "asked":
                return Outcome(str(len(self.state)))
            case "busy":
                self.state.append(1)
                raise errors.BackendBusyError("the engine is busy")
            case "backend":
                raise errors.BackendSlowError("the engine is slow")
            case "bug":
                raise KeyError("secret detail")
            case "exit":
                sys.exit(3)
            case "stop":
                raise StopIteration
            case "sleep":
                time.sleep(float(rest))
            case "wait":  # until a file is there; another one says that it waits
                with open(f"{rest}.begun", "a") as file:
                    file.write("x")
                while not os.path.exists(rest):
                    time.sleep(0.005)
            case "hold":
                ctypes.PyDLL(None).sleep(int(rest))  # with the interpreter held
            case "loop":  # with an even increment NumPy draws for ever
                bits = np.random.PCG64(0)
                bits.state = {**bits.state, "state": {"state": 0, "inc": 0}}
                np.random.Generator(bits).integers(3)
            case "spin":
                while True:
                    pass
            case "eat":
                self.state.append([b"x" * (1 << 20) for _ in range(int(rest))])
                for part in self.state[-1]:
                    bytearray(part)
            case "crash":
                ctypes.string_at(0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "nonsense":
                for number in range(3, 4096):
                    with contextlib.suppress(OSError):
                        os.write(number, b"\x00\xff" * 500)
        return Outcome(f"done {action}")

    def close(self):
        if self._task is not None and os.path.exists("closed"):
            with open("closed", "a") as file:
                file.write("x")


gymnasium.register(ODD_ID, entry_point=OddEnv)


def started(folder, *options, env=ODD, ready="serving ", open_files=1024):
    """The command in a folder, and the last word of the line with which it says that it is ready: its address."""

    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    process = subprocess.Popen(
        [sys.executable, "-m", "agent_envs", "serve", "--env", env, "--port", "0", *options],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}, preexec_fn=limit,
    )  # fmt: skip
    line = process.stdout.readline()
    assert line.startswith(ready), line + process.stderr.read()
    return process, line.split()[-1]
