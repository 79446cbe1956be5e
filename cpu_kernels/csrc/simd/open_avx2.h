// Opens the region of a file that is compiled for AVX2; simd/close.h closes it.
// Include it after all other headers: no code of theirs may be compiled for these instructions, as the linker may
// keep one copy of it for every machine.
#include <immintrin.h>

#include "simd/headers.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
