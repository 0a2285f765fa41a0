"""A cluster of several nodes, of which some are killed while an evaluation is played."""

import subprocess
import sys

import pytest

from tests.helpers import own_package


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_nothing_is_lost_or_doubled_by_killing_nodes_workers_and_clients(root):
    pytest.importorskip("ray")
    command = [sys.executable, str(root / "benchmarks" / "scale.py"), "kills", "--kills", "3", "--episodes", "200"]
    done = subprocess.run(command, env=own_package(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost, nothing twice, every episode as played alone" in done.stdout
    assert done.stdout.count("killed a") == 3
