// Closes the region that a simd/open_*.h opened, if it did.
#ifdef QK_CLOSE_TARGET
QK_CLOSE_TARGET
#endif
