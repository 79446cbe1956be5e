// Closes the region that a simd/open_*.h opened.
QK_CLOSE_TARGET
