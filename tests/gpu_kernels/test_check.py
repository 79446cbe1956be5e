import torch

from gpu_kernels import check

SHAPES = [(1, 5, 33), (17, 3, 64)]


def test_check_passes_right_kernels(interpreter):
    """bfloat16 is left to a GPU: the interpreter cuts it off, which is past the bound."""
    wrong = interpreter(check.wrong_results, SHAPES, "cpu")
    assert [told for told in wrong if "bfloat16" not in told] == []


def test_check_names_wrong_kernels(monkeypatch):
    monkeypatch.setattr(check, "architecture", lambda *_: 90)
    monkeypatch.setattr(check, "run_w8a8", lambda s, config: s["y"].zero_())
    monkeypatch.setattr(check, "run_quantizer", lambda s: None)
    wrong = check.wrong_results(SHAPES, "cpu")
    assert len(wrong) == 2 * (3 * 3 + 1)  # three tile shapes and three types a shape, and the quantizer
    assert wrong[0].startswith("w8a8_gemm M=1 N=5 K=33 torch.float16") and wrong[-1] == "quantize_per_token M=17 K=64"


def test_agrees():
    expected = torch.tensor([1.0, -3e4, 0.0], dtype=torch.float64)
    half_step = torch.tensor([2**-12, 0.0, 0.0], dtype=torch.float64)
    assert check.agrees((expected + half_step).half(), expected)
    assert not check.agrees((expected + 8 * half_step).half(), expected)
    assert not check.agrees(torch.tensor([1.0, -3e4, torch.nan]).half(), expected)
