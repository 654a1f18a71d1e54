#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t constants[64], initial[8];

/* The first 32 bits after the point of the n-th root of p, found with integers only. */
static uint32_t root_bits(uint64_t p, int n) {
    uint64_t root = 0;
    for (int bit = 35; bit >= 0; bit--) {
        uint64_t high = root | (uint64_t)1 << bit;
        uint64_t parts[6] = {high & 0xffffffff, high >> 32, 0, 0, 0, 0};
        uint64_t power[6] = {1, 0, 0, 0, 0, 0};
        for (int i = 0; i < n; i++) {
            uint64_t product[6] = {0};
            for (int x = 0; x < 2; x++)
                for (int y = 0; x + y < 6; y++) {
                    uint64_t carry = parts[x] * power[y];
                    for (int z = x + y; z < 6 && carry; z++) {
                        uint64_t sum = product[z] + (carry & 0xffffffff);
                        product[z] = sum & 0xffffffff;
                        carry = (carry >> 32) + (sum >> 32);
                    }
                }
            memcpy(power, product, sizeof power);
        }
        uint64_t whole = power[n] | power[n + 1 < 6 ? n + 1 : 5] << 32;
        if (whole < p)
            root = high;
    }
    return (uint32_t)root;
}

static void prepare(void) {
    int found = 0;
    for (uint64_t p = 2; found < 64; p++) {
        int prime = 1;
        for (uint64_t d = 2; d * d <= p; d++)
            if (p % d == 0)
                prime = 0;
        if (!prime)
            continue;
        if (found < 8)
            initial[found] = root_bits(p, 2);
        constants[found++] = root_bits(p, 3);
    }
}

static uint32_t turned(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void block(uint32_t state[8], const unsigned char *data) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 |
               (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) +
               (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t one = s[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) +
                       ((e & s[5]) ^ (~e & s[6])) + constants[i] + w[i];
        uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) +
                       ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void digest(const unsigned char *data, uint64_t length) {
    uint32_t state[8];
    unsigned char last[128] = {0};
    uint64_t rest = length % 64, size = rest < 56 ? 64 : 128;
    memcpy(state, initial, sizeof state);
    for (uint64_t i = 0; i + 64 <= length; i += 64)
        block(state, data + i);
    memcpy(last, data + length - rest, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[size - 1 - (uint64_t)i] = (unsigned char)(length * 8 >> 8 * i);
    for (uint64_t i = 0; i < size; i += 64)
        block(state, last + i);
    for (int i = 0; i < 8; i++)
        printf("%08x", state[i]);
    printf("\n");
}

int main(void) {
    static unsigned char many[100000];
    prepare();
    digest((const unsigned char *)"", 0);
    digest((const unsigned char *)"abc", 3);
    memset(many, 'a', sizeof many);
    digest(many, sizeof many);
    return 0;
}
