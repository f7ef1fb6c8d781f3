/* How the fake behaves: FAKE_OPENCL, fake_opencl_configure, planned failures, counts of calls. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

struct settings fake_settings = {
    .platforms = 1,
    .devices = 1,
    .type = "gpu",
    .usm = "1",
    .shared = true,
    .name = "Fake device",
    .profiling = true,
    .memory = 256u << 20,
    .most_align = 65536,
    .lost_code = CL_OUT_OF_RESOURCES,
    .lost_status = -777, /* what Intel's driver says of a GPU that hangs */
};

#define NAME_OF(name) #name,
static const char *const names[] = {CORE_FUNCTIONS(NAME_OF) EXTENSION_FUNCTIONS(NAME_OF)};
/* Written under the lock and read without: in a forked child nobody may give the lock back. */
static uint64_t calls[FUNCTION_COUNT];
static uint64_t violations;
static enum { GOES, IS_TO_STOP, IS_STOPPED } stops[FUNCTION_COUNT];
static pthread_once_t read_once = PTHREAD_ONCE_INIT;

static bool find_function(const char *name, size_t length, enum function *found)
{
    for (int number = 0; number < FUNCTION_COUNT; number++)
        if (strlen(names[number]) == length && strncmp(names[number], name, length) == 0) {
            *found = (enum function)number;
            return true;
        }
    return false;
}

/* A number, with K, M or G behind it for binary multiples. */
static bool parse_number(const char *text, uint64_t *number)
{
    char *end = NULL;
    *number = strtoull(text, &end, 10);
    if (end == text)
        return false;
    switch (*end) {
    case 'G':
        *number <<= 10; /* falls through */
    case 'M':
        *number <<= 10; /* falls through */
    case 'K':
        *number <<= 10;
        end++;
        break;
    default:
        break;
    }
    return *end == '\0';
}

/* NAME:n:code, the n-th call from now on, counted from 1; NAME:n+:code, that and all later ones. */
static bool parse_plan(const char *text)
{
    const char *colon = strchr(text, ':');
    struct plan plan = {0};
    char *end = NULL;
    if (colon == NULL || !find_function(text, (size_t)(colon - text), &plan.function))
        return false;
    uint64_t nth = strtoull(colon + 1, &end, 10);
    plan.forever = *end == '+';
    end += plan.forever;
    if (nth == 0 || *end != ':' || fake_settings.plan_count == MOST_PLANS)
        return false;
    plan.calls_left = nth - 1;
    plan.code = (cl_int)strtol(end + 1, &end, 10);
    if (*end != '\0' || plan.code >= 0)
        return false;
    fake_settings.plans[fake_settings.plan_count++] = plan;
    return true;
}

/* now, now:DEVICE, after:COMMANDS, after:COMMANDS:DEVICE */
static bool parse_loss(const char *text)
{
    unsigned long long commands = 0;
    unsigned device = 0;
    bool is_now = strncmp(text, "now", 3) == 0;
    if (is_now)
        sscanf(text, "now:%u", &device);
    else if (sscanf(text, "after:%llu:%u", &commands, &device) < 1)
        return false;
    if (device >= MOST_PLATFORMS * MOST_DEVICES)
        return false;
    fake_devices[device].lost_after = fake_devices[device].executed + commands;
    if (is_now)
        fake_lose(device);
    return true;
}

static bool set_stop(const char *name, bool is_to_stop)
{
    enum function function = 0;
    if (!find_function(name, strlen(name), &function))
        return false;
    stops[function] = is_to_stop ? IS_TO_STOP : GOES;
    return true;
}

static bool set_text(const char *key, const char *value)
{
    struct {
        const char *key;
        char *place;
    } texts[] = {{"type", fake_settings.type},
                 {"usm", fake_settings.usm},
                 {"missing", fake_settings.missing},
                 {"name", fake_settings.name}};
    for (size_t index = 0; index < sizeof texts / sizeof *texts; index++)
        if (strcmp(key, texts[index].key) == 0 && strlen(value) < WORD) {
            strcpy(texts[index].place, value);
            return true;
        }
    return false;
}

static bool set_number(const char *key, const char *value)
{
    struct settings *s = &fake_settings;
    struct {
        const char *key;
        uint64_t *number;
        bool *flag;
        unsigned *count, most;
    } numbers[] = {
        {.key = "platforms", .count = &s->platforms, .most = MOST_PLATFORMS},
        {.key = "devices", .count = &s->devices, .most = MOST_DEVICES},
        {.key = "priorities", .flag = &s->priorities},
        {.key = "profiling", .flag = &s->profiling},
        {.key = "shared", .flag = &s->shared},
        {.key = "threads_at_probe", .flag = &s->threads_at_probe},
        {.key = "eager", .flag = &s->eager},
        {.key = "strict", .flag = &s->strict},
        {.key = "hold", .flag = &s->hold},
        {.key = "hold_callbacks", .flag = &s->hold_callbacks},
        {.key = "inline_callbacks", .flag = &s->inline_callbacks},
        {.key = "memory", .number = &s->memory},
        {.key = "most_alloc", .number = &s->most_alloc},
        {.key = "most_align", .number = &s->most_align},
        {.key = "command_us", .number = &s->command_us},
    };
    uint64_t number = 0;
    if (!parse_number(value, &number))
        return false;
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++) {
        if (strcmp(key, numbers[index].key) != 0)
            continue;
        if (numbers[index].number != NULL)
            *numbers[index].number = number;
        else if (numbers[index].flag != NULL)
            *numbers[index].flag = number != 0;
        else if (number <= numbers[index].most)
            *numbers[index].count = (unsigned)number;
        else
            return false;
        return true;
    }
    return false;
}

static bool set(const char *key, const char *value)
{
    if (strcmp(key, "fail") == 0)
        return parse_plan(value);
    if (strcmp(key, "heal") == 0) {
        fake_settings.plan_count = 0;
        return true;
    }
    if (strcmp(key, "stop") == 0 || strcmp(key, "go") == 0)
        return set_stop(value, key[0] == 's');
    if (strcmp(key, "lose") == 0)
        return parse_loss(value);
    if (strcmp(key, "lost_code") == 0 || strcmp(key, "lost_status") == 0) {
        cl_int *code = key[5] == 'c' ? &fake_settings.lost_code : &fake_settings.lost_status;
        *code = atoi(value);
        return *code < 0;
    }
    return set_text(key, value) || set_number(key, value);
}

/* Takes key=value pairs, separated by commas. Locked. */
static bool configure(const char *text)
{
    char *copy = strdup(text), *rest = copy;
    bool is_right = true;
    for (char *pair; (pair = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(pair, '=');
        if (*pair == '\0')
            continue;
        if (value != NULL)
            *value++ = '\0';
        if (value == NULL || !set(pair, value)) {
            fprintf(stderr, "fake OpenCL: %s=%s is no setting\n", pair, value ? value : "");
            is_right = false;
        }
    }
    free(copy);
    pthread_cond_broadcast(&fake_changed);
    return is_right;
}

static void read_environment(void)
{
    const char *text = getenv("FAKE_OPENCL");
    pthread_mutex_lock(&fake_lock);
    if (text != NULL && !configure(text))
        abort();
    pthread_mutex_unlock(&fake_lock);
}

EXPORT int fake_opencl_configure(const char *text)
{
    pthread_once(&read_once, read_environment);
    pthread_mutex_lock(&fake_lock);
    bool is_right = configure(text);
    pthread_mutex_unlock(&fake_lock);
    return is_right ? 0 : -1;
}

cl_int fake_enter(enum function function)
{
    cl_int refused = CL_SUCCESS;
    pthread_once(&read_once, read_environment);
    pthread_mutex_lock(&fake_lock);
    __atomic_fetch_add(&calls[function], 1, __ATOMIC_RELAXED);
    for (unsigned index = 0; index < fake_settings.plan_count; index++) {
        struct plan *plan = &fake_settings.plans[index];
        if (plan->function != function || plan->calls_left == UINT64_MAX)
            continue;
        if (plan->calls_left > 0) {
            plan->calls_left--;
            continue;
        }
        refused = plan->code;
        if (!plan->forever)
            plan->calls_left = UINT64_MAX;
    }
    pthread_mutex_unlock(&fake_lock);
    return refused == CL_SUCCESS ? refused : fake_leave(function, refused);
}

cl_int fake_leave(enum function function, cl_int code)
{
    pthread_mutex_lock(&fake_lock);
    if (stops[function] == IS_TO_STOP) {
        stops[function] = IS_STOPPED;
        while (stops[function] == IS_STOPPED)
            pthread_cond_wait(&fake_changed, &fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
    return code;
}

EXPORT uint64_t fake_opencl_calls(const char *name)
{
    enum function function = 0;
    if (!find_function(name, strlen(name), &function))
        return UINT64_MAX;
    return __atomic_load_n(&calls[function], __ATOMIC_RELAXED);
}

EXPORT uint64_t fake_opencl_live(const char *what)
{
    uint64_t bytes = 0, count = UINT64_MAX;
    if (strncmp(what, "calls:", 6) == 0)
        return fake_opencl_calls(what + 6);
    static const char *const kinds[] = {"", "contexts", "queues", "events", "programs", "kernels"};
    pthread_mutex_lock(&fake_lock);
    for (int kind = CONTEXT; kind < KIND_COUNT; kind++)
        if (strcmp(what, kinds[kind]) == 0)
            count = fake_held((enum kind)kind);
    if (strcmp(what, "ghosts") == 0)
        count = fake_ghosts();
    if (strcmp(what, "allocations") == 0)
        count = fake_allocations(&bytes);
    if (strcmp(what, "bytes") == 0) {
        fake_allocations(&bytes);
        count = bytes;
    }
    if (strcmp(what, "threads") == 0)
        count = fake_threads();
    if (strcmp(what, "violations") == 0)
        count = violations;
    if (strncmp(what, "queues:", 7) == 0)
        count = fake_queues_with((cl_uint)atoi(what + 7));
    enum function function = 0;
    if (strncmp(what, "stopped:", 8) == 0 && find_function(what + 8, strlen(what + 8), &function))
        count = stops[function] == IS_STOPPED;
    if (strcmp(what, "executed") == 0)
        count = fake_executed();
    pthread_mutex_unlock(&fake_lock);
    return count;
}

void fake_violation(const char *text, const void *what)
{
    violations++;
    fprintf(stderr, "fake OpenCL: violation: %s: %p\n", text, what);
    if (fake_settings.strict)
        abort();
}

void *fake_refuse(cl_int *code, cl_int value)
{
    if (code != NULL)
        *code = value;
    return NULL;
}

bool fake_list_has(const char *list, unsigned index, const char *word)
{
    for (const char *next; index > 0 && (next = strchr(list, ':')) != NULL; index--)
        list = next + 1;
    size_t length = strcspn(list, ":");
    return strlen(word) == length && strncmp(list, word, length) == 0;
}

cl_int fake_answer(const void *value, size_t bytes, size_t room, void *into, size_t *needed)
{
    if (into != NULL && room < bytes)
        return CL_INVALID_VALUE;
    if (into != NULL)
        memcpy(into, value, bytes);
    if (needed != NULL)
        *needed = bytes;
    return CL_SUCCESS;
}

cl_int fake_answer_text(const char *text, size_t room, void *into, size_t *needed)
{
    return fake_answer(text, strlen(text) + 1, room, into, needed);
}
