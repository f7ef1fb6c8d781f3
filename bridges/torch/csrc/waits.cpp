// Python first, as its header asks.
#include <torch/csrc/python_headers.h>

#include <frameobject.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <tuple>

#include "waits.hpp"

namespace accelrt_torch {
namespace {

struct Place {
  std::string file;
  int64_t line = 0;
};

struct Sum {
  int64_t count = 0;
  int64_t waited_ns = 0;
};

using Key = std::tuple<std::string, std::string, int64_t>;

std::mutex lock;
std::map<Key, Sum> sums;

std::vector<std::string> own_folders;

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

// Blocks for the GIL. A thread of torch's own, as that of a backward pass, has no frames.
Place place() {
  if (!Py_IsInitialized()) {
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

} // namespace

void wait_for(const HeldStream& stream, const char* name) {
  const auto where = place();
  const auto begin = std::chrono::steady_clock::now();
  const auto status = accelrt_stream_synchronize(stream.get(), ACCELRT_NO_LIMIT);
  const auto waited = std::chrono::steady_clock::now() - begin;
  {
    const std::lock_guard<std::mutex> held(lock);
    auto& sum = sums[{name, where.file, where.line}];
    sum.count += 1;
    sum.waited_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count();
  }
  check(status);
}

void set_own_folders(std::vector<std::string> folders) {
  own_folders = std::move(folders);
}

std::vector<Wait> waits() {
  const std::lock_guard<std::mutex> held(lock);
  std::vector<Wait> all;
  for (const auto& [key, sum] : sums) {
    const auto& [name, file, line] = key;
    all.push_back({name, file, line, sum.count, sum.waited_ns});
  }
  return all;
}

void forget_waits() {
  const std::lock_guard<std::mutex> held(lock);
  sums.clear();
}

} // namespace accelrt_torch
