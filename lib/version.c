/* version.c: the version that runs. */
#include <pqtx.h>

#define TEXT_(number) #number
#define TEXT(number)  TEXT_(number)

const char *pqtx_version(void)
{
    return TEXT(PQTX_VERSION_MAJOR) "." TEXT(PQTX_VERSION_MINOR) "." TEXT(PQTX_VERSION_PATCH);
}
