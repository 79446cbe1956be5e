#include "decode.h"

#include <cstring>

namespace amx {
namespace {

// The three-byte VEX prefix and the rest of an instruction. Bars: stored inverted.
//
//     byte 0      1           2            3        4            5 ...
//          +------+-----------+------------+--------+------------+------------------
//          | c4   | RXB mmmmm | W vvvv Lpp | opcode | ModRM      | SIB, displacement
//          +------+-----------+------------+--------+------------+------------------
//                   ---           ----                mod reg rm
struct Fields {
    bool r, x, b;        // bit 3 of reg, index, base
    unsigned v;          // register of vvvv
    unsigned prefix;     // pp: 0 none, 1 66, 2 f3, 3 f2
    unsigned opcode, mod, reg, rm;
    bool l;              // vectors of 256 bits
};

constexpr uint8_t vex3 = 0xc4;
constexpr unsigned map_0f38 = 2;
constexpr unsigned prefix_none = 0, prefix_66 = 1, prefix_f3 = 2, prefix_f2 = 3;
constexpr unsigned mod_register = 3, rm_sib = 4, rm_rip = 5;

bool read_fields(const uint8_t* code, Fields& fields) {
    if (code[0] != vex3 || (code[1] & 31) != map_0f38 || (code[2] & 0x80)) return false;  // W is 0 in all
    fields = {!(code[1] & 0x80), !(code[1] & 0x40), !(code[1] & 0x20), (~code[2] >> 3) & 15u, code[2] & 3u,
              code[3],           code[4] >> 6 & 3u, code[4] >> 3 & 7u, code[4] & 7u,          (code[2] & 4) != 0};
    return true;
}

struct Memory {
    uint64_t base = 0;    // with the displacement
    int64_t index = 0;    // scaled
    bool has_sib = false;
    int length = 0;       // of the instruction up to its last byte
};

Memory read_memory(const uint8_t* code, const Fields& fields, const uint64_t (&registers)[16]) {
    Memory memory;
    int at = 5;
    bool displacement32 = fields.mod == 2, relative_to_rip = false;
    if (fields.rm == rm_sib) {
        const unsigned sib = code[at++];
        const unsigned index = (sib >> 3 & 7) | fields.x << 3, base = (sib & 7) | fields.b << 3;
        memory.has_sib = true;
        if (index != 4) memory.index = static_cast<int64_t>(registers[index] << (sib >> 6));
        if ((base & 7) == 5 && fields.mod == 0)
            displacement32 = true;  // no base
        else
            memory.base = registers[base];
    } else if (fields.rm == rm_rip && fields.mod == 0) {
        displacement32 = relative_to_rip = true;
    } else {
        memory.base = registers[fields.rm | fields.b << 3];
    }
    int32_t displacement = 0;
    if (displacement32) {
        std::memcpy(&displacement, code + at, 4);
        at += 4;
    } else if (fields.mod == 1) {
        displacement = static_cast<int8_t>(code[at++]);
    }
    if (relative_to_rip) memory.base = reinterpret_cast<uint64_t>(code + at);
    memory.base += static_cast<uint64_t>(int64_t{displacement});
    memory.length = at;
    return memory;
}

bool decode_config(const Fields& fields, const Memory& memory, Instruction& out) {
    out.illegal = fields.v ? "vvvv is not 1111" : nullptr;
    if (fields.mod == mod_register) {
        if (fields.prefix == prefix_none && fields.reg == 0 && fields.rm == 0) {
            out.op = Op::tilerelease;
            return true;
        }
        if (fields.prefix != prefix_f2 || fields.rm != 0) return false;
        out.op = Op::tilezero;
        out.tile = fields.reg;
        if (fields.r) out.illegal = "there are 8 tiles";
        return true;
    }
    if (fields.reg != 0 || fields.prefix > prefix_66) return false;
    out.op = fields.prefix == prefix_none ? Op::ldtilecfg : Op::sttilecfg;
    out.address = memory.base + static_cast<uint64_t>(memory.index);
    return true;
}

bool decode_memory(const Fields& fields, const Memory& memory, Instruction& out) {
    if (fields.mod == mod_register || fields.prefix == prefix_none) return false;
    out.op = fields.prefix == prefix_f2 ? Op::tileloadd : fields.prefix == prefix_66 ? Op::tileloaddt1 : Op::tilestored;
    out.tile = fields.reg;
    out.address = memory.base;
    out.stride = memory.index;  // the index is no part of the address here
    if (fields.v || fields.r || !memory.has_sib) out.illegal = "a tile load or store without a SIB byte, or of no tile";
    return true;
}

bool decode_dot(const Fields& fields, const Memory& memory, Instruction& out) {
    constexpr Op by_prefix[] = {Op::vpdpbuud, Op::vpdpbusd, Op::vpdpbsud, Op::vpdpbssd};
    out.op = by_prefix[fields.prefix];
    out.tile = fields.reg | fields.r << 3;
    out.a = fields.v;
    out.b = fields.rm | fields.b << 3;
    if (fields.mod != mod_register) out.address = memory.base + static_cast<uint64_t>(memory.index);
    out.num_bytes = fields.l ? 32 : 16;
    return true;
}

bool decode_product(const Fields& fields, Instruction& out) {
    if (fields.mod != mod_register) return false;
    if (fields.opcode == 0x5c) {
        if (fields.prefix != prefix_f3) return false;
        out.op = Op::tdpbf16ps;
    } else {
        constexpr Op by_prefix[] = {Op::tdpbuud, Op::tdpbusd, Op::tdpbsud, Op::tdpbssd};
        out.op = by_prefix[fields.prefix];
    }
    out.tile = fields.reg;
    out.a = fields.rm;
    out.b = fields.v;
    if (fields.r || fields.b || fields.v > 7) out.illegal = "there are 8 tiles";
    return true;
}

}  // namespace

bool decode(const uint8_t* code, const uint64_t (&registers)[16], Instruction& instruction) {
    Fields fields;
    if (!read_fields(code, fields)) return false;
    Memory memory;
    memory.length = 5;
    if (fields.mod != mod_register) memory = read_memory(code, fields, registers);
    instruction = {};
    instruction.length = memory.length;
    if (fields.opcode == 0x50) return decode_dot(fields, memory, instruction);
    if (fields.l) return false;  // tile instructions have it clear
    switch (fields.opcode) {
        case 0x49: return decode_config(fields, memory, instruction);
        case 0x4b: return decode_memory(fields, memory, instruction);
        case 0x5c:
        case 0x5e: return decode_product(fields, instruction);
        default: return false;
    }
}

}  // namespace amx
