// All kernels of attention, for the instruction sets that multiply float8 as floats. Include it after
// attention/lanes_*.inl.
#ifndef QK_ATTENTION_LANES
#error "attention/kernels.inl: include attention/lanes_*.inl before this file"
#endif

#include "attention/codes.inl"
#include "attention/float8_floats.inl"
#include "attention/rounding.inl"
#include "attention/prepare.inl"
#include "attention/encode.inl"
#include "attention/attend.inl"
#include "attention/attend_floats.inl"
#include "attention/attend_float8.inl"
#include "attention/attend_integers.inl"
#include "attention/attend_any.inl"
#include "attention/combine.inl"
#include "attention/latent.inl"
