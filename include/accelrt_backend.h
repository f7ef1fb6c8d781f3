/* A kind of device for accelrt, as a table of C functions.
 *
 * A library exports accelrt_backend_table(). accelrt loads it where ACCELRT_KINDS names it
 * (ACCELRT_KINDS="npu=/path/libnpu.so"), by accelrt.load_kind() in Python and by
 * accelrt::kinds::KindLibrary in Rust. The conformance kit proves that a table keeps its word;
 * docs/devices.md walks through it.
 *
 * Rules for every function:
 *
 * - Any thread may call it, also while others are inside of it. It makes its context current itself.
 * - `instance` is what `open` returned.
 * - It returns ACCELRT_BACKEND_OK, or another status with what it knows in `error`, which is never null and
 *   zero before the call but for its size. No exception and no longjmp leaves it.
 * - Streams, marks and addresses are numbers of the driver's choice; an address is not 0. A number is
 *   used only between the call that gave it and the one that takes it back, which comes once.
 * - What is said to be done stays done.
 * - It blocks only where that is said here.
 *
 * Versions: a version of the interface is never changed. Functions are added at the end of the table;
 * one that a shorter table lacks counts as null. What may be null is marked "optional". */
#ifndef ACCELRT_BACKEND_H
#define ACCELRT_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ACCELRT_BACKEND_ABI_VERSION 1u
#define ACCELRT_BACKEND_TEXT_BYTES 256

/* What a function returns. */
enum {
    ACCELRT_BACKEND_OK = 0,
    /* The driver refused: `code` and `text` say why. */
    ACCELRT_BACKEND_REFUSED = 1,
    /* Too little memory: `free_bytes` and `total_bytes` of the device. */
    ACCELRT_BACKEND_OUT_OF_MEMORY = 2,
    /* The device `device` is lost for good: `text` says why. */
    ACCELRT_BACKEND_DEVICE_LOST = 3,
    /* The device cannot do this. */
    ACCELRT_BACKEND_UNSUPPORTED = 4
};

typedef struct accelrt_backend_error_record {
    uint64_t size_bytes;
    int64_t code;
    uint64_t device; /* that of the call, where it names one */
    uint64_t free_bytes;
    uint64_t total_bytes;
    char text[ACCELRT_BACKEND_TEXT_BYTES]; /* UTF-8, with a zero at the end */
} accelrt_backend_error_record;

/* Filled in by `properties`; defaults stand there before. Write no field beyond `size_bytes`. */
typedef struct accelrt_backend_properties {
    uint64_t size_bytes;
    char name[ACCELRT_BACKEND_TEXT_BYTES]; /* UTF-8, with a zero at the end; not empty */
    uint64_t total_memory_bytes;
    uint64_t core_count;
    uint64_t page_bytes;        /* a power of two */
    uint32_t is_gpu;            /* 1: the accelerator where no setting names one */
    uint32_t has_shared_memory; /* 1: `allocate_shared` works */
} accelrt_backend_properties;

enum {
    ACCELRT_BACKEND_MEMORY_UNKNOWN = 0,
    ACCELRT_BACKEND_MEMORY_DEVICE = 1,
    ACCELRT_BACKEND_MEMORY_HOST = 2,
    ACCELRT_BACKEND_MEMORY_SHARED = 3
};

typedef struct accelrt_backend_owner {
    uint64_t base;  /* first address of the allocation */
    uint64_t bytes; /* its size as it was asked for */
    uint64_t device;
    uint32_t memory; /* ACCELRT_MEMORY_*; 0 for an address that is in no allocation */
    uint32_t reserved;
} accelrt_backend_owner;

/* Optional, for devices with virtual memory: pages that can be mapped and moved, so that memory of any
 * pages is one range. Every function is there. Sizes and addresses are multiples of the granularity. */
typedef struct accelrt_backend_virtual_memory {
    uint64_t size_bytes; /* sizeof(accelrt_backend_virtual_memory) */
    int (*granularity_bytes)(void *instance, uint64_t device, uint64_t *bytes,
                             accelrt_backend_error_record *error);
    /* Addresses without memory. */
    int (*reserve)(void *instance, uint64_t device, uint64_t bytes, uint64_t *address,
                   accelrt_backend_error_record *error);
    /* Gives a whole range back, in which nothing is mapped. */
    int (*unreserve)(void *instance, uint64_t device, uint64_t address, uint64_t bytes,
                     accelrt_backend_error_record *error);
    /* Memory without addresses. It counts against the device's capacity. */
    int (*create)(void *instance, uint64_t device, uint64_t bytes, uint64_t *physical,
                  accelrt_backend_error_record *error);
    /* At an address inside of a range, where nothing is mapped. */
    int (*map)(void *instance, uint64_t device, uint64_t address, uint64_t physical,
               accelrt_backend_error_record *error);
    /* The memory keeps its contents. */
    int (*unmap)(void *instance, uint64_t device, uint64_t physical, accelrt_backend_error_record *error);
    /* Moves mapped memory, with its contents. */
    int (*relocate)(void *instance, uint64_t device, uint64_t physical, uint64_t address,
                    accelrt_backend_error_record *error);
    /* Frees memory that is not mapped. */
    int (*release)(void *instance, uint64_t device, uint64_t physical, accelrt_backend_error_record *error);
} accelrt_backend_virtual_memory;

enum {
    ACCELRT_BACKEND_PARAMETER_UNKNOWN = 0,
    ACCELRT_BACKEND_PARAMETER_POINTER = 1,
    ACCELRT_BACKEND_PARAMETER_LOCAL = 2,
    ACCELRT_BACKEND_PARAMETER_SIGNED = 3,
    ACCELRT_BACKEND_PARAMETER_UNSIGNED = 4,
    ACCELRT_BACKEND_PARAMETER_FLOAT = 5
};

/* A kernel's parameter; zeros before the call. Write no field beyond `size_bytes`. */
typedef struct accelrt_backend_kernel_parameter {
    uint64_t size_bytes;
    char name[ACCELRT_BACKEND_TEXT_BYTES];
    char type_name[ACCELRT_BACKEND_TEXT_BYTES];
    uint32_t parameter_class; /* ACCELRT_BACKEND_PARAMETER_* */
    uint32_t value_bytes;     /* of a number */
} accelrt_backend_kernel_parameter;

enum { ACCELRT_BACKEND_ARGUMENT_MEMORY = 1, ACCELRT_BACKEND_ARGUMENT_VALUE = 2, ACCELRT_BACKEND_ARGUMENT_LOCAL = 3 };

typedef struct accelrt_backend_kernel_argument {
    uint32_t argument_class; /* ACCELRT_BACKEND_ARGUMENT_* */
    uint32_t value_bytes;    /* of a value: 1 to 16 */
    uint64_t number;         /* the address of memory; the bytes of local memory */
    uint8_t value[16];       /* as it lies in memory */
} accelrt_backend_kernel_argument;

typedef struct accelrt_backend_work_size {
    uint64_t global[3]; /* work-items; 1 in dimensions that are not in use */
    uint64_t local[3];  /* of a work-group; zeros: the driver chooses */
    uint64_t dimensions;
} accelrt_backend_work_size;

/* Optional, for devices that run kernels. Every function is there. */
typedef struct accelrt_backend_kernels {
    uint64_t size_bytes; /* sizeof(accelrt_backend_kernels) */
    /* Compiles `bytes` bytes of source, or takes a binary; blocks. `options` are the compiler's own. */
    int (*compile)(void *instance, uint64_t device, const char *source, uint64_t bytes,
                   uint32_t is_binary, const char *options, uint64_t *program,
                   accelrt_backend_error_record *error);
    int (*kernel_count)(void *instance, uint64_t program, uint64_t *count,
                        accelrt_backend_error_record *error);
    /* Writes a name with a zero at the end, `capacity` bytes at most. */
    int (*kernel_name)(void *instance, uint64_t program, uint64_t index, char *name,
                       uint64_t capacity, accelrt_backend_error_record *error);
    int (*kernel)(void *instance, uint64_t program, const char *name, uint64_t *kernel,
                  accelrt_backend_error_record *error);
    int (*parameter_count)(void *instance, uint64_t kernel, uint64_t *count,
                           accelrt_backend_error_record *error);
    int (*parameter)(void *instance, uint64_t kernel, uint64_t index,
                     accelrt_backend_kernel_parameter *parameter, accelrt_backend_error_record *error);
    /* Submits a launch. Arguments and size are the caller's again when it returns. */
    int (*launch)(void *instance, uint64_t kernel, uint64_t stream,
                  const accelrt_backend_kernel_argument *arguments, uint64_t argument_count,
                  const accelrt_backend_work_size *size, accelrt_backend_error_record *error);
    /* Launches may be in progress. */
    int (*kernel_release)(void *instance, uint64_t kernel, accelrt_backend_error_record *error);
    /* Its kernels stay. */
    int (*program_release)(void *instance, uint64_t program, accelrt_backend_error_record *error);
} accelrt_backend_kernels;

typedef struct accelrt_backend {
    uint64_t size_bytes;  /* sizeof(accelrt_backend) */
    uint32_t abi_version; /* ACCELRT_BACKEND_ABI_VERSION */
    uint32_t type_code;   /* 64 to 127: another for each kind in a process */
    const char *name;     /* lower-case letters, digits and _, at most 32: "npu" */
    void *data;           /* for `open` alone */

    /* Makes an instance for one runtime; starts no thread and opens no device. */
    int (*open)(void *data, void **instance, accelrt_backend_error_record *error);
    /* Ends an instance after `shutdown`; nothing uses it any more. Not called in a forked child. */
    void (*close)(void *instance);

    /* Asking what exists opens no device. Devices are numbered from 0; at most 128 count. */
    int (*device_count)(void *instance, uint64_t *count, accelrt_backend_error_record *error);
    int (*properties)(void *instance, uint64_t device, accelrt_backend_properties *properties,
                      accelrt_backend_error_record *error);
    /* Bytes now. `total_bytes` is the properties' `total_memory_bytes`. */
    int (*memory_info)(void *instance, uint64_t device, uint64_t *free_bytes, uint64_t *total_bytes,
                       accelrt_backend_error_record *error);
    /* Streams of a smaller number run first: greatest <= 0 <= least. */
    int (*priority_range)(void *instance, uint64_t device, int32_t *least, int32_t *greatest,
                          accelrt_backend_error_record *error);

    /* Makes a stream: its commands run in order, and other streams' meanwhile. */
    int (*stream_create)(void *instance, uint64_t device, int32_t priority, uint64_t *stream,
                         accelrt_backend_error_record *error);
    /* The device still executes what was submitted to it. */
    int (*stream_destroy)(void *instance, uint64_t stream, accelrt_backend_error_record *error);
    /* Optional: a stream over a driver's handle, whose owner keeps it until `stream_destroy`. */
    int (*stream_wrap)(void *instance, uint64_t device, uint64_t native, uint64_t *stream,
                       accelrt_backend_error_record *error);
    /* Optional: the driver's handle. */
    int (*stream_native)(void *instance, uint64_t stream, uint64_t *native,
                         accelrt_backend_error_record *error);
    /* Optional: starts what was submitted, for drivers that collect commands. */
    int (*stream_flush)(void *instance, uint64_t stream, accelrt_backend_error_record *error);
    /* 1 when everything that was submitted is done. */
    int (*stream_query)(void *instance, uint64_t stream, uint32_t *is_idle,
                        accelrt_backend_error_record *error);
    /* Blocks until everything that was submitted before is done. */
    int (*stream_synchronize)(void *instance, uint64_t stream, accelrt_backend_error_record *error);

    /* A place behind everything submitted to the stream, with a time stamp where `timed` is 1. */
    int (*mark)(void *instance, uint64_t stream, uint32_t timed, uint64_t *mark,
                accelrt_backend_error_record *error);
    /* 1 when the device has reached it. */
    int (*mark_done)(void *instance, uint64_t mark, uint32_t *is_done, accelrt_backend_error_record *error);
    /* Blocks until the device has reached it. */
    int (*wait_mark)(void *instance, uint64_t mark, accelrt_backend_error_record *error);
    /* What is submitted to the stream later runs after the mark, of whichever device. The mark may be
     * given back right behind this call. Does not block. */
    int (*stream_wait)(void *instance, uint64_t stream, uint64_t mark, accelrt_backend_error_record *error);
    /* Calls `callback(data)` once when the mark is reached, at once if it is, or when the device is
     * lost; from any thread, also when the mark was given back meanwhile. After an error it is never
     * called. The callback does not block, and calls nothing of the driver. */
    int (*when_done)(void *instance, uint64_t mark, void (*callback)(void *data), void *data,
                     accelrt_backend_error_record *error);
    /* Nanoseconds between two timed marks of one device that are reached; may be negative. */
    int (*elapsed_ns)(void *instance, uint64_t start, uint64_t end, int64_t *elapsed_ns,
                      accelrt_backend_error_record *error);
    /* Gives a mark back, reached or not. */
    int (*mark_release)(void *instance, uint64_t mark, accelrt_backend_error_record *error);

    /* Device memory, aligned to `align_bytes` (a power of two) and at least to 64. `bytes` is not 0.
     * Too little memory is ACCELRT_BACKEND_OUT_OF_MEMORY and takes nothing. */
    int (*allocate)(void *instance, uint64_t device, uint64_t bytes, uint64_t align_bytes,
                    uint64_t *address, accelrt_backend_error_record *error);
    /* Optional: the same of memory that the host reads and writes too, while no command uses it. */
    int (*allocate_shared)(void *instance, uint64_t device, uint64_t bytes, uint64_t align_bytes,
                           uint64_t *address, accelrt_backend_error_record *error);
    /* Frees memory of the two above, which no command uses any more. */
    int (*release)(void *instance, uint64_t device, uint64_t address, accelrt_backend_error_record *error);
    /* Host memory that the devices reach by the same address, at which the host uses it. */
    int (*allocate_host)(void *instance, uint64_t bytes, uint64_t align_bytes, uint64_t *address,
                         accelrt_backend_error_record *error);
    int (*release_host)(void *instance, uint64_t address, accelrt_backend_error_record *error);
    /* The allocation that has this address, of any kind of memory above. */
    int (*pointer_owner)(void *instance, uint64_t address, accelrt_backend_owner *owner,
                         accelrt_backend_error_record *error);

    /* Submits a copy between any two of: memory of these devices, and memory of the host, from
     * `allocate_host` or any other. The ranges do not overlap. Does not wait for the copy. */
    int (*copy)(void *instance, uint64_t stream, uint64_t to, uint64_t from, uint64_t bytes,
                accelrt_backend_error_record *error);
    /* Submits a fill with a byte from 0 to 255. Does not wait for it. */
    int (*fill)(void *instance, uint64_t stream, uint64_t to, uint32_t byte, uint64_t bytes,
                accelrt_backend_error_record *error);

    /* Ends threads of the driver behind what was submitted. May be called again. What was made can
     * still be given back afterwards. */
    int (*shutdown)(void *instance, accelrt_backend_error_record *error);

    const accelrt_backend_virtual_memory *virtual_memory; /* optional */
    const accelrt_backend_kernels *kernels;               /* optional */
} accelrt_backend;

/* What a library exports: the table of this version, valid as long as the process runs; null when the
 * library has none of it. */
const accelrt_backend *accelrt_backend_table(uint32_t abi_version);

#ifdef __cplusplus
}
#endif

#endif
