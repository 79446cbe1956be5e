#pragma once

namespace qk::linear { struct Maker; }

namespace qk::linear_float {

extern const linear::Maker float_maker;  // bf16, f16, f32

}  // namespace qk::linear_float
