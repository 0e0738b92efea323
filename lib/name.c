/* name.c: a name as a number of 64 bits, the beginning of its SHA-256 (FIPS 180-4).
 *
 * A hash of fewer lines would spread honest names as well.  This one every language has at hand,
 * and PostgreSQL too, so that a program without this library, a trigger and a person in psql find
 * the same number; and nobody can make up a name that meets another one. */
#include "name.h"

#include <string.h>

enum { BLOCK = 64, LENGTH = 8 };

/* The fractional parts of the cube roots of the first 64 primes. */
static const uint32_t rounds[] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static void schedule(uint32_t w[BLOCK], const uint8_t *block)
{
    for (int i = 0; i < 16; i++, block += 4)
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
    for (int i = 16; i < BLOCK; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

static void digest(uint32_t hash[8], const uint8_t *block)
{
    uint32_t w[BLOCK], s[8];
    schedule(w, block);
    memcpy(s, hash, sizeof s);
    for (int i = 0; i < BLOCK; i++) {
        uint32_t a = s[0], e = s[4];
        uint32_t one = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                       ((e & s[5]) ^ (~e & s[6])) + rounds[i] + w[i];
        uint32_t two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                       ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, sizeof s - sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        hash[i] += s[i];
}

int64_t pqtx__name_key(const char *name)
{
    uint32_t hash[] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t len = strlen(name), left = len;
    for (; left >= BLOCK; left -= BLOCK, name += BLOCK)
        digest(hash, (const uint8_t *)name);

    /* What is left, a one bit, and at the end of the last block the length in bits. */
    uint8_t last[2 * BLOCK] = {0};
    size_t end = left + 1 + LENGTH <= BLOCK ? BLOCK : 2 * BLOCK;
    memcpy(last, name, left);
    last[left] = 0x80;
    for (size_t i = 1; i <= LENGTH; i++)
        last[end - i] = (uint8_t)((uint64_t)len << 3 >> 8 * (i - 1));
    for (size_t i = 0; i < end; i += BLOCK)
        digest(hash, last + i);
    return (int64_t)((uint64_t)hash[0] << 32 | hash[1]);
}
