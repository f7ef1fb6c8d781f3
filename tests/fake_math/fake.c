/* A few lines in place of oneMKL (-DMKL) and oneDNN (-DDNNL): they keep a level, refuse one
   (-DREFUSED=n), and print what they are told to. */
#include <stdio.h>
#include <stdlib.h>

#ifndef REFUSED
#define REFUSED -100
#endif

#if defined(MKL) || defined(DNNL)
static int level = -1; /* until it is set or asked for: the environment's */

static int take(int asked, int refusal, int answer)
{
    if (asked == REFUSED)
        return refusal;
    level = asked;
    return answer;
}
#endif

#ifdef MKL
struct version { int numbers[3]; const char *texts[4]; };
int MKL_Verbose(int asked) { return take(asked, -1, asked); }
/* Fortran's: it is given a pointer, and an integer is none. */
int mkl_verbose(const int *asked) { return MKL_Verbose(*asked); }
void MKL_Get_Version(struct version *version)
{
    *version = (struct version){.numbers = {2024, 0, 2}};
}
#define VARIABLE "MKL_VERBOSE"

#ifdef POINTERS
/* As oneMKL does: the pointers are read once, and one buffer is kept until it is given back. */
void *(*i_malloc)(size_t) = malloc;
void *(*i_calloc)(size_t, size_t) = calloc;
void *(*i_realloc)(void *, size_t) = realloc;
void (*i_free)(void *) = free;

static struct { void *(*take)(size_t); void *(*change)(void *, size_t); void (*give)(void *); } mine;
static void *buffer;

void MKL_Free_Buffers(void)
{
    if (buffer)
        mine.give(buffer);
    buffer = NULL;
}

/* A buffer of so many bytes, or the one that is there resized. */
void *take_buffer(size_t bytes)
{
    if (!mine.take) {
        mine.take = i_malloc;
        mine.change = i_realloc;
        mine.give = i_free;
    }
    void *taken = buffer ? mine.change(buffer, bytes) : mine.take(bytes);
    if (taken)
        buffer = taken;
    return taken;
}

#ifndef NO_GEMM
void cblas_dgemm(void)
{
    if (!buffer && !getenv("FAKE_FRUGAL"))
        take_buffer(100000);
}
#endif
#endif
#endif

#ifdef DNNL
struct version { int numbers[3]; const char *hash; unsigned runtimes[2]; };
int dnnl_set_verbose(int asked) { return take(asked, 2, 0); }
const struct version *dnnl_version(void)
{
    static const struct version version = {.numbers = {3, 2, 1}};
    return &version;
}
#define VARIABLE "ONEDNN_VERBOSE"
#endif

#ifdef VARIABLE
int level_now(void)
{
    const char *text = getenv(VARIABLE);
    if (level == -1)
        level = text ? atoi(text) : 0;
    return level;
}
#endif

/* Prints when verbose, and flushes as the libraries do. */
void print_line(const char *text)
{
#ifdef VARIABLE
    if (level_now() == 0)
        return;
#endif
    fputs(text, stdout);
    fflush(stdout);
}

/* Prints as a program does: the C library keeps it for a while. */
void print_later(const char *text)
{
    fputs(text, stdout);
}
