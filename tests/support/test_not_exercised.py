from types import SimpleNamespace

from support.not_exercised import not_run, table


def report(node_id: str, longrepr: object) -> SimpleNamespace:
    return SimpleNamespace(nodeid=node_id, longrepr=longrepr)


def test_reasons_are_counted_with_their_folders_and_the_most_frequent_comes_first():
    reports = [
        report("tests/qbench/kernels/test_a.py::test_b[avx512]", ("a.py", 3, "Skipped: this machine has no avx512")),
        report("tests/cpu_kernels/test_c.py::test_d", ("c.py", 9, "Skipped: this machine has no\n  avx512")),
        report("tests/cpu_kernels/test_c.py::test_e", ("c.py", 9, "Skipped: this machine has no avx512")),
        report("tests/interop/test_f.py", "could not import 'gptqmodel'"),
    ]
    assert table(not_run(reports)) == [
        "     3  this machine has no avx512  (cpu_kernels, qbench/kernels)",
        "     1  could not import 'gptqmodel'  (interop)",
    ]


def test_a_run_that_skips_nothing_has_an_empty_table():
    assert table(not_run([])) == []
