/* The one way to the functions of cl_intel_unified_shared_memory: the loader exports none. */
#include <string.h>

#include "fake.h"

#define DECLARE(name) void name(void);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
EXTENSION_FUNCTIONS(DECLARE)
#pragma GCC diagnostic pop

#define ENTRY(name) {#name, name},
static const struct {
    const char *name;
    void (*function)(void);
} entries[] = {EXTENSION_FUNCTIONS(ENTRY)};

EXPORT void (*clGetExtensionFunctionAddressForPlatform(cl_platform_id platform,
                                                        const char *name))(void)
{
    if (fake_enter(NUMBER_clGetExtensionFunctionAddressForPlatform) != CL_SUCCESS)
        return NULL;
    if (platform == NULL || name == NULL || strcmp(fake_settings.missing, name) == 0)
        return NULL;
    for (size_t index = 0; index < sizeof entries / sizeof *entries; index++)
        if (strcmp(entries[index].name, name) == 0)
            return entries[index].function;
    return NULL;
}
