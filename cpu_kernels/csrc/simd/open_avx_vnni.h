// Opens the region of a file that is compiled for AVX2 with AVX-VNNI; simd/close.h closes it.
// Include it as open_avx2.h says.
#include "simd/target.h"

QK_OPEN_TARGET("avx2,avxvnni,fma,f16c")
