"""The data-analysis environment of docs/sandbox.md, as a package of somebody else's."""

import os
import re
import subprocess
import sys


def test_the_pages_environment_keeps_the_contract_as_a_package_of_its_own(root, tmp_path):
    page = (root / "docs" / "sandbox.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", page.split("## A data-analysis")[1], re.DOTALL | re.MULTILINE)[0]
    assert len(code.splitlines()) < 100
    package = tmp_path / "sales_task"
    package.mkdir()
    (package / "__init__.py").write_text(code.split("env = gym.make", 1)[0])
    check = (
        "import sales_task\nfrom agent_envs.testing import check_text_env\ncheck_text_env('Mine/Sales-v0', tasks=3)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", check], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
