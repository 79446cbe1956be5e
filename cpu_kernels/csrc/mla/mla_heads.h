// The Python object that holds every head's up-projections; other bindings take it as an argument.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "checks.h"
#include "mla/heads.h"
#include "mla/step.h"

namespace qk::mla {

using OptionalName = std::optional<std::string>;

// Reads the environment.
const Impl<Kernels>& choose_heads(const OptionalName& isa);
Choices choose_all();

class MlaHeads {
public:
    MlaHeads(const Array& keys, const Array& values, const std::string& format, bool exact);

    const HeadMatrices& keys() const { return keys_; }
    const HeadMatrices& values() const { return values_; }

    nb::object absorb(const Array& q, const OptionalName& isa) { return multiply(keys_, q, "q", isa); }
    nb::object values_of(const Array& latents, const OptionalName& isa) {
        return multiply(values_, latents, "latents", isa);
    }
    nb::object attend(const Array& q, const Array& latent, const Array& norm, float eps, const Array& cos,
                      const Array& sin, const std::string& format, nb::handle rows, const Array& block_table,
                      const Array& ends, float softmax_scale, int64_t window, const std::optional<Array>& slots,
                      nb::handle mass);

    // Rows of latents that may be written, in a format, for these heads; checked.
    attention::Latents latents_in(const std::string& format, nb::handle rows, int64_t rotated) const;

    size_t nbytes() const { return keys_.nbytes() + values_.nbytes(); }
    OptionalName last_isa() const;

private:
    nb::object multiply(const HeadMatrices& matrices, const Array& x, const char* name, const OptionalName& isa);

    HeadMatrices keys_, values_;
    bool is_exact_;  // Whether no tiles may multiply latents
    std::atomic<std::optional<Isa>> ran_{};
};

// The tokens that M new ones attend to, each a sequence of its own in rows [pages, page_size, width]; checked.
attention::Sequences sequences_in(nb::handle rows, const Array& block_table, const Array& ends, int64_t count,
                                  int64_t window);

// cos, sin [M, D]; checked.
attention::Rotation rotation_of(const Array& cos, const Array& sin, int64_t count, int64_t rotated);

}  // namespace qk::mla
