// Python first, as its header asks.
#include <Python.h>

#include "gil.hpp"

namespace accelrt_torch {

WithoutGil::WithoutGil()
    : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
  if (state_) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
  }
}

} // namespace accelrt_torch
