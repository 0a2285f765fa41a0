"""Run the `agentr1` command as `python -m agent_envs`."""

import sys

from agent_envs.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
