/* Programs and kernels as objects: builds with logs, and what a kernel says of its arguments. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const unsigned char spirv[4] = {0x03, 0x02, 0x23, 0x07};

static cl_program make(cl_context context, char *source, bool is_intermediate, cl_int *code)
{
    pthread_mutex_lock(&fake_lock);
    cl_program program = NULL;
    if (fake_valid(context, CONTEXT)) {
        program = fake_make(PROGRAM, sizeof *program);
        fake_keep(context);
        program->context = context;
        program->source = source;
        program->log = strdup("");
        program->is_intermediate = is_intermediate;
        program->status = CL_BUILD_NONE;
    }
    pthread_mutex_unlock(&fake_lock);
    if (program == NULL)
        free(source);
    fake_refuse(code, program != NULL ? CL_SUCCESS : CL_INVALID_CONTEXT);
    return program;
}

EXPORT cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                            const size_t *lengths, cl_int *code)
{
    ENTER_MAKER(clCreateProgramWithSource, code);
    if (count == 0 || texts == NULL)
        return fake_refuse(code, CL_INVALID_VALUE);
    char *source = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&source, &bytes);
    for (cl_uint index = 0; index < count; index++) {
        bool has_length = lengths != NULL && lengths[index] != 0;
        size_t length = has_length ? lengths[index] : strlen(texts[index]);
        fwrite(texts[index], 1, length, stream);
    }
    fclose(stream);
    return make(context, source, false, code);
}

/* SPIR-V is here its magic number and then a source: no argument info, as from a real driver. */
EXPORT cl_program clCreateProgramWithIL(cl_context context, const void *bytes, size_t length,
                                        cl_int *code)
{
    ENTER_MAKER(clCreateProgramWithIL, code);
    if (bytes == NULL || length < sizeof spirv)
        return fake_refuse(code, CL_INVALID_VALUE);
    if (memcmp(bytes, spirv, sizeof spirv) != 0)
        return fake_refuse(code, CL_INVALID_VALUE);
    char *source = strndup((const char *)bytes + sizeof spirv, length - sizeof spirv);
    return make(context, source, true, code);
}

void fake_program_destroyed(cl_program program)
{
    free(program->source);
    free(program->log);
    free(program->definitions);
    fake_let_go(program->context);
}

EXPORT cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                             const char *options, program_callback callback, void *data)
{
    ENTER(clBuildProgram);
    if ((count == 0) != (devices == NULL))
        return CL_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(program, PROGRAM);
    cl_int code = CL_INVALID_PROGRAM;
    if (is_valid && program->definitions != NULL) {
        code = CL_INVALID_OPERATION; /* kernels of the build before may exist */
    } else if (is_valid) {
        snprintf(program->options, sizeof program->options, "%s", options ? options : "");
        program->has_argument_info =
            !program->is_intermediate && strstr(program->options, "-cl-kernel-arg-info") != NULL;
        free(program->log);
        bool is_built = fake_compile(program->source, &program->definitions,
                                     &program->definition_count, &program->log);
        program->status = is_built ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
        code = is_built ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
    }
    pthread_mutex_unlock(&fake_lock);
    if (is_valid && callback != NULL)
        callback(program, data);
    return code;
}

EXPORT cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_uint name,
                                    size_t room, void *into, size_t *needed)
{
    ENTER(clGetProgramBuildInfo);
    if (!fake_is_device(device))
        return CL_INVALID_DEVICE;
    pthread_mutex_lock(&fake_lock);
    cl_int code = CL_INVALID_VALUE;
    if (!fake_valid(program, PROGRAM))
        code = CL_INVALID_PROGRAM;
    else if (name == CL_PROGRAM_BUILD_STATUS)
        code = fake_answer(&program->status, sizeof program->status, room, into, needed);
    else if (name == CL_PROGRAM_BUILD_OPTIONS)
        code = fake_answer_text(program->options, room, into, needed);
    else if (name == CL_PROGRAM_BUILD_LOG)
        code = fake_answer_text(program->log, room, into, needed);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

static cl_int answer_names(cl_program program, size_t room, void *into, size_t *needed)
{
    char all[WORD * MOST_ARGUMENTS] = "";
    for (unsigned index = 0; index < program->definition_count; index++) {
        if (index == MOST_ARGUMENTS - 1)
            break;
        if (index > 0)
            strcat(all, ";");
        strcat(all, program->definitions[index].name);
    }
    return fake_answer_text(all, room, into, needed);
}

EXPORT cl_int clGetProgramInfo(cl_program program, cl_uint name, size_t room, void *into,
                               size_t *needed)
{
    ENTER(clGetProgramInfo);
    pthread_mutex_lock(&fake_lock);
    cl_int code = CL_INVALID_VALUE;
    bool is_valid = fake_valid(program, PROGRAM);
    size_t kernels = is_valid ? program->definition_count : 0;
    if (!is_valid)
        code = CL_INVALID_PROGRAM;
    else if (name == CL_PROGRAM_NUM_DEVICES)
        code = fake_answer(&program->context->device_count, sizeof(cl_uint), room, into, needed);
    else if (name == CL_PROGRAM_SOURCE)
        code = fake_answer_text(program->source, room, into, needed);
    else if (program->status != CL_BUILD_SUCCESS)
        code = CL_INVALID_PROGRAM_EXECUTABLE;
    else if (name == CL_PROGRAM_NUM_KERNELS)
        code = fake_answer(&kernels, sizeof kernels, room, into, needed);
    else if (name == CL_PROGRAM_KERNEL_NAMES)
        code = answer_names(program, room, into, needed);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

EXPORT cl_int clRetainProgram(cl_program program)
{
    ENTER(clRetainProgram);
    return fake_user_retain(program, PROGRAM, CL_INVALID_PROGRAM);
}

EXPORT cl_int clReleaseProgram(cl_program program)
{
    ENTER(clReleaseProgram);
    return fake_user_release(program, PROGRAM, CL_INVALID_PROGRAM);
}

EXPORT cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *code)
{
    ENTER_MAKER(clCreateKernel, code);
    cl_int refused = CL_INVALID_KERNEL_NAME;
    cl_kernel kernel = NULL;
    pthread_mutex_lock(&fake_lock);
    if (!fake_valid(program, PROGRAM))
        refused = CL_INVALID_PROGRAM;
    else if (program->status != CL_BUILD_SUCCESS)
        refused = CL_INVALID_PROGRAM_EXECUTABLE;
    else
        for (unsigned index = 0; index < program->definition_count && kernel == NULL; index++)
            if (strcmp(program->definitions[index].name, name) == 0) {
                kernel = fake_make(KERNEL, sizeof *kernel);
                kernel->definition = &program->definitions[index];
                kernel->program = program;
                fake_keep(program);
                refused = CL_SUCCESS;
            }
    pthread_mutex_unlock(&fake_lock);
    fake_refuse(code, refused);
    return kernel;
}

EXPORT cl_int clRetainKernel(cl_kernel kernel)
{
    ENTER(clRetainKernel);
    return fake_user_retain(kernel, KERNEL, CL_INVALID_KERNEL);
}

EXPORT cl_int clReleaseKernel(cl_kernel kernel)
{
    ENTER(clReleaseKernel);
    return fake_user_release(kernel, KERNEL, CL_INVALID_KERNEL);
}

/* Looks at a handle; what follows reads only what never changes. */
static bool is_kernel(cl_kernel kernel)
{
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(kernel, KERNEL);
    pthread_mutex_unlock(&fake_lock);
    return is_valid;
}

EXPORT cl_int clGetKernelInfo(cl_kernel kernel, cl_uint name, size_t room, void *into,
                              size_t *needed)
{
    ENTER(clGetKernelInfo);
    if (!is_kernel(kernel))
        return CL_INVALID_KERNEL;
    const cl_uint count = kernel->definition->parameter_count;
    switch (name) {
    case CL_KERNEL_FUNCTION_NAME:
        return fake_answer_text(kernel->definition->name, room, into, needed);
    case CL_KERNEL_NUM_ARGS:
        return fake_answer(&count, sizeof count, room, into, needed);
    case CL_KERNEL_CONTEXT:
        return fake_answer(&kernel->program->context, sizeof(cl_context), room, into, needed);
    case CL_KERNEL_PROGRAM:
        return fake_answer(&kernel->program, sizeof(cl_program), room, into, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

EXPORT cl_int clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_uint name, size_t room,
                                 void *into, size_t *needed)
{
    ENTER(clGetKernelArgInfo);
    if (!is_kernel(kernel))
        return CL_INVALID_KERNEL;
    if (index >= kernel->definition->parameter_count)
        return CL_INVALID_ARG_INDEX;
    if (!kernel->program->has_argument_info)
        return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    const struct parameter *parameter = &kernel->definition->parameters[index];
    const cl_uint access = CL_KERNEL_ARG_ACCESS_NONE;
    const cl_bitfield qualifiers = parameter->qualifiers;
    switch (name) {
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
        return fake_answer(&parameter->address, sizeof(cl_uint), room, into, needed);
    case CL_KERNEL_ARG_ACCESS_QUALIFIER:
        return fake_answer(&access, sizeof access, room, into, needed);
    case CL_KERNEL_ARG_TYPE_QUALIFIER:
        return fake_answer(&qualifiers, sizeof qualifiers, room, into, needed);
    case CL_KERNEL_ARG_TYPE_NAME:
        return fake_answer_text(parameter->type, room, into, needed);
    case CL_KERNEL_ARG_NAME:
        return fake_answer_text(parameter->name, room, into, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

EXPORT cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_uint name,
                                       size_t room, void *into, size_t *needed)
{
    ENTER(clGetKernelWorkGroupInfo);
    if (!is_kernel(kernel))
        return CL_INVALID_KERNEL;
    if (device != NULL && !fake_is_device(device))
        return CL_INVALID_DEVICE;
    const size_t group = 256, multiple = 16, none[3] = {0};
    const cl_ulong no_memory = 0;
    switch (name) {
    case CL_KERNEL_WORK_GROUP_SIZE:
        return fake_answer(&group, sizeof group, room, into, needed);
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
        return fake_answer(none, sizeof none, room, into, needed);
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
        return fake_answer(&multiple, sizeof multiple, room, into, needed);
    case CL_KERNEL_LOCAL_MEM_SIZE:
    case CL_KERNEL_PRIVATE_MEM_SIZE:
        return fake_answer(&no_memory, sizeof no_memory, room, into, needed);
    default:
        return CL_INVALID_VALUE;
    }
}
