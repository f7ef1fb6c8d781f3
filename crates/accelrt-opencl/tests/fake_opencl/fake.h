/* What the files of the fake share: its objects, its one lock, and its settings.
 *
 * Everything here is read and written under `fake_lock`, but for what says otherwise. Functions
 * whose comment says "locked" are called with the lock held. */
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdbool.h>

#include "functions.h"
#include "opencl.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_PLATFORMS = 2, MOST_DEVICES = 8, MOST_PLANS = 16, WORD = 64, PATTERN = 128 };
enum { MOST_ARGUMENTS = 16, ARGUMENT = 64 };

extern pthread_mutex_t fake_lock;
/* Told when a command ends, a device is lost, or a setting changes. */
extern pthread_cond_t fake_changed;

/* --- settings.c --- */

/* A list in a setting: "gpu:cpu" gives device 0 the first word, every later one the last. */
struct plan {
    enum function function;
    uint64_t calls_left; /* calls that succeed before */
    bool forever;
    cl_int code;
};

struct settings {
    unsigned platforms, devices;
    char type[WORD], usm[WORD], missing[WORD], name[WORD];
    bool priorities, profiling, threads_at_probe, eager, shared;
    bool strict; /* a broken rule ends the process */
    bool hold, hold_callbacks, inline_callbacks;
    uint64_t memory, most_alloc, most_align, command_us;
    cl_int lost_code, lost_status;
    struct plan plans[MOST_PLANS];
    unsigned plan_count;
};

extern struct settings fake_settings;

/* Counts the call and says whether a plan refuses it; takes the lock itself. A refused call stops
 * here, if one is to. */
cl_int fake_enter(enum function function);
/* Stops a call whose effect has happened, if one of its function is to; takes the lock itself. */
cl_int fake_leave(enum function function, cl_int code);
#define ENTER(name)                                                                                \
    do {                                                                                           \
        cl_int refused_ = fake_enter(NUMBER_##name);                                               \
        if (refused_ != CL_SUCCESS)                                                                \
            return refused_;                                                                       \
    } while (0)
/* For functions that return what they made. */
#define ENTER_MAKER(name, code)                                                                    \
    do {                                                                                           \
        cl_int refused_ = fake_enter(NUMBER_##name);                                               \
        if (refused_ != CL_SUCCESS)                                                                \
            return fake_refuse(code, refused_);                                                    \
    } while (0)

/* Stores a code where the caller wants it, and returns nothing. */
void *fake_refuse(cl_int *code, cl_int value);
/* The `index`-th word of a list is `word`. */
bool fake_list_has(const char *list, unsigned index, const char *word);
/* The caller broke a rule of OpenCL: said on stderr and counted. Locked. */
void fake_violation(const char *text, const void *what);
/* Answers a query as every clGet…Info does. */
cl_int fake_answer(const void *value, size_t bytes, size_t room, void *into, size_t *needed);
cl_int fake_answer_text(const char *text, size_t room, void *into, size_t *needed);

/* --- object.c --- */

enum kind { CONTEXT = 1, QUEUE, EVENT, PROGRAM, KERNEL, KIND_COUNT };

/* Begins every object. `references` are the users' and the fake's own together. */
struct object {
    uint32_t magic;
    enum kind kind;
    unsigned user_references, references;
};

/* Locked, all of them. */
void *fake_make(enum kind kind, size_t bytes);
bool fake_valid(const void *object, enum kind kind);
void fake_keep(void *object);
void fake_let_go(void *object);
/* A user gives a reference up; the caller lets go of it then. */
void fake_disown(void *object);
/* Objects that users hold; objects that nobody but the fake does. */
unsigned fake_held(enum kind kind);
unsigned fake_ghosts(void);
/* These take the lock. */
cl_int fake_user_retain(void *object, enum kind kind, cl_int invalid);
cl_int fake_user_release(void *object, enum kind kind, cl_int invalid);

/* --- platform.c --- */

struct _cl_platform_id {
    uint32_t magic;
    unsigned index;
};

struct _cl_device_id {
    uint32_t magic;
    unsigned index; /* over all platforms */
    cl_platform_id platform;
    bool is_lost;
    uint64_t executed, lost_after;
    uint64_t used_bytes;
};

extern struct _cl_device_id fake_devices[MOST_PLATFORMS * MOST_DEVICES];

bool fake_is_device(cl_device_id device);
bool fake_device_has_usm(cl_device_id device);
/* Locked. */
void fake_lose(unsigned index);

struct _cl_context {
    struct object object;
    cl_uint device_count;
    cl_device_id devices[MOST_DEVICES];
};

bool fake_context_has(cl_context context, cl_device_id device);

/* --- event.c --- */

struct callback {
    struct callback *next;
    event_callback function;
    void *data;
    cl_event event;
    cl_int type, status;
};

struct _cl_event {
    struct object object;
    cl_context context;
    cl_command_queue queue;   /* only a name once the command has ended */
    bool is_pending, is_profiled;
    cl_uint type;
    cl_int status;
    cl_ulong times[4]; /* queued, submitted, started, ended */
    struct callback *callbacks;
};

/* Locked. */
cl_event fake_event(cl_context context, cl_command_queue queue, cl_uint type);
void fake_event_reaches(cl_event event, cl_int status);
void fake_event_destroyed(cl_event event);
/* The device's clock: another one on each device, none the host's. */
cl_ulong fake_now(cl_device_id device);

/* --- memory.c --- */

struct allocation {
    char *address; /* what the program sees; of device memory unreadable */
    char *bytes;   /* where the bytes are */
    size_t size, mapped_bytes, shadow_bytes;
    cl_uint type;
    cl_device_id device; /* none of host memory */
    cl_context context;
    unsigned uses; /* of commands that have not ended */
    bool is_freed;
};

/* Locked. The allocation that the address is in, or none. */
struct allocation *fake_find(const void *address);
/* Where the bytes of an address are: for memory of others the address itself. Locked. */
void *fake_bytes(const void *address);
/* A command begins and ends to use memory; false for a range that leaves its allocation. Locked. */
bool fake_use(const void *address, size_t size, struct allocation **use);
void fake_unuse(struct allocation *use);
uint64_t fake_allocations(uint64_t *bytes);

/* --- kernel.c, program.c --- */

struct parameter {
    char type[WORD], name[WORD];
    cl_uint address, qualifiers;
};

struct argument {
    bool is_set, is_pointer;
    size_t size;
    unsigned char value[ARGUMENT];
};

/* One launch: arguments as they were when it was enqueued. */
struct launch {
    const struct builtin *builtin;
    struct argument arguments[MOST_ARGUMENTS];
    unsigned argument_count;
    cl_uint dimensions;
    size_t offset[3], global[3], local[3];
};

struct builtin {
    const char *name;
    unsigned parameter_count;
    /* Which parameters are pointers, first one in bit 0. */
    unsigned pointers;
    /* Size of each parameter that is none; 0 for any. */
    size_t sizes[MOST_ARGUMENTS];
    void (*run)(const struct launch *launch, void *const *values);
};

const struct builtin *fake_builtin(const char *name);
const char *fake_builtin_names(void);
void fake_run(const struct launch *launch, void *const *values);

struct definition {
    char name[WORD];
    const struct builtin *builtin;
    unsigned parameter_count;
    struct parameter parameters[MOST_ARGUMENTS];
};

struct _cl_program {
    struct object object;
    cl_context context;
    char *source, *log;
    char options[256];
    bool is_intermediate, has_argument_info;
    cl_int status;
    unsigned definition_count;
    struct definition *definitions;
};

struct _cl_kernel {
    struct object object;
    cl_program program;
    const struct definition *definition;
    struct argument arguments[MOST_ARGUMENTS];
    int users; /* threads inside a function that sets or reads arguments */
};

void fake_program_destroyed(cl_program program);

/* --- parse.c --- */

/* Finds the kernels of a source; false with a log when one is not known. */
bool fake_compile(const char *source, struct definition **found, unsigned *count, char **log);

/* --- queue.c --- */

struct command {
    struct command *next;
    cl_event event;
    cl_event *waits;
    cl_uint wait_count;
    bool is_flushed;
    char *to;
    const char *from;
    size_t bytes, pattern_bytes;
    unsigned char pattern[PATTERN];
    struct launch *launch;
    struct allocation *uses[MOST_ARGUMENTS];
    unsigned use_count;
};

struct _cl_command_queue {
    struct object object;
    cl_context context;
    cl_device_id device;
    cl_bitfield properties;
    cl_uint priority;
    struct command *first, *last;
    pthread_cond_t has_work;
    bool is_closing;
};

/* Locked. */
void fake_flush(cl_command_queue queue);
void fake_flush_all(cl_context context);
void fake_wake_queues(void);
void fake_queue_closed(cl_command_queue queue);
uint64_t fake_queues_with(cl_uint priority);
/* Commands that devices carried out. Locked. */
uint64_t fake_executed(void);
uint64_t fake_threads(void);
void fake_thread_counts(int change);

/* Puts a command at the end of a queue; takes it whatever it returns. Takes the lock. */
cl_int fake_enqueue(cl_command_queue queue, struct command *command, cl_uint type, cl_uint count,
                    const cl_event *waits, cl_event *event);
/* Carries out a command. Not locked. */
void fake_execute(const struct command *command);


#endif
