// The driver's virtual memory: addresses, physical memory, and what is mapped where.
#include "stub.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t PAGE_BYTES = 2ull << 20;
enum { FABRIC_HANDLE = 8 };

typedef struct {
  uint64_t bytes, at; // `at` is 0 where it is not mapped
  int device, is_held;
} Physical;
static Physical **mapped; // in no order
static long mapped_count, mapped_capacity;

static Code reserve(uint64_t *to, size_t bytes, size_t align_bytes, uint64_t hint, uint64_t flags) {
  (void)hint; (void)flags;
  pthread_mutex_lock(&stub_lock);
  *to = stub_take_range(bytes, align_bytes > PAGE_BYTES ? align_bytes : PAGE_BYTES, stub_device);
  stub_note("reserve", stub_device, bytes, *to, !*to);
  pthread_mutex_unlock(&stub_lock);
  return *to ? OK : OUT_OF_MEMORY;
}

static Code unreserve(uint64_t base, size_t bytes) {
  pthread_mutex_lock(&stub_lock);
  Range *range = stub_find(base);
  int is_right = range && range->is_live && range->base == base && range->bytes == bytes;
  if (is_right) {
    range->is_live = 0;
    stub_note("unreserve", range->device, bytes, base, 0);
  }
  pthread_mutex_unlock(&stub_lock);
  return is_right ? OK : INVALID;
}

static Code create(uint64_t *handle, size_t bytes, const int *properties, uint64_t flags) {
  (void)flags;
  if (properties[1] == FABRIC_HANDLE) return NOT_SUPPORTED;
  if (bytes % PAGE_BYTES) return INVALID;
  int device = properties[3];
  pthread_mutex_lock(&stub_lock);
  Physical *physical = stub_refuses('c', device, bytes) ? 0 : calloc(1, sizeof *physical);
  if (physical) {
    *physical = (Physical){bytes, 0, device, 1};
    stub_used_bytes[device] += bytes;
  }
  stub_note("create", device, bytes, 0, !physical);
  pthread_mutex_unlock(&stub_lock);
  *handle = (uint64_t)physical;
  return physical ? OK : OUT_OF_MEMORY;
}

// Physical memory lives until it is neither held nor mapped.
static void end_if_unused(Physical *physical) {
  if (physical->is_held || physical->at) return;
  stub_used_bytes[physical->device] -= physical->bytes;
  free(physical);
}

static Code drop(uint64_t handle) {
  Physical *physical = (Physical *)handle;
  pthread_mutex_lock(&stub_lock);
  stub_note("drop", physical->device, physical->bytes, 0, 0);
  physical->is_held = 0;
  end_if_unused(physical);
  pthread_mutex_unlock(&stub_lock);
  return OK;
}

static Code map(uint64_t at, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
  (void)offset; (void)flags;
  Physical *physical = (Physical *)handle;
  pthread_mutex_lock(&stub_lock);
  int is_right = stub_find(at) && bytes == physical->bytes && !physical->at;
  if (is_right) {
    if (mapped_count == mapped_capacity) {
      mapped_capacity = mapped_capacity ? 2 * mapped_capacity : 1024;
      mapped = realloc(mapped, mapped_capacity * sizeof *mapped);
    }
    mapped[mapped_count++] = physical;
    physical->at = at;
    stub_note("map", physical->device, bytes, at, 0);
  }
  pthread_mutex_unlock(&stub_lock);
  return is_right ? OK : INVALID;
}

static Code unmap(uint64_t at, size_t bytes) {
  Code code = INVALID;
  pthread_mutex_lock(&stub_lock);
  for (long i = 0; i < mapped_count; i++) {
    Physical *physical = mapped[i];
    if (physical->at != at || physical->bytes != bytes) continue;
    mapped[i] = mapped[--mapped_count];
    physical->at = 0;
    stub_note("unmap", physical->device, bytes, at, 0);
    end_if_unused(physical);
    code = OK;
    break;
  }
  pthread_mutex_unlock(&stub_lock);
  return code;
}

static Code set_access(uint64_t at, size_t bytes, const void *access, size_t count) {
  (void)at; (void)bytes; (void)access; (void)count;
  return OK; // a part of mapping for accelrt
}
static Code granularity(size_t *bytes, const void *properties, int which) {
  (void)properties; (void)which;
  *bytes = PAGE_BYTES;
  return OK;
}
static Code error_text(Code code, const char **text) { *text = stub_error_text(code); return OK; }
static Code device_of(int *device, int ordinal) { *device = ordinal; return OK; }
static Code attribute(int *value, int which, int device) {
  (void)which; (void)device;
  *value = 0;
  return OK;
}
static Code unreached(void) { return NOT_SUPPORTED; }

void *stub_virtual_memory(const char *name) {
  static const struct {
    const char *name;
    void *function;
  } functions[] = {
      {"cuMemAddressReserve", (void *)reserve}, {"cuMemAddressFree", (void *)unreserve},
      {"cuMemCreate", (void *)create},          {"cuMemRelease", (void *)drop},
      {"cuMemMap", (void *)map},                {"cuMemUnmap", (void *)unmap},
      {"cuMemSetAccess", (void *)set_access},   {"cuMemGetAllocationGranularity", (void *)granularity},
      {"cuGetErrorString", (void *)error_text}, {"cuDeviceGet", (void *)device_of},
      {"cuDeviceGetAttribute", (void *)attribute}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(name, functions[i].name)) return functions[i].function;
  return (void *)unreached;
}
