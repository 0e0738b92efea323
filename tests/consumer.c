/* consumer.c: a program that knows pqtx only as it is installed; tests/check-install builds it. */
#include <pqtx.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    char compiled[32];
    snprintf(compiled, sizeof compiled, "%d.%d.%d", PQTX_VERSION_MAJOR, PQTX_VERSION_MINOR,
             PQTX_VERSION_PATCH);
    if (argc != 2 || strcmp(compiled, argv[1]) != 0 || strcmp(pqtx_version(), argv[1]) != 0) {
        fprintf(stderr, "consumer: header %s, library %s, expected %s\n", compiled, pqtx_version(),
                argc == 2 ? argv[1] : "a version as argument");
        return 1;
    }

    pqtx_tx *tx = pqtx_new(NULL, NULL);
    int attempts = 0;
    while (pqtx_attempt(tx))
        attempts++;
    pqtx_status status = pqtx_result(tx);
    pqtx_free(tx);
    if (attempts != 0 || status != PQTX_MISUSE) {
        fprintf(stderr, "consumer: without a pool: %d attempts, %s\n", attempts,
                pqtx_status_name(status));
        return 1;
    }
    return 0;
}
