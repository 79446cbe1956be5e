#include "linear/read_ahead.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace qk::linear {
namespace {

#if defined(__x86_64__)
bool is_zen5_or_later() {
    unsigned eax, name_begin, name_end, edx;
    if (!__get_cpuid(0, &eax, &name_begin, &name_end, &edx)) return false;
    if (name_begin != signature_AMD_ebx || name_end != signature_AMD_ecx) return false;
    unsigned version, ebx, ecx;
    if (!__get_cpuid(1, &version, &ebx, &ecx, &edx)) return false;
    return (version >> 8 & 15) + (version >> 20 & 255) >= 26;
}

// Sapphire Rapids and later; whether the system lets tiles be used plays no part.
bool has_tiles() {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx >> 24 & 1);
}
#else
bool is_zen5_or_later() { return false; }
bool has_tiles() { return false; }
#endif

}  // namespace

ReadAhead read_ahead() {
    static const ReadAhead found = has_tiles()          ? ReadAhead::to_l2
                                   : is_zen5_or_later() ? ReadAhead::to_l1
                                                        : ReadAhead::none;
    return found;
}

}  // namespace qk::linear
