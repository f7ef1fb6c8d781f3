/* The kind `npu` once more, in C: what a vendor's driver exports to be a kind of accelrt.
 *
 * A pool of threads executes the commands of streams later. Addresses of devices are numbers that no
 * processor can dereference; only the pool translates them. One lock guards everything; commands run
 * outside of it. Build: cc -std=c11 -shared -fPIC -pthread -I../../../include npu.c -o libnpu.so */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accelrt_backend.h"

#ifndef NPU_DEVICES
#define NPU_DEVICES 2
#endif

enum { DEVICES = NPU_DEVICES, THREADS = 4, LEAST_ALIGN = 64 };

static const uint64_t CAPACITY = 256ull << 20;
static const uint64_t FIRST_ADDRESS = 1ull << 62;
static const int DEVICE_SHIFT = 48;

typedef struct callback {
    void (*function)(void *data);
    void *data;
    struct callback *next;
} callback;

/* A place in a stream. Held by its number, by the command that reaches it and by waits. */
typedef struct mark {
    uint64_t number; /* 0: given back */
    int holders;
    bool is_reached;
    struct timespec time;
    callback *callbacks;
    struct mark *next;
} mark;

typedef enum { COPY, FILL, WAIT, REACH } operation;

typedef struct command {
    operation operation;
    uint64_t to, from, bytes;
    int byte;
    mark *mark;
    struct command *next;
} command;

typedef struct stream {
    uint64_t number;
    int32_t priority;
    command *first, **last;
    uint64_t submitted, done;
    bool is_busy, is_destroyed;
    struct stream *next;
} stream;

typedef struct allocation {
    uint64_t address, bytes;
    int device; /* -1: the host's */
    bool is_shared;
    void *storage;
    struct allocation *next;
} allocation;

typedef struct npu {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a command was submitted or executed */
    stream *streams;
    mark *marks;
    allocation *allocations;
    uint64_t last_number, next_address[DEVICES], used[DEVICES];
    pthread_t threads[THREADS];
    int thread_count;
    bool is_stopped;
} npu;

static int refuse(accelrt_backend_error_record *error, int64_t code, const char *text) {
    error->code = code;
    snprintf(error->text, sizeof error->text, "%s", text);
    return ACCELRT_BACKEND_REFUSED;
}

static int no_memory_of_host(accelrt_backend_error_record *error) {
    return refuse(error, ENOMEM, "the system has no memory");
}

/* --- Memory. --- */

static allocation *holding(npu *self, uint64_t address) {
    for (allocation *it = self->allocations; it; it = it->next)
        if (address - it->address < it->bytes) return it;
    return NULL;
}

/* Where the bytes are; what is no address of a device is memory of the process. */
static unsigned char *translate(npu *self, uint64_t address) {
    pthread_mutex_lock(&self->lock);
    allocation *found = holding(self, address);
    unsigned char *bytes = found ? (unsigned char *)found->storage + (address - found->address)
                                 : (unsigned char *)(uintptr_t)address;
    pthread_mutex_unlock(&self->lock);
    return bytes;
}

static allocation *make_allocation(uint64_t bytes, uint64_t align_bytes, int device) {
    allocation *made = malloc(sizeof *made);
    if (!made) return NULL;
    size_t align = align_bytes < LEAST_ALIGN ? LEAST_ALIGN : (size_t)align_bytes;
    if (posix_memalign(&made->storage, align, (size_t)bytes) != 0) {
        free(made);
        return NULL;
    }
    made->bytes = bytes;
    made->device = device;
    made->is_shared = false;
    made->address = (uint64_t)(uintptr_t)made->storage;
    return made;
}

/* Of the device alone, at an address of its own; or shared, at that of the storage. */
static int allocate(npu *self, uint64_t device, uint64_t bytes, uint64_t align_bytes,
                    bool is_shared, uint64_t *address, accelrt_backend_error_record *error) {
    int status = ACCELRT_BACKEND_OUT_OF_MEMORY;
    pthread_mutex_lock(&self->lock);
    error->total_bytes = CAPACITY;
    error->free_bytes = CAPACITY - self->used[device];
    allocation *made = NULL;
    uint64_t align = align_bytes < LEAST_ALIGN ? LEAST_ALIGN : align_bytes;
    if (bytes <= error->free_bytes)
        made = make_allocation(bytes, is_shared ? align : LEAST_ALIGN, (int)device);
    if (made) {
        made->is_shared = is_shared;
        if (!is_shared) {
            made->address = (self->next_address[device] + align - 1) / align * align;
            self->next_address[device] = made->address + bytes;
        }
        self->used[device] += bytes;
        made->next = self->allocations;
        self->allocations = made;
        *address = made->address;
        status = ACCELRT_BACKEND_OK;
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}

static int npu_allocate(void *instance, uint64_t device, uint64_t bytes, uint64_t align_bytes,
                        uint64_t *address, accelrt_backend_error_record *error) {
    return allocate(instance, device, bytes, align_bytes, false, address, error);
}

static int npu_allocate_shared(void *instance, uint64_t device, uint64_t bytes,
                               uint64_t align_bytes, uint64_t *address,
                               accelrt_backend_error_record *error) {
    return allocate(instance, device, bytes, align_bytes, true, address, error);
}

static int npu_allocate_host(void *instance, uint64_t bytes, uint64_t align_bytes,
                             uint64_t *address, accelrt_backend_error_record *error) {
    npu *self = instance;
    allocation *made = make_allocation(bytes, align_bytes, -1);
    if (!made) return no_memory_of_host(error);
    *address = made->address;
    pthread_mutex_lock(&self->lock);
    made->next = self->allocations;
    self->allocations = made;
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_release_host(void *instance, uint64_t address, accelrt_backend_error_record *error) {
    npu *self = instance;
    allocation *found = NULL;
    pthread_mutex_lock(&self->lock);
    for (allocation **it = &self->allocations; *it; it = &(*it)->next) {
        if ((*it)->address == address) {
            found = *it;
            *it = found->next;
            break;
        }
    }
    if (found && found->device >= 0) self->used[found->device] -= found->bytes;
    pthread_mutex_unlock(&self->lock);
    if (!found) return refuse(error, EINVAL, "no allocation begins there");
    free(found->storage);
    free(found);
    return ACCELRT_BACKEND_OK;
}

static int npu_release(void *instance, uint64_t device, uint64_t address,
                       accelrt_backend_error_record *error) {
    (void)device;
    return npu_release_host(instance, address, error);
}

static int npu_pointer_owner(void *instance, uint64_t address, accelrt_backend_owner *owner,
                             accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    allocation *found = holding(self, address);
    if (found) {
        owner->base = found->address;
        owner->bytes = found->bytes;
        owner->device = found->device < 0 ? 0 : (uint64_t)found->device;
        owner->memory = found->device < 0  ? ACCELRT_BACKEND_MEMORY_HOST
                        : found->is_shared ? ACCELRT_BACKEND_MEMORY_SHARED
                                           : ACCELRT_BACKEND_MEMORY_DEVICE;
    }
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_memory_info(void *instance, uint64_t device, uint64_t *free_bytes,
                           uint64_t *total_bytes, accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    *free_bytes = CAPACITY - self->used[device];
    pthread_mutex_unlock(&self->lock);
    *total_bytes = CAPACITY;
    return ACCELRT_BACKEND_OK;
}

/* --- Marks, with the lock held unless said. --- */

static void let_go(npu *self, mark *it) {
    if (--it->holders > 0) return;
    for (mark **place = &self->marks; *place; place = &(*place)->next) {
        if (*place == it) {
            *place = it->next;
            break;
        }
    }
    free(it);
}

static mark *find_mark(npu *self, uint64_t number) {
    mark *it = self->marks;
    while (it->number != number) it = it->next; /* live, as the caller promises */
    return it;
}

static stream *find_stream(npu *self, uint64_t number) {
    stream *it = self->streams;
    while (it && it->number != number) it = it->next;
    return it;
}

/* --- The pool, with the lock held. --- */

static void remove_if_over(npu *self, stream *it) {
    if (!it->is_destroyed || it->done < it->submitted) return;
    stream **place = &self->streams;
    while (*place != it) place = &(*place)->next;
    *place = it->next;
    free(it);
}

/* The next command of the most urgent stream that no thread is in. */
static command *take(npu *self, stream **of) {
    *of = NULL;
    for (stream *it = self->streams; it; it = it->next) {
        bool is_ready = it->first && !it->is_busy &&
                        (it->first->operation != WAIT || it->first->mark->is_reached);
        if (is_ready && (!*of || it->priority < (*of)->priority)) *of = it;
    }
    if (!*of) return NULL;
    command *taken = (*of)->first;
    (*of)->first = taken->next;
    if (!taken->next) (*of)->last = &(*of)->first;
    (*of)->is_busy = true;
    return taken;
}

/* Calls its callbacks without the lock. */
static void reach(npu *self, mark *it) {
    pthread_mutex_lock(&self->lock);
    clock_gettime(CLOCK_MONOTONIC, &it->time);
    it->is_reached = true;
    callback *first = it->callbacks;
    it->callbacks = NULL;
    pthread_mutex_unlock(&self->lock);
    while (first) {
        callback *next = first->next;
        first->function(first->data);
        free(first);
        first = next;
    }
}

static void run(npu *self, command *it) {
    switch (it->operation) {
    case COPY:
        memcpy(translate(self, it->to), translate(self, it->from), (size_t)it->bytes);
        break;
    case FILL:
        memset(translate(self, it->to), it->byte, (size_t)it->bytes);
        break;
    case WAIT: /* taken when it was reached */
        break;
    case REACH:
        reach(self, it->mark);
        break;
    }
}

/* Executes commands until the pool is stopped and nothing is left. */
static void execute(npu *self) {
    pthread_mutex_lock(&self->lock);
    for (;;) {
        stream *of;
        command *taken = take(self, &of);
        if (taken) {
            pthread_mutex_unlock(&self->lock);
            run(self, taken);
            pthread_mutex_lock(&self->lock);
            if (taken->mark) let_go(self, taken->mark);
            free(taken);
            of->is_busy = false;
            of->done += 1;
            remove_if_over(self, of);
            pthread_cond_broadcast(&self->changed);
        } else if (self->is_stopped) {
            break;
        } else {
            pthread_cond_wait(&self->changed, &self->lock);
        }
    }
    pthread_mutex_unlock(&self->lock);
}

static void *thread_main(void *instance) {
    execute(instance);
    return NULL;
}

/* Enqueues a copy of the command. */
static int submit(npu *self, uint64_t number, command it, accelrt_backend_error_record *error) {
    command *made = malloc(sizeof *made);
    if (!made) return no_memory_of_host(error);
    *made = it;
    made->next = NULL;
    pthread_mutex_lock(&self->lock);
    stream *to = find_stream(self, number);
    if (made->mark) made->mark->holders += 1;
    *to->last = made;
    to->last = &made->next;
    to->submitted += 1;
    bool is_stopped = self->is_stopped;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (is_stopped) execute(self); /* no thread is left: this one does what can be done */
    return ACCELRT_BACKEND_OK;
}

/* --- Streams. --- */

static int npu_stream_create(void *instance, uint64_t device, int32_t priority, uint64_t *number,
                             accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)device;
    stream *made = calloc(1, sizeof *made);
    if (!made) return no_memory_of_host(error);
    pthread_mutex_lock(&self->lock);
    int refusal = 0;
    while (!refusal && self->thread_count < THREADS && !self->is_stopped) {
        refusal = pthread_create(&self->threads[self->thread_count], NULL, thread_main, self);
        if (!refusal) self->thread_count += 1;
    }
    made->number = *number = ++self->last_number;
    made->priority = priority;
    made->last = &made->first;
    made->next = self->streams;
    if (!refusal) self->streams = made;
    pthread_mutex_unlock(&self->lock);
    if (!refusal) return ACCELRT_BACKEND_OK;
    free(made);
    return refuse(error, refusal, "no thread can be started");
}

static int npu_stream_destroy(void *instance, uint64_t number, accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    stream *it = find_stream(self, number);
    it->is_destroyed = true;
    remove_if_over(self, it);
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_stream_query(void *instance, uint64_t number, uint32_t *is_idle,
                            accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    stream *it = find_stream(self, number);
    *is_idle = it->done == it->submitted;
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_stream_synchronize(void *instance, uint64_t number, accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    uint64_t end = find_stream(self, number)->submitted;
    for (stream *it; (it = find_stream(self, number)) && it->done < end;)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_mark(void *instance, uint64_t number, uint32_t timed, uint64_t *handle,
                    accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)timed; /* each has a time here */
    mark *made = calloc(1, sizeof *made);
    if (!made) return no_memory_of_host(error);
    made->holders = 1;
    pthread_mutex_lock(&self->lock);
    made->number = *handle = ++self->last_number;
    made->next = self->marks;
    self->marks = made;
    pthread_mutex_unlock(&self->lock);
    int status = submit(self, number, (command){.operation = REACH, .mark = made}, error);
    if (status != ACCELRT_BACKEND_OK) {
        pthread_mutex_lock(&self->lock);
        let_go(self, made);
        pthread_mutex_unlock(&self->lock);
    }
    return status;
}

static int npu_mark_done(void *instance, uint64_t handle, uint32_t *is_done,
                         accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    *is_done = find_mark(self, handle)->is_reached;
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_wait_mark(void *instance, uint64_t handle, accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    mark *it = find_mark(self, handle);
    it->holders += 1;
    while (!it->is_reached) pthread_cond_wait(&self->changed, &self->lock);
    let_go(self, it);
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_stream_wait(void *instance, uint64_t number, uint64_t handle,
                           accelrt_backend_error_record *error) {
    npu *self = instance;
    pthread_mutex_lock(&self->lock);
    mark *it = find_mark(self, handle); /* live until this returns */
    pthread_mutex_unlock(&self->lock);
    return submit(self, number, (command){.operation = WAIT, .mark = it}, error);
}

static int npu_when_done(void *instance, uint64_t handle, void (*function)(void *data), void *data,
                         accelrt_backend_error_record *error) {
    npu *self = instance;
    callback *made = malloc(sizeof *made);
    if (!made) return no_memory_of_host(error);
    made->function = function;
    made->data = data;
    pthread_mutex_lock(&self->lock);
    mark *it = find_mark(self, handle);
    bool is_reached = it->is_reached;
    made->next = it->callbacks;
    if (!is_reached) it->callbacks = made;
    pthread_mutex_unlock(&self->lock);
    if (is_reached) {
        function(data);
        free(made);
    }
    return ACCELRT_BACKEND_OK;
}

static int npu_elapsed_ns(void *instance, uint64_t start, uint64_t end, int64_t *elapsed_ns,
                          accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    struct timespec from = find_mark(self, start)->time, to = find_mark(self, end)->time;
    pthread_mutex_unlock(&self->lock);
    *elapsed_ns = (to.tv_sec - from.tv_sec) * 1000000000ll + (to.tv_nsec - from.tv_nsec);
    return ACCELRT_BACKEND_OK;
}

static int npu_mark_release(void *instance, uint64_t handle, accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    mark *it = find_mark(self, handle);
    it->number = 0;
    let_go(self, it);
    pthread_mutex_unlock(&self->lock);
    return ACCELRT_BACKEND_OK;
}

static int npu_copy(void *instance, uint64_t number, uint64_t to, uint64_t from, uint64_t bytes,
                    accelrt_backend_error_record *error) {
    command it = {.operation = COPY, .to = to, .from = from, .bytes = bytes};
    return submit(instance, number, it, error);
}

static int npu_fill(void *instance, uint64_t number, uint64_t to, uint32_t byte, uint64_t bytes,
                    accelrt_backend_error_record *error) {
#ifdef NPU_FILL_SHORT /* breaks its word, to be found out */
    bytes -= 1;
#endif
    command it = {.operation = FILL, .to = to, .byte = (int)byte, .bytes = bytes};
    return submit(instance, number, it, error);
}

/* --- The instance, and what exists. --- */

static int npu_open(void *data, void **instance, accelrt_backend_error_record *error) {
    (void)data;
    npu *self = calloc(1, sizeof *self);
    if (!self) return no_memory_of_host(error);
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    for (uint64_t device = 0; device < DEVICES; device++)
        self->next_address[device] = FIRST_ADDRESS + (device << DEVICE_SHIFT);
    *instance = self;
    return ACCELRT_BACKEND_OK;
}

static int npu_shutdown(void *instance, accelrt_backend_error_record *error) {
    npu *self = instance;
    (void)error;
    pthread_mutex_lock(&self->lock);
    self->is_stopped = true;
    int count = self->thread_count;
    self->thread_count = 0;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    for (int thread = 0; thread < count; thread++) pthread_join(self->threads[thread], NULL);
    return ACCELRT_BACKEND_OK;
}

static void npu_close(void *instance) {
    npu *self = instance;
    accelrt_backend_error_record ignored;
    npu_shutdown(self, &ignored);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static int npu_device_count(void *instance, uint64_t *count, accelrt_backend_error_record *error) {
    (void)instance;
    (void)error;
    *count = DEVICES;
    return ACCELRT_BACKEND_OK;
}

static int npu_properties(void *instance, uint64_t device, accelrt_backend_properties *properties,
                          accelrt_backend_error_record *error) {
    (void)instance;
    (void)device;
    (void)error;
    snprintf(properties->name, sizeof properties->name, "Example NPU in C");
    properties->total_memory_bytes = CAPACITY;
    properties->has_shared_memory = 1;
    return ACCELRT_BACKEND_OK;
}

static int npu_priority_range(void *instance, uint64_t device, int32_t *least, int32_t *greatest,
                              accelrt_backend_error_record *error) {
    (void)instance;
    (void)device;
    (void)error;
    *least = 1;
    *greatest = -1;
    return ACCELRT_BACKEND_OK;
}

#ifndef NPU_NAME
#define NPU_NAME "npu"
#define NPU_TYPE_CODE 64
#endif

static const accelrt_backend TABLE = {
    .size_bytes = sizeof(accelrt_backend),
    .abi_version = ACCELRT_BACKEND_ABI_VERSION,
    .type_code = NPU_TYPE_CODE,
    .name = NPU_NAME,
    .open = npu_open,
    .close = npu_close,
    .device_count = npu_device_count,
    .properties = npu_properties,
    .memory_info = npu_memory_info,
    .priority_range = npu_priority_range,
    .stream_create = npu_stream_create,
    .stream_destroy = npu_stream_destroy,
    .stream_query = npu_stream_query,
    .stream_synchronize = npu_stream_synchronize,
    .mark = npu_mark,
    .mark_done = npu_mark_done,
    .wait_mark = npu_wait_mark,
    .stream_wait = npu_stream_wait,
    .when_done = npu_when_done,
    .elapsed_ns = npu_elapsed_ns,
    .mark_release = npu_mark_release,
    .allocate = npu_allocate,
    .allocate_shared = npu_allocate_shared,
    .release = npu_release,
    .allocate_host = npu_allocate_host,
    .release_host = npu_release_host,
    .pointer_owner = npu_pointer_owner,
    .copy = npu_copy,
    .fill = npu_fill,
    .shutdown = npu_shutdown,
};

const accelrt_backend *accelrt_backend_table(uint32_t abi_version) {
    return abi_version == ACCELRT_BACKEND_ABI_VERSION ? &TABLE : NULL;
}
