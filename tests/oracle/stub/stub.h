// A CUDA runtime without a device, for PyTorch's own caching allocator: numbers in place of memory,
// counters in place of streams. This file is what its parts share and what the driver asks it.
#pragma once
#ifdef __cplusplus
#include <cstdint>
extern "C" {
#else
#include <stdint.h>
#endif

enum { STUB_DEVICES = 4, STUB_STREAMS = 4 };

// The devices: before the allocator is used.
void stub_configure(int devices, uint64_t capacity_bytes);

// The stream with a number; 0 is the legacy stream. Handles rise with numbers, and so do the places
// that c10's hash maps keep them in, so that iterations over streams are by number.
void *stub_stream(int number);
int stub_stream_number(const void *stream);
// Puts pieces of work on a stream; has the next ones end, all of them for a negative count. An event
// is done when the work before it has ended. Whoever waits ends what is waited for.
void stub_work(int stream, uint64_t count);
void stub_finish(int stream, int64_t count);

// Has the n-th call from now on refused, once, and no other that was to be: 'a' of cudaMalloc, 'c' of
// cuMemCreate.
void stub_refuse(char call, uint64_t n);

// The range that an address is in, of those that were allocated or reserved: its number, in their
// order, and the address's offset in it; -1 for none.
long stub_range(uint64_t address, uint64_t *offset);

// A call of the driver that concerns memory.
typedef struct {
  const char *name;
  int device;
  uint64_t bytes;
  long range;      // -1 for physical memory, which has no place yet
  uint64_t offset; // inside of the range
  int is_refused;
} StubCall;
// The calls since the last question, in their order: one at a time, until there is none.
int stub_next_call(StubCall *call);

#ifdef __cplusplus
}
#else
// ---- among the parts --------------------------------------------------------------------------
#include <pthread.h>

typedef int Code; // of cudaError_t and CUresult
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_READY = 600, NOT_SUPPORTED = 801 };
#define API __attribute__((visibility("default")))

typedef struct {
  uint64_t base, bytes;
  int device, is_live;
} Range;

extern pthread_mutex_t stub_lock; // guards all that is below
extern uint64_t stub_capacity_bytes, stub_used_bytes[STUB_DEVICES];
extern int stub_devices;
extern __thread int stub_device;

// A range of fresh addresses, which never come again; 0 when none are left.
uint64_t stub_take_range(uint64_t bytes, uint64_t align_bytes, int device);
Range *stub_find(uint64_t address);
void stub_note(const char *name, int device, uint64_t bytes, uint64_t address, int is_refused);
int stub_refuses(char call, int device, uint64_t bytes);
void *stub_virtual_memory(const char *name); // a function of the driver
const char *stub_error_text(Code code);
#endif
