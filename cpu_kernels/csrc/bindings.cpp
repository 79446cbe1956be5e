#include <nanobind/nanobind.h>

#include "isa.h"

namespace nb = nanobind;

static nb::tuple names_of(qk::Features features) {
    nb::list names;
    for (int i = 0; i < qk::num_isas; i++)
        if (features >> i & 1) names.append(qk::isa_names[i]);
    return nb::tuple(names);
}

NB_MODULE(_ext, m) {
    m.def("features", [] { return names_of(qk::detect()); });
}
