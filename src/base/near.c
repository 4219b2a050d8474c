/* Optimal string alignment with three rows of the matrix; lengths are bounded, so it is cheap. */
#include "base/near.h"

#include <limits.h>

unsigned near_distance(struct str a, struct str b)
{
    unsigned rows[3][NEAR_WORD_MAX + 1];

    if (a.n > NEAR_WORD_MAX || b.n > NEAR_WORD_MAX)
        return UINT_MAX;
    for (size_t j = 0; j <= b.n; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a.n; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i - 1) % 3], *twice = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b.n; j++) {
            unsigned best = above[j - 1] + (a.p[i - 1] != b.p[j - 1]);

            best = MIN(best, above[j] + 1);
            best = MIN(best, row[j - 1] + 1);
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                best = MIN(best, twice[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[a.n % 3][b.n];
}

bool near_enough(unsigned distance, struct str word)
{
    return distance <= MAX((size_t)1, word.n / 3) && distance < word.n;
}
