#include "environment.h"

#include <array>
#include <cstdlib>
#include <iterator>
#include <string>

namespace qk {

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
