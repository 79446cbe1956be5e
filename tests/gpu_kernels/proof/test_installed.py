"""Others' kernels are listed only if their package is installed. They are not run here."""

from importlib import metadata, util
from types import SimpleNamespace

import pytest
import torch

from gpu_kernels.attention.flashinfer_peers import page_lists
from gpu_kernels.gemm import vllm_peers
from gpu_kernels.proof import problems
from gpu_kernels.proof.problems import problems_of

LISTED = {  # op, its first problem that has the peer, peer
    "flashinfer": [("paged_decode", "flashinfer BatchDecode"), ("mla_decode", "flashinfer BatchMLA")],
    "vllm": [
        ("w8a8_gemm", "vllm cutlass_scaled_mm"),
        ("fp8_gemm", "vllm cutlass_scaled_mm"),
        ("w4a16_gemm", "vllm Marlin g128"),
    ],
}


@pytest.fixture(params=[None, *LISTED])
def there(request, monkeypatch):
    """The one of the packages that can be found; its name is the distribution's version too."""
    monkeypatch.setattr(util, "find_spec", lambda name: object() if name == request.param else None)
    monkeypatch.setattr(metadata, "version", lambda name: f"{name} 1.0")
    return request.param


def test_listed_where_installed(there):
    for module, peers in LISTED.items():
        for op, peer in peers:
            assert (peer in problems_of(op)[0].peers) == (module == there)


def test_versions_of_installed_peers_are_listed(there):
    expected = {} if there is None else {there: f"{problems.DISTRIBUTIONS[there]} 1.0"}
    assert problems.peer_versions() == expected


def test_page_lists():
    """17, 16 and 1 tokens on pages of 16; later entries of the table are not listed."""
    table = torch.tensor([[5, 7, 99], [3, 99, 99], [8, 99, 99]], dtype=torch.int32)
    indptr, pages, last = page_lists(table, torch.tensor([17, 16, 1], dtype=torch.int32), 16)
    assert indptr.tolist() == [0, 2, 3, 4] and pages.tolist() == [5, 7, 3, 8] and last.tolist() == [1, 16, 1]
    assert {indptr.dtype, pages.dtype, last.dtype} == {torch.int32}


def test_marlin_gets_all_that_its_version_takes(monkeypatch):
    def marlin_gemm(a, c, b_q_weight, b_scales, workspace, b_q_type, size_m, size_n, size_k, a_scales, is_k_full=True):
        raise AssertionError("not run here")

    ops = SimpleNamespace(marlin_gemm=marlin_gemm)
    modules = {
        vllm_peers.OPS: ops,
        "vllm.scalar_type": SimpleNamespace(scalar_types=SimpleNamespace(uint4b8="uint4b8")),
    }
    monkeypatch.setattr(vllm_peers, "import_module", modules.get)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=132))
    found = vllm_peers._marlin_operands(64, 256, {"x": torch.zeros(3, 256)})
    assert found["run"] is marlin_gemm and found["given"]["c"] is found["given"]["a_scales"] is None
    assert found["given"]["b_q_weight"].shape == (16, 128) and found["given"]["b_scales"].shape == (2, 64)
