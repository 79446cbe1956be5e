// Scalar kernels are compiled for the baseline of the architecture, so no region opens.
#include "simd/headers.h"
