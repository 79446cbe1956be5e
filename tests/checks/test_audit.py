"""`make audit` ends differently for a clean result, a vulnerability and a silent advisory database."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "report, status, expected",
    [
        ("No known vulnerabilities found", 0, 0),
        ("Found 2 known vulnerabilities in 1 package", 1, 1),
        ("ERROR: Failed to resolve the host", 1, 3),
        ("ERROR: absl-py: Dependency not found and could not be audited", 1, 3),
    ],
    ids=["clean", "found", "no network", "no advisories"],
)
def test_audit_reports_vulnerabilities_and_failed_lookups_by_status(tmp_path, report, status, expected):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f"#!/bin/sh\necho '{report}'\nexit {status}\n")
    python.chmod(0o755)
    (tmp_path / ".installed").touch()
    command = ["make", "--silent", "--assume-old=.venv/.created", "audit", f"AUDIT={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert report in done.stdout
    assert (f"Error {expected}" in done.stderr) == bool(expected) and (done.returncode == 0) == (expected == 0)
    assert ("so nothing was audited" in done.stderr) == (expected == 3)
