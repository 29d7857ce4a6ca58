/* Runs a network that `scornn export RUN --to c --out network.c` has written: each line of the input is a frame, each
 * line of the output what the network makes of it.
 *
 *     cc -O2 network.c main.c -o network -lm && ./network < frames.txt */
#include <stdio.h>
#include "network.h"

int main(void) {
    static network_state state; /* static: nothing on the heap, and little on the stack */
    float in[NETWORK_INPUTS], out[NETWORK_OUTPUTS];
    int i = 0;
    network_init(&state);
    while (scanf("%f", &in[i]) == 1) {
        if (++i < NETWORK_INPUTS) continue;
        if (network_step(&state, in, out))
            for (i = 0; i < NETWORK_OUTPUTS; ++i) printf("%.9g%c", out[i], i + 1 < NETWORK_OUTPUTS ? ' ' : '\n');
        i = 0;
    }
    return 0;
}
