// The extension module `accelrt_torch._C`: what the package's Python calls.
#include <ATen/Context.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include "device_allocator.hpp"
#include "findings.hpp"
#include "generator.hpp"
#include "hooks.hpp"
#include "kernel_threads.hpp"
#include "operators.hpp"
#include "places.hpp"
#include "registration.hpp"
#include "runtime.hpp"
#include "shapes.hpp"
#include "waits.hpp"
#include "warnings.hpp"

namespace accelrt_torch {
namespace {

// The capsule of accelrt's module has the table.
void bind_capsule(const py::capsule& capsule) {
  bind(capsule.get_pointer());
  note_default_handler();
  register_hooks();
  register_operators();
}

py::object generator_of(int index) {
  const auto& generator = default_generator(static_cast<c10::DeviceIndex>(index));
  return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(generator));
}

py::list wait_rows() {
  py::list rows;
  for (const auto& wait : waits()) {
    rows.append(py::make_tuple(wait.name, wait.file, wait.line, wait.count, wait.waited_ns));
  }
  return rows;
}

} // namespace

PYBIND11_MODULE(_C, module) {
  module.def("bind", &bind_capsule);
  module.def("refusal", &refusal);
  module.def("device_count", &device_count);
  module.def("check_is_there", &check_is_there);
  module.def("current_device", &current_device);
  module.def("exchange_device", &exchange_device);
  module.def("init", [] { at::globalContext().lazyInitDevice(DEVICE_TYPE); });
  module.def("is_in_bad_fork", [] { return torch::utils::is_device_in_bad_fork(DEVICE_TYPE); });
  module.def("default_generator", &generator_of);
  module.def("enqueued_count", &enqueued_count);
  module.def("set_defers_counts", &set_defers_counts);
  module.def("shape_counts", [] {
    const auto counts = shape_counts();
    return py::make_tuple(counts.hits, counts.misses);
  });
  module.def("tell_findings_by", &tell_findings_by);
  module.def("set_own_folders", &set_own_folders);
  module.def("set_notes_places", &set_notes_places);
  module.def("set_poisons_memory", &set_poisons_memory);
  module.def("kernel_threads", &kernel_threads);
  module.def("set_kernel_threads", &set_kernel_threads);
  module.def("waits", &wait_rows);
  module.def("forget_waits", &forget_waits);
}

} // namespace accelrt_torch
