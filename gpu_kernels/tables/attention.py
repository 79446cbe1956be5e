"""The rows of this family: (op, device type) -> {implementation: "module:function"}, the default first."""


def _rows(*ops: str) -> dict[tuple[str, str], dict[str, str]]:
    rows = {}
    for op in ops:
        triton = f"gpu_kernels.attention.{op}_triton:{op}_triton"
        reference = f"gpu_kernels.attention.{op}:{op}_reference"
        rows[op, "cuda"] = {"triton": triton, "reference": reference}
        rows[op, "cpu"] = {"reference": reference, "triton": triton}
    return rows


IMPLEMENTATIONS = _rows("mla_decode", "paged_decode", "paged_prefill", "mla_prefill", "block_prefill", "key_mass")
