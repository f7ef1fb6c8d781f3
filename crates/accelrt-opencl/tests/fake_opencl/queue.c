/* In-order queues: a thread each, which carries out what was flushed, and nothing before. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

static uint64_t threads;
static uint64_t made_with[CL_QUEUE_PRIORITY_LOW_KHR + 1];

void fake_thread_counts(int change)
{
    threads += (uint64_t)(int64_t)change;
}

uint64_t fake_threads(void)
{
    return threads;
}

uint64_t fake_executed(void)
{
    uint64_t executed = 0;
    for (size_t index = 0; index < MOST_PLATFORMS * MOST_DEVICES; index++)
        executed += fake_devices[index].executed;
    return executed;
}

uint64_t fake_queues_with(cl_uint priority)
{
    return priority <= CL_QUEUE_PRIORITY_LOW_KHR ? made_with[priority] : 0;
}

/* Every queue that is open or has work, for who flushes all of them. */
static cl_command_queue open_queues[1024];
static size_t open_count;

void fake_flush(cl_command_queue queue)
{
    for (struct command *each = queue->first; each != NULL; each = each->next)
        each->is_flushed = true;
    pthread_cond_signal(&queue->has_work);
}

void fake_flush_all(cl_context context)
{
    for (size_t index = 0; index < open_count; index++)
        if (open_queues[index]->context == context)
            fake_flush(open_queues[index]);
}

void fake_wake_queues(void)
{
    for (size_t index = 0; index < open_count; index++)
        pthread_cond_signal(&open_queues[index]->has_work);
}

void fake_queue_closed(cl_command_queue queue)
{
    queue->is_closing = true;
    pthread_cond_signal(&queue->has_work);
}

static bool may_run(cl_command_queue queue)
{
    struct command *first = queue->first;
    return first != NULL && (first->is_flushed || queue->device->is_lost);
}

/* Waits until everything is there that the command waits for; false when some of it failed. */
static bool await(cl_command_queue queue, const struct command *command)
{
    while (fake_settings.hold && !queue->device->is_lost)
        pthread_cond_wait(&fake_changed, &fake_lock);
    for (cl_uint index = 0; index < command->wait_count; index++) {
        while (command->waits[index]->status > CL_COMPLETE && !queue->device->is_lost)
            pthread_cond_wait(&fake_changed, &fake_lock);
        if (command->waits[index]->status < 0)
            return false;
    }
    return true;
}

static void destroy_command(struct command *command)
{
    for (cl_uint index = 0; index < command->wait_count; index++)
        fake_let_go(command->waits[index]);
    for (unsigned index = 0; index < command->use_count; index++)
        fake_unuse(command->uses[index]);
    if (command->event != NULL)
        fake_let_go(command->event);
    free(command->waits);
    free(command->launch);
    free(command);
}

/* Carries out the first command of a queue. Locked, but not meanwhile. */
static void run_first(cl_command_queue queue)
{
    struct command *command = queue->first;
    cl_device_id device = queue->device;
    fake_event_reaches(command->event, CL_SUBMITTED);
    cl_int status = CL_COMPLETE;
    if (!await(queue, command))
        status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    if (!device->is_lost && device->executed >= device->lost_after)
        fake_lose(device->index);
    if (device->is_lost)
        status = fake_settings.lost_status;
    if (status == CL_COMPLETE) {
        fake_event_reaches(command->event, CL_RUNNING);
        uint64_t wait_us = fake_settings.command_us;
        pthread_mutex_unlock(&fake_lock);
        if (wait_us > 0)
            usleep((useconds_t)wait_us);
        fake_execute(command);
        pthread_mutex_lock(&fake_lock);
        device->executed++;
    }
    queue->first = command->next;
    if (queue->first == NULL)
        queue->last = NULL;
    fake_event_reaches(command->event, status);
    destroy_command(command);
}

static void *work(void *argument)
{
    cl_command_queue queue = argument;
    pthread_mutex_lock(&fake_lock);
    while (!queue->is_closing || queue->first != NULL) {
        if (may_run(queue))
            run_first(queue);
        else
            pthread_cond_wait(&queue->has_work, &fake_lock);
    }
    for (size_t index = 0; index < open_count; index++)
        if (open_queues[index] == queue)
            open_queues[index--] = open_queues[--open_count];
    threads--;
    fake_let_go(queue);
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

void fake_execute(const struct command *command)
{
    if (command->launch != NULL) {
        void *values[MOST_ARGUMENTS];
        pthread_mutex_lock(&fake_lock);
        for (unsigned index = 0; index < command->launch->argument_count; index++) {
            const struct argument *argument = &command->launch->arguments[index];
            void *pointer = (void *)argument->value;
            if (argument->is_pointer) {
                memcpy(&pointer, argument->value, sizeof pointer);
                pointer = fake_bytes(pointer);
            }
            values[index] = pointer;
        }
        pthread_mutex_unlock(&fake_lock);
        fake_run(command->launch, values);
    } else if (command->from != NULL) {
        memcpy(command->to, command->from, command->bytes);
    } else if (command->pattern_bytes > 0) {
        for (size_t at = 0; at < command->bytes; at += command->pattern_bytes)
            memcpy(command->to + at, command->pattern, command->pattern_bytes);
    }
}

/* Locked. */
static cl_int check_waits(cl_command_queue queue, cl_uint count, const cl_event *waits)
{
    if (!fake_valid(queue, QUEUE))
        return CL_INVALID_COMMAND_QUEUE;
    if (queue->device->is_lost)
        return fake_settings.lost_code;
    if ((count == 0) != (waits == NULL))
        return CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint index = 0; index < count; index++) {
        if (!fake_valid(waits[index], EVENT))
            return CL_INVALID_EVENT_WAIT_LIST;
        if (waits[index]->context != queue->context)
            return CL_INVALID_CONTEXT;
    }
    return CL_SUCCESS;
}

cl_int fake_enqueue(cl_command_queue queue, struct command *command, cl_uint type, cl_uint count,
                    const cl_event *waits, cl_event *event)
{
    pthread_mutex_lock(&fake_lock);
    cl_int code = check_waits(queue, count, waits);
    if (code != CL_SUCCESS) {
        destroy_command(command);
        pthread_mutex_unlock(&fake_lock);
        return code;
    }
    command->event = fake_event(queue->context, queue, type);
    command->waits = count == 0 ? NULL : calloc(count, sizeof *waits);
    for (cl_uint index = 0; index < count; index++) {
        command->waits[index] = waits[index];
        fake_keep(waits[index]);
    }
    command->wait_count = count;
    command->is_flushed = fake_settings.eager;
    /* The event that was made belongs to the user, or to nobody; the command keeps it as well. */
    fake_keep(command->event);
    if (event != NULL) {
        *event = command->event;
    } else {
        fake_disown(command->event);
        fake_let_go(command->event);
    }
    if (queue->last == NULL)
        queue->first = command;
    else
        queue->last->next = command;
    queue->last = command;
    if (fake_settings.eager)
        pthread_cond_signal(&queue->has_work);
    pthread_mutex_unlock(&fake_lock);
    return CL_SUCCESS;
}

/* What properties ask for; false when that is nothing that can be had. */
static bool read_properties(const cl_ulong *list, cl_bitfield *properties, cl_uint *priority)
{
    *properties = 0;
    *priority = 0;
    for (; list != NULL && *list != 0; list += 2) {
        cl_ulong value = list[1];
        if (*list == CL_QUEUE_PROPERTIES) {
            *properties = value;
            /* Neither out of order nor on the device. */
            if ((value & ~(cl_ulong)CL_QUEUE_PROFILING_ENABLE) != 0)
                return false;
            if (value != 0 && !fake_settings.profiling)
                return false;
        } else if (*list == CL_QUEUE_PRIORITY_KHR && fake_settings.priorities) {
            *priority = (cl_uint)value;
            if (value != CL_QUEUE_PRIORITY_HIGH_KHR && value != CL_QUEUE_PRIORITY_MED_KHR &&
                value != CL_QUEUE_PRIORITY_LOW_KHR)
                return false;
        } else {
            return false;
        }
    }
    return true;
}

EXPORT cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                           const cl_ulong *list, cl_int *code)
{
    ENTER_MAKER(clCreateCommandQueueWithProperties, code);
    cl_bitfield properties = 0;
    cl_uint priority = 0;
    cl_int refused = CL_SUCCESS;
    pthread_mutex_lock(&fake_lock);
    if (!fake_valid(context, CONTEXT))
        refused = CL_INVALID_CONTEXT;
    else if (!fake_context_has(context, device))
        refused = CL_INVALID_DEVICE;
    else if (!read_properties(list, &properties, &priority))
        refused = CL_INVALID_QUEUE_PROPERTIES;
    else if (device->is_lost)
        refused = fake_settings.lost_code;
    if (refused != CL_SUCCESS || open_count == sizeof open_queues / sizeof *open_queues) {
        pthread_mutex_unlock(&fake_lock);
        return fake_refuse(code, refused != CL_SUCCESS ? refused : CL_OUT_OF_RESOURCES);
    }
    cl_command_queue queue = fake_make(QUEUE, sizeof *queue);
    fake_keep(context);
    fake_keep(queue); /* by its thread */
    queue->context = context;
    queue->device = device;
    queue->properties = properties;
    queue->priority = priority;
    pthread_cond_init(&queue->has_work, NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, queue) != 0)
        abort();
    pthread_detach(thread);
    threads++;
    made_with[priority]++;
    open_queues[open_count++] = queue;
    pthread_mutex_unlock(&fake_lock);
    fake_refuse(code, CL_SUCCESS);
    return queue;
}

EXPORT cl_int clRetainCommandQueue(cl_command_queue queue)
{
    ENTER(clRetainCommandQueue);
    return fake_user_retain(queue, QUEUE, CL_INVALID_COMMAND_QUEUE);
}

EXPORT cl_int clReleaseCommandQueue(cl_command_queue queue)
{
    ENTER(clReleaseCommandQueue);
    return fake_user_release(queue, QUEUE, CL_INVALID_COMMAND_QUEUE);
}

EXPORT cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_uint name, size_t room, void *into,
                                    size_t *needed)
{
    ENTER(clGetCommandQueueInfo);
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(queue, QUEUE);
    cl_uint references = is_valid ? queue->object.user_references : 0;
    pthread_mutex_unlock(&fake_lock);
    if (!is_valid)
        return CL_INVALID_COMMAND_QUEUE;
    switch (name) {
    case CL_QUEUE_CONTEXT:
        return fake_answer(&queue->context, sizeof queue->context, room, into, needed);
    case CL_QUEUE_DEVICE:
        return fake_answer(&queue->device, sizeof queue->device, room, into, needed);
    case CL_QUEUE_PROPERTIES:
        return fake_answer(&queue->properties, sizeof queue->properties, room, into, needed);
    case CL_QUEUE_REFERENCE_COUNT:
        return fake_answer(&references, sizeof references, room, into, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

/* Flushes, and with `to_the_end` waits until the queue is empty. */
static cl_int push(cl_command_queue queue, bool to_the_end)
{
    cl_int code = CL_INVALID_COMMAND_QUEUE;
    pthread_mutex_lock(&fake_lock);
    if (fake_valid(queue, QUEUE)) {
        fake_flush(queue);
        /* What is enqueued by others meanwhile is theirs: wait for the last of now. */
        struct command *last = queue->last;
        cl_event event = to_the_end && last != NULL ? last->event : NULL;
        if (event != NULL) {
            fake_keep(event);
            while (event->status > CL_COMPLETE)
                pthread_cond_wait(&fake_changed, &fake_lock);
            fake_let_go(event);
        }
        code = queue->device->is_lost ? fake_settings.lost_code : CL_SUCCESS;
    }
    pthread_mutex_unlock(&fake_lock);
    return code;
}

EXPORT cl_int clFlush(cl_command_queue queue)
{
    ENTER(clFlush);
    return fake_leave(NUMBER_clFlush, push(queue, false));
}

EXPORT cl_int clFinish(cl_command_queue queue)
{
    ENTER(clFinish);
    return fake_leave(NUMBER_clFinish, push(queue, true));
}

static cl_int enqueue_nothing(cl_command_queue queue, cl_uint type, cl_uint count,
                              const cl_event *waits, cl_event *event)
{
    struct command *command = calloc(1, sizeof *command);
    return fake_enqueue(queue, command, type, count, waits, event);
}

EXPORT cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint count,
                                          const cl_event *waits, cl_event *event)
{
    ENTER(clEnqueueMarkerWithWaitList);
    return enqueue_nothing(queue, CL_COMMAND_MARKER, count, waits, event);
}

EXPORT cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint count,
                                           const cl_event *waits, cl_event *event)
{
    ENTER(clEnqueueBarrierWithWaitList);
    return enqueue_nothing(queue, CL_COMMAND_BARRIER, count, waits, event);
}
