/* The plain C rival of the step kernel: two arms, constant exploration, xoshiro256+. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t s[4] = {1, 2, 3, 4};

static inline double uniform(void) {
    uint64_t word = s[0] + s[3], shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return (word >> 11) * 0x1p-53;
}

/* rate 0, rate 1, exploration, visitors -> nanoseconds a visitor, clicks, shows */
int main(int count, char **given) {
    double rate[2] = {atof(given[1]), atof(given[2])}, explored = atof(given[3]);
    long visitors = atol(given[4]), shows[2] = {0, 0}, clicks[2] = {0, 0};
    clock_t start = clock();
    for (long t = 0; t < visitors; t++) {
        int arm;
        if (uniform() < explored) {
            arm = uniform() < .5 ? 0 : 1;
        } else {
            long mine = clicks[0] * (shows[1] ? shows[1] : 1);
            long yours = clicks[1] * (shows[0] ? shows[0] : 1);
            arm = mine > yours ? 0 : mine < yours ? 1 : uniform() < .5 ? 0 : 1;
        }
        shows[arm]++;
        if (uniform() < rate[arm]) clicks[arm]++;
    }
    double spent = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("%g %ld %ld\n", spent / visitors * 1e9, clicks[0] + clicks[1], shows[0]);
    return 0;
}
