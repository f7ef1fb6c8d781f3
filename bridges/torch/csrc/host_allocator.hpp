// Pinned memory of tensors: host memory that copies of streams use without a wait.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "runtime.hpp"

namespace accelrt_torch {

at::HostAllocator* host_allocator();

// Whether an address is in pinned memory of accelrt.
bool is_pinned(const void* address);

} // namespace accelrt_torch
