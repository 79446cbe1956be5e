// Opens the region of a file that is compiled for AVX-512 with BF16; simd/close.h closes it.
// Include it as open_avx2.h says.
#include "simd/target.h"

QK_OPEN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")
