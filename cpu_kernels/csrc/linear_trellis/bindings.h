// Weights of a trellis code as Python sees them.
#pragma once

namespace qk::linear { struct Maker; }

namespace qk::linear_trellis { extern const linear::Maker trellis_maker; }  // namespace qk::linear_trellis
