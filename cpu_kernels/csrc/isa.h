// Which instruction sets this machine, this kernel and this process may use.
#pragma once

#include <cstdint>
#include <string_view>

namespace qk {

// Ordered: a later one is the better choice of two. avx_vnni is AVX2 with vpdpbusd, avx512_bf16 is BF16 and VBMI.
enum class Isa : uint8_t { scalar, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx };

inline constexpr int num_isas = 7;
inline constexpr const char* isa_names[num_isas] = {"scalar",      "avx2",        "avx_vnni", "avx512",
                                                    "avx512_vnni", "avx512_bf16", "amx"};

inline const char* name_of(Isa isa) { return isa_names[static_cast<int>(isa)]; }

// A set of Isa, one bit each.
using Features = uint32_t;

constexpr Features bit(Isa isa) { return 1u << static_cast<int>(isa); }

// CPUID and XCR0 and, for AMX, the permission of the operating system, less the instruction sets above QBENCH_CPU.
// Detected at the first call and constant from then on. Throws std::runtime_error if QBENCH_CPU names no instruction
// set.
Features detect();

// The part that the processor does not do itself: AMX and AVX-VNNI, in a process that ../amx_emulator was loaded
// into. No variable and no option of a measurement leads here, so that nobody times an emulation by accident.
Features emulated();

}  // namespace qk
