"""verl's own `main_ppo` on a configuration file, in a process that ends when the one that started it does.

Ray's processes end with the process that started them, so a killed run leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run verl. The arguments are the id of the starting process and the YAML file."""
    parent, path = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit("the process that started this one is gone")
    from omegaconf import OmegaConf
    from verl.trainer.main_ppo import main as verl_main

    config = OmegaConf.load(path)
    OmegaConf.set_struct(config, True)  # as Hydra does
    verl_main(config)


if __name__ == "__main__":
    main()
