/*
 * guard_rig - an attack and its proof. Only for x_test.c files of this room.
 *
 * An attack is made in real boxes, with all guards (base/guard.h) standing, where it must fail, and
 * without those that it is about, where it must succeed: so no attack is one that could never have
 * worked. Several that stand behind one another are left out together, and each of them alone as
 * well, where the others must hold. A step of the making (enum box_step) counts as one of them.
 */
#pragma once

#include "warden/disk_rig.h"

#define BIT(step) (UINT64_C(1) << (step))

/* With the rig open on `state`: did it succeed? */
typedef bool attack_fn(const char *state);

static uint64_t left_out; /* steps, of the boxes that an attack makes */

static inline struct rig_box made_of(struct wire_msg spec)
{
    box_skips = left_out;
    struct rig_box box = rig_create(spec, "probe");
    box_skips = 0;
    return box;
}

static inline struct rig_box made(void)
{
    return made_of(rig_spec("probe"));
}

/* All in one state directory: making the skeleton of an image takes longer than most attacks. */
static inline bool succeeds(attack_fn *attack, const char *guards, uint64_t steps)
{
    static const char *state;

    if (rig_state >= 0) { /* a test that failed */
        rig_at_exit();
        rig_state = -1;
    }
    rig_without(guards); /* before the rig is open: some are for all boxes */
    left_out = steps;
    if (state)
        rig_open_at(state);
    else
        state = rig_open();
    bool did = attack(state);
    rig_close();
    rig_without("");
    left_out = 0;
    return did;
}

static inline void prove(attack_fn *attack, const char *guards, uint64_t steps)
{
    if (succeeds(attack, "", 0))
        test_fail(__FILE__, __LINE__, "it succeeds although all guards stand");
    if (steps && *guards && succeeds(attack, "", steps))
        test_fail(__FILE__, __LINE__, "it succeeds with %s", guards);
    for (const char *at = guards; (steps || strchr(guards, ',')) && *at; at += *at == ',') {
        size_t len = strcspn(at, ",");
        char alone[64];

        snprintf(alone, sizeof(alone), "%.*s", (int)len, at);
        at += len;
        if (succeeds(attack, alone, 0))
            test_fail(__FILE__, __LINE__, "it succeeds without %s alone", alone);
    }
    if (!succeeds(attack, guards, steps))
        test_fail(__FILE__, __LINE__, "it fails without %s, too", guards);
}

#define ATTACK(name, guards, steps)                                                                \
    static bool name##_(const char *state);                                                        \
    TEST(name)                                                                                     \
    {                                                                                              \
        prove(name##_, guards, steps);                                                             \
    }                                                                                              \
    static bool name##_(__attribute__((unused)) const char *state)

/* Does this script, in a box of its own, end with 0? */
static inline bool did_in(struct rig_box box, const char *script, uint32_t flags)
{
    struct rig_ran *ran = rig_sh(&box, script, flags);
    bool done = ran->code == 0 && !ran->error;

    rig_destroy(&box);
    return done;
}

/* Is a command with these texts (argv…, cwd) let begin, and ends with 0? */
static inline bool began(struct rig_box *box, const char *const *texts, unsigned argc,
                         uint32_t flags)
{
    struct rig_ran *ran = rig_finish(box, rig_start(box, texts, argc, 0, flags));

    return !ran->error && ran->code == 0;
}

static inline bool probe_breaks(const char *name, uint32_t flags)
{
    struct rig_box box = made();
    char line[64];

    rig_bring_probe(&box);
    snprintf(line, sizeof(line), "BROKEN %s ", name);
    bool broken = strstr(rig_probe(&box, flags)->out, line) != NULL;
    rig_destroy(&box);
    return broken;
}
