from mmap import PAGESIZE, mmap

from qbench.measure.host.memory import peak_rss_bytes, reset_peak_rss


def test_peak_rises_with_held_memory_and_starts_again():
    assert reset_peak_rss()
    before = peak_rss_bytes()
    size = 64 << 20
    with mmap(-1, size) as held:  # of the system: an allocator may keep freed memory
        for page in range(0, size, PAGESIZE):
            held[page] = 1
        assert peak_rss_bytes() - before > 0.9 * size
    assert reset_peak_rss()
    assert peak_rss_bytes() - before < 0.5 * size
