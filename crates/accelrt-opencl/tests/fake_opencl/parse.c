/* The compiler: finds kernels in OpenCL C and their parameters; it knows the built-in ones only. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

/* The next word or character; advances. */
static bool next_token(const char **text, const char *end, char *token)
{
    const char *at = skip_space(*text);
    size_t length = 0;
    if (at >= end)
        return false;
    while (at + length < end && (isalnum((unsigned char)at[length]) || at[length] == '_'))
        length++;
    if (length == 0)
        length = 1;
    if (length >= WORD)
        return false;
    memcpy(token, at, length);
    token[length] = '\0';
    *text = at + length;
    return true;
}

static bool is_word(const char *token, const char *word)
{
    if (strncmp(token, "__", 2) == 0)
        token += 2;
    return strcmp(token, word) == 0;
}

/* `__global const float *x`: qualifiers, type, name. */
static bool parse_parameter(const char *text, const char *end, struct parameter *parameter)
{
    char token[WORD], last[WORD] = "";
    bool is_pointer = false;
    *parameter = (struct parameter){.address = CL_KERNEL_ARG_ADDRESS_PRIVATE};
    while (next_token(&text, end, token)) {
        if (is_word(token, "global"))
            parameter->address = CL_KERNEL_ARG_ADDRESS_GLOBAL;
        else if (is_word(token, "constant"))
            parameter->address = CL_KERNEL_ARG_ADDRESS_CONSTANT;
        else if (is_word(token, "local"))
            parameter->address = CL_KERNEL_ARG_ADDRESS_LOCAL;
        else if (strcmp(token, "const") == 0)
            parameter->qualifiers |= CL_KERNEL_ARG_TYPE_CONST;
        else if (is_word(token, "restrict"))
            parameter->qualifiers |= CL_KERNEL_ARG_TYPE_RESTRICT;
        else if (strcmp(token, "*") == 0)
            is_pointer = true;
        else {
            if (last[0] != '\0' && strlen(parameter->type) + strlen(last) + 2 < WORD) {
                if (parameter->type[0] != '\0')
                    strcat(parameter->type, " ");
                strcat(parameter->type, last);
            }
            strcpy(last, token);
        }
    }
    strcpy(parameter->name, last);
    /* What a pointer points at is const, not the parameter: the qualifier of a value is nothing. */
    if (!is_pointer)
        parameter->qualifiers = 0;
    else
        strcat(parameter->type, "*");
    bool is_local_value = !is_pointer && parameter->address != CL_KERNEL_ARG_ADDRESS_PRIVATE;
    return parameter->type[0] != '\0' && parameter->name[0] != '\0' && !is_local_value;
}

static bool fits(const struct definition *definition)
{
    const struct builtin *builtin = definition->builtin;
    if (builtin == NULL || builtin->parameter_count != definition->parameter_count)
        return false;
    for (unsigned index = 0; index < definition->parameter_count; index++) {
        bool is_pointer = definition->parameters[index].address != CL_KERNEL_ARG_ADDRESS_PRIVATE;
        if (is_pointer != ((builtin->pointers >> index & 1) != 0))
            return false;
    }
    return true;
}

/* Reads `name(parameters)`; a message in `why` when that is not one of ours. */
static bool parse_definition(const char *text, struct definition *definition, char *why,
                             size_t room)
{
    const char *end = text + strlen(text), *open = strchr(text, '(');
    const char *close = strchr(text, ')');
    if (!next_token(&text, end, definition->name) || open == NULL || close == NULL) {
        snprintf(why, room, "error: expected a kernel's name and its parameters");
        return false;
    }
    for (const char *start = open + 1; start < close;) {
        const char *comma = memchr(start, ',', (size_t)(close - start));
        const char *stop = comma != NULL ? comma : close;
        struct parameter *parameter = &definition->parameters[definition->parameter_count++];
        if (definition->parameter_count == MOST_ARGUMENTS ||
            !parse_parameter(start, stop, parameter)) {
            snprintf(why, room, "error: %s: cannot read parameter %u", definition->name,
                     definition->parameter_count);
            return false;
        }
        start = stop + 1;
    }
    definition->builtin = fake_builtin(definition->name);
    if (!fits(definition)) {
        snprintf(why, room, "error: use of unknown kernel '%s': this compiler knows %s",
                 definition->name, fake_builtin_names());
        return false;
    }
    return true;
}

/* The next `kernel void`, as the place behind it. */
static const char *next_kernel(const char *text)
{
    while ((text = strstr(text, "kernel")) != NULL) {
        text = skip_space(text + strlen("kernel"));
        if (strncmp(text, "void ", 5) == 0)
            return skip_space(text + 5);
    }
    return NULL;
}

static size_t count_of(const char *text, char wanted)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == wanted;
    return count;
}

bool fake_compile(const char *source, struct definition **found, unsigned *count, char **log)
{
    char why[512] = "error: no kernel in this source";
    const char *error = strstr(source, "#error");
    *found = NULL;
    *count = 0;
    bool is_right = error == NULL;
    if (error != NULL)
        snprintf(why, sizeof why, "1:2: error: %.*s", (int)strcspn(error + 7, "\n"), error + 7);
    if (is_right && count_of(source, '{') != count_of(source, '}')) {
        snprintf(why, sizeof why, "error: expected '}'");
        is_right = false;
    }
    const char *text = source;
    while (is_right && (text = next_kernel(text)) != NULL) {
        *found = realloc(*found, (*count + 1) * sizeof **found);
        if (*found == NULL)
            abort();
        memset(*found + *count, 0, sizeof **found);
        is_right = parse_definition(text, *found + *count, why, sizeof why);
        *count += is_right;
    }
    is_right = is_right && *count > 0;
    *log = strdup(is_right ? "" : why);
    return is_right;
}
