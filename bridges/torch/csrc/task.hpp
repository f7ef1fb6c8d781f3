// A task of a stream in C++: what it is called, which bytes it uses, what it does.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>

#include "stream.hpp"

namespace accelrt_torch {

class Task {
 public:
  // `name` stays for ever. Notes the place of the program, where that is wanted.
  explicit Task(const char* name);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  // Says that the task uses the bytes of a tensor of the device.
  void uses(const at::TensorBase& tensor, bool writes);
  void uses(const void* address, size_t bytes, bool writes);

  // What failed, for the text of an error: the name, and the place where it is known.
  std::string described() const;

  // On any thread, in the order of the stream. What it throws fails the stream.
  virtual void run() = 0;

  // Warnings that the call has issued, which the task does not repeat.
  virtual c10::ArrayRef<c10::Warning> issued_warnings() const {
    return {};
  }

  // How the program's thread treated denormal numbers when it made the task.
  uint32_t denormals() const {
    return denormals_;
  }

 private:
  friend void enqueue(const HeldStream& stream, std::unique_ptr<Task> task);

  const char* name_;
  uint32_t denormals_;
  std::string place_;
  accelrt_task_description description_{};
  c10::SmallVector<accelrt_used_range, 4> ranges_;
};

// What `torch.set_flush_denormal` has set for a thread is in force while this is there. Elsewhere
// than on x86, whose threads have it in a register that all may read, it is not known.
class DenormalMode {
 public:
  static uint32_t current();
  explicit DenormalMode(uint32_t mode);
  ~DenormalMode();
  DenormalMode(const DenormalMode&) = delete;
  DenormalMode& operator=(const DenormalMode&) = delete;

 private:
  uint32_t before_;
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
  ~KernelState();
  KernelState(const KernelState&) = delete;
  KernelState& operator=(const KernelState&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  // What the thread had, as a thread that waits may record gradients or run in inference mode.
  bool grad_mode_;
  bool fw_grad_mode_;
  bool inference_mode_;
};

} // namespace accelrt_torch
