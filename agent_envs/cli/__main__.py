"""`python -m agent_envs.cli`: the `agentr1` command where no script is installed."""

import sys

from agent_envs.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
