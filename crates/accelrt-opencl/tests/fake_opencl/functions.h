/* Every function of the fake by its name: what can be counted, made to fail, or be missing. */
#ifndef FAKE_FUNCTIONS_H
#define FAKE_FUNCTIONS_H

/* Exported, as a loader exports them. */
#define CORE_FUNCTIONS(X)                                                                          \
    X(clGetPlatformIDs)                                                                            \
    X(clGetPlatformInfo)                                                                           \
    X(clGetDeviceIDs)                                                                              \
    X(clGetDeviceInfo)                                                                             \
    X(clCreateContext)                                                                             \
    X(clRetainContext)                                                                             \
    X(clReleaseContext)                                                                            \
    X(clGetContextInfo)                                                                            \
    X(clCreateCommandQueueWithProperties)                                                          \
    X(clRetainCommandQueue)                                                                        \
    X(clReleaseCommandQueue)                                                                       \
    X(clGetCommandQueueInfo)                                                                       \
    X(clFlush)                                                                                     \
    X(clFinish)                                                                                    \
    X(clEnqueueMarkerWithWaitList)                                                                 \
    X(clEnqueueBarrierWithWaitList)                                                                \
    X(clEnqueueNDRangeKernel)                                                                      \
    X(clWaitForEvents)                                                                             \
    X(clGetEventInfo)                                                                              \
    X(clGetEventProfilingInfo)                                                                     \
    X(clSetEventCallback)                                                                          \
    X(clRetainEvent)                                                                               \
    X(clReleaseEvent)                                                                              \
    X(clCreateProgramWithSource)                                                                   \
    X(clCreateProgramWithIL)                                                                       \
    X(clBuildProgram)                                                                              \
    X(clRetainProgram)                                                                             \
    X(clReleaseProgram)                                                                            \
    X(clGetProgramInfo)                                                                            \
    X(clGetProgramBuildInfo)                                                                       \
    X(clCreateKernel)                                                                              \
    X(clRetainKernel)                                                                              \
    X(clReleaseKernel)                                                                             \
    X(clGetKernelInfo)                                                                             \
    X(clGetKernelArgInfo)                                                                          \
    X(clGetKernelWorkGroupInfo)                                                                    \
    X(clSetKernelArg)                                                                              \
    X(clSetKernelExecInfo)                                                                         \
    X(clGetExtensionFunctionAddressForPlatform)

/* Found through clGetExtensionFunctionAddressForPlatform alone. */
#define EXTENSION_FUNCTIONS(X)                                                                     \
    X(clHostMemAllocINTEL)                                                                         \
    X(clDeviceMemAllocINTEL)                                                                       \
    X(clSharedMemAllocINTEL)                                                                       \
    X(clMemFreeINTEL)                                                                              \
    X(clMemBlockingFreeINTEL)                                                                      \
    X(clGetMemAllocInfoINTEL)                                                                      \
    X(clSetKernelArgMemPointerINTEL)                                                               \
    X(clEnqueueMemFillINTEL)                                                                       \
    X(clEnqueueMemcpyINTEL)

#define NUMBER_OF(name) NUMBER_##name,
enum function { CORE_FUNCTIONS(NUMBER_OF) EXTENSION_FUNCTIONS(NUMBER_OF) FUNCTION_COUNT };
#undef NUMBER_OF

#endif
