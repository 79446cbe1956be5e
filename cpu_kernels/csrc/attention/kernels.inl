// All kernels of attention, for the instruction sets that multiply float8 as floats. Include it after
// attention/lanes_*.inl.
#ifndef QK_ATTENTION_LANES
#error "attention/kernels.inl: include attention/lanes_*.inl before this file"
#endif

#include "attention/kernels/codes.inl"
#include "attention/kernels/float8_floats.inl"
#include "attention/kernels/rounding.inl"
#include "attention/kernels/prepare.inl"
#include "attention/kernels/encode.inl"
#include "attention/kernels/attend.inl"
#include "attention/kernels/attend_floats.inl"
#include "attention/kernels/attend_float8.inl"
#include "attention/kernels/attend_integers.inl"
#include "attention/kernels/attend_any.inl"
#include "attention/kernels/combine.inl"
#include "attention/kernels/latent.inl"
