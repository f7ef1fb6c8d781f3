// What a watch of accelrt's sanitizer has found, told behind the call that made it known.
#pragma once

#include <cstdint>

#include <torch/csrc/utils/pybind.h>

namespace accelrt_torch {

// `flag` is the address of a byte that is not 0 while there is something to tell, and `tell` the
// function that does. Called once.
void tell_findings_by(uintptr_t flag, py::object tell);

// Calls it if there is something: a load otherwise. Blocks for the GIL then. Throws what a watch
// raises.
void tell_findings();

} // namespace accelrt_torch
