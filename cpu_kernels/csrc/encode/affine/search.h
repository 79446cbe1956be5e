// How long the affine searches look: the same numbers as in quant/formats (affine_fit.Trials, k_affine.KAffineSearch).
#pragma once

namespace qk::encode {

struct Trials {
    double first_extra, extra_step;
    int num_extra, num_shifts, num_refits;
};

struct Window { int scales, minima; };

struct KAffineSearch {
    Trials trials;
    int num_windows;
    Window windows[2];
};

}  // namespace qk::encode
