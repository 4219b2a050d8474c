/*
 * model - for tests: the kernel's filter machine, and the policy taken literally.
 *
 * model_run interprets a program as the kernel would, after the same checks that the kernel makes
 * before it accepts one; so a program for another architecture can be tried on any machine.
 * model_decide reads the verdict straight off the table, line by line, and shares nothing with the
 * compiler. Where the two differ, one of them is wrong.
 */
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>

#include "seccomp/compile.h"

#define MODEL_BROKEN 0xdeadbeefu /* no program: the kernel would not load or never end it */

static inline bool model_insn_is_sound(const struct sock_filter *insns, int count, int at)
{
    const struct sock_filter *insn = &insns[at];
    int room = count - at - 1;

    switch (insn->code) {
    case BPF_LD | BPF_W | BPF_ABS:
        return insn->k % 4 == 0 && insn->k < sizeof(struct seccomp_data) && room > 0;
    case BPF_ALU | BPF_AND | BPF_K:
        return room > 0;
    case BPF_JMP | BPF_JA:
        return insn->k < (uint32_t)room;
    case BPF_JMP | BPF_JEQ | BPF_K:
    case BPF_JMP | BPF_JGE | BPF_K:
    case BPF_JMP | BPF_JSET | BPF_K:
        return insn->jt < room && insn->jf < room;
    case BPF_RET | BPF_K:
        return true;
    default:
        return false; /* the kernel knows more, our compiler does not use them */
    }
}

static inline bool model_is_sound(const struct sock_filter *insns, int count)
{
    if (count < 1 || count > SECCOMP_INSNS_MAX)
        return false;
    for (int i = 0; i < count; i++)
        if (!model_insn_is_sound(insns, count, i))
            return false;
    return insns[count - 1].code == (BPF_RET | BPF_K);
}

static inline uint32_t model_run(const struct sock_filter *insns, int count,
                                 const struct seccomp_data *data)
{
    uint32_t a = 0;

    for (int at = 0; at < count; at++) {
        const struct sock_filter *insn = &insns[at];
        bool yes;

        switch (insn->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&a, (const char *)data + insn->k, sizeof(a));
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= insn->k;
            continue;
        case BPF_RET | BPF_K:
            return insn->k;
        case BPF_JMP | BPF_JA:
            at += (int)insn->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            yes = a == insn->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            yes = a >= insn->k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            yes = (a & insn->k) != 0;
            break;
        default:
            return MODEL_BROKEN;
        }
        at += yes ? insn->jt : insn->jf;
    }
    return MODEL_BROKEN;
}

static inline uint32_t model_test(const struct seccomp_policy *policy, uint32_t outcome,
                                  const struct seccomp_data *data)
{
    while (OUTCOME_IS_TEST(outcome)) {
        const struct seccomp_test *test = &policy->tests[OUTCOME_TEST_OF(outcome)];
        uint32_t value = (uint32_t)data->args[test->arg];

        if (test->mask)
            value &= test->mask;
        outcome = test->otherwise;
        for (int i = 0; test->cases[i].how != CASE_END; i++) {
            uint32_t wanted = test->cases[i].value;
            enum seccomp_how how = test->cases[i].how;

            if ((how == CASE_IS && value == wanted) || (how == CASE_FROM && value >= wanted) ||
                (how == CASE_HAS && (value & wanted))) {
                outcome = test->cases[i].outcome;
                break;
            }
        }
    }
    return outcome;
}

static inline const struct seccomp_line *model_line(const struct seccomp_policy *policy,
                                                    enum seccomp_arch arch, int nr)
{
    for (size_t i = 0; i < policy->line_count && nr >= 0; i++)
        if (policy->lines[i].nr[arch] == nr)
            return &policy->lines[i];
    return NULL;
}

static inline uint32_t model_decide(const struct seccomp_policy *policy,
                                    enum seccomp_profile profile, enum seccomp_arch arch,
                                    const struct seccomp_data *data)
{
    const struct seccomp_line *line = model_line(policy, arch, data->nr);

    if (data->arch != (arch == SECCOMP_X86_64 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64))
        return policy->foreign;
    if (line)
        return model_test(policy, seccomp_outcome(line, profile), data);
    if (arch == SECCOMP_X86_64 && (uint32_t)data->nr >= SECCOMP_X32_BIT && data->nr != -1)
        return policy->x32;
    return policy->unknown;
}
