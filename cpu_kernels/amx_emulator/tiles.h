// The effects of AMX's tile instructions on tile registers and memory: palette 1, int8 and bfloat16.
// source: Intel Software Developer's Manual, volume 2, the "Operation" section of each instruction
#pragma once

#include <cstdint>

namespace amx {

inline constexpr int num_tiles = 8, max_rows = 16, row_bytes = 64;

enum class Op : uint8_t {
    ldtilecfg,
    sttilecfg,
    tilerelease,
    tilezero,
    tileloadd,
    tileloaddt1,
    tilestored,
    tdpbssd,
    tdpbsud,
    tdpbusd,
    tdpbuud,
    tdpbf16ps,
    vpdpbssd,  // of vector registers: dots.h
    vpdpbsud,
    vpdpbusd,
    vpdpbuud,
};
inline constexpr int num_ops = 16;

constexpr bool is_dot(Op op) { return op >= Op::vpdpbssd; }

// The fault that the processor would raise.
enum class Fault : uint8_t { none, undefined_opcode, general_protection, poisoned_memory };

// Outcome of an instruction; a fault leaves the tiles as they were.
struct Outcome {
    Fault fault = Fault::none;
    const char* reason = nullptr;
};

// The tile registers of one thread.
class Tiles {
public:
    Outcome configure(const void* memory);    // [64] bytes
    Outcome store_config(void* memory) const;
    Outcome release();
    Outcome zero(unsigned tile);
    Outcome load(unsigned tile, const uint8_t* base, int64_t stride);
    Outcome store(unsigned tile, uint8_t* base, int64_t stride);

    // destination [m, n] += a [m, k] * b [k, n]; in b the codes of 4 (bfloat16: 2) successive k lie side by side.
    Outcome multiply(Op op, unsigned destination, unsigned a, unsigned b);

private:
    void reset();
    Outcome check_configured(unsigned tile) const;
    Outcome check_memory_access(unsigned tile) const;
    Outcome check_product(unsigned destination, unsigned a, unsigned b) const;
    template <class A, class B>
    void multiply_int8(unsigned destination, unsigned a, unsigned b);
    void multiply_bf16(unsigned destination, unsigned a, unsigned b);
    void clear_outside(unsigned tile);

    bool configured_ = false;
    uint8_t start_row_ = 0;
    uint16_t columns_[num_tiles] = {};  // in bytes
    uint8_t rows_[num_tiles] = {};
    alignas(64) uint8_t data_[num_tiles][max_rows][row_bytes] = {};
};

}  // namespace amx
