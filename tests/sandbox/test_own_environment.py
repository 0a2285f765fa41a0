"""An environment over the tool `python`, as a package of somebody else's, keeps the contract."""

import os
import subprocess
import sys
from pathlib import Path


def test_an_environment_from_outside_keeps_the_contract(root, tmp_path):
    (tmp_path / "sales_task.py").write_bytes(Path(__file__).with_name("sales_task.py").read_bytes())
    check = (
        "import sales_task\nfrom agent_envs.testing import check_text_env\ncheck_text_env('Mine/Sales-v0', tasks=3)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", check], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
