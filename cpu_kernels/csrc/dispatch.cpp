#include "dispatch.h"

#include <array>
#include <cstdlib>
#include <iterator>

namespace qk {
namespace {

std::string names_in(Features features) {
    std::string names;
    for (int i = 0; i < num_isas; i++)
        if (features >> i & 1) names += (names.empty() ? "" : ", ") + std::string(isa_names[i]);
    return names;
}

}  // namespace

Isa parse_isa(std::string_view name, std::string_view asked_by) {
    const std::string got = std::string(asked_by) + "=" + std::string(name);
    for (int i = 0; i < num_isas; i++) {
        if (name != isa_names[i]) continue;
        if (detect() >> i & 1) return static_cast<Isa>(i);
        throw std::runtime_error(got + ": this machine cannot; it has " + names_in(detect()));
    }
    throw std::runtime_error(got + ": unknown instruction set; known are " + names_in((1u << num_isas) - 1) +
                             "; this machine has " + names_in(detect()));
}

Isa highest_allowed_isa() {
    const char* forced = std::getenv("QBENCH_ISA");
    if (forced && *forced) return parse_isa(forced, "QBENCH_ISA");
    return static_cast<Isa>(num_isas - 1);
}

void throw_no_such_impl(std::string_view op, Isa asked, const std::string& available) {
    throw std::runtime_error(std::string(op) + " has no " + name_of(asked) +
                             " implementation; on this machine it has " + available);
}

int64_t environment_version() {
    static constexpr const char* names[] = {"QBENCH_ISA", "QBENCH_LINEAR_PATH", "QBENCH_K_QUANT_COMPUTE",
                                            "QBENCH_F16_COMPUTE"};
    static std::array<std::string, std::size(names)> values;
    static int64_t version = 0;
    for (size_t i = 0; i < values.size(); i++) {
        const char* const found = std::getenv(names[i]);
        const char* const value = found ? found : "";
        if (values[i] == value) continue;
        values[i] = value;
        version++;
    }
    return version;
}

}  // namespace qk
