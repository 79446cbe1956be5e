// Closes the region that a simd/open_*.h opened.
#pragma GCC pop_options
