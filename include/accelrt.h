// accelrt.h: streams, events and stream-ordered memory of any device, for C11 and C++17.
//
// Made by cbindgen of crates/accelrt-capi: `make header` writes it, `make check` compares it.
// docs/c.md has the rules and a first program.
//
// - A function returns an accelrt_status unless it says otherwise: 0, or why it did nothing. The
//   text of a thread's last error is accelrt_error_text().
// - A handle that a function returns is the caller's: it is given back by the destroy function of
//   its noun. A handle that was destroyed is an error where it is used; destroying it while another
//   thread's call uses it is not allowed.
// - Every function may be called by any thread, and by tasks. What waits says so.
// - A struct that begins with `size` grows in later versions: set it to sizeof the struct first.
// - Functions that a program passes must not throw, jump out or end their thread; accelrt.hpp turns
//   exceptions of C++ into errors.

#ifndef ACCELRT_H
#define ACCELRT_H

#include <stddef.h>
#include <stdint.h>

// Grows when something that a program relies on changes; see docs/c.md.
#define ACCELRT_ABI_VERSION 1

// The kind `cpu`: the machine's own cores, always there.
#define ACCELRT_CPU 0

// The kind `cuda`: NVIDIA GPUs.
#define ACCELRT_CUDA 1

// The kind `xpu`: Intel GPUs and other OpenCL devices with unified shared memory.
#define ACCELRT_XPU 12

// As the kind of a device: that of `accelrt_kind_get_accelerator`.
#define ACCELRT_ACCELERATOR (-1)

// As the index of a device: the calling thread's current one.
#define ACCELRT_CURRENT (-1)

// As a number of milliseconds: a wait without a limit.
#define ACCELRT_NO_LIMIT (-1)

// A task only reads the bytes of the buffer.
#define ACCELRT_READS 1

// A task may read and write the bytes of the buffer, and no other ones of its memory.
#define ACCELRT_WRITES 2

// Memory of a device alone, which the host reaches by copies; on cpu the host's own.
#define ACCELRT_MEMORY_DEVICE 0

// Pinned memory of the host, which the devices of a kind reach.
#define ACCELRT_MEMORY_PINNED 1

// Memory that a device shares with the host.
#define ACCELRT_MEMORY_SHARED 2

// A pool serves other requests too, before these fail for want of memory.
#define ACCELRT_POOL_USE_ON_OOM 1

// A request gets a whole block of the pool.
#define ACCELRT_POOL_NO_SPLIT 2

// A block is free.
#define ACCELRT_BLOCK_INACTIVE 0

// A block is handed out.
#define ACCELRT_BLOCK_ALLOCATED 1

// A block was freed, and streams still use it.
#define ACCELRT_BLOCK_AWAITING_FREE 2

// A block was handed out.
#define ACCELRT_MEMORY_ALLOC 0

// The program freed a block.
#define ACCELRT_MEMORY_FREE_REQUESTED 1

// All streams have passed their uses of a freed block.
#define ACCELRT_MEMORY_FREE_COMPLETED 2

// A segment was taken from the device.
#define ACCELRT_MEMORY_SEGMENT_ALLOC 3

// A segment was given back.
#define ACCELRT_MEMORY_SEGMENT_FREE 4

// Pages were mapped.
#define ACCELRT_MEMORY_SEGMENT_MAP 5

// Pages were unmapped.
#define ACCELRT_MEMORY_SEGMENT_UNMAP 6

// A snapshot was taken.
#define ACCELRT_MEMORY_SNAPSHOT 7

// A request failed; the address is the number of bytes that the device had free.
#define ACCELRT_MEMORY_OUT_OF_MEMORY 8

// Records of tasks: enqueued, ended, failed, skipped.
#define ACCELRT_LOG_TASKS 1

// Records of waits of threads.
#define ACCELRT_LOG_WAITS 2

// Records of ranges that programs have named.
#define ACCELRT_LOG_RANGES 4

// Records of what allocators do.
#define ACCELRT_LOG_MEMORY 8

// A thread wrote its first record: `name` is the thread's.
#define ACCELRT_RECORD_THREAD 0

// A task got its ticket, between `start_ns` and `end_ns`.
#define ACCELRT_RECORD_ENQUEUED 1

// A task ran from `start_ns` to `end_ns`; of a wait, the stream was blocked meanwhile.
#define ACCELRT_RECORD_ENDED 2

// As `ACCELRT_RECORD_ENDED`, on a thread that waited for the stream.
#define ACCELRT_RECORD_ENDED_BY_HELPER 3

// As `ACCELRT_RECORD_ENDED`, with times of the device, from an origin of its own.
#define ACCELRT_RECORD_ENDED_ON_DEVICE 4

// As `ACCELRT_RECORD_ENDED`: the task failed its stream.
#define ACCELRT_RECORD_FAILED 5

// A failed stream dropped the task unrun, at `end_ns`.
#define ACCELRT_RECORD_SKIPPED 6

// A thread waited for the task, and spun.
#define ACCELRT_RECORD_SPUN 7

// A thread waited for the task, and slept.
#define ACCELRT_RECORD_SLEPT 8

// A thread was inside of a range of the program.
#define ACCELRT_RECORD_RANGE 9

// What an allocator did at `start_ns`.
#define ACCELRT_RECORD_MEMORY 10

// Integers of 32 bits, each of them random.
#define ACCELRT_RANDOM_UINT32 0

// Integers of 64 bits, each of them random.
#define ACCELRT_RANDOM_UINT64 1

// `float`s from 0 on and below 1.
#define ACCELRT_RANDOM_UNIFORM_FLOAT 2

// `double`s from 0 on and below 1.
#define ACCELRT_RANDOM_UNIFORM_DOUBLE 3

// `float`s of mean 0 and variance 1.
#define ACCELRT_RANDOM_NORMAL_FLOAT 4

// `double`s of mean 0 and variance 1.
#define ACCELRT_RANDOM_NORMAL_DOUBLE 5

// An argument is a buffer, `buffer`.
#define ACCELRT_ARGUMENT_BUFFER 0

// An argument is a number or a struct, of `bytes` bytes at `value`, or an address on the device.
#define ACCELRT_ARGUMENT_VALUE 1

// An argument is local memory: `bytes` bytes of each work-group.
#define ACCELRT_ARGUMENT_LOCAL 2

// What a function came to. Every function returns one unless it cannot fail. Numbers keep their
// meaning; later versions may add some, so a program treats a number that it does not know as an
// error.
enum accelrt_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The function did what it says.
  ACCELRT_STATUS_OK = 0,
  // An argument is NULL where a pointer is needed, out of range, malformed, or does not fit the
  // other ones, as a stream of another kind of device. Nothing was done.
  ACCELRT_STATUS_INVALID_ARGUMENT = 1,
  // A handle that was destroyed, or that no function has returned.
  ACCELRT_STATUS_STALE_HANDLE = 2,
  // The device, or the limit set on it, has no room for a request.
  ACCELRT_STATUS_OUT_OF_MEMORY = 3,
  // Work of a stream failed: a task returned an error, or the device refused it. The text has
  // the cause.
  ACCELRT_STATUS_STREAM_FAILED = 4,
  // The device is gone for good.
  ACCELRT_STATUS_DEVICE_LOST = 5,
  // A wait reached its limit. The work goes on.
  ACCELRT_STATUS_TIMED_OUT = 6,
  // The work has not got that far: the time between events that are not done.
  ACCELRT_STATUS_NOT_READY = 7,
  // The kind of device, or this build, cannot do that.
  ACCELRT_STATUS_UNSUPPORTED = 8,
  // There is no such device, stream, kernel or allocation.
  ACCELRT_STATUS_NOT_FOUND = 9,
  // The driver or the operating system refused a call.
  ACCELRT_STATUS_DRIVER_REFUSED = 10,
  // A setting or a limit with a value that is not allowed.
  ACCELRT_STATUS_INVALID_SETTING = 11,
  // The object cannot do that now: memory that was released or is exported, an event without
  // timing or record, a setting behind the first use of the runtime.
  ACCELRT_STATUS_INVALID_STATE = 12,
  // The runtime was shut down.
  ACCELRT_STATUS_SHUT_DOWN = 13,
  // The process was forked from one that had used the runtime. The parent and a new program can
  // use it.
  ACCELRT_STATUS_FORKED = 14,
  // A task asked to wait for its own stream, which would never end.
  ACCELRT_STATUS_WOULD_DEADLOCK = 15,
  // The compiler refused a program. The text has its log.
  ACCELRT_STATUS_BUILD_FAILED = 16,
  // A defect of accelrt: a panic was caught. Please report it with its text.
  ACCELRT_STATUS_INTERNAL = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum accelrt_status accelrt_status;
#else
typedef int32_t accelrt_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A buffer: a view of memory. A handle is a number in a pointer's clothes.
typedef struct accelrt_buffer accelrt_buffer;

// What finishes a deferred task. A handle is a number in a pointer's clothes.
typedef struct accelrt_completion accelrt_completion;

// An event: a place in a stream. A handle is a number in a pointer's clothes.
typedef struct accelrt_event accelrt_event;

// A generator of random numbers. A handle is a number in a pointer's clothes.
typedef struct accelrt_generator accelrt_generator;

// A history of memory. A handle is a number in a pointer's clothes.
typedef struct accelrt_history accelrt_history;

// One function of a program. A handle is a number in a pointer's clothes.
typedef struct accelrt_kernel accelrt_kernel;

// A subscription to the log. A handle is a number in a pointer's clothes.
typedef struct accelrt_log accelrt_log;

// An observer of shortages. A handle is a number in a pointer's clothes.
typedef struct accelrt_observer accelrt_observer;

// A private pool of a device's memory. A handle is a number in a pointer's clothes.
typedef struct accelrt_pool accelrt_pool;

// Kernels compiled for a device. A handle is a number in a pointer's clothes.
typedef struct accelrt_program accelrt_program;

// The segments and blocks of devices. A handle is a number in a pointer's clothes.
typedef struct accelrt_snapshot accelrt_snapshot;

// A stream: in-order work on one device. A handle is a number in a pointer's clothes.
typedef struct accelrt_stream accelrt_stream;

// Counters since the runtime's begin.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // Tasks that threads executed which waited for their stream.
  uint64_t num_helped_tasks;
  // Wake-ups of sleeping workers.
  uint64_t num_worker_wakes;
  // Tasks that were not run because their stream had failed.
  uint64_t num_skipped_tasks;
  // Tasks that were not run because the runtime was shut down.
  uint64_t num_cancelled_tasks;
  // Workers that were started because others blocked inside of tasks.
  uint64_t num_spare_workers;
} accelrt_runtime_counters;

// A device: one of a kind.
typedef struct {
  // The number of the kind: `ACCELRT_CPU`, `ACCELRT_CUDA`, `ACCELRT_XPU`, that of a registered
  // kind, or `ACCELRT_ACCELERATOR`.
  int32_t kind;
  // The index among the kind's devices from 0, or `ACCELRT_CURRENT` for the thread's current
  // device of the kind.
  int32_t index;
} accelrt_device;

// What a device is.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // The capacity.
  uint64_t total_memory_bytes;
  // Cores that the process may use; multiprocessors of a GPU.
  uint64_t core_count;
  // The size of a page.
  uint64_t page_bytes;
  // The size of a huge page; 0 where there is none.
  uint64_t huge_page_bytes;
  // 1 for a GPU.
  int32_t is_gpu;
  // 1 when the device and the host can share memory.
  int32_t has_shared_memory;
  // The lowest urgency of a stream, the largest number.
  int32_t least_priority;
  // The highest urgency of a stream, the smallest number.
  int32_t greatest_priority;
} accelrt_device_properties;

// What a stream is.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // The device that executes the stream.
  accelrt_device device;
  // The id on its device; 0 is the default stream.
  uint64_t id;
  // The priority; a smaller number runs first.
  int32_t priority;
  // 1 for a stream that ends with its last handle.
  int32_t is_dedicated;
  // 1 when tasks may be functions of the host, as `accelrt_stream_launch` has them.
  int32_t runs_on_host;
  // 1 when everything enqueued is done and no error is left, so that a wait would not block.
  int32_t is_quiet;
} accelrt_stream_info;

// A task: gets the data of its launch. Returns 0, or another number for a failure, whose text it
// writes to `error_text`, at most `error_capacity` bytes with the 0 at the end. Must not throw or
// jump out.
typedef int32_t (*accelrt_task_function)(void *data, char *error_text, size_t error_capacity);

// Frees what a launch or a copy was given. Must not throw or jump out.
typedef void (*accelrt_drop_function)(void *data);

// How a task uses a buffer.
typedef struct {
  // The buffer.
  accelrt_buffer *buffer;
  // `ACCELRT_READS`, `ACCELRT_WRITES`, or 0 when that is not known: the task may then use all of
  // the memory that the buffer is a view of.
  uint32_t access;
  // 0.
  uint32_t reserved;
} accelrt_buffer_use;

// Starts a deferred task: gets the data of its launch, and the handle that some thread passes to
// `accelrt_completion_finish`. Must not throw or jump out.
typedef void (*accelrt_start_function)(void *data, accelrt_completion *completion);

// Bytes that a task uses.
typedef struct {
  // The first address.
  uint64_t address;
  // How many bytes.
  uint64_t bytes;
  // `ACCELRT_READS`, `ACCELRT_WRITES`, or 0 when that is not known.
  uint32_t access;
  // 0.
  uint32_t reserved;
} accelrt_used_range;

// What a launch says of its task.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // The name that logs, profiles and the sanitizer show, in UTF-8; NULL for the function's.
  const char *name;
  // The bytes that the task uses.
  const accelrt_used_range *ranges;
  // How many ranges.
  size_t range_count;
} accelrt_task_description;

// What a buffer is.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // The device; of pinned memory one of the kind that it was asked of.
  accelrt_device device;
  // The address of the first byte; 0 of an empty buffer and behind a release.
  uint64_t address;
  // The bytes of this view.
  uint64_t bytes;
  // Where in its allocation the view begins.
  uint64_t offset_bytes;
  // `ACCELRT_MEMORY_DEVICE`, `ACCELRT_MEMORY_PINNED` or `ACCELRT_MEMORY_SHARED`.
  int32_t memory;
  // 1 when the host can read and write at the address, once the uses are done.
  int32_t is_host_accessible;
  // 1 behind a release of the memory.
  int32_t is_released;
  // 0.
  int32_t reserved;
} accelrt_buffer_info;

// The memory that an address belongs to.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // The device of the memory; of pinned memory one of its kind.
  accelrt_device device;
  // The first address of the allocation.
  uint64_t address;
  // The bytes of the allocation, at least those that were asked for.
  uint64_t bytes;
  // The bytes that were asked for.
  uint64_t requested_bytes;
  // `ACCELRT_MEMORY_DEVICE`, `ACCELRT_MEMORY_PINNED` or `ACCELRT_MEMORY_SHARED`.
  int32_t memory;
  // 1 when `accelrt_memory_allocate` has given it out; else it is a buffer's, of any language.
  int32_t is_freed_by_address;
} accelrt_memory_info;

// A number and its history.
typedef struct {
  // The value now.
  uint64_t current;
  // The largest value since the last reset of peaks.
  uint64_t peak;
  // The sum of all increases since the last reset of sums.
  uint64_t allocated;
  // The sum of all decreases since the last reset of sums.
  uint64_t freed;
} accelrt_stat;

// A number for small and for large requests, and for both.
typedef struct {
  // Both.
  accelrt_stat all;
  // Small requests, up to 1 MiB.
  accelrt_stat small_pool;
  // Large ones.
  accelrt_stat large_pool;
} accelrt_pooled_stat;

// What an allocator has handed out and taken, by PyTorch's names and meanings where it has them.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // Blocks that are handed out and not freed.
  accelrt_pooled_stat allocation;
  // Their bytes.
  accelrt_pooled_stat allocated_bytes;
  // Segments from the device.
  accelrt_pooled_stat segment;
  // Bytes taken from the device.
  accelrt_pooled_stat reserved_bytes;
  // Blocks that are handed out, or freed and still used by streams.
  accelrt_pooled_stat active;
  // Their bytes.
  accelrt_pooled_stat active_bytes;
  // The bytes of these blocks that were asked for.
  accelrt_pooled_stat requested_bytes;
  // Free blocks that cannot go back because others share their segment.
  accelrt_pooled_stat inactive_split;
  // Their bytes.
  accelrt_pooled_stat inactive_split_bytes;
  // Blocks of at least `max_split_bytes`.
  accelrt_stat oversize_allocations;
  // Segments of at least `max_split_bytes`.
  accelrt_stat oversize_segments;
  // Requests that asked the device again after free memory was to go back.
  uint64_t num_alloc_retries;
  // Requests that failed for want of memory.
  uint64_t num_ooms;
  // Times that all free memory was to go back.
  uint64_t num_sync_all_streams;
  // Segments and ranges of pages taken from the device.
  uint64_t num_device_alloc;
  // Segments and ranges of pages given back.
  uint64_t num_device_free;
  // Requests that failed at once because a setting wants that.
  uint64_t num_oom_rejections;
  // Pages moved to addresses that lacked them.
  uint64_t num_pages_stolen;
  // Requests served from another stream's memory.
  uint64_t num_frontier_reuses;
  // The setting `max_split_size_mb` in bytes; -1 without one.
  int64_t max_split_bytes;
} accelrt_memory_statistics;

// Durations of one kind of call; zeros before the first.
typedef struct {
  // The sum, in microseconds.
  uint64_t total_us;
  // The longest, in microseconds.
  uint64_t max_us;
  // The shortest, in microseconds.
  uint64_t min_us;
  // The number of calls.
  uint64_t count;
} accelrt_duration_stat;

// What the allocator of a kind's pinned memory has handed out and taken.
typedef struct {
  // The size of this struct in bytes, set by the caller.
  size_t size;
  // Blocks that are handed out, or freed and still used by streams.
  accelrt_stat active_requests;
  // Their bytes.
  accelrt_stat active_bytes;
  // Segments from the driver.
  accelrt_stat allocations;
  // Their bytes.
  accelrt_stat allocated_bytes;
  // The driver's allocations.
  accelrt_duration_stat host_alloc_time;
  // The driver's frees.
  accelrt_duration_stat host_free_time;
} accelrt_host_statistics;

// What is in use by the tag of its requests.
typedef struct {
  // The size of this struct in bytes.
  size_t size;
  // The bytes.
  accelrt_stat bytes;
  // The tag, which ends with a zero and may be cut.
  char tag[64];
} accelrt_tag_statistics;

// A request that failed for want of memory.
typedef struct {
  // The size of this struct in bytes.
  size_t size;
  // The device; of pinned memory one of its kind.
  accelrt_device device;
  // The bytes that were asked for.
  uint64_t requested_bytes;
  // The bytes that the device had free.
  uint64_t free_bytes;
  // The capacity; 0 where it is not known.
  uint64_t total_bytes;
  // The text of the error, valid during the call.
  const char *text;
} accelrt_shortage;

// Is told of a shortage. Must not throw or jump out.
typedef void (*accelrt_observer_function)(void *data, const accelrt_shortage *shortage);

// A range of memory that was taken from a device.
typedef struct {
  // The size of this struct in bytes.
  size_t size;
  // The device.
  accelrt_device device;
  // The first address.
  uint64_t address;
  // All bytes.
  uint64_t total_bytes;
  // Bytes of blocks that are handed out.
  uint64_t allocated_bytes;
  // Bytes of these, and of blocks that were freed and are still used by streams.
  uint64_t active_bytes;
  // The number of the stream that it serves.
  uint64_t stream;
  // The number of its private pool; 0 for none.
  uint64_t pool;
  // Where its blocks begin in the array of all blocks.
  uint64_t first_block;
  // How many blocks it has.
  uint64_t block_count;
  // 1 for a segment of large requests.
  int32_t is_large;
  // 1 when its pages are mapped one by one.
  int32_t is_expandable;
} accelrt_segment;

// A piece of a segment.
typedef struct {
  // The size of this struct in bytes.
  size_t size;
  // The first address.
  uint64_t address;
  // The bytes.
  uint64_t bytes;
  // The bytes that were asked for.
  uint64_t requested_bytes;
  // `ACCELRT_BLOCK_ALLOCATED`, `ACCELRT_BLOCK_AWAITING_FREE` or `ACCELRT_BLOCK_INACTIVE`.
  int32_t state;
  // 0.
  int32_t reserved;
} accelrt_block;

// What an allocator did.
typedef struct {
  // The size of this struct in bytes.
  size_t size;
  // One of `ACCELRT_MEMORY_ALLOC` to `ACCELRT_MEMORY_OUT_OF_MEMORY`.
  int32_t action;
  // 1 for a request for which the device was asked.
  int32_t is_miss;
  // The address of the block or the segment.
  uint64_t address;
  // The bytes that were asked for; of a segment all of it.
  uint64_t bytes;
  // The bytes of the block.
  uint64_t block_bytes;
  // The number of the stream.
  uint64_t stream;
  // The number of the private pool; 0 for none.
  uint64_t pool;
  // When it was, in nanoseconds since 1970.
  int64_t time_ns;
  // The tag of the memory, which ends with a zero and may be cut; empty for none.
  char tag[64];
} accelrt_memory_event;

// One record. Fields that have no meaning for its kind are 0 or empty; devices then have kind -1.
typedef struct {
  // The size of this struct in bytes.
  size_t size;
  // One of `ACCELRT_RECORD_THREAD` to `ACCELRT_RECORD_MEMORY`.
  int32_t kind;
  // The number of the thread that wrote it, from 1.
  uint32_t thread;
  // The device of the stream.
  accelrt_device device;
  // The id of the stream on its device.
  uint64_t stream_id;
  // The number of the task on its stream, from 1.
  uint64_t ticket;
  // Nanoseconds since the subscription began; what had begun before is negative.
  int64_t start_ns;
  // As `start_ns`.
  int64_t end_ns;
  // The memory that the task writes, else reads, else the function that it calls.
  uint64_t address;
  // The bytes of the task.
  uint64_t bytes;
  // Of a wait the device of the stream that it waits for.
  accelrt_device source_device;
  // Of a wait the id of the stream that it waits for.
  uint64_t source_stream_id;
  // Of a wait the task that it waits for.
  uint64_t source_ticket;
  // What was done, as "launch" or "copy"; ends with a zero.
  char operation[16];
  // The name of the function, kernel, thread, range or tag; ends with a zero, and may be cut.
  char name[64];
} accelrt_log_record;

// An argument of a kernel.
typedef struct {
  // `ACCELRT_ARGUMENT_BUFFER`, `ACCELRT_ARGUMENT_VALUE` or `ACCELRT_ARGUMENT_LOCAL`.
  int32_t kind;
  // How the kernel uses the buffer: `ACCELRT_READS`, `ACCELRT_WRITES`, or 0 when that is not
  // known.
  uint32_t access;
  // The buffer, which the launch records as used; else NULL.
  accelrt_buffer *buffer;
  // The value, which the launch copies; else NULL.
  const void *value;
  // The bytes of the value, or of local memory.
  size_t bytes;
} accelrt_kernel_argument;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The status of the last function that failed on this thread; `ACCELRT_STATUS_OK` before the first
// and behind `accelrt_error_clear`. A function that succeeds leaves it as it is.
//
// Never blocks, never fails.
accelrt_status accelrt_error_status(void);

// The text of the last error on this thread, in UTF-8; empty where there is none. The pointer is
// valid until the next function that fails on this thread, a call of `accelrt_error_clear`, or the
// end of the thread.
//
// Never blocks, never fails.
const char *accelrt_error_text(void);

// Forgets the last error of this thread.
//
// Never blocks, never fails.
void accelrt_error_clear(void);

// The version of the interface that the library has: `ACCELRT_ABI_VERSION` of its header. A
// program that was compiled with another one must not call other functions.
//
// Never blocks, never fails.
uint32_t accelrt_abi_version(void);

// The version of the library as a text, such as "0.2.0", valid for ever.
//
// Never blocks, never fails.
const char *accelrt_version(void);

// Sets a setting in place of the environment variable of the same name, such as
// `ACCELRT_CPU_DEVICES` to "2"; docs/settings.md has the names and values. NULL as `value` leaves
// the setting to the environment again. What `ACCELRT_KINDS` names is loaded once, at the first
// look for a kind or a device.
//
// To be called before the runtime's first use: before anything but functions of errors, versions
// and settings. A value is checked by the first use, which then fails with
// `ACCELRT_STATUS_INVALID_SETTING` until the value is set anew. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a name that no setting has, and with
// `ACCELRT_STATUS_INVALID_STATE` behind the first use.
//
// What the caller promises:
// `name` and `value` are texts that end with a zero.
accelrt_status accelrt_setting_set(const char *name, const char *value);

// Writes what a setting was set to, by `accelrt_setting_set` or else by the environment; an empty
// text for one that is not set. `text`, `capacity` and `length` are as in
// `accelrt_device_get_name`. Does not begin the runtime, and does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a name that no setting has.
//
// What the caller promises:
// `name` is a text that ends with a zero, and `text` has room for `capacity` bytes.
accelrt_status accelrt_setting_get(const char *name, char *text, size_t capacity, size_t *length);

// Begins the process's runtime, as the first function that needs it does. Starts no thread and
// initialises no device: what can fail is a setting. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_SETTING`; a later call tries again.
accelrt_status accelrt_runtime_begin(void);

// Writes 1 when the runtime has initialised a device, else 0. Does not block.
accelrt_status accelrt_runtime_query(int32_t *is_initialized);

// Ends the process's runtime: takes no new work, finishes queued work for at most
// `ACCELRT_EXIT_MS`, cancels the rest and writes to standard error what was lost. Blocks until
// then. The end of a process does it by itself; a second call does nothing. Not to be called by a
// task.
accelrt_status accelrt_runtime_shutdown(void);

// Writes the runtime's counters. Does not block.
//
// What the caller promises:
// `counters` begins with the size of the memory that it names.
accelrt_status accelrt_runtime_get_counters(accelrt_runtime_counters *counters);

// Registers the kind of device of a table of functions, an `accelrt_backend` of
// `accelrt_backend.h`, and writes the kind's number. To be called before the runtime's first use.
// docs/devices.md says what a maker of devices promises.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when the table is of another version, lacks a
// function, or names a kind that is there already, and with `ACCELRT_STATUS_INVALID_STATE` behind
// the first use.
//
// What the caller promises:
// `table` is NULL or such a table, which stays unchanged while the process runs, as do its name
// and the tables that it names. Its functions do what the header says.
accelrt_status accelrt_backend_register(const void *table, int32_t *kind);

// Opens a shared library that exports `accelrt_backend_table`, for good, and registers its kind as
// `accelrt_backend_register` does. A path without a slash is searched for as the dynamic loader
// does. The setting `ACCELRT_KINDS` does the same without a call.
//
// What the caller promises:
// `path` is a text that ends with a zero. The library's table keeps what `accelrt_backend.h` says.
accelrt_status accelrt_backend_load(const char *path, int32_t *kind);

// Writes the kind of device for `ACCELRT_ACCELERATOR`: the configured one, else the first of cuda
// and xpu that has a GPU, else cpu. The first call may load a driver.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND` when the configured kind is not there.
accelrt_status accelrt_kind_get_accelerator(int32_t *kind);

// Writes the number of the kind with a name, such as "cpu", "cuda", "xpu" or that of a kind that a
// program has registered or `ACCELRT_KINDS` brings. Does not block.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
//
// What the caller promises:
// `name` is a text that ends with a zero.
accelrt_status accelrt_kind_find(const char *name, int32_t *kind);

// Writes the name of a kind. `text`, `capacity` and `length` are as in `accelrt_device_get_name`.
// Does not block.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
//
// What the caller promises:
// `text` has room for `capacity` bytes.
accelrt_status accelrt_kind_get_name(int32_t kind, char *text, size_t capacity, size_t *length);

// Writes the device of a text such as "cpu:1" or "cpu", which means index 0. Whether it exists is
// seen at its use. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT`.
//
// What the caller promises:
// `name` is a text that ends with a zero.
accelrt_status accelrt_device_parse(const char *name, accelrt_device *device);

// Writes the number of devices of a kind: 0 for one that this build or machine lacks. Initialises
// none. For xpu the first call loads the vendors' libraries.
accelrt_status accelrt_device_get_count(int32_t kind, int32_t *count);

// Writes the calling thread's current device of a kind; index 0 when the thread has set none. Does
// not block.
accelrt_status accelrt_device_get_current(int32_t kind, accelrt_device *device);

// Makes a device current for its kind on the calling thread, and writes the previous one unless
// `previous` is NULL. Does not block.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_device_exchange(accelrt_device device, accelrt_device *previous);

// Writes the vendor's name of a device to `text`, as a string that ends with a zero byte. A name
// that does not fit into `capacity` bytes with its zero byte is cut off. Unless `length` is NULL,
// it receives the length of the whole name in bytes, without the zero byte. To get only the
// length, pass NULL as `text` and 0 as `capacity`.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
//
// What the caller promises:
// `text` has room for `capacity` bytes.
accelrt_status accelrt_device_get_name(accelrt_device device,
                                       char *text,
                                       size_t capacity,
                                       size_t *length);

// Writes what a device is. May load a driver, initialises no device.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
//
// What the caller promises:
// `properties` begins with the size of the memory that it names.
accelrt_status accelrt_device_get_properties(accelrt_device device,
                                             accelrt_device_properties *properties);

// Writes the free and the total bytes of a device's memory; either place may be NULL. May ask the
// driver.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_device_get_memory(accelrt_device device,
                                         uint64_t *free_bytes,
                                         uint64_t *total_bytes);

// Blocks until all work that was enqueued on the device's streams before this call is done, for at
// most `timeout_ms` milliseconds unless that is `ACCELRT_NO_LIMIT`. Without a limit the thread may
// execute tasks of the streams. Ends the errors of the streams and fails with them.
//
// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`, with
// `ACCELRT_STATUS_TIMED_OUT`, which ends no error, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside
// of a task of the device.
accelrt_status accelrt_device_synchronize(accelrt_device device, int64_t timeout_ms);

// Creates a stream for the caller alone. It ends when its handle was destroyed and its work is
// done. A smaller `priority` runs first; a priority outside of the device's range becomes the
// nearest one in it. Initialises the device.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_stream_create(accelrt_device device,
                                     int32_t priority,
                                     accelrt_stream **stream);

// Takes the next stream of the device's pool of 32 with this priority: request 33 gets the first
// one again. Streams of pools live as long as the runtime. Fails as `accelrt_stream_create`.
accelrt_status accelrt_stream_get_pooled(accelrt_device device,
                                         int32_t priority,
                                         accelrt_stream **stream);

// Returns the device's default stream: id 0, shared by all threads, not ordered with other
// streams.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_stream_get_default(accelrt_device device, accelrt_stream **stream);

// Returns the calling thread's current stream of a device; the default stream when the thread has
// set none.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_stream_get_current(accelrt_device device, accelrt_stream **stream);

// Returns the stream with an id, whichever language has made it. Ids are never used again.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND` for an id that was not given out, or whose stream has
// ended.
accelrt_status accelrt_stream_find(accelrt_device device, uint64_t id, accelrt_stream **stream);

// Makes a stream of the driver, which other code owns and destroys later than this one ends, a
// stream here: on xpu a `cl_command_queue`. Work that other code submits to it is ordered with
// ours as the driver says.
//
// Fails with `ACCELRT_STATUS_UNSUPPORTED` on kinds without streams of a driver, as cpu.
//
// What the caller promises:
// The handle is that of a stream of the driver and the device, which its owner destroys only after
// the stream here has ended.
accelrt_status accelrt_stream_wrap(accelrt_device device,
                                   uint64_t native_handle,
                                   accelrt_stream **stream);

// Counts the handle once more, for a second owner who destroys it for itself. Does not block.
accelrt_status accelrt_stream_retain(accelrt_stream *stream);

// Gives the handle back: once for each time that a function has returned it. With the last one it
// is stale, and a stream of `accelrt_stream_create` ends when its work is done. Does not block.
//
// Of streams that the runtime keeps, the default ones and those of pools, the handle stays valid.
accelrt_status accelrt_stream_destroy(accelrt_stream *stream);

// Makes a stream current on its device for the calling thread, and returns the previous one unless
// `previous` is NULL. The thread's current device stays. Does not block.
accelrt_status accelrt_stream_exchange(accelrt_stream *stream, accelrt_stream **previous);

// Writes what a stream is. Does not block. No wait: a watch of the order learns nothing from it,
// as it does from `accelrt_stream_query`.
//
// What the caller promises:
// `info` begins with the size of the memory that it names.
accelrt_status accelrt_stream_get_info(accelrt_stream *stream, accelrt_stream_info *info);

// Writes 1 when everything that was enqueued is done, failed or not, else 0. Does not block.
accelrt_status accelrt_stream_query(accelrt_stream *stream, int32_t *is_done);

// Blocks until everything that was enqueued before this call is done, for at most `timeout_ms`
// milliseconds unless that is `ACCELRT_NO_LIMIT`. Without a limit the thread may execute short
// tasks of the stream. Ends the stream's error and fails with it, on every thread that waits at
// that moment.
//
// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`, with
// `ACCELRT_STATUS_TIMED_OUT`, which ends no error, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside
// of a task of the stream.
accelrt_status accelrt_stream_synchronize(accelrt_stream *stream, int64_t timeout_ms);

// Writes the driver's own handle: on xpu a `cl_command_queue`. It is valid while the stream is.
//
// Fails with `ACCELRT_STATUS_UNSUPPORTED` on kinds without such handles, as cpu.
accelrt_status accelrt_stream_get_native(accelrt_stream *stream, uint64_t *native_handle);

// Makes what is enqueued on `stream` from now on run behind everything that was enqueued on
// `other`. No thread waits; a failed `other` fails the stream.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when the streams are of two kinds.
accelrt_status accelrt_stream_wait_stream(accelrt_stream *stream, accelrt_stream *other);

// Enqueues a function, which any thread calls once in stream order as `run(data, text, capacity)`.
// Does not block, except while the stream has more tasks queued than `ACCELRT_STREAM_TASKS`: then
// the thread helps or waits.
//
// `drop(data)` is called once, on any thread: behind `run`, or in its place when the stream has
// failed before, the runtime is shut down or this function fails. `drop` may be NULL.
//
// A number other than 0 that `run` returns fails the stream; the text says why. `uses` are
// `use_count` buffers that `run` uses: their memory stays until then, and copies, fills and reads
// of the host that come later wait for it. The function itself is ordered by its stream alone.
//
// Inside of `run` the functions of this header may be called, but a wait for the own stream fails.
//
// Fails with `ACCELRT_STATUS_UNSUPPORTED` on kinds whose tasks do not run on the host.
//
// What the caller promises:
// Any thread may call `run` and `drop` with `data`. What `run` accesses is there when it runs, and
// ordered. There are `use_count` uses.
accelrt_status accelrt_stream_launch(accelrt_stream *stream,
                                     accelrt_task_function run,
                                     void *data,
                                     accelrt_drop_function drop,
                                     const accelrt_buffer_use *uses,
                                     size_t use_count);

// As `accelrt_stream_launch`, for a function that blocks its thread: that waits for a file,
// another process or another thread. Another worker serves the other streams meanwhile; the call
// itself costs more, so that this is for functions that take longer than some microseconds.
//
// What the caller promises:
// As `accelrt_stream_launch`.
accelrt_status accelrt_stream_launch_blocking(accelrt_stream *stream,
                                              accelrt_task_function run,
                                              void *data,
                                              accelrt_drop_function drop,
                                              const accelrt_buffer_use *uses,
                                              size_t use_count);

// Enqueues a task that the stream starts and another thread finishes: of a library that calls
// back, or a thread that waits for many things. When everything enqueued before is done, on the
// device too, a thread calls `start(data, completion)` once, which hands the work on and returns.
// The stream goes on when any thread calls `accelrt_completion_finish`; meanwhile no thread waits.
// Works on every kind. Blocks as `accelrt_stream_launch`.
//
// `drop(data)` is called once, on any thread: when the task was finished, or in place of `start`
// when the stream has failed before, the runtime is shut down or this function fails. `drop` may
// be NULL. A task that is never finished keeps its stream waiting until the shutdown.
//
// The task's buffers are recorded by `accelrt_buffer_record_use`, behind this call.
//
// What the caller promises:
// Any thread may call `start` and `drop` with `data`.
accelrt_status accelrt_stream_launch_deferred(accelrt_stream *stream,
                                              accelrt_start_function start,
                                              void *data,
                                              accelrt_drop_function drop);

// Finishes a deferred task, and makes the handle stale. With NULL as `error` its stream goes on; a
// text fails the stream. To be called once for each task, by any thread, also inside of `start`;
// the stream's later tasks do not run inside of this call. Does not block.
//
// What the caller promises:
// `error` is NULL or a text that ends with a zero.
accelrt_status accelrt_completion_finish(accelrt_completion *completion, const char *error);

// As `accelrt_stream_launch`, for a task that says its name and the bytes that it uses. These are
// shown by logs and profiles, and compared by the sanitizer; nothing waits for them, and no memory
// stays for them: a buffer that is destroyed is freed behind the work of its home stream and the
// uses that `accelrt_buffer_record_use` was told of.
//
// What the caller promises:
// As `accelrt_stream_launch`. `description`, its name and its `range_count` ranges are there and
// stay as they are until `drop(data)` is called, so they may stand in `data`.
accelrt_status accelrt_stream_launch_described(accelrt_stream *stream,
                                               accelrt_task_function run,
                                               void *data,
                                               accelrt_drop_function drop,
                                               const accelrt_task_description *description);

// Creates an event, whose records store the time when `is_timed` is not 0. Its first record
// determines its device. Initialises nothing.
accelrt_status accelrt_event_create(int32_t is_timed, accelrt_event **event);

// Makes the handle stale. Records and waits that were enqueued stay as they are. Does not block.
accelrt_status accelrt_event_destroy(accelrt_event *event);

// Records the event behind everything that was enqueued on the stream; it stands for that place
// until its next record. Does not block, except as `accelrt_stream_launch`.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when it was recorded on another device before.
accelrt_status accelrt_event_record(accelrt_event *event, accelrt_stream *stream);

// Makes what is enqueued on `stream` from now on run behind the event's latest record. No thread
// waits. Without a record there is nothing to wait for; a failed event fails the stream.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when stream and event are of two kinds.
accelrt_status accelrt_stream_wait_event(accelrt_stream *stream, accelrt_event *event);

// Writes 1 when everything before the latest record is done, failed or not, or there is no record,
// else 0. Does not block.
accelrt_status accelrt_event_query(accelrt_event *event, int32_t *is_done);

// Blocks until everything before the latest record is done, for at most `timeout_ms` milliseconds
// unless that is `ACCELRT_NO_LIMIT`. Without a limit the thread may execute short tasks of the
// stream. Fails with the error that the stream had at the record, and ends none.
//
// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`,
// `ACCELRT_STATUS_TIMED_OUT`, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside of a task of the
// stream.
accelrt_status accelrt_event_synchronize(accelrt_event *event, int64_t timeout_ms);

// Writes the milliseconds from the latest record of `start` to that of `end`; negative in the
// other order. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_STATE` for an event without timing or record, with
// `ACCELRT_STATUS_NOT_READY` for one that is not done, with `ACCELRT_STATUS_STREAM_FAILED` for one
// that has failed, and with `ACCELRT_STATUS_INVALID_ARGUMENT` for two kinds.
accelrt_status accelrt_event_get_elapsed(accelrt_event *start,
                                         accelrt_event *end,
                                         double *elapsed_ms);

// Allocates `bytes` bytes with unspecified contents on a device, aligned to 512 bytes or more. The
// buffer's home is the thread's current stream of the device: its memory is freed behind all work
// of that stream. 0 bytes need no memory. Blocks only while memory is short and streams still use
// memory that was freed.
//
// Fails with `ACCELRT_STATUS_OUT_OF_MEMORY` and `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_buffer_create(accelrt_device device, size_t bytes, accelrt_buffer **buffer);

// As `accelrt_buffer_create`, with a stream as the home.
accelrt_status accelrt_buffer_create_on(accelrt_stream *stream,
                                        size_t bytes,
                                        accelrt_buffer **buffer);

// As `accelrt_buffer_create`, in memory of the host (`ACCELRT_MEMORY_PINNED`) or shared with it
// (`ACCELRT_MEMORY_SHARED`). Pinned memory is used by all devices of the kind; its address is a
// multiple of 64.
//
// Fails besides with `ACCELRT_STATUS_UNSUPPORTED` on a device without shared memory.
accelrt_status accelrt_buffer_create_in(accelrt_device device,
                                        int32_t memory,
                                        size_t bytes,
                                        accelrt_buffer **buffer);

// Makes the handle stale. With the last view of it the memory is freed in stream order, behind all
// work of the home stream and every recorded use. Does not block.
accelrt_status accelrt_buffer_destroy(accelrt_buffer *buffer);

// Returns a view of `bytes` bytes of a buffer from `offset_bytes` on, which keeps the memory
// allocated. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a range beyond the buffer, and with
// `ACCELRT_STATUS_INVALID_STATE` behind a release.
accelrt_status accelrt_buffer_slice(accelrt_buffer *buffer,
                                    size_t offset_bytes,
                                    size_t bytes,
                                    accelrt_buffer **view);

// Writes what a buffer is. Does not block.
//
// What the caller promises:
// `info` begins with the size of the memory that it names.
accelrt_status accelrt_buffer_get_info(accelrt_buffer *buffer, accelrt_buffer_info *info);

// Writes the address of a buffer's first byte; 0 of an empty one. Tasks may still use the memory:
// `accelrt_buffer_wait` waits for them. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_STATE` behind a release.
accelrt_status accelrt_buffer_get_address(accelrt_buffer *buffer, uint64_t *address);

// Returns the home stream of a buffer.
accelrt_status accelrt_buffer_get_home(accelrt_buffer *buffer, accelrt_stream **stream);

// Says that all work which is enqueued on `stream` by now may use the buffer's memory: for uses
// that accelrt cannot see, as those of a function that was told the address. The memory stays
// until they are done. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_STATE` behind a release.
accelrt_status accelrt_buffer_record_use(accelrt_buffer *buffer, accelrt_stream *stream);

// Frees the memory in stream order although other views are there; later uses of any view fail
// with `ACCELRT_STATUS_INVALID_STATE`. A second release does nothing. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_STATE` while the memory is exported, as to Python.
accelrt_status accelrt_buffer_release(accelrt_buffer *buffer);

// Blocks until every recorded use of the memory is done, for at most `timeout_ms` milliseconds
// unless that is `ACCELRT_NO_LIMIT`: the host may then read and write at the address, where it can
// access the memory at all. Fails with the errors of the uses, and ends them for later tasks.
//
// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`,
// `ACCELRT_STATUS_TIMED_OUT`, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside of a task that uses
// the memory.
accelrt_status accelrt_buffer_wait(accelrt_buffer *buffer, int64_t timeout_ms);

// Copies all bytes of the buffer `from` to the buffer `to` of the same size, on `stream`. The copy
// runs behind every conflicting use that is known, on any stream: tasks that write either buffer,
// and tasks that read `to`. Does not wait for it, and blocks only as `accelrt_stream_launch`. The
// buffers may be destroyed at once.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when the sizes differ, the ranges overlap or the
// stream is of neither buffer's device, and with `ACCELRT_STATUS_INVALID_STATE` behind a release.
// A copy that the device refuses fails the stream.
accelrt_status accelrt_buffer_copy(accelrt_buffer *to,
                                   accelrt_buffer *from,
                                   accelrt_stream *stream);

// Sets every byte of a buffer to `byte`, on `stream`. Is ordered, blocks and fails as
// `accelrt_buffer_copy`.
accelrt_status accelrt_buffer_fill(accelrt_buffer *buffer, uint8_t byte, accelrt_stream *stream);

// Copies `bytes` bytes of the host, as many as the buffer has, to the buffer, on `stream`. Blocks
// until that is done. Is ordered and fails as `accelrt_buffer_copy`, besides with the error that
// made the copy fail, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside of a task of the stream.
//
// What the caller promises:
// `source` has `bytes` bytes, which do not change during the call.
accelrt_status accelrt_buffer_write(accelrt_buffer *buffer,
                                    const void *source,
                                    size_t bytes,
                                    accelrt_stream *stream);

// Copies a buffer to `bytes` bytes of the host, as many as the buffer has, on `stream`, and blocks
// until that is done. Is ordered and fails as `accelrt_buffer_write`; behind a failure the bytes
// are unspecified.
//
// What the caller promises:
// `target` has `bytes` bytes, which nothing else uses during the call.
accelrt_status accelrt_buffer_read(accelrt_buffer *buffer,
                                   void *target,
                                   size_t bytes,
                                   accelrt_stream *stream);

// As `accelrt_buffer_write`, without waiting for the copy. `drop(source)` is called once, on any
// thread, when the bytes are no longer needed: also when this function fails. Without a `drop` the
// caller keeps the bytes as they are until the copy is done, which the stream shows.
//
// What the caller promises:
// `source` has `bytes` bytes, which any thread may read until they are given back or the copy is
// done. Any thread may call `drop`.
accelrt_status accelrt_buffer_write_later(accelrt_buffer *buffer,
                                          void *source,
                                          size_t bytes,
                                          accelrt_drop_function drop,
                                          accelrt_stream *stream);

// As `accelrt_buffer_read`, without waiting for the copy. `drop(target)` is called once, on any
// thread, behind the copy or in its place: also when this function fails. Without a `drop` the
// caller leaves the bytes alone until the copy is done, which the stream shows.
//
// What the caller promises:
// `target` has `bytes` bytes, which any thread may write until they are given back or the copy is
// done. Any thread may call `drop`.
accelrt_status accelrt_buffer_read_later(accelrt_buffer *buffer,
                                         void *target,
                                         size_t bytes,
                                         accelrt_drop_function drop,
                                         accelrt_stream *stream);

// Copies `bytes` bytes from one address to another one that do not overlap, on `stream`: of device
// memory, pinned memory, or of the host where the driver can read that. Ordered by the stream
// alone: what else uses the bytes, and the end of their memory, is the caller's matter. Does not
// wait for the copy, and blocks only as `accelrt_stream_launch`. A copy that the device refuses
// fails the stream.
//
// What the caller promises:
// The device can access both ranges until the copy is done, and what else uses them is ordered
// before or behind it.
accelrt_status accelrt_stream_copy(accelrt_stream *stream,
                                   uint64_t to,
                                   uint64_t from,
                                   size_t bytes);

// Sets `bytes` bytes at an address to `byte`, on `stream`. Is ordered, blocks and fails as
// `accelrt_stream_copy`.
//
// What the caller promises:
// The device can access the range until the fill is done, and what else uses it is ordered before
// or behind it.
accelrt_status accelrt_stream_fill(accelrt_stream *stream,
                                   uint64_t address,
                                   uint8_t byte,
                                   size_t bytes);

// Allocates `bytes` bytes with unspecified contents for tasks of a stream, aligned to 512 bytes or
// more. `accelrt_memory_free` gives them back, in stream order. The address of 0 bytes is 0.
// Blocks only while memory is short and streams still use memory that was freed.
//
// A handle costs less than an address, by which the allocation is found again: see
// `accelrt_buffer_create_on`.
//
// Fails with `ACCELRT_STATUS_OUT_OF_MEMORY`.
accelrt_status accelrt_memory_allocate(accelrt_stream *stream, size_t bytes, uint64_t *address);

// As `accelrt_memory_allocate`, for the thread's current stream of the device, in device memory
// (`ACCELRT_MEMORY_DEVICE`), memory of the host that the devices of the kind reach
// (`ACCELRT_MEMORY_PINNED`), or memory that device and host share (`ACCELRT_MEMORY_SHARED`).
//
// Fails besides with `ACCELRT_STATUS_UNSUPPORTED` on a device without shared memory.
accelrt_status accelrt_memory_allocate_in(accelrt_device device,
                                          int32_t memory,
                                          size_t bytes,
                                          uint64_t *address);

// Frees what `accelrt_memory_allocate` gave out, by its address, behind all work of its stream and
// every recorded use. 0 is allowed. Does not block.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND` for another address, and for one that was freed.
accelrt_status accelrt_memory_free(uint64_t address);

// Says that all work which is enqueued on `stream` by now may use an allocation of
// `accelrt_memory_allocate`: it stays until that is done. Does not block.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND` for another address.
accelrt_status accelrt_memory_record_use(uint64_t address, accelrt_stream *stream);

// Writes which allocation of accelrt contains an address: its device, its first address and sizes,
// and what memory it is, whichever language asked for it. Waits for no device.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND` for an address in no memory that is in use, as one of
// `malloc` or of the driver.
//
// What the caller promises:
// `info` begins with the size of the memory that it names.
accelrt_status accelrt_memory_find(uint64_t address, accelrt_memory_info *info);

// Writes the statistics of a device's memory (`ACCELRT_MEMORY_DEVICE`), or of what it shares with
// the host (`ACCELRT_MEMORY_SHARED`); zeros before its first use. Initialises no device and waits
// for none.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
//
// What the caller promises:
// `statistics` begins with the size of the memory that it names.
accelrt_status accelrt_memory_get_statistics(accelrt_device device,
                                             int32_t memory,
                                             accelrt_memory_statistics *statistics);

// Writes the statistics of the pinned memory of a kind's devices; zeros before its first use.
// Waits for no device.
//
// What the caller promises:
// `statistics` begins with the size of the memory that it names.
accelrt_status accelrt_memory_get_host_statistics(int32_t kind,
                                                  accelrt_host_statistics *statistics);

// Lowers the peaks of a device's statistics to what is current.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_memory_reset_peaks(accelrt_device device);

// Sets the sums and counts of a device's statistics to 0.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_memory_reset_sums(accelrt_device device);

// Gives all free memory of a kind's devices back to them, and its free pinned memory. Blocks until
// no stream uses it.
accelrt_status accelrt_memory_empty_cache(int32_t kind);

// Writes which fraction of a device's memory may be reserved: 1 unless it was set.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_memory_get_fraction(accelrt_device device, double *fraction);

// Limits later reservations of a device's memory to a fraction of it. Initialises the device.
//
// Fails with `ACCELRT_STATUS_INVALID_SETTING` unless it is from 0 to 1, and with
// `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_memory_set_fraction(accelrt_device device, double fraction);

// Writes the settings of the allocators that are in force, as text. `text`, `capacity` and
// `length` are as in `accelrt_device_get_name`.
//
// What the caller promises:
// `text` has room for `capacity` bytes.
accelrt_status accelrt_memory_get_settings(char *text, size_t capacity, size_t *length);

// Applies settings to later requests of all allocators, as `max_split_size_mb:64`: the keys are
// those of PyTorch's `PYTORCH_ALLOC_CONF`, and ours; docs/allocator.md has them.
//
// Fails with `ACCELRT_STATUS_INVALID_SETTING`, without a change, for a text that is malformed.
//
// What the caller promises:
// `settings` is a text that ends with a zero.
accelrt_status accelrt_memory_set_settings(const char *settings);

// Creates an empty pool of a device: memory that serves the requests of threads inside of it only.
// `options` is 0, or `ACCELRT_POOL_USE_ON_OOM` and `ACCELRT_POOL_NO_SPLIT`, added up. Initialises
// the device.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_pool_create(accelrt_device device, uint32_t options, accelrt_pool **pool);

// Makes the handle stale. The pool's free memory goes back to the device, what is in use behind
// its free. Threads leave the pool before: one that is inside stays there until its end. Does not
// block.
accelrt_status accelrt_pool_destroy(accelrt_pool *pool);

// Makes the pool serve the calling thread's requests of memory on its device, except shared and
// pinned memory, until `accelrt_pool_leave`. Of several entered pools of a device the last one
// serves. Does not block.
accelrt_status accelrt_pool_enter(accelrt_pool *pool);

// Ends the thread's latest `accelrt_pool_enter` of the pool. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_STATE` on a thread that is not inside of the pool.
accelrt_status accelrt_pool_leave(accelrt_pool *pool);

// Writes the number that segments of the pool have in snapshots and histories. Does not block.
accelrt_status accelrt_pool_get_id(accelrt_pool *pool, uint64_t *id);

// Gives what the calling thread allocates a tag, until `accelrt_memory_leave_tag`; the innermost
// tag counts, and an empty one ends an outer one meanwhile. A process has 65535 tags and names of
// threads. Does not block.
//
// What the caller promises:
// `tag` is a text that ends with a zero.
accelrt_status accelrt_memory_enter_tag(const char *tag);

// Ends the calling thread's latest tag. Does not block.
//
// Fails with `ACCELRT_STATUS_INVALID_STATE` when the thread has entered none.
accelrt_status accelrt_memory_leave_tag(void);

// Writes at most `capacity` tags of a device's memory with what is in use by each, sorted by tag,
// into an array whose elements have `each_bytes` bytes, `sizeof(accelrt_tag_statistics)`. `count`,
// unless it is NULL, gets the number of all. Initialises no device and waits for none.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
//
// What the caller promises:
// `tags` has `capacity` elements of `each_bytes` bytes.
accelrt_status accelrt_memory_get_tags(accelrt_device device,
                                       accelrt_tag_statistics *tags,
                                       size_t each_bytes,
                                       size_t capacity,
                                       size_t *count);

// Calls `run(data, shortage)` for each request of an allocator that fails for want of memory, on
// the requesting thread and without a lock, before that function returns
// `ACCELRT_STATUS_OUT_OF_MEMORY`. Whichever language has made the request; shortages inside of an
// observer are not told. `drop(data)` is called once, on any thread: when the observer was
// destroyed and no thread is inside of it, or when this function fails.
//
// What the caller promises:
// Any thread may call `run`, several at once, and `drop`, with `data`.
accelrt_status accelrt_observer_create(accelrt_observer_function run,
                                       void *data,
                                       accelrt_drop_function drop,
                                       accelrt_observer **observer);

// Ends the calls, and makes the handle stale. A thread that is inside of a call goes on. Does not
// block.
accelrt_status accelrt_observer_destroy(accelrt_observer *observer);

// Takes a snapshot of what the allocators of a kind's devices have, without shared and pinned
// memory. Initialises no device and waits for none.
accelrt_status accelrt_snapshot_take(int32_t kind, accelrt_snapshot **snapshot);

// Makes the handle stale.
accelrt_status accelrt_snapshot_destroy(accelrt_snapshot *snapshot);

// Writes at most `capacity` segments, by address, into an array whose elements have `each_bytes`
// bytes, `sizeof(accelrt_segment)`. `count`, unless it is NULL, gets the number of all.
//
// What the caller promises:
// `segments` has `capacity` elements of `each_bytes` bytes.
accelrt_status accelrt_snapshot_get_segments(accelrt_snapshot *snapshot,
                                             accelrt_segment *segments,
                                             size_t each_bytes,
                                             size_t capacity,
                                             size_t *count);

// Writes at most `capacity` blocks of all segments, in their order, into an array whose elements
// have `each_bytes` bytes, `sizeof(accelrt_block)`. `count`, unless it is NULL, gets the number of
// all.
//
// What the caller promises:
// `blocks` has `capacity` elements of `each_bytes` bytes.
accelrt_status accelrt_snapshot_get_blocks(accelrt_snapshot *snapshot,
                                           accelrt_block *blocks,
                                           size_t each_bytes,
                                           size_t capacity,
                                           size_t *count);

// Starts a history of what the allocators of all devices do, which keeps the newest `most_events`
// events of all of them together, 64 bytes each, and at least one. Requests and frees take longer
// while one is there.
accelrt_status accelrt_history_start(size_t most_events, accelrt_history **history);

// Ends the history, and makes the handle stale.
accelrt_status accelrt_history_destroy(accelrt_history *history);

// Forgets the events so far.
accelrt_status accelrt_history_clear(accelrt_history *history);

// Writes at most `capacity` of the events of a device, oldest first, into an array whose elements
// have `each_bytes` bytes, `sizeof(accelrt_memory_event)`; they stay in the history. `count`,
// unless it is NULL, gets the number of all, and `dropped_count` that of the events of all devices
// that newer ones have replaced.
//
// What the caller promises:
// `events` has `capacity` elements of `each_bytes` bytes.
accelrt_status accelrt_history_get_events(accelrt_history *history,
                                          accelrt_device device,
                                          accelrt_memory_event *events,
                                          size_t each_bytes,
                                          size_t capacity,
                                          size_t *count,
                                          uint64_t *dropped_count);

// Subscribes to records of the process's runtime from now on: `wants` is one or more of
// `ACCELRT_LOG_TASKS`, `ACCELRT_LOG_WAITS`, `ACCELRT_LOG_RANGES` and `ACCELRT_LOG_MEMORY`, added
// up. At most `most_records` wait to be taken, apart from those about threads; later ones are
// dropped and counted. Tasks and requests take longer while a subscription wants them.
accelrt_status accelrt_log_subscribe(uint32_t wants, size_t most_records, accelrt_log **log);

// Ends the subscription, and makes the handle stale.
accelrt_status accelrt_log_destroy(accelrt_log *log);

// Takes at most `capacity` records, in the order of each thread, into an array whose elements have
// `each_bytes` bytes, `sizeof(accelrt_log_record)`. `count` gets the number of those that were
// taken; `dropped_count`, unless it is NULL, that of the records that were dropped since the call
// before.
//
// What the caller promises:
// `records` has `capacity` elements of `each_bytes` bytes.
accelrt_status accelrt_log_take(accelrt_log *log,
                                accelrt_log_record *records,
                                size_t each_bytes,
                                size_t capacity,
                                size_t *count,
                                uint64_t *dropped_count);

// Creates a generator for buffers of a device's kind: Philox 4x32-10, whose numbers are the same
// bits on every kind, with the seed 67280421310721. Initialises no device.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_generator_create(accelrt_device device, accelrt_generator **generator);

// Returns a handle of the device's default generator, which all threads and languages share.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
accelrt_status accelrt_generator_get_default(accelrt_device device, accelrt_generator **generator);

// Returns a generator with the same seed and offset, which goes on for itself.
accelrt_status accelrt_generator_clone(accelrt_generator *generator, accelrt_generator **clone);

// Makes the handle stale. Fills that were enqueued stay as they are.
accelrt_status accelrt_generator_destroy(accelrt_generator *generator);

// Sets the seed, and the offset to 0.
accelrt_status accelrt_generator_set_seed(accelrt_generator *generator, uint64_t seed);

// Writes the seed that was set last.
accelrt_status accelrt_generator_get_seed(accelrt_generator *generator, uint64_t *seed);

// Sets an unpredictable seed, and the offset to 0. Writes the seed unless `seed` is NULL.
accelrt_status accelrt_generator_seed_randomly(accelrt_generator *generator, uint64_t *seed);

// Sets how many words of 32 bits of the sequence are used.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a number that is no multiple of 4.
accelrt_status accelrt_generator_set_offset(accelrt_generator *generator, uint64_t offset);

// Writes how many words of 32 bits of the sequence are used, a multiple of 4.
accelrt_status accelrt_generator_get_offset(accelrt_generator *generator, uint64_t *offset);

// Reserves `words` words of 32 bits of the sequence, rounded up to a multiple of 4, for kernels or
// functions that make numbers themselves: writes the seed and the offset of the first word, each
// unless its place is NULL. No other fill gets these words, and a seed that is set later does not
// change what was reserved.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT`, without a change, when the offset would exceed
// 2^64 - 4.
accelrt_status accelrt_generator_reserve(accelrt_generator *generator,
                                         uint64_t words,
                                         uint64_t *seed,
                                         uint64_t *offset);

// Sets the seed of the default generators of all devices of a kind, also of those that are used
// later. Initialises no device.
accelrt_status accelrt_generator_set_seed_of_all(int32_t kind, uint64_t seed);

// Fills a buffer with random numbers, on `stream`: `numbers` is one of `ACCELRT_RANDOM_UINT32` to
// `ACCELRT_RANDOM_NORMAL_DOUBLE`. Takes 4 words of the sequence for every 16 bytes at the call. Is
// ordered and blocks as `accelrt_buffer_fill`; the first fill on a device of a driver compiles a
// program.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when generator, buffer and stream do not fit, or
// size and address of the buffer are no multiples of a number's size, or the offset would exceed
// 2^64 - 4, and with `ACCELRT_STATUS_UNSUPPORTED` on a device without such numbers.
accelrt_status accelrt_generator_fill(accelrt_generator *generator,
                                      accelrt_buffer *buffer,
                                      int32_t numbers,
                                      accelrt_stream *stream);

// Compiles a program for a device: `source` has `bytes` bytes, of text in the language of the
// kind's compiler (OpenCL C on xpu), or with `is_binary` of its intermediate language (SPIR-V).
// `options` are the compiler's; NULL for none. Blocks, and initialises the device.
//
// Fails with `ACCELRT_STATUS_BUILD_FAILED`, whose text has the compiler's log, and with
// `ACCELRT_STATUS_UNSUPPORTED` on kinds without a compiler, as cpu.
//
// What the caller promises:
// `source` has `bytes` bytes, and `options` is NULL or a text that ends with a zero.
accelrt_status accelrt_program_compile(accelrt_device device,
                                       const void *source,
                                       size_t bytes,
                                       int32_t is_binary,
                                       const char *options,
                                       accelrt_program **program);

// Makes the handle stale. Its kernels stay.
accelrt_status accelrt_program_destroy(accelrt_program *program);

// Writes the names of a program's kernels, with commas between them. `text`, `capacity` and
// `length` are as in `accelrt_device_get_name`.
//
// What the caller promises:
// `text` has room for `capacity` bytes.
accelrt_status accelrt_program_get_names(accelrt_program *program,
                                         char *text,
                                         size_t capacity,
                                         size_t *length);

// Returns a kernel of a program by its name.
//
// Fails with `ACCELRT_STATUS_NOT_FOUND`.
//
// What the caller promises:
// `name` is a text that ends with a zero.
accelrt_status accelrt_program_get_kernel(accelrt_program *program,
                                          const char *name,
                                          accelrt_kernel **kernel);

// Makes the handle stale. Launches that were enqueued stay as they are.
accelrt_status accelrt_kernel_destroy(accelrt_kernel *kernel);

// Writes how many arguments a kernel takes.
accelrt_status accelrt_kernel_get_argument_count(accelrt_kernel *kernel, size_t *count);

// Enqueues a kernel of `global[0]` times … `global[dimensions - 1]` work-items, in work-groups of
// the sizes `local`, or with NULL of those that the driver chooses. There are 1 to 3 dimensions.
// The buffers among the `argument_count` arguments may be destroyed at once. Ordered by the stream
// alone; blocks only as `accelrt_stream_launch`.
//
// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when an argument does not fit the kernel's
// parameter, a size is not allowed or the kernel is of another device. A launch that the driver
// refuses fails the stream.
//
// What the caller promises:
// With so many work-items the kernel accesses only the memory of its buffers and of addresses
// among its values, which stay and are ordered. `arguments`, `global` and `local` have as many
// elements.
accelrt_status accelrt_stream_launch_kernel(accelrt_stream *stream,
                                            accelrt_kernel *kernel,
                                            const accelrt_kernel_argument *arguments,
                                            size_t argument_count,
                                            size_t dimensions,
                                            const size_t *global,
                                            const size_t *local);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

// Every function, for programs that cannot link the library: in Python's process the capsule
// accelrt._core._C_API has it, by this name. A table only grows, at its end: before the use of a
// function that is newer than the oldest library to be used, ask ACCELRT_TABLE_HAS.
typedef struct accelrt_table {
  // The size of the whole table in bytes.
  size_t size;
  // ACCELRT_ABI_VERSION of the library.
  uint32_t abi;
  // The number of functions.
  uint32_t count;
  uint32_t (*abi_version)(void);
  const char *(*version)(void);
  accelrt_status (*error_status)(void);
  const char *(*error_text)(void);
  void (*error_clear)(void);
  accelrt_status (*setting_set)(const char *name, const char *value);
  accelrt_status (*setting_get)(const char *name, char *text, size_t capacity, size_t *length);
  accelrt_status (*runtime_begin)(void);
  accelrt_status (*runtime_query)(int32_t *is_initialized);
  accelrt_status (*runtime_shutdown)(void);
  accelrt_status (*runtime_get_counters)(accelrt_runtime_counters *counters);
  accelrt_status (*kind_get_accelerator)(int32_t *kind);
  accelrt_status (*kind_find)(const char *name, int32_t *kind);
  accelrt_status (*kind_get_name)(int32_t kind, char *text, size_t capacity, size_t *length);
  accelrt_status (*device_parse)(const char *name, accelrt_device *device);
  accelrt_status (*device_get_count)(int32_t kind, int32_t *count);
  accelrt_status (*device_get_current)(int32_t kind, accelrt_device *device);
  accelrt_status (*device_exchange)(accelrt_device device, accelrt_device *previous);
  accelrt_status (*device_get_name)(accelrt_device device, char *text, size_t capacity, size_t *length);
  accelrt_status (*device_get_properties)(accelrt_device device, accelrt_device_properties *properties);
  accelrt_status (*device_get_memory)(accelrt_device device, uint64_t *free_bytes, uint64_t *total_bytes);
  accelrt_status (*device_synchronize)(accelrt_device device, int64_t timeout_ms);
  accelrt_status (*stream_create)(accelrt_device device, int32_t priority, accelrt_stream **stream);
  accelrt_status (*stream_get_pooled)(accelrt_device device, int32_t priority, accelrt_stream **stream);
  accelrt_status (*stream_get_default)(accelrt_device device, accelrt_stream **stream);
  accelrt_status (*stream_get_current)(accelrt_device device, accelrt_stream **stream);
  accelrt_status (*stream_find)(accelrt_device device, uint64_t id, accelrt_stream **stream);
  accelrt_status (*stream_wrap)(accelrt_device device, uint64_t native_handle, accelrt_stream **stream);
  accelrt_status (*stream_retain)(accelrt_stream *stream);
  accelrt_status (*stream_destroy)(accelrt_stream *stream);
  accelrt_status (*stream_exchange)(accelrt_stream *stream, accelrt_stream **previous);
  accelrt_status (*stream_get_info)(accelrt_stream *stream, accelrt_stream_info *info);
  accelrt_status (*stream_query)(accelrt_stream *stream, int32_t *is_done);
  accelrt_status (*stream_synchronize)(accelrt_stream *stream, int64_t timeout_ms);
  accelrt_status (*stream_get_native)(accelrt_stream *stream, uint64_t *native_handle);
  accelrt_status (*stream_wait_stream)(accelrt_stream *stream, accelrt_stream *other);
  accelrt_status (*stream_wait_event)(accelrt_stream *stream, accelrt_event *event);
  accelrt_status (*stream_launch)(accelrt_stream *stream, accelrt_task_function run, void *data, accelrt_drop_function drop, const accelrt_buffer_use *uses, size_t use_count);
  accelrt_status (*event_create)(int32_t is_timed, accelrt_event **event);
  accelrt_status (*event_destroy)(accelrt_event *event);
  accelrt_status (*event_record)(accelrt_event *event, accelrt_stream *stream);
  accelrt_status (*event_query)(accelrt_event *event, int32_t *is_done);
  accelrt_status (*event_synchronize)(accelrt_event *event, int64_t timeout_ms);
  accelrt_status (*event_get_elapsed)(accelrt_event *start, accelrt_event *end, double *elapsed_ms);
  accelrt_status (*buffer_create)(accelrt_device device, size_t bytes, accelrt_buffer **buffer);
  accelrt_status (*buffer_create_on)(accelrt_stream *stream, size_t bytes, accelrt_buffer **buffer);
  accelrt_status (*buffer_create_in)(accelrt_device device, int32_t memory, size_t bytes, accelrt_buffer **buffer);
  accelrt_status (*buffer_destroy)(accelrt_buffer *buffer);
  accelrt_status (*buffer_slice)(accelrt_buffer *buffer, size_t offset_bytes, size_t bytes, accelrt_buffer **view);
  accelrt_status (*buffer_get_info)(accelrt_buffer *buffer, accelrt_buffer_info *info);
  accelrt_status (*buffer_get_address)(accelrt_buffer *buffer, uint64_t *address);
  accelrt_status (*buffer_get_home)(accelrt_buffer *buffer, accelrt_stream **stream);
  accelrt_status (*buffer_record_use)(accelrt_buffer *buffer, accelrt_stream *stream);
  accelrt_status (*buffer_release)(accelrt_buffer *buffer);
  accelrt_status (*buffer_wait)(accelrt_buffer *buffer, int64_t timeout_ms);
  accelrt_status (*buffer_copy)(accelrt_buffer *to, accelrt_buffer *from, accelrt_stream *stream);
  accelrt_status (*buffer_fill)(accelrt_buffer *buffer, uint8_t byte, accelrt_stream *stream);
  accelrt_status (*buffer_write)(accelrt_buffer *buffer, const void *source, size_t bytes, accelrt_stream *stream);
  accelrt_status (*buffer_read)(accelrt_buffer *buffer, void *target, size_t bytes, accelrt_stream *stream);
  accelrt_status (*buffer_write_later)(accelrt_buffer *buffer, void *source, size_t bytes, accelrt_drop_function drop, accelrt_stream *stream);
  accelrt_status (*buffer_read_later)(accelrt_buffer *buffer, void *target, size_t bytes, accelrt_drop_function drop, accelrt_stream *stream);
  accelrt_status (*stream_copy)(accelrt_stream *stream, uint64_t to, uint64_t from, size_t bytes);
  accelrt_status (*stream_fill)(accelrt_stream *stream, uint64_t address, uint8_t byte, size_t bytes);
  accelrt_status (*memory_allocate)(accelrt_stream *stream, size_t bytes, uint64_t *address);
  accelrt_status (*memory_allocate_in)(accelrt_device device, int32_t memory, size_t bytes, uint64_t *address);
  accelrt_status (*memory_free)(uint64_t address);
  accelrt_status (*memory_record_use)(uint64_t address, accelrt_stream *stream);
  accelrt_status (*memory_find)(uint64_t address, accelrt_memory_info *info);
  accelrt_status (*memory_get_statistics)(accelrt_device device, int32_t memory, accelrt_memory_statistics *statistics);
  accelrt_status (*memory_get_host_statistics)(int32_t kind, accelrt_host_statistics *statistics);
  accelrt_status (*memory_reset_peaks)(accelrt_device device);
  accelrt_status (*memory_reset_sums)(accelrt_device device);
  accelrt_status (*memory_empty_cache)(int32_t kind);
  accelrt_status (*memory_get_fraction)(accelrt_device device, double *fraction);
  accelrt_status (*memory_set_fraction)(accelrt_device device, double fraction);
  accelrt_status (*memory_get_settings)(char *text, size_t capacity, size_t *length);
  accelrt_status (*memory_set_settings)(const char *settings);
  accelrt_status (*snapshot_take)(int32_t kind, accelrt_snapshot **snapshot);
  accelrt_status (*snapshot_destroy)(accelrt_snapshot *snapshot);
  accelrt_status (*snapshot_get_segments)(accelrt_snapshot *snapshot, accelrt_segment *segments, size_t each_bytes, size_t capacity, size_t *count);
  accelrt_status (*snapshot_get_blocks)(accelrt_snapshot *snapshot, accelrt_block *blocks, size_t each_bytes, size_t capacity, size_t *count);
  accelrt_status (*history_start)(size_t most_events, accelrt_history **history);
  accelrt_status (*history_destroy)(accelrt_history *history);
  accelrt_status (*history_clear)(accelrt_history *history);
  accelrt_status (*history_get_events)(accelrt_history *history, accelrt_device device, accelrt_memory_event *events, size_t each_bytes, size_t capacity, size_t *count, uint64_t *dropped_count);
  accelrt_status (*log_subscribe)(uint32_t wants, size_t most_records, accelrt_log **log);
  accelrt_status (*log_destroy)(accelrt_log *log);
  accelrt_status (*log_take)(accelrt_log *log, accelrt_log_record *records, size_t each_bytes, size_t capacity, size_t *count, uint64_t *dropped_count);
  accelrt_status (*generator_create)(accelrt_device device, accelrt_generator **generator);
  accelrt_status (*generator_get_default)(accelrt_device device, accelrt_generator **generator);
  accelrt_status (*generator_clone)(accelrt_generator *generator, accelrt_generator **clone);
  accelrt_status (*generator_destroy)(accelrt_generator *generator);
  accelrt_status (*generator_set_seed)(accelrt_generator *generator, uint64_t seed);
  accelrt_status (*generator_get_seed)(accelrt_generator *generator, uint64_t *seed);
  accelrt_status (*generator_seed_randomly)(accelrt_generator *generator, uint64_t *seed);
  accelrt_status (*generator_set_offset)(accelrt_generator *generator, uint64_t offset);
  accelrt_status (*generator_get_offset)(accelrt_generator *generator, uint64_t *offset);
  accelrt_status (*generator_reserve)(accelrt_generator *generator, uint64_t words, uint64_t *seed, uint64_t *offset);
  accelrt_status (*generator_set_seed_of_all)(int32_t kind, uint64_t seed);
  accelrt_status (*generator_fill)(accelrt_generator *generator, accelrt_buffer *buffer, int32_t numbers, accelrt_stream *stream);
  accelrt_status (*program_compile)(accelrt_device device, const void *source, size_t bytes, int32_t is_binary, const char *options, accelrt_program **program);
  accelrt_status (*program_destroy)(accelrt_program *program);
  accelrt_status (*program_get_names)(accelrt_program *program, char *text, size_t capacity, size_t *length);
  accelrt_status (*program_get_kernel)(accelrt_program *program, const char *name, accelrt_kernel **kernel);
  accelrt_status (*kernel_destroy)(accelrt_kernel *kernel);
  accelrt_status (*kernel_get_argument_count)(accelrt_kernel *kernel, size_t *count);
  accelrt_status (*stream_launch_kernel)(accelrt_stream *stream, accelrt_kernel *kernel, const accelrt_kernel_argument *arguments, size_t argument_count, size_t dimensions, const size_t *global, const size_t *local);
  accelrt_status (*backend_register)(const void *table, int32_t *kind);
  accelrt_status (*backend_load)(const char *path, int32_t *kind);
  accelrt_status (*stream_launch_blocking)(accelrt_stream *stream, accelrt_task_function run, void *data, accelrt_drop_function drop, const accelrt_buffer_use *uses, size_t use_count);
  accelrt_status (*stream_launch_deferred)(accelrt_stream *stream, accelrt_start_function start, void *data, accelrt_drop_function drop);
  accelrt_status (*completion_finish)(accelrt_completion *completion, const char *error);
  accelrt_status (*observer_create)(accelrt_observer_function run, void *data, accelrt_drop_function drop, accelrt_observer **observer);
  accelrt_status (*observer_destroy)(accelrt_observer *observer);
  accelrt_status (*pool_create)(accelrt_device device, uint32_t options, accelrt_pool **pool);
  accelrt_status (*pool_destroy)(accelrt_pool *pool);
  accelrt_status (*pool_enter)(accelrt_pool *pool);
  accelrt_status (*pool_leave)(accelrt_pool *pool);
  accelrt_status (*pool_get_id)(accelrt_pool *pool, uint64_t *id);
  accelrt_status (*memory_enter_tag)(const char *tag);
  accelrt_status (*memory_leave_tag)(void);
  accelrt_status (*memory_get_tags)(accelrt_device device, accelrt_tag_statistics *tags, size_t each_bytes, size_t capacity, size_t *count);
  accelrt_status (*stream_launch_described)(accelrt_stream *stream, accelrt_task_function run, void *data, accelrt_drop_function drop, const accelrt_task_description *description);
} accelrt_table;

// Whether a table has a function: ACCELRT_TABLE_HAS(table, stream_launch).
#define ACCELRT_TABLE_HAS(table, function) \
  ((table)->size >= offsetof(accelrt_table, function) + sizeof((table)->function))

// X(error_text) and so on, for every function of the table.
#define ACCELRT_FOR_EACH_FUNCTION(X) \
  X(abi_version) \
  X(version) \
  X(error_status) \
  X(error_text) \
  X(error_clear) \
  X(setting_set) \
  X(setting_get) \
  X(runtime_begin) \
  X(runtime_query) \
  X(runtime_shutdown) \
  X(runtime_get_counters) \
  X(kind_get_accelerator) \
  X(kind_find) \
  X(kind_get_name) \
  X(device_parse) \
  X(device_get_count) \
  X(device_get_current) \
  X(device_exchange) \
  X(device_get_name) \
  X(device_get_properties) \
  X(device_get_memory) \
  X(device_synchronize) \
  X(stream_create) \
  X(stream_get_pooled) \
  X(stream_get_default) \
  X(stream_get_current) \
  X(stream_find) \
  X(stream_wrap) \
  X(stream_retain) \
  X(stream_destroy) \
  X(stream_exchange) \
  X(stream_get_info) \
  X(stream_query) \
  X(stream_synchronize) \
  X(stream_get_native) \
  X(stream_wait_stream) \
  X(stream_wait_event) \
  X(stream_launch) \
  X(event_create) \
  X(event_destroy) \
  X(event_record) \
  X(event_query) \
  X(event_synchronize) \
  X(event_get_elapsed) \
  X(buffer_create) \
  X(buffer_create_on) \
  X(buffer_create_in) \
  X(buffer_destroy) \
  X(buffer_slice) \
  X(buffer_get_info) \
  X(buffer_get_address) \
  X(buffer_get_home) \
  X(buffer_record_use) \
  X(buffer_release) \
  X(buffer_wait) \
  X(buffer_copy) \
  X(buffer_fill) \
  X(buffer_write) \
  X(buffer_read) \
  X(buffer_write_later) \
  X(buffer_read_later) \
  X(stream_copy) \
  X(stream_fill) \
  X(memory_allocate) \
  X(memory_allocate_in) \
  X(memory_free) \
  X(memory_record_use) \
  X(memory_find) \
  X(memory_get_statistics) \
  X(memory_get_host_statistics) \
  X(memory_reset_peaks) \
  X(memory_reset_sums) \
  X(memory_empty_cache) \
  X(memory_get_fraction) \
  X(memory_set_fraction) \
  X(memory_get_settings) \
  X(memory_set_settings) \
  X(snapshot_take) \
  X(snapshot_destroy) \
  X(snapshot_get_segments) \
  X(snapshot_get_blocks) \
  X(history_start) \
  X(history_destroy) \
  X(history_clear) \
  X(history_get_events) \
  X(log_subscribe) \
  X(log_destroy) \
  X(log_take) \
  X(generator_create) \
  X(generator_get_default) \
  X(generator_clone) \
  X(generator_destroy) \
  X(generator_set_seed) \
  X(generator_get_seed) \
  X(generator_seed_randomly) \
  X(generator_set_offset) \
  X(generator_get_offset) \
  X(generator_reserve) \
  X(generator_set_seed_of_all) \
  X(generator_fill) \
  X(program_compile) \
  X(program_destroy) \
  X(program_get_names) \
  X(program_get_kernel) \
  X(kernel_destroy) \
  X(kernel_get_argument_count) \
  X(stream_launch_kernel) \
  X(backend_register) \
  X(backend_load) \
  X(stream_launch_blocking) \
  X(stream_launch_deferred) \
  X(completion_finish) \
  X(observer_create) \
  X(observer_destroy) \
  X(pool_create) \
  X(pool_destroy) \
  X(pool_enter) \
  X(pool_leave) \
  X(pool_get_id) \
  X(memory_enter_tag) \
  X(memory_leave_tag) \
  X(memory_get_tags) \
  X(stream_launch_described)

#ifndef ACCELRT_TABLE
// The table of the library, valid for ever. Never blocks, never fails.
#ifdef __cplusplus
extern "C"
#endif
const accelrt_table *accelrt_get_table(void);
#else
// A program that defines ACCELRT_TABLE, as the name of a `const accelrt_table *` of its own, before
// it includes this header calls every function through that.
#define accelrt_abi_version (ACCELRT_TABLE->abi_version)
#define accelrt_version (ACCELRT_TABLE->version)
#define accelrt_error_status (ACCELRT_TABLE->error_status)
#define accelrt_error_text (ACCELRT_TABLE->error_text)
#define accelrt_error_clear (ACCELRT_TABLE->error_clear)
#define accelrt_setting_set (ACCELRT_TABLE->setting_set)
#define accelrt_setting_get (ACCELRT_TABLE->setting_get)
#define accelrt_runtime_begin (ACCELRT_TABLE->runtime_begin)
#define accelrt_runtime_query (ACCELRT_TABLE->runtime_query)
#define accelrt_runtime_shutdown (ACCELRT_TABLE->runtime_shutdown)
#define accelrt_runtime_get_counters (ACCELRT_TABLE->runtime_get_counters)
#define accelrt_kind_get_accelerator (ACCELRT_TABLE->kind_get_accelerator)
#define accelrt_kind_find (ACCELRT_TABLE->kind_find)
#define accelrt_kind_get_name (ACCELRT_TABLE->kind_get_name)
#define accelrt_device_parse (ACCELRT_TABLE->device_parse)
#define accelrt_device_get_count (ACCELRT_TABLE->device_get_count)
#define accelrt_device_get_current (ACCELRT_TABLE->device_get_current)
#define accelrt_device_exchange (ACCELRT_TABLE->device_exchange)
#define accelrt_device_get_name (ACCELRT_TABLE->device_get_name)
#define accelrt_device_get_properties (ACCELRT_TABLE->device_get_properties)
#define accelrt_device_get_memory (ACCELRT_TABLE->device_get_memory)
#define accelrt_device_synchronize (ACCELRT_TABLE->device_synchronize)
#define accelrt_stream_create (ACCELRT_TABLE->stream_create)
#define accelrt_stream_get_pooled (ACCELRT_TABLE->stream_get_pooled)
#define accelrt_stream_get_default (ACCELRT_TABLE->stream_get_default)
#define accelrt_stream_get_current (ACCELRT_TABLE->stream_get_current)
#define accelrt_stream_find (ACCELRT_TABLE->stream_find)
#define accelrt_stream_wrap (ACCELRT_TABLE->stream_wrap)
#define accelrt_stream_retain (ACCELRT_TABLE->stream_retain)
#define accelrt_stream_destroy (ACCELRT_TABLE->stream_destroy)
#define accelrt_stream_exchange (ACCELRT_TABLE->stream_exchange)
#define accelrt_stream_get_info (ACCELRT_TABLE->stream_get_info)
#define accelrt_stream_query (ACCELRT_TABLE->stream_query)
#define accelrt_stream_synchronize (ACCELRT_TABLE->stream_synchronize)
#define accelrt_stream_get_native (ACCELRT_TABLE->stream_get_native)
#define accelrt_stream_wait_stream (ACCELRT_TABLE->stream_wait_stream)
#define accelrt_stream_wait_event (ACCELRT_TABLE->stream_wait_event)
#define accelrt_stream_launch (ACCELRT_TABLE->stream_launch)
#define accelrt_event_create (ACCELRT_TABLE->event_create)
#define accelrt_event_destroy (ACCELRT_TABLE->event_destroy)
#define accelrt_event_record (ACCELRT_TABLE->event_record)
#define accelrt_event_query (ACCELRT_TABLE->event_query)
#define accelrt_event_synchronize (ACCELRT_TABLE->event_synchronize)
#define accelrt_event_get_elapsed (ACCELRT_TABLE->event_get_elapsed)
#define accelrt_buffer_create (ACCELRT_TABLE->buffer_create)
#define accelrt_buffer_create_on (ACCELRT_TABLE->buffer_create_on)
#define accelrt_buffer_create_in (ACCELRT_TABLE->buffer_create_in)
#define accelrt_buffer_destroy (ACCELRT_TABLE->buffer_destroy)
#define accelrt_buffer_slice (ACCELRT_TABLE->buffer_slice)
#define accelrt_buffer_get_info (ACCELRT_TABLE->buffer_get_info)
#define accelrt_buffer_get_address (ACCELRT_TABLE->buffer_get_address)
#define accelrt_buffer_get_home (ACCELRT_TABLE->buffer_get_home)
#define accelrt_buffer_record_use (ACCELRT_TABLE->buffer_record_use)
#define accelrt_buffer_release (ACCELRT_TABLE->buffer_release)
#define accelrt_buffer_wait (ACCELRT_TABLE->buffer_wait)
#define accelrt_buffer_copy (ACCELRT_TABLE->buffer_copy)
#define accelrt_buffer_fill (ACCELRT_TABLE->buffer_fill)
#define accelrt_buffer_write (ACCELRT_TABLE->buffer_write)
#define accelrt_buffer_read (ACCELRT_TABLE->buffer_read)
#define accelrt_buffer_write_later (ACCELRT_TABLE->buffer_write_later)
#define accelrt_buffer_read_later (ACCELRT_TABLE->buffer_read_later)
#define accelrt_stream_copy (ACCELRT_TABLE->stream_copy)
#define accelrt_stream_fill (ACCELRT_TABLE->stream_fill)
#define accelrt_memory_allocate (ACCELRT_TABLE->memory_allocate)
#define accelrt_memory_allocate_in (ACCELRT_TABLE->memory_allocate_in)
#define accelrt_memory_free (ACCELRT_TABLE->memory_free)
#define accelrt_memory_record_use (ACCELRT_TABLE->memory_record_use)
#define accelrt_memory_find (ACCELRT_TABLE->memory_find)
#define accelrt_memory_get_statistics (ACCELRT_TABLE->memory_get_statistics)
#define accelrt_memory_get_host_statistics (ACCELRT_TABLE->memory_get_host_statistics)
#define accelrt_memory_reset_peaks (ACCELRT_TABLE->memory_reset_peaks)
#define accelrt_memory_reset_sums (ACCELRT_TABLE->memory_reset_sums)
#define accelrt_memory_empty_cache (ACCELRT_TABLE->memory_empty_cache)
#define accelrt_memory_get_fraction (ACCELRT_TABLE->memory_get_fraction)
#define accelrt_memory_set_fraction (ACCELRT_TABLE->memory_set_fraction)
#define accelrt_memory_get_settings (ACCELRT_TABLE->memory_get_settings)
#define accelrt_memory_set_settings (ACCELRT_TABLE->memory_set_settings)
#define accelrt_snapshot_take (ACCELRT_TABLE->snapshot_take)
#define accelrt_snapshot_destroy (ACCELRT_TABLE->snapshot_destroy)
#define accelrt_snapshot_get_segments (ACCELRT_TABLE->snapshot_get_segments)
#define accelrt_snapshot_get_blocks (ACCELRT_TABLE->snapshot_get_blocks)
#define accelrt_history_start (ACCELRT_TABLE->history_start)
#define accelrt_history_destroy (ACCELRT_TABLE->history_destroy)
#define accelrt_history_clear (ACCELRT_TABLE->history_clear)
#define accelrt_history_get_events (ACCELRT_TABLE->history_get_events)
#define accelrt_log_subscribe (ACCELRT_TABLE->log_subscribe)
#define accelrt_log_destroy (ACCELRT_TABLE->log_destroy)
#define accelrt_log_take (ACCELRT_TABLE->log_take)
#define accelrt_generator_create (ACCELRT_TABLE->generator_create)
#define accelrt_generator_get_default (ACCELRT_TABLE->generator_get_default)
#define accelrt_generator_clone (ACCELRT_TABLE->generator_clone)
#define accelrt_generator_destroy (ACCELRT_TABLE->generator_destroy)
#define accelrt_generator_set_seed (ACCELRT_TABLE->generator_set_seed)
#define accelrt_generator_get_seed (ACCELRT_TABLE->generator_get_seed)
#define accelrt_generator_seed_randomly (ACCELRT_TABLE->generator_seed_randomly)
#define accelrt_generator_set_offset (ACCELRT_TABLE->generator_set_offset)
#define accelrt_generator_get_offset (ACCELRT_TABLE->generator_get_offset)
#define accelrt_generator_reserve (ACCELRT_TABLE->generator_reserve)
#define accelrt_generator_set_seed_of_all (ACCELRT_TABLE->generator_set_seed_of_all)
#define accelrt_generator_fill (ACCELRT_TABLE->generator_fill)
#define accelrt_program_compile (ACCELRT_TABLE->program_compile)
#define accelrt_program_destroy (ACCELRT_TABLE->program_destroy)
#define accelrt_program_get_names (ACCELRT_TABLE->program_get_names)
#define accelrt_program_get_kernel (ACCELRT_TABLE->program_get_kernel)
#define accelrt_kernel_destroy (ACCELRT_TABLE->kernel_destroy)
#define accelrt_kernel_get_argument_count (ACCELRT_TABLE->kernel_get_argument_count)
#define accelrt_stream_launch_kernel (ACCELRT_TABLE->stream_launch_kernel)
#define accelrt_backend_register (ACCELRT_TABLE->backend_register)
#define accelrt_backend_load (ACCELRT_TABLE->backend_load)
#define accelrt_stream_launch_blocking (ACCELRT_TABLE->stream_launch_blocking)
#define accelrt_stream_launch_deferred (ACCELRT_TABLE->stream_launch_deferred)
#define accelrt_completion_finish (ACCELRT_TABLE->completion_finish)
#define accelrt_observer_create (ACCELRT_TABLE->observer_create)
#define accelrt_observer_destroy (ACCELRT_TABLE->observer_destroy)
#define accelrt_pool_create (ACCELRT_TABLE->pool_create)
#define accelrt_pool_destroy (ACCELRT_TABLE->pool_destroy)
#define accelrt_pool_enter (ACCELRT_TABLE->pool_enter)
#define accelrt_pool_leave (ACCELRT_TABLE->pool_leave)
#define accelrt_pool_get_id (ACCELRT_TABLE->pool_get_id)
#define accelrt_memory_enter_tag (ACCELRT_TABLE->memory_enter_tag)
#define accelrt_memory_leave_tag (ACCELRT_TABLE->memory_leave_tag)
#define accelrt_memory_get_tags (ACCELRT_TABLE->memory_get_tags)
#define accelrt_stream_launch_described (ACCELRT_TABLE->stream_launch_described)
#endif

#endif // ACCELRT_H
