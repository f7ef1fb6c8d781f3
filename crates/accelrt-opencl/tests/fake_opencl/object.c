/* Objects that are counted: made, kept, let go; a handle that is gone is recognised. */
#include <stdlib.h>

#include "fake.h"

enum { MAGIC = 0x0C10FA4E, DEAD = 0xDEADFA4E & 0x7FFFFFFF, BURIED = 4096 };

/* Objects that users hold, and those that only the fake still does. */
static unsigned held[KIND_COUNT], ghosts;
/* Memory of the dead is kept for a while, so that a late use of a handle is seen as what it is. */
static void *buried[BURIED];
static size_t next_grave;

void *fake_make(enum kind kind, size_t bytes)
{
    struct object *object = calloc(1, bytes);
    if (object == NULL)
        abort();
    *object = (struct object){MAGIC, kind, 1, 1};
    held[kind]++;
    return object;
}

bool fake_valid(const void *object, enum kind kind)
{
    const struct object *head = object;
    bool is_valid = head != NULL && head->magic == MAGIC && head->kind == kind;
    if (is_valid && head->user_references == 0)
        is_valid = false;
    if (!is_valid)
        fake_violation("a handle that is none, or no more", object);
    return is_valid;
}

void fake_keep(void *object)
{
    ((struct object *)object)->references++;
}

void fake_let_go(void *object)
{
    struct object *head = object;
    if (--head->references > 0)
        return;
    if (head->user_references > 0)
        abort(); /* a mistake of the fake's: users' references are among all */
    switch (head->kind) {
    case QUEUE:
        fake_let_go(((cl_command_queue)object)->context);
        pthread_cond_destroy(&((cl_command_queue)object)->has_work);
        break;
    case EVENT:
        fake_event_destroyed(object);
        break;
    case PROGRAM:
        fake_program_destroyed(object);
        break;
    case KERNEL:
        fake_let_go(((cl_kernel)object)->program);
        break;
    default:
        break;
    }
    ghosts--;
    head->magic = DEAD;
    free(buried[next_grave]);
    buried[next_grave] = object;
    next_grave = (next_grave + 1) % BURIED;
}

void fake_disown(void *object)
{
    struct object *head = object;
    if (--head->user_references == 0) {
        held[head->kind]--;
        ghosts++;
    }
}

unsigned fake_held(enum kind kind)
{
    return held[kind];
}

unsigned fake_ghosts(void)
{
    return ghosts;
}

cl_int fake_user_retain(void *object, enum kind kind, cl_int invalid)
{
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(object, kind);
    if (is_valid) {
        ((struct object *)object)->user_references++;
        fake_keep(object);
    }
    pthread_mutex_unlock(&fake_lock);
    return is_valid ? CL_SUCCESS : invalid;
}

cl_int fake_user_release(void *object, enum kind kind, cl_int invalid)
{
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(object, kind);
    if (is_valid) {
        if (kind == QUEUE)
            fake_flush(object);
        fake_disown(object);
        if (kind == QUEUE && ((struct object *)object)->user_references == 0)
            fake_queue_closed(object);
        fake_let_go(object);
    }
    pthread_mutex_unlock(&fake_lock);
    return is_valid ? CL_SUCCESS : invalid;
}
