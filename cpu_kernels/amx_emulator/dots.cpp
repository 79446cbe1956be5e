#include "dots.h"

#include <cpuid.h>

#include <cstring>

namespace amx {
namespace {

// The header of the standard format: which parts are not in their first state. Linux says in the bytes of the legacy
// region that are left to software whether there is a header.
constexpr size_t magic_at = 464, parts_at = 472, header_at = 512, low_at = 160;
constexpr uint32_t has_header = 0x46505853;
constexpr int sse = 1, avx = 2, zmm_hi256 = 6;

size_t offset_of(int feature) {
    uint32_t size, offset, c, d;
    return __get_cpuid_count(0xd, static_cast<uint32_t>(feature), &size, &offset, &c, &d) ? offset : 0;
}

const size_t high_at = offset_of(avx), above_at = offset_of(zmm_hi256);

uint64_t word(const uint8_t* from) {
    uint64_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

}  // namespace

Vectors::Vectors(void* frame) : state_(static_cast<uint8_t*>(frame)) {
    const uint64_t parts = word(state_ + parts_at);
    if (static_cast<uint32_t>(word(state_ + magic_at)) != has_header || !(parts >> avx & 1)) return;
    low_ = part(sse, low_at, 256);
    high_ = part(avx, high_at, 256);
    if (word(state_ + header_at) >> zmm_hi256 & 1) above_ = state_ + above_at;
}

uint8_t* Vectors::part(int feature, size_t offset, size_t num_bytes) {
    const uint64_t parts = word(state_ + header_at), with = parts | uint64_t{1} << feature;
    if (parts != with) std::memset(state_ + offset, 0, num_bytes);
    std::memcpy(state_ + header_at, &with, sizeof with);
    return state_ + offset;
}

void Vectors::read(unsigned index, uint8_t* to) const {
    std::memcpy(to, low_ + 16 * index, 16);
    std::memcpy(to + 16, high_ + 16 * index, 16);
}

template <class A, class B>
void Vectors::add(unsigned destination, unsigned a, const uint8_t* b, int num_bytes) {
    uint8_t sums[32], factors[32];
    read(destination, sums);
    read(a, factors);
    for (int lane = 0; lane < num_bytes; lane += 4) {
        uint32_t sum;
        std::memcpy(&sum, sums + lane, 4);
        for (int j = lane; j < lane + 4; j++) sum += static_cast<uint32_t>(A(factors[j]) * B(b[j]));  // wraps around
        std::memcpy(sums + lane, &sum, 4);
    }
    std::memset(sums + num_bytes, 0, sizeof sums - static_cast<size_t>(num_bytes));
    std::memcpy(low_ + 16 * destination, sums, 16);
    std::memcpy(high_ + 16 * destination, sums + 16, 16);
    if (above_) std::memset(above_ + 32 * destination, 0, 32);
}

void Vectors::add_dots(Op op, unsigned destination, unsigned a, const uint8_t* b, int num_bytes) {
    switch (op) {
        case Op::vpdpbssd: return add<int8_t, int8_t>(destination, a, b, num_bytes);
        case Op::vpdpbsud: return add<int8_t, uint8_t>(destination, a, b, num_bytes);
        case Op::vpdpbuud: return add<uint8_t, uint8_t>(destination, a, b, num_bytes);
        default: return add<uint8_t, int8_t>(destination, a, b, num_bytes);
    }
}

}  // namespace amx
