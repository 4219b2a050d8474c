/*
 * gen-seccomp - compiles the system call policy; a program of the build, never shipped.
 *
 *   gen-seccomp header   the filters as a C header, with a digest each (src/seccomp/seccomp.c)
 *   gen-seccomp page     docs/seccomp.md
 *   gen-seccomp size     instructions per profile and architecture
 *   gen-seccomp list ARCH PROFILE
 *                        the program in words, for reading
 *
 * Both architectures are compiled everywhere: the tests run the other one's in an interpreter.
 */
#include <openssl/evp.h>
#include <string.h>

#include "seccomp/compile.h"
#include "seccomp/page.h"

struct program {
    struct sock_filter insns[SECCOMP_INSNS_MAX];
    int count;
    char digest[2 * EVP_MAX_MD_SIZE + 8];
    int same_as; /* an earlier profile with the same instructions, or its own number */
};

static const char *const arch_names[SECCOMP_ARCHES] = { "x86_64", "arm64" };
static const char *const arch_macros[SECCOMP_ARCHES] = { "__x86_64__", "__aarch64__" };
static const char *const profile_names[SECCOMP_PROFILES] = { "agent", "root", "nesting", "debug" };

static struct program programs[SECCOMP_ARCHES][SECCOMP_PROFILES];

/* Over the little-endian form, which is how both architectures keep it in memory. */
static bool digest(struct program *program)
{
    static unsigned char bytes[SECCOMP_INSNS_MAX * 8];
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned sum_len = 0;
    size_t len = 0;

    for (int i = 0; i < program->count; i++) {
        const struct sock_filter *insn = &program->insns[i];

        bytes[len++] = (unsigned char)(insn->code & 0xff);
        bytes[len++] = (unsigned char)(insn->code >> 8);
        bytes[len++] = insn->jt;
        bytes[len++] = insn->jf;
        for (int shift = 0; shift < 32; shift += 8)
            bytes[len++] = (unsigned char)(insn->k >> shift & 0xff);
    }
    if (EVP_Digest(bytes, len, sum, &sum_len, EVP_sha256(), NULL) != 1)
        return false;
    int at = snprintf(program->digest, sizeof(program->digest), "sha256:");
    for (unsigned i = 0; i < sum_len; i++)
        at += snprintf(program->digest + at, sizeof(program->digest) - (size_t)at, "%02x", sum[i]);
    return true;
}

static bool compile_all(void)
{
    struct err err = { 0 };

    for (int arch = 0; arch < SECCOMP_ARCHES; arch++)
        for (int profile = 0; profile < SECCOMP_PROFILES; profile++) {
            struct program *program = &programs[arch][profile];

            program->count = seccomp_compile(&seccomp_policy, (enum seccomp_profile)profile,
                                             (enum seccomp_arch)arch, program->insns, &err);
            if (program->count < 0) {
                fprintf(stderr, "gen-seccomp: %s %s: %s\n", arch_names[arch],
                        profile_names[profile], err.msg);
                return false;
            }
            if (!digest(program)) {
                fprintf(stderr, "gen-seccomp: SHA-256 does not work\n");
                return false;
            }
            program->same_as = 0;
            while (strcmp(programs[arch][program->same_as].digest, program->digest) != 0)
                program->same_as++;
        }
    return true;
}

static void print_insns(const char *arch, const char *profile, const struct program *program)
{
    printf("static const struct sock_filter seccomp_%s_%s[] = {\n", arch, profile);
    for (int i = 0; i < program->count; i++) {
        const struct sock_filter *insn = &program->insns[i];

        printf("    { 0x%02x, %d, %d, 0x%08x },\n", insn->code, insn->jt, insn->jf, insn->k);
    }
    printf("};\n");
}

static void print_header(void)
{
    printf("/* Made by tools/gen-seccomp from src/seccomp/policy.c: change that. */\n"
           "#pragma once\n\n#include <linux/filter.h>\n\n"
           "struct seccomp_blob {\n    struct sock_fprog program;\n    const char *digest;\n};\n");
    for (int arch = 0; arch < SECCOMP_ARCHES; arch++) {
        printf("\n#if defined(%s) || defined(SECCOMP_BLOB_ALL)\n", arch_macros[arch]);
        for (int i = 0; i < SECCOMP_PROFILES; i++)
            if (programs[arch][i].same_as == i)
                print_insns(arch_names[arch], profile_names[i], &programs[arch][i]);
        /* sock_fprog has no const, though the kernel only reads. */
        printf("static const struct seccomp_blob seccomp_blobs_%s[] = {\n", arch_names[arch]);
        for (int i = 0; i < SECCOMP_PROFILES; i++)
            printf("    { { %d, (struct sock_filter *)seccomp_%s_%s }, \"%s\" }, /* %s */\n",
                   programs[arch][i].count, arch_names[arch],
                   profile_names[programs[arch][i].same_as], programs[arch][i].digest,
                   profile_names[i]);
        printf("};\n#endif\n");
    }
}

static void print_size(void)
{
    for (int arch = 0; arch < SECCOMP_ARCHES; arch++)
        for (int i = 0; i < SECCOMP_PROFILES; i++)
            printf("%-7s %-8s %4d instructions  %s\n", arch_names[arch], profile_names[i],
                   programs[arch][i].count, programs[arch][i].digest);
}

static void print_list(const struct program *program)
{
    for (int i = 0; i < program->count; i++) {
        const struct sock_filter *insn = &program->insns[i];
        int yes = i + 1 + insn->jt, no = i + 1 + insn->jf;

        printf("%4d  ", i);
        switch (insn->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            printf("load [%u]\n", insn->k);
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            printf("and 0x%x\n", insn->k);
            break;
        case BPF_RET | BPF_K:
            printf("return 0x%08x\n", insn->k);
            break;
        case BPF_JMP | BPF_JA:
            printf("goto %u\n", (unsigned)i + 1 + insn->k);
            break;
        default:
            printf("if %s 0x%x goto %d else %d\n",
                   BPF_OP(insn->code) == BPF_JEQ   ? "=="
                   : BPF_OP(insn->code) == BPF_JGE ? ">="
                                                   : "has",
                   insn->k, yes, no);
        }
    }
}

static int list(const char *arch, const char *profile)
{
    for (int a = 0; a < SECCOMP_ARCHES; a++)
        for (int i = 0; i < SECCOMP_PROFILES; i++)
            if (strcmp(arch, arch_names[a]) == 0 && strcmp(profile, profile_names[i]) == 0) {
                print_list(&programs[a][i]);
                return 0;
            }
    fprintf(stderr, "gen-seccomp: no %s %s\n", arch, profile);
    return 2;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int status = 0;

    if (!compile_all())
        return 1;
    if (strcmp(what, "header") == 0) {
        print_header();
    } else if (strcmp(what, "page") == 0) {
        seccomp_page(stdout, &seccomp_policy);
    } else if (strcmp(what, "size") == 0) {
        print_size();
    } else if (strcmp(what, "list") == 0 && argc == 4) {
        status = list(argv[2], argv[3]);
    } else {
        fprintf(stderr, "usage: gen-seccomp header | page | size | list ARCH PROFILE\n");
        return 2;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("gen-seccomp");
        return 1;
    }
    return status;
}
