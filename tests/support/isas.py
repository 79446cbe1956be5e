"""The implementations of an op as test parameters."""

import pytest

import cpu_kernels


def isas_of(op: str) -> list:
    """Each in turn; one that this machine cannot run is a skip."""
    rows = [row for row in cpu_kernels.op_table() if row["op"] == op]
    assert rows, f"the op table has no {op}"
    return [
        pytest.param(
            row["impl"],
            marks=() if row["available"] else pytest.mark.skip(reason=f"this machine has no {row['impl']}"),
        )
        for row in rows
    ]
