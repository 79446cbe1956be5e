"""The policy of docs/add-a-policy.md is the code that the page shows, and its test passes."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "add-a-policy.md"
MOST_LINES = 30


def test_the_page_is_enough(tmp_path: Path) -> None:
    policy, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert sum(1 for line in (policy + test).splitlines() if line.strip()) <= MOST_LINES
    (tmp_path / "every_fourth.py").write_text(policy, encoding="utf-8")
    # The page's reader imports the module in `qbench.policies`.
    (tmp_path / "test_every_fourth.py").write_text("import every_fourth\n" + test, encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()
    assert "1 passed" in done.stdout.decode()
