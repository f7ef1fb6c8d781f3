// Python first, as its header asks.
#include <torch/csrc/python_headers.h>

#include <frameobject.h>

#include <algorithm>
#include <atomic>

#include "places.hpp"

namespace accelrt_torch {
namespace {

std::vector<std::string> own_folders;

std::atomic<bool> is_noted{false}; // relaxed: a call that races with the change notes one or not

// Not the program's: torch's and this package's lines, and code that stands in no file.
bool is_own(const std::string& file) {
  const auto is_inside = [&](const std::string& folder) { return file.starts_with(folder); };
  return file.empty() || file[0] == '<' ||
      std::any_of(own_folders.begin(), own_folders.end(), is_inside);
}

std::string file_of(PyCodeObject* code) {
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(code->co_filename, &bytes);
  if (!text) {
    PyErr_Clear();
    return "";
  }
  return std::string(text, static_cast<size_t>(bytes));
}

} // namespace

Place place_of_program() {
  // Who has the GIL may wait for a thread that Python does not know, which has no frames anyway.
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) {
    return {};
  }
  const auto gil = PyGILState_Ensure();
  Place found;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const auto file = file_of(code);
    Py_DECREF(code);
    if (!is_own(file)) {
      found = {file, PyFrame_GetLineNumber(frame)};
      Py_DECREF(frame);
      break;
    }
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  PyGILState_Release(gil);
  return found;
}

void set_own_folders(std::vector<std::string> folders) {
  own_folders = std::move(folders);
}

bool notes_places() {
  return is_noted.load(std::memory_order_relaxed);
}

void set_notes_places(bool is_wanted) {
  is_noted.store(is_wanted, std::memory_order_relaxed);
}

} // namespace accelrt_torch
