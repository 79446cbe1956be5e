// Opens the region of a file that is compiled for AVX2; simd/close.h closes it.
// Include it after all other headers: no code of theirs may be compiled for these instructions, as the linker may
// keep one copy of it for every machine.
#include "simd/target.h"

QK_OPEN_TARGET("avx2,fma,f16c")
