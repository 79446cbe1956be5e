// Whether a product of one token asks for its weights ahead of their use, see direct.inl.
#pragma once

namespace qk::linear {

// True on AMD's family 26 (Zen 5) and later. Found at the first call, and constant from then on.
bool reads_ahead();

}  // namespace qk::linear
