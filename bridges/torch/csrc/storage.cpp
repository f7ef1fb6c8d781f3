#include "storage.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/_has_compatible_shallow_copy_type_native.h>
#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include <algorithm>

#include "device_allocator.hpp"
#include "task.hpp"

namespace accelrt_torch {

void resize_storage(const c10::Storage& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard on_device(storage.device());
  auto fresh = device_allocator()->allocate(bytes);
  const auto kept = std::min(bytes, storage.nbytes());
  if (kept > 0) {
    const auto stream = HeldStream::current(storage.device().index());
    enqueue_copy(stream, fresh.mutable_get(), storage.data(), kept);
  }
  auto* impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(std::move(fresh));
  impl->set_nbytes(bytes);
}

namespace {

using at::IntArrayRef;
using at::Tensor;

void make_room(const Tensor& self) {
  const auto needed = at::detail::computeStorageNbytes(
      self.sizes(), self.strides(), self.itemsize(), self.storage_offset());
  const auto had = self.storage().nbytes();
  if (self.numel() > 0 && needed > had) {
    resize_storage(self.storage(), needed);
    const auto& context = at::globalContext();
    if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
      at::native::fill_resize_deterministic_(self, static_cast<int64_t>(had));
    }
  }
}

// Gives a tensor another shape, and the room for it. Where there is none it is as it was: a program
// may go on behind that, and kernels would read and write beyond the tensor's memory.
template <typename Change>
void reshape(const Tensor& self, const Change& change) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto storage = self.storage();
  const at::DimVector sizes(self.sizes()), strides(self.strides());
  const auto offset = self.storage_offset();
  try {
    change(impl);
    make_room(self);
  } catch (...) {
    impl->set_storage_keep_dtype(storage);
    impl->set_sizes_and_strides(sizes, strides, offset);
    throw;
  }
}

const Tensor& resize_(const Tensor& self, IntArrayRef size,
    std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    reshape(self, [&](c10::TensorImpl* it) { it->set_sizes_contiguous(size); });
  }
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

// Whether a tensor may become another one in place. Those of the host and of a device may, as on
// CUDA: a module that moves keeps its parameters, which an optimiser or another module may have.
bool may_become(const Tensor& self, const Tensor& from) {
  const auto is_dense = [](const Tensor& tensor) {
    const auto keys = tensor.key_set();
    return keys.has(c10::DispatchKey::CPU) || keys.has(c10::DispatchKey::PrivateUse1);
  };
  return (is_dense(self) && is_dense(from)) ||
      at::native::_has_compatible_shallow_copy_type(self, from);
}

Tensor& set_nothing(Tensor& self) {
  const c10::DeviceGuard on_device(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, device_allocator()->allocate(0),
      device_allocator(), true);
  return self.set_(storage, 0, {0}, {});
}

Tensor lazy_clone(const Tensor& self) {
  prepare_copy_on_write(self.storage());
  return at::native::_lazy_clone(self);
}

Tensor& set_storage(Tensor& self, at::Storage storage) {
  return at::native::set_(self, std::move(storage));
}

Tensor& set_part(Tensor& self, at::Storage storage, int64_t offset, IntArrayRef size,
    IntArrayRef stride) {
  reshape(self, [&](c10::TensorImpl* impl) {
    at::native::checkSetStorage(self, std::move(storage), offset, size, stride);
    impl->set_storage_offset(offset);
    if (stride.data()) {
      impl->set_sizes_and_strides(size, stride);
    } else {
      impl->set_sizes_contiguous(size);
    }
  });
  return self;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("resize_", resize_);
  library.impl("set_", set_nothing);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Storage_storage_offset", set_part);
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("_has_compatible_shallow_copy_type", may_become);
  library.impl("_lazy_clone", lazy_clone);
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", torch::CppFunction::makeFallthrough());
}

} // namespace accelrt_torch
