"""The report of test seconds: shares of the whole, the most grown first."""

from checks.seconds import compared


def test_files_whose_share_grew_come_first():
    kept = {"seconds": {"a.py": 30.0, "b.py": 60.0, "c.py": 10.0}}
    lines = compared({"seconds": {"a.py": 20.0, "b.py": 60.0, "d.py": 20.0}}, kept)
    assert lines[0] == "test seconds: 100 in 3 files; kept run: 100 in 3 files"
    assert [line.split()[-1] for line in lines[1:]] == ["d.py", "b.py", "a.py"]
    assert "kept    new" in lines[1] and "60.0 s, kept   60.0" in lines[2]


def test_a_slower_machine_alone_is_no_growth():
    kept = {"seconds": {"a.py": 1.0, "b.py": 9.0}}
    lines = compared({"seconds": {"a.py": 3.0, "b.py": 27.0}}, kept)
    assert [line.split()[-1] for line in lines[1:]] == ["a.py", "b.py"]
