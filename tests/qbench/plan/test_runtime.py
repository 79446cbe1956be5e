from qbench.plan.runtime import runtime_bytes


def test_one_process_as_the_next():
    """Torch's libraries alone are more than 50 MB; two readings differ by pages, not by libraries."""
    first, second = runtime_bytes(1), runtime_bytes(1)
    assert first > 50_000_000 and abs(second - first) < first / 10
