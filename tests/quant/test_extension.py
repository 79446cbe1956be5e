"""Kernels that are not built are None; kernels of other sources than their callers are an error."""

import sys
from types import ModuleType

import pytest

from quant.extension import import_kernels


@pytest.fixture
def afresh(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "cpu_kernels"]:
        monkeypatch.delitem(sys.modules, name)


def test_not_built(afresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "cpu_kernels._ext", None)  # as if it could not be found
    assert import_kernels("cpu_kernels") is import_kernels("cpu_kernels.decode") is None


def test_built_of_other_sources(afresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "cpu_kernels._ext", ModuleType("cpu_kernels._ext"))
    with pytest.raises(ImportError, match="cannot import name"):
        import_kernels("cpu_kernels.decode")


def test_an_invalid_module_is_reported():
    with pytest.raises(ModuleNotFoundError, match=r"cpu_kernels\.frobnicate"):
        import_kernels("cpu_kernels.frobnicate")
