#include "linear/block.h"
#include "simd/open_avx_vnni.h"

namespace qk::linear::avx_vnni {
namespace {
#include "linear/lanes_avx_vnni.inl"
#include "linear/reround/lanes_256.inl"
#include "linear/reround.inl"
}  // namespace
#include "linear/reround/sums.inl"
}  // namespace qk::linear::avx_vnni

#include "simd/close.h"
