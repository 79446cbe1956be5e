#include "isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#if defined(__x86_64__) && defined(__linux__)
// Defined by the emulator (cpu_kernels/amx_emulator) and by nothing else; null in every process without it.
extern "C" __attribute__((weak, visibility("default"))) int qbench_amx_emulator();
#endif

namespace qk {
namespace {

struct Found { Features features = bit(Isa::scalar), emulated = 0; };

#if defined(__x86_64__)

struct Cpuid {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;

    // All zero where the leaf or subleaf does not exist.
    Cpuid(uint32_t leaf, uint32_t subleaf) { __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx); }
};

constexpr bool has(uint32_t reg, int bit_index) { return (reg >> bit_index) & 1; }

// XCR0: which register states the operating system saves at a context switch. An instruction set whose
// state is not saved must not be used, whatever CPUID says.
uint64_t read_xcr0() {
    uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
}

constexpr uint64_t xcr0_avx = 1u << 1 | 1u << 2;                            // XMM, upper YMM
constexpr uint64_t xcr0_avx512 = xcr0_avx | 1u << 5 | 1u << 6 | 1u << 7;    // opmask, upper ZMM0-15, ZMM16-31
constexpr uint64_t xcr0_amx = 1u << 17 | 1u << 18;                          // TILECFG, TILEDATA

// 0 without the emulator; 2 if it also executes dots that this processor has.
int emulator() {
#if defined(__linux__)
    return &qbench_amx_emulator ? qbench_amx_emulator() : 0;
#else
    return 0;
#endif
}

// Linux hands out the 8 KiB tile state on request only; without it the first tile instruction is a SIGILL.
bool request_amx() {
#if defined(__linux__)
    constexpr int arch_req_xcomp_perm = 0x1023;
    constexpr int xfeature_xtiledata = 18;
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
#else
    return false;
#endif
}

Found probe() {
    Found found;
    const Cpuid leaf1(1, 0);
    const bool osxsave = has(leaf1.ecx, 27);
    if (!osxsave) return found;
    const uint64_t xcr0 = read_xcr0();
    const auto saved = [xcr0](uint64_t states) { return (xcr0 & states) == states; };
    const Cpuid leaf7(7, 0);
    const Cpuid leaf7_1(7, 1);

    const bool avx = has(leaf1.ecx, 28), fma = has(leaf1.ecx, 12), f16c = has(leaf1.ecx, 29);
    const bool avx2 = has(leaf7.ebx, 5);
    if (!(avx && fma && f16c && avx2 && saved(xcr0_avx))) return found;
    found.features |= bit(Isa::avx2);

    const bool avx_vnni = has(leaf7_1.eax, 4);
    if (emulator() > int{avx_vnni}) found.emulated = bit(Isa::avx_vnni);
    if (avx_vnni || found.emulated) found.features |= bit(Isa::avx_vnni);

    const bool avx512f = has(leaf7.ebx, 16), avx512dq = has(leaf7.ebx, 17);
    const bool avx512bw = has(leaf7.ebx, 30), avx512vl = has(leaf7.ebx, 31);
    if (!(avx512f && avx512dq && avx512bw && avx512vl && saved(xcr0_avx512))) return found;
    found.features |= bit(Isa::avx512);

    const bool avx512vnni = has(leaf7.ecx, 11);
    if (avx512vnni) found.features |= bit(Isa::avx512_vnni);

    // VBMI (permutations of bytes) came before it in all processors but Cooper Lake, which goes without both here.
    const bool avx512bf16 = has(leaf7_1.eax, 5), avx512vbmi = has(leaf7.ecx, 1);
    if (avx512bf16 && avx512vbmi) found.features |= bit(Isa::avx512_bf16);

    const bool amx_bf16 = has(leaf7.edx, 22), amx_tile = has(leaf7.edx, 24), amx_int8 = has(leaf7.edx, 25);
    const bool amx = amx_tile && amx_int8 && amx_bf16 && saved(xcr0_amx) && request_amx();
    const bool emulated_amx = !amx && emulator();
    if (emulated_amx) found.emulated |= bit(Isa::amx);
    if (amx || emulated_amx) found.features |= bit(Isa::amx);
    return found;
}

#else

Found probe() { return {}; }

#endif

}  // namespace

// The instruction sets up to the one that QBENCH_CPU names; all of them if it is unset. Throws std::runtime_error for
// an unknown name: a run that meant to leave out instructions must not use them.
static Features pretended() {
    const char* name = std::getenv("QBENCH_CPU");
    if (!name || !*name) return ~Features{0};
    std::string known;
    for (int i = 0; i < num_isas; i++) {
        if (std::string_view(name) == isa_names[i]) return (bit(static_cast<Isa>(i)) << 1) - 1;
        known += (i ? ", " : "") + std::string(isa_names[i]);
    }
    throw std::runtime_error("QBENCH_CPU=" + std::string(name) + ": unknown processor; known are " + known);
}

static const Found& found_once() {
    static const Found found = [] {
        const Features mask = pretended();
        const Found real = probe();
        return Found{real.features & mask, real.emulated & mask};
    }();
    return found;
}

Features detect() { return found_once().features; }
Features emulated() { return found_once().emulated; }

}  // namespace qk
