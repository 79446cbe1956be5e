"""The worked example of each contributors' guide: its code and its test run, or are in the repository, as shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "contribute"
# page -> the module that the page asks for, and the number of its tests
EXAMPLES = {
    "add-a-format.md": ("quant.formats.t2_0", 1),
    "add-a-method.md": ("quant.methods.prune", 1),
    "add-a-family.md": ("quant.models.mine", 1),
    "add-a-command.md": ("qbench.cli.size", 1),
    "add-a-kernel.md": ("gpu_kernels.fused.scaled_add", 5),
}


def test_the_pages_are_enough(tmp_path: Path) -> None:
    """All examples in one process, which imports torch once."""
    for page, (module, _) in EXAMPLES.items():
        text = (GUIDES / page).read_text(encoding="utf-8")
        assert module.replace(".", "/") + ".py" in text
        code, test = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        name = module.rpartition(".")[2]
        (tmp_path / f"own_{name}.py").write_text(code, encoding="utf-8")
        # The page's reader saves the code as `module`.
        (tmp_path / f"test_{name}.py").write_text(test.replace(f"from {module} import", f"from own_{name} import"))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    expected = f"{sum(number for _, number in EXAMPLES.values())} passed"
    assert done.returncode == 0 and expected in done.stdout, done.stdout


QUOTED = re.compile(r'```\w+ title="([^"\n]+)"\n(.*?)```', re.DOTALL)


@pytest.mark.parametrize("page", sorted(GUIDES.glob("*.md")), ids=lambda page: page.stem)
def test_quoted_lines_match_the_file(page: Path) -> None:
    """A block with a file's name as its title; `...` marks lines that are left out."""
    for name, block in QUOTED.findall(page.read_text(encoding="utf-8")):
        text = (GUIDES.parents[1] / name).read_text(encoding="utf-8")
        for part in re.split(r"^\.\.\.$", block, flags=re.MULTILINE):
            assert part.strip("\n") in text, f"{name} has other lines than {page.name} shows:\n{part}"


def test_the_kernel_guide_quotes_each_of_its_steps() -> None:
    assert len(QUOTED.findall((GUIDES / "add-a-kernel.md").read_text(encoding="utf-8"))) >= 8
