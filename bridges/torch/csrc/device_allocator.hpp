// Device memory of tensors: accelrt's buffers.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include "runtime.hpp"

namespace accelrt_torch {

c10::DeviceAllocator* device_allocator();

// Sets whether memory that is handed out is filled with 0xFF first, in the order of its stream: not
// a number of every floating type. What an operator reads of it was never written.
void set_poisons_memory(bool is_wanted);

// Gives a buffer back; the deleter of memory that is accelrt's.
void destroy_buffer(void* buffer);

// Memory of a buffer as torch holds it, which destroys the buffer when it goes.
c10::DataPtr to_data_pointer(accelrt_buffer* buffer, c10::Device device);

// Says that the stream may use the memory until that is freed. Memory that is not accelrt's, as that
// of `torch.from_blob`, is left alone; false then.
bool record_use(const c10::DataPtr& pointer, const c10::Stream& stream);
void record_use(accelrt_buffer* buffer, const c10::Stream& stream);

// Torch copies storages on write only where the context of their memory is its address.
void prepare_copy_on_write(const c10::Storage& storage);

// A statistic as torch has it.
c10::CachingAllocator::Stat to_torch(const accelrt_stat& from);

} // namespace accelrt_torch
