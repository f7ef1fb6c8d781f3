// Copies between devices and the host, and what reads a number.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <torch/library.h>

#include "alias.hpp"
#include "device_allocator.hpp"
#include "host_allocator.hpp"
#include "task.hpp"
#include "waits.hpp"

namespace accelrt_torch {
namespace {

// Memory of the host up to here is copied at once, so that the thread need not wait; as on CUDA.
constexpr size_t MOST_STAGED_BYTES = 64 * 1024;

class CopyTask final : public Task {
 public:
  CopyTask(const at::Tensor& to, const at::Tensor& from, at::Tensor of_host)
      : Task("aten::copy_"), to_(host_alias(to)), from_(std::move(of_host)) {
    if (is_ours(from)) {
      uses(from, false);
    }
    if (is_ours(to)) {
      uses(to, true);
    }
  }

  void run() override {
    to_.copy_(from_);
  }

 private:
  at::Tensor to_;
  at::Tensor from_;
};

// What is enqueued on `stream` from now on runs behind what `other` has.
void order_behind(const HeldStream& stream, const HeldStream& other) {
  check(accelrt_stream_wait_stream(stream.get(), other.get()));
}

void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  const auto source = HeldStream::current(from.device().index());
  const auto target = HeldStream::current(to.device().index());
  const bool are_two = from.device() != to.device();
  if (are_two) {
    order_behind(source, target);
  }
  enqueue(source, std::make_unique<CopyTask>(to, from, host_alias(from)));
  if (are_two) {
    order_behind(target, source);
  }
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool is_non_blocking) {
  const auto stream = HeldStream::current(from.device().index());
  enqueue(stream, std::make_unique<CopyTask>(to, from, host_alias(from)));
  if (is_non_blocking && is_pinned(to.storage().data())) {
    record_use(to.storage().data_ptr(), stream.on(from.device().index()));
  } else {
    wait_for(stream, "aten::copy_ to the host");
  }
}

void copy_from_host(const at::Tensor& from, const at::Tensor& to, bool is_non_blocking) {
  const auto stream = HeldStream::current(to.device().index());
  if (is_non_blocking && is_pinned(from.storage().data())) {
    enqueue(stream, std::make_unique<CopyTask>(to, from, from));
    record_use(from.storage().data_ptr(), stream.on(to.device().index()));
  } else if (from.numel() * from.itemsize() <= MOST_STAGED_BYTES) {
    enqueue(stream, std::make_unique<CopyTask>(to, from, from.clone()));
  } else {
    enqueue(stream, std::make_unique<CopyTask>(to, from, from));
    wait_for(stream, "aten::copy_ from the host");
  }
}

// The source in the shape of the target, or what the CPU says against it.
at::Tensor broadcast(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() == from.sizes()) {
    return from;
  }
  const auto common = at::infer_size_dimvector(to.sizes(), from.sizes());
  TORCH_CHECK(to.sizes() == common, "output with shape ", to.sizes(),
      " doesn't match the broadcast shape ", c10::IntArrayRef(common));
  return from.expand(to.sizes());
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& to, bool is_non_blocking) {
  const auto from = broadcast(source, to);
  if (to.numel() == 0) {
    return to;
  }
  // Here, as the task's tensors have storages of their own.
  at::assert_no_internal_overlap(to);
  at::assert_no_partial_overlap(to, from);
  own_memory(to);
  const c10::DeviceGuard on_device(is_ours(from) ? from.device() : to.device());
  if (is_ours(from) && is_ours(to)) {
    copy_between_devices(from, to);
  } else if (is_ours(from)) {
    copy_to_host(from, to, is_non_blocking);
  } else {
    copy_from_host(from, to, is_non_blocking);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_output(to, from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  wait_for(HeldStream::current(tensor.device().index()), "aten::_local_scalar_dense");
  return at::native::_local_scalar_dense_cpu(host_alias(tensor));
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  record_use(tensor.storage().data_ptr(), stream);
}

bool is_pinned_tensor(const at::Tensor& tensor, std::optional<c10::Device>) {
  return is_pinned(tensor.storage().data());
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("record_stream", record_stream);
  library.impl("is_pinned", is_pinned_tensor);
}

// A copy reads conjugated and negated tensors as they are. Torch would copy them first, by this.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace accelrt_torch
