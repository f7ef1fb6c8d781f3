#include "findings.hpp"

#include <torch/csrc/Exceptions.h>

#include <atomic>

namespace accelrt_torch {
namespace {

const std::atomic<bool> nothing{false};
const std::atomic<bool>* has_findings = &nothing;
PyObject* tell_by = nullptr; // never released: a thread may enqueue while the process ends

void tell_now() {
  const py::gil_scoped_acquire gil;
  const auto done = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(tell_by));
  if (!done) {
    python_error error;
    error.persist();
    throw error; // NOLINT: torch's own type, as a thread of its backward pass hands it on
  }
}

} // namespace

void tell_findings_by(uintptr_t flag, py::object tell) {
  tell_by = tell.release().ptr();
  has_findings = reinterpret_cast<const std::atomic<bool>*>(flag);
}

void tell_findings() {
  // Relaxed: a thread's own findings are in its order, those of others may come later.
  if (C10_UNLIKELY(has_findings->load(std::memory_order_relaxed))) {
    tell_now();
  }
}

} // namespace accelrt_torch
