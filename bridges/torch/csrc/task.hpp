// A task of a stream in C++: what it is called, which bytes it uses, what it does.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <memory>

#include "stream.hpp"

namespace accelrt_torch {

class Task {
 public:
  // `name` stays for ever.
  explicit Task(const char* name) : name_(name) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  // Says that the task uses the bytes of a tensor of the device.
  void uses(const at::TensorBase& tensor, bool writes);
  void uses(const void* address, size_t bytes, bool writes);

  const char* name() const {
    return name_;
  }

  // On any thread, in the order of the stream. What it throws fails the stream.
  virtual void run() = 0;

 private:
  friend void enqueue(const HeldStream& stream, std::unique_ptr<Task> task);

  const char* name_;
  accelrt_task_description description_{};
  c10::SmallVector<accelrt_used_range, 4> ranges_;
};

// The task runs below autograd, autocast and the modes of Python, whichever thread takes it: one
// that waits for the stream may, with whatever state it has.
void enqueue(const HeldStream& stream, std::unique_ptr<Task> task);

// Copies bytes that do not overlap. Who waits for the stream knows that they are there.
void enqueue_copy(const HeldStream& stream, void* to, const void* from, size_t bytes);

// Below autograd, autocast and the modes of Python, as kernels of a device are.
class KernelState {
 public:
  KernelState();

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
};

} // namespace accelrt_torch
