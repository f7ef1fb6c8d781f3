// What the stub knows: ranges of addresses, and the calls that were made.
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>

pthread_mutex_t stub_lock = PTHREAD_MUTEX_INITIALIZER;
uint64_t stub_capacity_bytes = 1ull << 36, stub_used_bytes[STUB_DEVICES];
int stub_devices = 1;
__thread int stub_device;

// Nothing stands at these addresses: nobody reads or writes there.
static const uint64_t FIRST_ADDRESS = 1ull << 44, LAST_ADDRESS = 1ull << 46;
static const uint64_t GAP_BYTES = 4096; // no two ranges touch
static uint64_t next_address;

static Range *ranges; // sorted, because addresses only rise
static long range_count, range_capacity;

static StubCall *calls;
static uint64_t call_count, call_capacity, call_read;

static struct {
  uint64_t allocate, create;
} refuse_in;

API void stub_configure(int devices, uint64_t capacity_bytes) {
  stub_devices = devices;
  stub_capacity_bytes = capacity_bytes;
}

static void *grown(void *array, uint64_t count, size_t item_bytes) {
  array = realloc(array, count * item_bytes);
  if (!array) {
    fputs("stub: no memory\n", stderr);
    abort();
  }
  return array;
}

uint64_t stub_take_range(uint64_t bytes, uint64_t align_bytes, int device) {
  uint64_t base = next_address ? next_address : FIRST_ADDRESS;
  base = (base + align_bytes - 1) & ~(align_bytes - 1);
  if (bytes > LAST_ADDRESS - base) return 0;
  next_address = base + bytes + GAP_BYTES;
  if (range_count == range_capacity) {
    range_capacity = range_capacity ? 2 * range_capacity : 1024;
    ranges = grown(ranges, range_capacity, sizeof *ranges);
  }
  ranges[range_count++] = (Range){base, bytes, device, 1};
  return base;
}

Range *stub_find(uint64_t address) {
  long low = 0, high = range_count;
  while (low < high) {
    long middle = (low + high) / 2;
    if (ranges[middle].base <= address) low = middle + 1;
    else high = middle;
  }
  if (!low) return 0;
  Range *range = &ranges[low - 1];
  return address - range->base < range->bytes ? range : 0;
}

API long stub_range(uint64_t address, uint64_t *offset) {
  Range *range = stub_find(address);
  *offset = range ? address - range->base : 0;
  return range ? range - ranges : -1;
}

void stub_note(const char *name, int device, uint64_t bytes, uint64_t address, int is_refused) {
  if (call_count == call_capacity) {
    call_capacity = call_capacity ? 2 * call_capacity : 1024;
    calls = grown(calls, call_capacity, sizeof *calls);
  }
  StubCall *call = &calls[call_count++];
  *call = (StubCall){name, device, bytes, -1, 0, is_refused};
  call->range = stub_range(address, &call->offset);
}

API int stub_next_call(StubCall *call) {
  if (call_read == call_count) {
    call_read = call_count = 0;
    return 0;
  }
  *call = calls[call_read++];
  return 1;
}

API void stub_refuse(char call, uint64_t n) {
  refuse_in.allocate = call == 'a' ? n : 0;
  refuse_in.create = call == 'c' ? n : 0;
}

int stub_refuses(char call, int device, uint64_t bytes) {
  uint64_t *left = call == 'a' ? &refuse_in.allocate : &refuse_in.create;
  int is_planned = *left && !--*left;
  return is_planned || stub_used_bytes[device] + bytes > stub_capacity_bytes;
}
