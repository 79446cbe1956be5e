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
#else
bool is_zen5_or_later() { return false; }
#endif

}  // namespace

bool reads_ahead() {
    static const bool found = is_zen5_or_later();
    return found;
}

}  // namespace qk::linear
