// One instruction of AMX or AVX-VNNI in a program, read from its machine code.
#pragma once

#include <cstdint>

#include "tiles.h"

namespace amx {

struct Instruction {
    Op op;
    int length;          // bytes
    unsigned tile;       // destination, of a dot a vector register; or the loaded or stored tile
    unsigned a, b;       // sources of a product; b of a dot is in memory if there is an address
    uint64_t address;    // of memory operands
    int64_t stride;      // of tile loads and stores, bytes from row to row
    int num_bytes;       // of the vectors of a dot
    const char* illegal; // why the processor would refuse this encoding; null where it would not
};

// registers  rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: the order in which machine code numbers them
// returns    false where this is neither
bool decode(const uint8_t* code, const uint64_t (&registers)[16], Instruction& instruction);

}  // namespace amx
