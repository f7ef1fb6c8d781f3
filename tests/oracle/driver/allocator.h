// PyTorch's own caching allocator, made ready without the rest of PyTorch.
#pragma once
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "../stub/stub.h"

namespace allocator = c10::cuda::CUDACachingAllocator;

// libtorch_cuda calls these two, which are in no header: without the first a cudaFree throws, without
// the second the mapping of pages does.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*)(DeviceIndex));
}
namespace c10::cuda::detail {
C10_CUDA_API __attribute__((weak)) void init_p2p_access_cache(int64_t);
}

inline void make_ready(int devices) {
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  if (c10::cuda::detail::init_p2p_access_cache) c10::cuda::detail::init_p2p_access_cache(devices);
  allocator::init(devices);
  // Else the first mapping asks NVML whether memory can go over a fabric, by a null pointer where
  // there is no NVML.
  allocator::CUDAAllocatorConfig::set_expandable_segments_handle_type(
      allocator::Expandable_Segments_Handle_Type::POSIX_FD);
}

inline cudaStream_t stream_of(int64_t number) { return (cudaStream_t)stub_stream((int)number); }
