/* The fake itself, tested: order, asynchrony, unreadable addresses, failures, counters.
 *
 * One process a test, named on the command line; main.rs runs them all. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opencl.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { BYTES = 5000 };

static cl_platform_id platform;
static cl_device_id devices[2];
static cl_context context;
static cl_command_queue queues[2];

static void *(*host_alloc)(cl_context, const cl_bitfield *, size_t, cl_uint, cl_int *);
static void *(*device_alloc)(cl_context, cl_device_id, const cl_bitfield *, size_t, cl_uint,
                             cl_int *);
static void *(*shared_alloc)(cl_context, cl_device_id, const cl_bitfield *, size_t, cl_uint,
                             cl_int *);
static cl_int (*mem_free)(cl_context, void *);
static cl_int (*blocking_free)(cl_context, void *);
static cl_int (*copy)(cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint,
                      const cl_event *, cl_event *);
static cl_int (*fill)(cl_command_queue, void *, const void *, size_t, size_t, cl_uint,
                      const cl_event *, cl_event *);
static cl_int (*set_pointer)(cl_kernel, cl_uint, const void *);

static void find(const char *name, void *place)
{
    void (*found)(void) = clGetExtensionFunctionAddressForPlatform(platform, name);
    CHECK(found != NULL);
    memcpy(place, &found, sizeof found);
}

static void configure(const char *text)
{
    CHECK(fake_opencl_configure(text) == 0);
}

static cl_int status(cl_event event)
{
    cl_int value = 99;
    CHECK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof value, &value, NULL) ==
          0);
    return value;
}

static void set_up(void)
{
    const cl_ulong properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    configure("devices=2,memory=64K");
    CHECK(clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS);
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 2, devices, NULL) == CL_SUCCESS);
    cl_int code = 1;
    context = clCreateContext(NULL, 2, devices, NULL, NULL, &code);
    CHECK(code == CL_SUCCESS);
    for (int index = 0; index < 2; index++) {
        queues[index] =
            clCreateCommandQueueWithProperties(context, devices[index], properties, &code);
        CHECK(code == CL_SUCCESS);
    }
    find("clHostMemAllocINTEL", &host_alloc);
    find("clDeviceMemAllocINTEL", &device_alloc);
    find("clSharedMemAllocINTEL", &shared_alloc);
    find("clMemFreeINTEL", &mem_free);
    find("clMemBlockingFreeINTEL", &blocking_free);
    find("clEnqueueMemcpyINTEL", &copy);
    find("clEnqueueMemFillINTEL", &fill);
    find("clSetKernelArgMemPointerINTEL", &set_pointer);
}

static unsigned char *host(void)
{
    unsigned char *made = host_alloc(context, NULL, BYTES, 0, NULL);
    CHECK(made != NULL);
    return made;
}

static unsigned char *device(void)
{
    unsigned char *made = device_alloc(context, devices[0], NULL, BYTES, 0, NULL);
    CHECK(made != NULL);
    return made;
}

/* Two queues are released, the context too: nothing is left but threads of the fake that end. */
static void tear_down(void)
{
    static const char *const kinds[] = {"queues",  "contexts", "events",     "programs",
                                        "kernels", "bytes",    "allocations",
                                        "ghosts",  "threads"};
    for (int index = 0; index < 2; index++)
        CHECK(clReleaseCommandQueue(queues[index]) == CL_SUCCESS);
    CHECK(clReleaseContext(context) == CL_SUCCESS);
    /* One thread calls back, one answers who probes: neither ends. */
    for (size_t index = 0; index < sizeof kinds / sizeof *kinds; index++)
        while (fake_opencl_live(kinds[index]) > (strcmp(kinds[index], "threads") == 0 ? 2 : 0))
            sched_yield();
    CHECK(fake_opencl_live("violations") == 0);
}

static cl_event marker(cl_command_queue queue, cl_uint count, const cl_event *waits)
{
    cl_event event = NULL;
    CHECK(clEnqueueMarkerWithWaitList(queue, count, waits, &event) == CL_SUCCESS);
    return event;
}

static void nothing_runs_before_it_is_flushed(void)
{
    cl_event first = marker(queues[0], 0, NULL), other = marker(queues[1], 0, NULL);
    CHECK(clFinish(queues[1]) == CL_SUCCESS);
    CHECK(status(other) == CL_COMPLETE && status(first) == CL_QUEUED);
    CHECK(clFlush(queues[0]) == CL_SUCCESS);
    while (status(first) != CL_COMPLETE)
        sched_yield();
    CHECK(clReleaseEvent(first) == CL_SUCCESS && clReleaseEvent(other) == CL_SUCCESS);
}

static void commands_run_later_and_in_order(void)
{
    unsigned char *from = host(), *to = host(), *there = device();
    cl_event end = NULL;
    memset(to, 0, BYTES);
    memset(from, 1, BYTES);
    configure("hold=1");
    for (unsigned char byte = 2; byte < 9; byte++) {
        CHECK(copy(queues[0], 0, there, from, BYTES, 0, NULL, NULL) == CL_SUCCESS);
        CHECK(fill(queues[0], there + 1, &byte, 1, 1, 0, NULL, NULL) == CL_SUCCESS);
        CHECK(copy(queues[0], 0, to, there, BYTES, 0, NULL, &end) == CL_SUCCESS);
        if (byte < 8)
            CHECK(clReleaseEvent(end) == CL_SUCCESS);
    }
    CHECK(clFlush(queues[0]) == CL_SUCCESS);
    CHECK(to[0] == 0 && status(end) > CL_COMPLETE);
    memset(from, 3, BYTES); /* what is read is what is there when the command runs */
    configure("hold=0");
    CHECK(clWaitForEvents(1, &end) == CL_SUCCESS);
    CHECK(to[0] == 3 && to[1] == 8 && to[BYTES - 1] == 3);
    CHECK(clReleaseEvent(end) == CL_SUCCESS);
    CHECK(blocking_free(context, from) == 0 && blocking_free(context, to) == 0);
    CHECK(blocking_free(context, there) == 0);
}

static void the_host_cannot_read_device_memory(void)
{
    unsigned char *there = device(), *here = host();
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], here, 1) == 1);
    CHECK(write(ends[1], there, 1) == -1 && errno == EFAULT);
    CHECK(write(ends[1], there + BYTES - 1, 1) == -1 && errno == EFAULT);
    CHECK(mem_free(context, there) == 0 && mem_free(context, here) == 0);
}

static void shared_memory_is_read_by_the_host_and_counts_as_the_devices(void)
{
    cl_int code = 1;
    unsigned char *both = shared_alloc(context, devices[0], NULL, BYTES, 0, &code), byte = 7;
    CHECK(both != NULL && code == CL_SUCCESS);
    CHECK(device_alloc(context, devices[0], NULL, (64 << 10) - BYTES + 1, 0, &code) == NULL);
    CHECK(code == CL_MEM_OBJECT_ALLOCATION_FAILURE);
    CHECK(fill(queues[0], both, &byte, 1, BYTES, 0, NULL, NULL) == CL_SUCCESS);
    CHECK(clFinish(queues[0]) == CL_SUCCESS);
    CHECK(both[0] == 7 && both[BYTES - 1] == 7);
    CHECK(mem_free(context, both) == 0);
    configure("shared=0");
    CHECK(shared_alloc(context, devices[0], NULL, BYTES, 0, &code) == NULL);
    CHECK(code == CL_INVALID_OPERATION);
}

static void a_wait_list_orders_queues(void)
{
    cl_event first = marker(queues[0], 0, NULL);
    cl_event second = marker(queues[1], 1, &first);
    CHECK(clFlush(queues[1]) == CL_SUCCESS);
    while (status(second) == CL_QUEUED)
        sched_yield();
    CHECK(status(second) == CL_SUBMITTED);
    CHECK(clFlush(queues[0]) == CL_SUCCESS);
    CHECK(clWaitForEvents(1, &second) == CL_SUCCESS && status(first) == CL_COMPLETE);
    CHECK(clReleaseEvent(first) == CL_SUCCESS && clReleaseEvent(second) == CL_SUCCESS);
}

static void calls_fail_as_planned(void)
{
    configure("fail=clFlush:2:-36,fail=clFinish:1+:-5");
    const cl_int expected[] = {0, -36, 0};
    for (int call = 0; call < 3; call++) {
        CHECK(clFlush(queues[0]) == expected[call]);
        CHECK(clFinish(queues[0]) == -5);
    }
    CHECK(fake_opencl_calls("clFlush") == 3 && fake_opencl_calls("clFinish") == 3);
    CHECK(fake_opencl_configure("fail=clNothing:1:-5") == -1);
    CHECK(fake_opencl_configure("nothing=1") == -1);
    configure("heal=1");
    CHECK(clFinish(queues[0]) == CL_SUCCESS);
}

static void a_lost_device_ends_what_is_queued_and_refuses_the_rest(void)
{
    configure("lose=after:1");
    cl_event events[] = {marker(queues[0], 0, NULL), marker(queues[0], 0, NULL)};
    cl_event behind = marker(queues[1], 2, events);
    CHECK(clFlush(queues[1]) == CL_SUCCESS);
    CHECK(clWaitForEvents(1, events) == CL_SUCCESS);
    CHECK(clWaitForEvents(1, &behind) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK(status(events[0]) == CL_COMPLETE && status(events[1]) == -777);
    CHECK(status(behind) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK(clFinish(queues[0]) == CL_OUT_OF_RESOURCES);
    CHECK(clEnqueueMarkerWithWaitList(queues[0], 0, NULL, NULL) == CL_OUT_OF_RESOURCES);
    cl_int code = 0;
    CHECK(device_alloc(context, devices[0], NULL, 1, 0, &code) == NULL);
    CHECK(code == CL_OUT_OF_RESOURCES);
    CHECK(clFinish(queues[1]) == CL_SUCCESS);
    CHECK(clReleaseEvent(events[0]) == 0 && clReleaseEvent(events[1]) == 0);
    CHECK(clReleaseEvent(behind) == CL_SUCCESS);
}

static pthread_mutex_t called_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called_changed = PTHREAD_COND_INITIALIZER;
static int called;
static bool on_another_thread;

static void note(cl_event event, cl_int value, void *thread)
{
    (void)event;
    pthread_mutex_lock(&called_lock);
    called += value == CL_COMPLETE;
    on_another_thread = !pthread_equal(*(pthread_t *)thread, pthread_self());
    pthread_cond_signal(&called_changed);
    pthread_mutex_unlock(&called_lock);
}

static void callbacks_come_from_another_thread_and_late_when_held(void)
{
    pthread_t self = pthread_self();
    configure("hold_callbacks=1");
    cl_event event = marker(queues[0], 0, NULL);
    CHECK(clSetEventCallback(event, CL_COMPLETE, note, &self) == CL_SUCCESS);
    CHECK(clFinish(queues[0]) == CL_SUCCESS);
    CHECK(clSetEventCallback(event, CL_COMPLETE, note, &self) == CL_SUCCESS);
    CHECK(clReleaseEvent(event) == CL_SUCCESS);
    CHECK(called == 0 && fake_opencl_live("events") == 0 && fake_opencl_live("ghosts") == 1);
    configure("hold_callbacks=0");
    pthread_mutex_lock(&called_lock);
    while (called < 2)
        pthread_cond_wait(&called_changed, &called_lock);
    CHECK(on_another_thread);
    pthread_mutex_unlock(&called_lock);
}

static void limits_of_memory_are_told_apart(void)
{
    cl_int code = 0;
    configure("most_alloc=48K");
    CHECK(device_alloc(context, devices[0], NULL, 49 << 10, 0, &code) == NULL);
    CHECK(code == CL_INVALID_BUFFER_SIZE);
    void *most = device_alloc(context, devices[0], NULL, 48 << 10, 0, &code);
    CHECK(most != NULL && code == CL_SUCCESS);
    CHECK(device_alloc(context, devices[0], NULL, 17 << 10, 0, &code) == NULL);
    CHECK(code == CL_MEM_OBJECT_ALLOCATION_FAILURE);
    void *other = device_alloc(context, devices[1], NULL, 48 << 10, 0, &code);
    CHECK(other != NULL && mem_free(context, other) == 0 && mem_free(context, most) == 0);
    unsigned char *aligned = device_alloc(context, devices[0], NULL, 10, 16384, &code);
    CHECK(aligned != NULL && (uintptr_t)aligned % 16384 == 0 && mem_free(context, aligned) == 0);
}

static void times_follow_each_other(void)
{
    cl_event event = marker(queues[0], 0, NULL);
    cl_ulong before = 0, now = 0;
    CHECK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof now, &now, NULL) ==
          CL_PROFILING_INFO_NOT_AVAILABLE);
    CHECK(clFinish(queues[0]) == CL_SUCCESS);
    for (cl_uint name = CL_PROFILING_COMMAND_QUEUED; name <= CL_PROFILING_COMMAND_END; name++) {
        CHECK(clGetEventProfilingInfo(event, name, sizeof now, &now, NULL) == CL_SUCCESS);
        CHECK(now >= before && now > 0);
        before = now;
    }
    CHECK(clReleaseEvent(event) == CL_SUCCESS);
}

static const char *const axpy = "__kernel void axpy(float a, __global const float *x,\n"
                                "                   __global float *y) { /* y += a * x */ }";

static cl_program build(const char *source, cl_int expected)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
    CHECK(clBuildProgram(program, 0, NULL, "-cl-kernel-arg-info", NULL, NULL) == expected);
    return program;
}

static void kernels_compute_with_device_memory(void)
{
    float *x = (float *)host(), a = 2, *y = (float *)host();
    void *there = device();
    const size_t items = 10;
    cl_int code = 1;
    cl_program program = build(axpy, CL_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "axpy", &code);
    CHECK(code == CL_SUCCESS && clReleaseProgram(program) == CL_SUCCESS);
    for (size_t item = 0; item < items; item++)
        x[item] = (float)item, y[item] = 1;
    CHECK(clEnqueueNDRangeKernel(queues[0], kernel, 1, NULL, &items, NULL, 0, NULL, NULL) ==
          CL_INVALID_KERNEL_ARGS);
    CHECK(clSetKernelArg(kernel, 0, sizeof(double), &a) == CL_INVALID_ARG_SIZE);
    CHECK(clSetKernelArg(kernel, 0, sizeof a, &a) == CL_SUCCESS);
    CHECK(clSetKernelArg(kernel, 3, sizeof a, &a) == CL_INVALID_ARG_INDEX);
    CHECK(set_pointer(kernel, 1, there) == CL_SUCCESS && set_pointer(kernel, 2, y) == CL_SUCCESS);
    CHECK(copy(queues[0], 0, there, x, BYTES, 0, NULL, NULL) == CL_SUCCESS);
    CHECK(clEnqueueNDRangeKernel(queues[0], kernel, 1, NULL, &items, NULL, 0, NULL, NULL) == 0);
    CHECK(clFinish(queues[0]) == CL_SUCCESS && y[0] == 1 && y[9] == 19);
    char name[9] = "";
    CHECK(clGetKernelArgInfo(kernel, 1, CL_KERNEL_ARG_TYPE_NAME, 9, name, NULL) == CL_SUCCESS);
    CHECK(strcmp(name, "float*") == 0);
    CHECK(clReleaseKernel(kernel) == CL_SUCCESS && mem_free(context, there) == 0);
    CHECK(mem_free(context, x) == 0 && mem_free(context, y) == 0);
}

static void unknown_kernels_do_not_build_and_a_log_says_why(void)
{
    const char *sources[] = {"kernel void other(global int *x) {}", "#error out of order\n", ""};
    const char *reasons[] = {"unknown kernel 'other'", "error: out of order", "no kernel"};
    for (int index = 0; index < 3; index++) {
        char log[500] = "";
        cl_program program = build(sources[index], CL_BUILD_PROGRAM_FAILURE);
        CHECK(clGetProgramBuildInfo(program, devices[0], CL_PROGRAM_BUILD_LOG, sizeof log, log,
                                    NULL) == CL_SUCCESS);
        CHECK(strstr(log, reasons[index]) != NULL);
        CHECK(clReleaseProgram(program) == CL_SUCCESS);
    }
}

static void a_rule_that_is_broken_is_counted(void)
{
    unsigned char *there = device();
    cl_event event = marker(queues[0], 0, NULL);
    CHECK(clReleaseEvent(event) == CL_SUCCESS);
    CHECK(clReleaseEvent(event) == CL_INVALID_EVENT);
    CHECK(fake_opencl_live("violations") == 1);
    CHECK(copy(queues[0], 0, there + 1, there - BYTES, BYTES, 0, NULL, NULL) < 0);
    CHECK(fake_opencl_live("violations") == 2);
    CHECK(copy(queues[0], 0, there, &event, 8, 0, NULL, NULL) == CL_SUCCESS);
    CHECK(mem_free(context, there) == CL_SUCCESS);
    CHECK(fake_opencl_live("violations") == 3 && clFinish(queues[0]) == CL_SUCCESS);
    exit(0); /* without the end that finds no violation */
}

static void a_vendor_with_threads_does_not_answer_in_a_child(void)
{
    configure("threads_at_probe=1");
    cl_uint count = 0;
    CHECK(clGetPlatformIDs(0, NULL, &count) == CL_SUCCESS && count == 1);
    pid_t child = fork();
    if (child == 0) {
        alarm(1);
        clGetPlatformIDs(0, NULL, &count);
        _exit(0);
    }
    int ended = 0;
    CHECK(waitpid(child, &ended, 0) == child);
    CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGALRM);
}

#define TEST(name) {#name, name},
static const struct {
    const char *name;
    void (*function)(void);
} tests[] = {
    TEST(nothing_runs_before_it_is_flushed)
    TEST(commands_run_later_and_in_order)
    TEST(the_host_cannot_read_device_memory)
    TEST(shared_memory_is_read_by_the_host_and_counts_as_the_devices)
    TEST(a_wait_list_orders_queues)
    TEST(calls_fail_as_planned)
    TEST(a_lost_device_ends_what_is_queued_and_refuses_the_rest)
    TEST(callbacks_come_from_another_thread_and_late_when_held)
    TEST(limits_of_memory_are_told_apart)
    TEST(times_follow_each_other)
    TEST(kernels_compute_with_device_memory)
    TEST(unknown_kernels_do_not_build_and_a_log_says_why)
    TEST(a_rule_that_is_broken_is_counted)
    TEST(a_vendor_with_threads_does_not_answer_in_a_child)
};

int main(int count, char **arguments)
{
    for (size_t index = 0; count > 1 && index < sizeof tests / sizeof *tests; index++)
        if (strcmp(tests[index].name, arguments[1]) == 0) {
            set_up();
            tests[index].function();
            tear_down();
            return 0;
        }
    fprintf(stderr, "no such test\n");
    return 1;
}
