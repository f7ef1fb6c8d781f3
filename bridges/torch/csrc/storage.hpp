// Storages that grow.
#pragma once

#include <c10/core/Storage.h>

namespace accelrt_torch {

// Gives a storage of the device other memory. The bytes that it keeps are copied in stream order,
// and the memory that it leaves is freed behind that.
void resize_storage(const c10::Storage& storage, size_t bytes);

} // namespace accelrt_torch
