// libcudart of the stub: devices, errors, memory, streams and events; what libc10_cuda.so imports.
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Every segment of the null kind begins at a multiple of this as well.
static const uint64_t ALIGN_BYTES = 2ull << 20;
static __thread Code last_error;

static Code answer(Code code) {
  if (code) last_error = code;
  return code;
}

// ---- devices and errors -------------------------------------------------------------------------
API Code cudaGetDeviceCount(int *count) { *count = stub_devices; return OK; }
API Code cudaGetDevice(int *device) { *device = stub_device; return OK; }
API Code cudaSetDevice(int device) {
  if (device < 0 || device >= stub_devices) return answer(101); // cudaErrorInvalidDevice
  stub_device = device;
  return OK;
}
API Code cudaDriverGetVersion(int *version) { *version = 13020; return OK; }
API Code cudaRuntimeGetVersion(int *version) { *version = 13020; return OK; }

static Code properties(char *properties) {
  enum { BYTES = 512, TOTAL_BYTES_AT = 288 }; // behind name, uuid, luid and a mask
  memset(properties, 0, BYTES);
  strcpy(properties, "stub");
  memcpy(properties + TOTAL_BYTES_AT, &stub_capacity_bytes, sizeof stub_capacity_bytes);
  return OK;
}
API Code cudaGetDeviceProperties(void *to, int device) { (void)device; return properties(to); }
API Code cudaGetDeviceProperties_v2(void *to, int device) { (void)device; return properties(to); }
API Code cudaDeviceGetAttribute(int *value, int which, int device) {
  (void)which; (void)device;
  *value = 0;
  return OK;
}
API Code cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = a != b; return OK; }
API Code cudaDeviceEnablePeerAccess(int device, unsigned flags) { (void)device; (void)flags; return OK; }
API Code cudaGetLastError(void) {
  Code code = last_error;
  last_error = OK;
  return code;
}
API Code cudaPeekAtLastError(void) { return last_error; }
const char *stub_error_text(Code code) {
  switch (code) {
    case OK: return "no error";
    case INVALID: return "invalid argument";
    case OUT_OF_MEMORY: return "out of memory";
    case NOT_READY: return "device not ready";
    default: return "an error of the stub";
  }
}
API const char *cudaGetErrorString(Code code) { return stub_error_text(code); }
API const char *cudaGetErrorName(Code code) { return stub_error_text(code); }

// ---- memory -------------------------------------------------------------------------------------
API Code cudaMalloc(void **to, size_t bytes) {
  pthread_mutex_lock(&stub_lock);
  int is_refused = stub_refuses('a', stub_device, bytes);
  uint64_t base = is_refused ? 0 : stub_take_range(bytes, ALIGN_BYTES, stub_device);
  if (base) stub_used_bytes[stub_device] += bytes;
  stub_note("allocate", stub_device, bytes, base, !base);
  pthread_mutex_unlock(&stub_lock);
  *to = (void *)base;
  return base ? OK : answer(OUT_OF_MEMORY);
}
API Code cudaFree(void *at) {
  if (!at) return OK;
  pthread_mutex_lock(&stub_lock);
  Range *range = stub_find((uint64_t)at);
  int is_right = range && range->is_live && range->base == (uint64_t)at;
  if (is_right) {
    stub_used_bytes[range->device] -= range->bytes;
    range->is_live = 0;
    stub_note("release", range->device, range->bytes, range->base, 0);
  }
  pthread_mutex_unlock(&stub_lock);
  return is_right ? OK : answer(INVALID);
}
API Code cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  *total_bytes = stub_capacity_bytes;
  *free_bytes = stub_capacity_bytes - stub_used_bytes[stub_device];
  return OK;
}

// ---- streams and events -------------------------------------------------------------------------
typedef struct {
  uint64_t handle, put, ended;
} Stream;
typedef struct {
  Stream *stream; // 0 until it is recorded
  uint64_t behind;
} Event;
static Stream streams[STUB_STREAMS]; // 0 is the legacy stream, whose handle is 0

// c10 hashes a stream as device type (1), index and handle, and puts it where the hash times this
// says; the upper two bits are the place among four, in its smallest table.
static int hashed_place(uint64_t handle) {
  return (int)(((1ull << 56 | handle) * 11400714819323198485ull) >> 62);
}
__attribute__((constructor)) static void make_handles(void) {
  for (uint64_t number = 1; number < STUB_STREAMS; number++) {
    uint64_t handle = number << 20;
    while (hashed_place(handle) != (int)number) handle += 16;
    streams[number].handle = handle;
  }
}
API int stub_stream_number(const void *stream) {
  for (int number = 0; number < STUB_STREAMS; number++)
    if (streams[number].handle == (uint64_t)stream) return number;
  return 0; // cudaStreamLegacy and cudaStreamPerThread
}
API void *stub_stream(int number) { return (void *)streams[number].handle; }
static Stream *stream_of(const void *handle) { return &streams[stub_stream_number(handle)]; }
API void stub_work(int stream, uint64_t count) { streams[stream].put += count; }
API void stub_finish(int stream, int64_t count) {
  Stream *it = &streams[stream];
  uint64_t left = it->put - it->ended;
  it->ended += count < 0 || (uint64_t)count > left ? left : (uint64_t)count;
}

API Code cudaDeviceSynchronize(void) {
  for (int number = 0; number < STUB_STREAMS; number++) stub_finish(number, -1);
  return OK;
}
API Code cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return OK; }
API Code cudaStreamGetPriority(void *stream, int *priority) { (void)stream; *priority = 0; return OK; }
API Code cudaStreamQuery(void *stream) {
  return stream_of(stream)->ended == stream_of(stream)->put ? OK : NOT_READY;
}
API Code cudaStreamSynchronize(void *stream) { stub_finish(stub_stream_number(stream), -1); return OK; }
API Code cudaStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return OK; }
API Code cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) {
  (void)stream;
  *status = 0;
  if (id) *id = 0;
  return OK;
}
API Code cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id) {
  return cudaStreamGetCaptureInfo(stream, status, id);
}
API Code cudaThreadExchangeStreamCaptureMode(int *mode) { (void)mode; return OK; }
API Code cudaEventCreateWithFlags(void **event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof(Event));
  return *event ? OK : answer(OUT_OF_MEMORY);
}
API Code cudaEventDestroy(void *event) { free(event); return OK; }
API Code cudaEventRecord(void *event, void *stream) {
  *(Event *)event = (Event){stream_of(stream), stream_of(stream)->put};
  return OK;
}
API Code cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  (void)flags;
  return cudaEventRecord(event, stream);
}
API Code cudaEventQuery(void *event) {
  Event *it = event;
  return !it->stream || it->stream->ended >= it->behind ? OK : NOT_READY;
}
API Code cudaEventSynchronize(void *event) {
  Event *it = event;
  if (it->stream && it->stream->ended < it->behind) it->stream->ended = it->behind;
  return OK;
}

// ---- the driver's functions, by name ------------------------------------------------------------
API Code cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags, int *status) {
  (void)version; (void)flags;
  *function = stub_virtual_memory(name);
  if (status) *status = 0;
  return OK;
}
API Code cudaGetDriverEntryPoint(
    const char *name, void **function, unsigned long long flags, int *status) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}

// ---- imported, and never reached by the oracle's programs ---------------------------------------
#define UNREACHED(name) \
  API Code name(void) { \
    fputs("stub: " #name " is not there\n", stderr); \
    return answer(NOT_SUPPORTED); \
  }
UNREACHED(cudaDeviceGetDefaultMemPool)
UNREACHED(cudaDeviceGetGraphMemAttribute)
UNREACHED(cudaDeviceSetGraphMemAttribute)
UNREACHED(cudaEventElapsedTime)
UNREACHED(cudaFreeAsync)
UNREACHED(cudaGraphNodeGetDependencies)
UNREACHED(cudaIpcCloseMemHandle)
UNREACHED(cudaIpcGetMemHandle)
UNREACHED(cudaIpcOpenMemHandle)
UNREACHED(cudaMallocAsync)
UNREACHED(cudaMemPoolGetAttribute)
UNREACHED(cudaMemPoolSetAccess)
UNREACHED(cudaMemPoolSetAttribute)
UNREACHED(cudaMemPoolTrimTo)
UNREACHED(cudaMemcpy)
UNREACHED(cudaMemcpyAsync)
UNREACHED(cudaMemcpyPeerAsync)
UNREACHED(cudaStreamCreateWithPriority)
UNREACHED(cudaStreamWaitEvent)
