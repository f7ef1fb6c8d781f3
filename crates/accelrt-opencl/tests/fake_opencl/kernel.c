/* Built-in kernels, and the launch of them: arguments, sizes, what each computes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static size_t item_count(const struct launch *launch)
{
    size_t count = 1;
    for (cl_uint dimension = 0; dimension < launch->dimensions; dimension++)
        count *= launch->global[dimension];
    return count;
}

/* kernel void index(global uint *out): out[i] = i */
static void run_index(const struct launch *launch, void *const *values)
{
    uint32_t *out = values[0];
    for (size_t item = 0; item < item_count(launch); item++)
        out[item] = (uint32_t)item;
}

/* kernel void axpy(float a, global const float *x, global float *y): y[i] += a * x[i] */
static void run_axpy(const struct launch *launch, void *const *values)
{
    const float *a = values[0], *x = values[1];
    float *y = values[2];
    for (size_t item = 0; item < item_count(launch); item++)
        y[item] += *a * x[item];
}

/* kernel void add(global int *numbers, int number): numbers[i] += number */
static void run_add(const struct launch *launch, void *const *values)
{
    int32_t *numbers = values[0], *number = values[1];
    for (size_t item = 0; item < item_count(launch); item++)
        numbers[item] += *number;
}

/* kernel void multiply(global int *numbers, int factor): numbers[i] *= factor */
static void run_multiply(const struct launch *launch, void *const *values)
{
    int32_t *numbers = values[0], *factor = values[1];
    for (size_t item = 0; item < item_count(launch); item++)
        numbers[item] *= *factor;
}

/* kernel void scale(global float *values, float by): values[i] *= by */
static void run_scale(const struct launch *launch, void *const *values)
{
    float *scaled = values[0], *by = values[1];
    for (size_t item = 0; item < item_count(launch); item++)
        scaled[item] *= *by;
}

/* kernel void clear(global float *values): values[i] = 0 */
static void run_clear(const struct launch *launch, void *const *values)
{
    memset(values[0], 0, item_count(launch) * sizeof(float));
}

/* kernel void through(global int *numbers, local int *scratch, long start, float step, uchar last):
 * each group writes start + step * i + last, from its last item to its first */
static void run_through(const struct launch *launch, void *const *values)
{
    int32_t *numbers = values[0];
    const int64_t *start = values[2];
    const float *step = values[3];
    const uint8_t *last = values[4];
    size_t group = launch->local[0] != 0 ? launch->local[0] : 1;
    for (size_t item = 0; item < item_count(launch); item++) {
        float from_end = (float)(group - 1 - item % group);
        numbers[item] = (int32_t)((float)*start + from_end * *step) + *last;
    }
}

/* kernel void store(global T *out, T value), of any T: *out = value */
static void run_store(const struct launch *launch, void *const *values)
{
    memcpy(values[0], values[1], launch->arguments[1].size);
}

/* kernel void geometry(global ulong *out): how the launch looked; local sizes are 0 where the
 * driver was to choose */
static void run_geometry(const struct launch *launch, void *const *values)
{
    uint64_t *out = values[0];
    *out++ = launch->dimensions;
    for (int dimension = 0; dimension < 3; dimension++) {
        out[dimension] = launch->global[dimension];
        out[dimension + 3] = launch->local[dimension];
        out[dimension + 6] = launch->offset[dimension];
    }
}

static const struct builtin builtins[] = {
    {"index", 1, 1, {0}, run_index},
    {"axpy", 3, 6, {sizeof(float)}, run_axpy},
    {"add", 2, 1, {0, sizeof(int32_t)}, run_add},
    {"multiply", 2, 1, {0, sizeof(int32_t)}, run_multiply},
    {"scale", 2, 1, {0, sizeof(float)}, run_scale},
    {"clear", 1, 1, {0}, run_clear},
    {"through", 5, 3, {0, 0, sizeof(int64_t), sizeof(float), sizeof(uint8_t)}, run_through},
    {"store", 2, 1, {0}, run_store},
    {"geometry", 1, 1, {0}, run_geometry},
};

const struct builtin *fake_builtin(const char *name)
{
    for (size_t index = 0; index < sizeof builtins / sizeof *builtins; index++)
        if (strcmp(builtins[index].name, name) == 0)
            return &builtins[index];
    return NULL;
}

const char *fake_builtin_names(void)
{
    return "index, axpy, add, multiply, scale, clear, through, store and geometry";
}

void fake_run(const struct launch *launch, void *const *values)
{
    launch->builtin->run(launch, values);
}

/* Arguments are about to be set or read, and were: one thread at a time, say OpenCL's rules. */
static bool begin_use(cl_kernel kernel)
{
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(kernel, KERNEL);
    if (is_valid && kernel->users++ > 0)
        fake_violation("two threads use one kernel at once", kernel);
    pthread_mutex_unlock(&fake_lock);
    return is_valid;
}

static void end_use(cl_kernel kernel)
{
    pthread_mutex_lock(&fake_lock);
    kernel->users--;
    pthread_mutex_unlock(&fake_lock);
}

static cl_int set(cl_kernel kernel, cl_uint index, bool is_pointer, const void *value, size_t size)
{
    if (!begin_use(kernel))
        return CL_INVALID_KERNEL;
    const struct definition *definition = kernel->definition;
    if (index >= definition->parameter_count) {
        end_use(kernel);
        return CL_INVALID_ARG_INDEX;
    }
    cl_uint address = definition->parameters[index].address;
    bool is_local = address == CL_KERNEL_ARG_ADDRESS_LOCAL; /* a size, and no value */
    bool wants_pointer = !is_local && address != CL_KERNEL_ARG_ADDRESS_PRIVATE;
    size_t expected = definition->builtin->sizes[index];
    cl_int code = CL_SUCCESS;
    if (wants_pointer != is_pointer || is_local != (value == NULL))
        code = CL_INVALID_ARG_VALUE;
    else if (is_local ? size == 0 : size > ARGUMENT || (expected != 0 && size != expected))
        code = CL_INVALID_ARG_SIZE;
    if (code == CL_SUCCESS) {
        kernel->arguments[index] = (struct argument){.is_set = true, .is_pointer = is_pointer};
        kernel->arguments[index].size = size;
        if (!is_local)
            memcpy(kernel->arguments[index].value, value, size);
    }
    end_use(kernel);
    return code;
}

EXPORT cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
    ENTER(clSetKernelArg);
    return set(kernel, index, false, value, size);
}

cl_int clSetKernelArgMemPointerINTEL(cl_kernel kernel, cl_uint index, const void *pointer)
{
    ENTER(clSetKernelArgMemPointerINTEL);
    return set(kernel, index, true, &pointer, sizeof pointer);
}

EXPORT cl_int clSetKernelExecInfo(cl_kernel kernel, cl_uint name, size_t bytes, const void *value)
{
    ENTER(clSetKernelExecInfo);
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(kernel, KERNEL);
    pthread_mutex_unlock(&fake_lock);
    if (!is_valid)
        return CL_INVALID_KERNEL;
    bool is_known = name >= CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL &&
                    name <= CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL;
    return is_known && bytes > 0 && value != NULL ? CL_SUCCESS : CL_INVALID_VALUE;
}

static void copy_sizes(size_t into[3], const size_t *from, cl_uint dimensions)
{
    for (cl_uint dimension = 0; from != NULL && dimension < dimensions; dimension++)
        into[dimension] = from[dimension];
}

static cl_int check_sizes(const struct launch *launch)
{
    size_t group = 1;
    for (cl_uint dimension = 0; dimension < launch->dimensions; dimension++) {
        if (launch->global[dimension] == 0)
            return CL_INVALID_GLOBAL_WORK_SIZE;
        if (launch->local[dimension] == 0)
            continue;
        group *= launch->local[dimension];
        /* A program for OpenCL C 1.2 has groups of one size. */
        if (launch->global[dimension] % launch->local[dimension] != 0)
            return CL_INVALID_WORK_GROUP_SIZE;
    }
    return group > 256 ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
}

/* Notes the memory that the pointers among the arguments are in. Locked. */
static bool use_memory(struct command *command, const struct launch *launch)
{
    for (unsigned index = 0; index < launch->argument_count; index++) {
        const struct argument *argument = &launch->arguments[index];
        struct allocation *use = NULL;
        void *pointer = NULL;
        if (!argument->is_pointer)
            continue;
        memcpy(&pointer, argument->value, sizeof pointer);
        if (pointer != NULL && fake_find(pointer) == NULL)
            fake_violation("a kernel is given an address of nobody", pointer);
        if (!fake_use(pointer, 0, &use))
            return false;
        if (use != NULL)
            command->uses[command->use_count++] = use;
    }
    return true;
}

EXPORT cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                     const size_t *offset, const size_t *global,
                                     const size_t *local, cl_uint count, const cl_event *waits,
                                     cl_event *event)
{
    ENTER(clEnqueueNDRangeKernel);
    if (dimensions < 1 || dimensions > 3)
        return CL_INVALID_WORK_DIMENSION;
    if (global == NULL)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    if (!begin_use(kernel))
        return CL_INVALID_KERNEL;
    struct launch *launch = calloc(1, sizeof *launch);
    struct command *command = calloc(1, sizeof *command);
    command->launch = launch;
    launch->builtin = kernel->definition->builtin;
    launch->argument_count = kernel->definition->parameter_count;
    memcpy(launch->arguments, kernel->arguments, sizeof launch->arguments);
    end_use(kernel);
    launch->dimensions = dimensions;
    copy_sizes(launch->offset, offset, dimensions);
    copy_sizes(launch->global, global, dimensions);
    copy_sizes(launch->local, local, dimensions);
    cl_int code = check_sizes(launch);
    for (unsigned index = 0; index < launch->argument_count; index++)
        if (!launch->arguments[index].is_set)
            code = CL_INVALID_KERNEL_ARGS;
    pthread_mutex_lock(&fake_lock);
    if (code == CL_SUCCESS && !use_memory(command, launch))
        code = CL_INVALID_KERNEL_ARGS;
    if (code != CL_SUCCESS) {
        while (command->use_count > 0)
            fake_unuse(command->uses[--command->use_count]);
        free(launch);
        free(command);
    }
    pthread_mutex_unlock(&fake_lock);
    if (code != CL_SUCCESS)
        return code;
    return fake_enqueue(queue, command, CL_COMMAND_NDRANGE_KERNEL, count, waits, event);
}
