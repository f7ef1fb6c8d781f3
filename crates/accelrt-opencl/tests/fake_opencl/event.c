/* Events: where a command stands, what waits for it, and callbacks from a thread of their own. */
#include <stdlib.h>
#include <time.h>

#include "fake.h"

/* Callbacks that are due, in order. */
static struct callback *due, **due_end = &due;
static pthread_cond_t is_due = PTHREAD_COND_INITIALIZER;
static bool has_dispatcher;

cl_ulong fake_now(cl_device_id device)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    cl_ulong ns = (cl_ulong)now.tv_sec * 1000000000u + (cl_ulong)now.tv_nsec;
    return ns + (device->index + 1) * 1000000000000u;
}

cl_event fake_event(cl_context context, cl_command_queue queue, cl_uint type)
{
    cl_event event = fake_make(EVENT, sizeof *event);
    fake_keep(context);
    event->context = context;
    event->queue = queue;
    event->is_pending = true;
    event->is_profiled = (queue->properties & CL_QUEUE_PROFILING_ENABLE) != 0;
    event->type = type;
    event->status = CL_QUEUED;
    event->times[0] = fake_now(queue->device);
    return event;
}

/* Calls what is due. With `hold_callbacks` nothing is called until that ends: it comes late. */
static void *dispatch(void *nothing)
{
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        while (due == NULL)
            pthread_cond_wait(&is_due, &fake_lock);
        while (fake_settings.hold_callbacks)
            pthread_cond_wait(&fake_changed, &fake_lock);
        struct callback *callback = due;
        due = callback->next;
        if (due == NULL)
            due_end = &due;
        pthread_mutex_unlock(&fake_lock);
        callback->function(callback->event, callback->status, callback->data);
        pthread_mutex_lock(&fake_lock);
        fake_let_go(callback->event);
        free(callback);
    }
    return nothing;
}

static void post(struct callback *callback, cl_int status)
{
    pthread_t thread;
    callback->next = NULL;
    callback->status = status < 0 ? status : callback->type;
    *due_end = callback;
    due_end = &callback->next;
    if (!has_dispatcher && pthread_create(&thread, NULL, dispatch, NULL) == 0) {
        pthread_detach(thread);
        has_dispatcher = true;
        fake_thread_counts(1);
    }
    pthread_cond_signal(&is_due);
}

void fake_event_reaches(cl_event event, cl_int status)
{
    event->status = status;
    if (event->is_pending && status <= CL_SUBMITTED) {
        cl_ulong now = fake_now(event->queue->device);
        /* An end without a start is a command that was never carried out. */
        for (int time = status == CL_SUBMITTED ? 1 : status == CL_RUNNING ? 2 : 3; time < 4; time++)
            event->times[time] = now;
    }
    if (status <= CL_COMPLETE)
        event->is_pending = false;
    struct callback **place = &event->callbacks;
    while (*place != NULL) {
        struct callback *callback = *place;
        if (status > callback->type) {
            place = &callback->next;
            continue;
        }
        *place = callback->next;
        post(callback, status);
    }
    pthread_cond_broadcast(&fake_changed);
}

void fake_event_destroyed(cl_event event)
{
    fake_let_go(event->context);
}

EXPORT cl_int clSetEventCallback(cl_event event, cl_int type, event_callback function, void *data)
{
    ENTER(clSetEventCallback);
    if (function == NULL || type < CL_COMPLETE || type > CL_SUBMITTED)
        return CL_INVALID_VALUE;
    struct callback *callback = calloc(1, sizeof *callback);
    *callback = (struct callback){NULL, function, data, event, type, 0};
    pthread_mutex_lock(&fake_lock);
    if (!fake_valid(event, EVENT)) {
        pthread_mutex_unlock(&fake_lock);
        free(callback);
        return CL_INVALID_EVENT;
    }
    cl_int status = event->status;
    bool is_now = status <= type;
    if (is_now && fake_settings.inline_callbacks) {
        /* On the caller's stack, before this returns: the specification allows it. */
        pthread_mutex_unlock(&fake_lock);
        function(event, status < 0 ? status : type, data);
        free(callback);
        return CL_SUCCESS;
    }
    fake_keep(event);
    if (is_now) {
        post(callback, status);
    } else {
        callback->next = event->callbacks;
        event->callbacks = callback;
    }
    pthread_mutex_unlock(&fake_lock);
    return CL_SUCCESS;
}

EXPORT cl_int clWaitForEvents(cl_uint count, const cl_event *events)
{
    ENTER(clWaitForEvents);
    if (count == 0 || events == NULL)
        return CL_INVALID_VALUE;
    cl_int code = CL_SUCCESS;
    pthread_mutex_lock(&fake_lock);
    for (cl_uint index = 0; index < count; index++) {
        if (!fake_valid(events[index], EVENT)) {
            pthread_mutex_unlock(&fake_lock);
            return CL_INVALID_EVENT;
        }
        fake_keep(events[index]);
        if (events[index]->is_pending)
            fake_flush(events[index]->queue);
    }
    for (cl_uint index = 0; index < count; index++) {
        while (events[index]->status > CL_COMPLETE)
            pthread_cond_wait(&fake_changed, &fake_lock);
        if (events[index]->status < 0)
            code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        fake_let_go(events[index]);
    }
    pthread_mutex_unlock(&fake_lock);
    return code;
}

EXPORT cl_int clGetEventInfo(cl_event event, cl_uint name, size_t room, void *into, size_t *needed)
{
    ENTER(clGetEventInfo);
    pthread_mutex_lock(&fake_lock);
    if (!fake_valid(event, EVENT)) {
        pthread_mutex_unlock(&fake_lock);
        return CL_INVALID_EVENT;
    }
    cl_int code = CL_INVALID_VALUE;
    switch (name) {
    case CL_EVENT_COMMAND_EXECUTION_STATUS:
        code = fake_answer(&event->status, sizeof event->status, room, into, needed);
        break;
    case CL_EVENT_COMMAND_QUEUE:
        code = fake_answer(&event->queue, sizeof event->queue, room, into, needed);
        break;
    case CL_EVENT_COMMAND_TYPE:
        code = fake_answer(&event->type, sizeof event->type, room, into, needed);
        break;
    case CL_EVENT_REFERENCE_COUNT:
        code = fake_answer(&event->object.user_references, sizeof(cl_uint), room, into, needed);
        break;
    case CL_EVENT_CONTEXT:
        code = fake_answer(&event->context, sizeof event->context, room, into, needed);
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&fake_lock);
    return code;
}

EXPORT cl_int clGetEventProfilingInfo(cl_event event, cl_uint name, size_t room, void *into,
                                      size_t *needed)
{
    ENTER(clGetEventProfilingInfo);
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(event, EVENT);
    bool is_there = is_valid && event->is_profiled && event->status == CL_COMPLETE;
    pthread_mutex_unlock(&fake_lock);
    if (!is_valid)
        return CL_INVALID_EVENT;
    if (!is_there)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    if (name < CL_PROFILING_COMMAND_QUEUED || name > CL_PROFILING_COMMAND_COMPLETE)
        return CL_INVALID_VALUE;
    cl_uint index = name == CL_PROFILING_COMMAND_COMPLETE ? 3 : name - CL_PROFILING_COMMAND_QUEUED;
    return fake_answer(&event->times[index], sizeof *event->times, room, into, needed);
}

EXPORT cl_int clRetainEvent(cl_event event)
{
    ENTER(clRetainEvent);
    return fake_user_retain(event, EVENT, CL_INVALID_EVENT);
}

EXPORT cl_int clReleaseEvent(cl_event event)
{
    ENTER(clReleaseEvent);
    return fake_user_release(event, EVENT, CL_INVALID_EVENT);
}
