/* What the fake declares of OpenCL 3.0 and cl_intel_unified_shared_memory: types and numbers.
 *
 * Names and values are the Khronos headers'. They are repeated here so that building the fake needs
 * a C compiler and nothing else. */
#ifndef FAKE_OPENCL_H
#define FAKE_OPENCL_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool;
typedef cl_ulong cl_bitfield;
typedef intptr_t cl_properties;

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_event *cl_event;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;

typedef void (*event_callback)(cl_event event, cl_int status, void *data);
typedef void (*program_callback)(cl_program program, void *data);
typedef void (*context_callback)(const char *text, const void *info, size_t bytes, void *data);

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_PROFILING_INFO_NOT_AVAILABLE = -7,
    CL_MEM_COPY_OVERLAP = -8,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST = -14,
    CL_KERNEL_ARG_INFO_NOT_AVAILABLE = -19,
    CL_INVALID_VALUE = -30,
    CL_INVALID_PLATFORM = -32,
    CL_INVALID_DEVICE = -33,
    CL_INVALID_CONTEXT = -34,
    CL_INVALID_QUEUE_PROPERTIES = -35,
    CL_INVALID_COMMAND_QUEUE = -36,
    CL_INVALID_BINARY = -42,
    CL_INVALID_PROGRAM = -44,
    CL_INVALID_PROGRAM_EXECUTABLE = -45,
    CL_INVALID_KERNEL_NAME = -46,
    CL_INVALID_KERNEL = -48,
    CL_INVALID_ARG_INDEX = -49,
    CL_INVALID_ARG_VALUE = -50,
    CL_INVALID_ARG_SIZE = -51,
    CL_INVALID_KERNEL_ARGS = -52,
    CL_INVALID_WORK_DIMENSION = -53,
    CL_INVALID_WORK_GROUP_SIZE = -54,
    CL_INVALID_EVENT_WAIT_LIST = -57,
    CL_INVALID_EVENT = -58,
    CL_INVALID_OPERATION = -59,
    CL_INVALID_BUFFER_SIZE = -61,
    CL_INVALID_GLOBAL_WORK_SIZE = -63,
    CL_PLATFORM_NOT_FOUND_KHR = -1001,
};

enum {
    CL_PLATFORM_PROFILE = 0x0900,
    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,
    CL_PLATFORM_VENDOR = 0x0903,
    CL_PLATFORM_EXTENSIONS = 0x0904,
    CL_PLATFORM_NUMERIC_VERSION = 0x0906,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_VENDOR_ID = 0x1001,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS = 0x1003,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
    CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
    CL_DEVICE_ADDRESS_BITS = 0x100D,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE = 0x101D,
    CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_PROFILING_TIMER_RESOLUTION = 0x1025,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_QUEUE_ON_HOST_PROPERTIES = 0x102A,
    CL_DEVICE_NAME = 0x102B,
    CL_DEVICE_VENDOR = 0x102C,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_PROFILE = 0x102E,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_PLATFORM = 0x1031,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_DEVICE_HALF_FP_CONFIG = 0x1033,
    CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_DEVICE_OPENCL_C_VERSION = 0x103D,
    CL_DEVICE_PARTITION_MAX_SUB_DEVICES = 0x1043,
    CL_DEVICE_IL_VERSION = 0x105B,
    CL_DEVICE_MAX_NUM_SUB_GROUPS = 0x105C,
    CL_DEVICE_NUMERIC_VERSION = 0x105E,
    CL_DEVICE_SUB_GROUP_SIZES_INTEL = 0x4108,
    CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL = 0x4190,
    CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL = 0x4191,
    CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL = 0x4192,
    CL_DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL = 0x4193,
    CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL = 0x4194,
    CL_CONTEXT_REFERENCE_COUNT = 0x1080,
    CL_CONTEXT_DEVICES = 0x1081,
    CL_CONTEXT_NUM_DEVICES = 0x1083,
    CL_CONTEXT_PLATFORM = 0x1084,
    CL_QUEUE_CONTEXT = 0x1090,
    CL_QUEUE_DEVICE = 0x1091,
    CL_QUEUE_REFERENCE_COUNT = 0x1092,
    CL_QUEUE_PROPERTIES = 0x1093,
    CL_QUEUE_PRIORITY_KHR = 0x1096,
    CL_PROGRAM_NUM_DEVICES = 0x1162,
    CL_PROGRAM_SOURCE = 0x1164,
    CL_PROGRAM_NUM_KERNELS = 0x1167,
    CL_PROGRAM_KERNEL_NAMES = 0x1168,
    CL_PROGRAM_BUILD_STATUS = 0x1181,
    CL_PROGRAM_BUILD_OPTIONS = 0x1182,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_FUNCTION_NAME = 0x1190,
    CL_KERNEL_NUM_ARGS = 0x1191,
    CL_KERNEL_REFERENCE_COUNT = 0x1192,
    CL_KERNEL_CONTEXT = 0x1193,
    CL_KERNEL_PROGRAM = 0x1194,
    CL_KERNEL_ARG_ADDRESS_QUALIFIER = 0x1196,
    CL_KERNEL_ARG_ACCESS_QUALIFIER = 0x1197,
    CL_KERNEL_ARG_TYPE_NAME = 0x1198,
    CL_KERNEL_ARG_TYPE_QUALIFIER = 0x1199,
    CL_KERNEL_ARG_NAME = 0x119A,
    CL_KERNEL_ARG_ADDRESS_GLOBAL = 0x119B,
    CL_KERNEL_ARG_ADDRESS_LOCAL = 0x119C,
    CL_KERNEL_ARG_ADDRESS_CONSTANT = 0x119D,
    CL_KERNEL_ARG_ADDRESS_PRIVATE = 0x119E,
    CL_KERNEL_ARG_ACCESS_NONE = 0x11A3,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
    CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1,
    CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
    CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE = 0x11B3,
    CL_KERNEL_PRIVATE_MEM_SIZE = 0x11B4,
    CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL = 0x4200,
    CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL = 0x4201,
    CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL = 0x4202,
    CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL = 0x4203,
    CL_EVENT_COMMAND_QUEUE = 0x11D0,
    CL_EVENT_COMMAND_TYPE = 0x11D1,
    CL_EVENT_REFERENCE_COUNT = 0x11D2,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
    CL_EVENT_CONTEXT = 0x11D4,
    CL_COMMAND_NDRANGE_KERNEL = 0x11F0,
    CL_COMMAND_MARKER = 0x11FE,
    CL_COMMAND_BARRIER = 0x1205,
    CL_COMMAND_MEMFILL_INTEL = 0x4204,
    CL_COMMAND_MEMCPY_INTEL = 0x4205,
    CL_PROFILING_COMMAND_QUEUED = 0x1280,
    CL_PROFILING_COMMAND_SUBMIT = 0x1281,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283,
    CL_PROFILING_COMMAND_COMPLETE = 0x1284,
    CL_MEM_ALLOC_FLAGS_INTEL = 0x4195,
    CL_MEM_TYPE_UNKNOWN_INTEL = 0x4196,
    CL_MEM_TYPE_HOST_INTEL = 0x4197,
    CL_MEM_TYPE_DEVICE_INTEL = 0x4198,
    CL_MEM_TYPE_SHARED_INTEL = 0x4199,
    CL_MEM_ALLOC_TYPE_INTEL = 0x419A,
    CL_MEM_ALLOC_BASE_PTR_INTEL = 0x419B,
    CL_MEM_ALLOC_SIZE_INTEL = 0x419C,
    CL_MEM_ALLOC_DEVICE_INTEL = 0x419D,
};

enum { CL_COMPLETE = 0, CL_RUNNING = 1, CL_SUBMITTED = 2, CL_QUEUED = 3 };
enum { CL_BUILD_SUCCESS = 0, CL_BUILD_NONE = -1, CL_BUILD_ERROR = -2 };
enum { CL_DEVICE_TYPE_DEFAULT = 1, CL_DEVICE_TYPE_CPU = 2, CL_DEVICE_TYPE_GPU = 4 };
enum { CL_DEVICE_TYPE_ACCELERATOR = 8 };
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu
enum { CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE = 1, CL_QUEUE_PROFILING_ENABLE = 2 };
enum { CL_QUEUE_PRIORITY_HIGH_KHR = 1, CL_QUEUE_PRIORITY_MED_KHR = 2 };
enum { CL_QUEUE_PRIORITY_LOW_KHR = 4 };
enum { CL_KERNEL_ARG_TYPE_CONST = 1, CL_KERNEL_ARG_TYPE_RESTRICT = 2 };

/* What the library exports: declared for the fake itself and for its test. */
cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *into, cl_uint *count);
cl_int clGetPlatformInfo(cl_platform_id platform, cl_uint name, size_t room, void *into,
                         size_t *needed);
cl_int clGetDeviceIDs(cl_platform_id platform, cl_bitfield type, cl_uint room, cl_device_id *into,
                      cl_uint *count);
cl_int clGetDeviceInfo(cl_device_id device, cl_uint name, size_t room, void *into, size_t *needed);
cl_context clCreateContext(const cl_properties *properties, cl_uint count,
                           const cl_device_id *devices, context_callback callback, void *data,
                           cl_int *code);
cl_int clRetainContext(cl_context context);
cl_int clReleaseContext(cl_context context);
cl_int clGetContextInfo(cl_context context, cl_uint name, size_t room, void *into, size_t *needed);
cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_ulong *list, cl_int *code);
cl_int clRetainCommandQueue(cl_command_queue queue);
cl_int clReleaseCommandQueue(cl_command_queue queue);
cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_uint name, size_t room, void *into,
                             size_t *needed);
cl_int clFlush(cl_command_queue queue);
cl_int clFinish(cl_command_queue queue);
cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint count, const cl_event *waits,
                                   cl_event *event);
cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint count, const cl_event *waits,
                                    cl_event *event);
cl_int clSetEventCallback(cl_event event, cl_int type, event_callback function, void *data);
cl_int clWaitForEvents(cl_uint count, const cl_event *events);
cl_int clGetEventInfo(cl_event event, cl_uint name, size_t room, void *into, size_t *needed);
cl_int clGetEventProfilingInfo(cl_event event, cl_uint name, size_t room, void *into,
                               size_t *needed);
cl_int clRetainEvent(cl_event event);
cl_int clReleaseEvent(cl_event event);
cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value);
cl_int clSetKernelExecInfo(cl_kernel kernel, cl_uint name, size_t bytes, const void *value);
cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                              const size_t *offset, const size_t *global, const size_t *local,
                              cl_uint count, const cl_event *waits, cl_event *event);
cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                     const size_t *lengths, cl_int *code);
cl_program clCreateProgramWithIL(cl_context context, const void *bytes, size_t length,
                                 cl_int *code);
cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                      const char *options, program_callback callback, void *data);
cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_uint name, size_t room,
                             void *into, size_t *needed);
cl_int clGetProgramInfo(cl_program program, cl_uint name, size_t room, void *into, size_t *needed);
cl_int clRetainProgram(cl_program program);
cl_int clReleaseProgram(cl_program program);
cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *code);
cl_int clRetainKernel(cl_kernel kernel);
cl_int clReleaseKernel(cl_kernel kernel);
cl_int clGetKernelInfo(cl_kernel kernel, cl_uint name, size_t room, void *into, size_t *needed);
cl_int clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_uint name, size_t room, void *into,
                          size_t *needed);
cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_uint name, size_t room,
                                void *into, size_t *needed);
void (*clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name))(void);

/* Settings of the fake, as in FAKE_OPENCL: -1 when one of them is none. After stop=FUNCTION the next
 * call of it stops when its effect has happened, until go=FUNCTION; of those that can. */
int fake_opencl_configure(const char *text);
/* How often a function was called. */
uint64_t fake_opencl_calls(const char *name);
/* How many users hold of: contexts queues events programs kernels; how many there are of:
 * allocations bytes threads ghosts (objects that users released and the fake still needs); how many
 * there were of: violations (of OpenCL's rules), queues:HINT (made with this priority hint),
 * calls:FUNCTION, executed (commands); stopped:FUNCTION is 1 while a call of it is stopped. */
uint64_t fake_opencl_live(const char *what);

#endif
