"""Pages under a mixed workload: `pytest --benchmark-only tests/qbench/runtime/caches/test_bench_pages.py`.

extra_info holds the shares of memory that no token fills: of pages, and of fixed room for the longest sequence.
"""

import pytest
from support.architectures import small_config
from support.mixed_workload import AT_ONCE, LONGEST, run_mixed_workload

from qbench.runtime.caches.places.pages import PagePool
from quant.models import ModelConfig


@pytest.mark.parametrize("page_size", [16, 64])
def test_mixed_workload(benchmark, page_size):
    config = ModelConfig.from_hf(small_config())
    pool = PagePool(config, None, AT_ONCE * LONGEST // page_size, page_size, impl="reference")
    benchmark.group = "pages"
    usage = benchmark.pedantic(run_mixed_workload, (pool,), rounds=3, warmup_rounds=1)
    assert pool.num_free == pool.num_pages
    benchmark.extra_info |= {"waste": usage.waste, "fixed_waste": usage.fixed_waste}
    benchmark.extra_info |= {"sequences": usage.num_sequences}
