/* Runs one test of the C interface, by its name: each has a process of its own. Without a name it
 * lists them. */
#include "check.h"

#include <pthread.h>

enum { GATES = 16 };

struct gate {
    int is_open;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;

static int32_t wait_at(void *data, char *error_text, size_t error_capacity)
{
    const gate *gate = data;
    (void)error_text;
    (void)error_capacity;
    pthread_mutex_lock(&lock);
    while (!gate->is_open)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

gate *gate_shut(accelrt_stream *stream)
{
    static gate gates[GATES];
    static int count;
    ASSERT(count < GATES);
    OK(accelrt_stream_launch(stream, wait_at, &gates[count], NULL, NULL, 0));
    return &gates[count++];
}

void gate_open(gate *gate)
{
    pthread_mutex_lock(&lock);
    gate->is_open = 1;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

int main(int count, char **arguments)
{
    const char *name = count == 2 ? arguments[1] : "";
#define RUN(test)                                                                                  \
    if (strcmp(name, #test) == 0) {                                                                \
        test();                                                                                    \
        return 0;                                                                                  \
    }
    TESTS(RUN)
#define LIST(test) puts(#test);
    TESTS(LIST)
    return count == 1 ? 0 : 2;
}
