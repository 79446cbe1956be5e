// The place of a name in a table of names.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace qk {

// Throws std::invalid_argument, which names the argument, if no name of the table is `name`.
inline int index_of(std::string_view name, std::span<const char* const> names, const char* argument) {
    std::string known;
    for (size_t i = 0; i < names.size(); i++) {
        if (name == names[i]) return static_cast<int>(i);
        known += (i ? ", " : "") + std::string(names[i]);
    }
    throw std::invalid_argument(std::string(argument) + ": got " + std::string(name) + ", expected one of " + known);
}

}  // namespace qk
