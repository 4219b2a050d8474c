/*
 * Is there hardware behind /dev/kvm? A guest that is really run counts to a hundred thousand in
 * microseconds; a kernel that only pretends (some nested ones interpret every instruction) takes a
 * thousand times longer, and nobody wants to boot a system on that. So a small guest in 64-bit mode
 * is built by hand, counts, writes to a port and halts, and the clock decides.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "host/own.h"

#define GUEST_SIZE 0x400000u
#define GUEST_CODE 0x10000u
#define GUEST_SLOW_US 20000
#define KVM_SLOW 200 /* what the child says instead of an errno */

#ifdef __x86_64__
/* Identity map of the first 4 MiB in large pages: three tables at 0x1000, 0x2000, 0x3000. */
static void put_tables(unsigned char *memory)
{
    const uint64_t entries[][2] = {
        { 0x1000, 0x2003 }, { 0x2000, 0x3003 }, { 0x3000, 0x83 }, { 0x3008, 0x200083 }
    };

    for (size_t i = 0; i < ARRAY_LEN(entries); i++)
        memcpy(memory + entries[i][0], &entries[i][1], sizeof(uint64_t));
}

static const unsigned char guest_code[] = {
    0xb9, 0xa0, 0x86, 0x01, 0x00, /* mov ecx, 100000 */
    0xff, 0xc9,                   /* dec ecx */
    0x75, 0xfc,                   /* jnz back to dec */
    0xe6, 0x10,                   /* out 0x10, al */
    0xf4,                         /* hlt */
};

static int set_registers(int cpu)
{
    const struct kvm_segment code = {
        .limit = UINT32_MAX, .selector = 8, .present = 1, .type = 11, .s = 1, .l = 1, .g = 1
    };
    const struct kvm_segment data = {
        .limit = UINT32_MAX, .selector = 16, .present = 1, .type = 3, .s = 1, .db = 1, .g = 1
    };
    const struct kvm_regs regs = { .rip = GUEST_CODE, .rsp = 0x200000, .rflags = 2 };
    struct kvm_sregs sregs;

    if (ioctl(cpu, KVM_GET_SREGS, &sregs) < 0)
        return errno;
    sregs.cs = code;
    sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
    sregs.cr3 = 0x1000;
    sregs.cr4 = 0x20;       /* PAE */
    sregs.cr0 = 0x80050033; /* paging, protected mode */
    sregs.efer = 0x500;     /* long mode */
    return ioctl(cpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(cpu, KVM_SET_REGS, &regs) < 0 ? errno : 0;
}

static int run_guest(int cpu, const struct kvm_run *run)
{
    int64_t began = clock_mono_us();

    for (int exits = 0; exits < 4; exits++) {
        if (ioctl(cpu, KVM_RUN, 0) < 0)
            return errno;
        if (run->exit_reason == KVM_EXIT_HLT)
            return clock_mono_us() - began > GUEST_SLOW_US ? KVM_SLOW : 0;
        if (run->exit_reason != KVM_EXIT_IO)
            break;
    }
    return EIO;
}

static int try_guest(int kvm, int vm)
{
    unsigned char *memory =
        mmap(NULL, GUEST_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct kvm_userspace_memory_region region = { .memory_size = GUEST_SIZE,
                                                  .userspace_addr = (uintptr_t)memory };
    autoclose int cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
    int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), failed;

    if (memory == MAP_FAILED || cpu < 0 || size < (int)sizeof(struct kvm_run) ||
        ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
        return errno;
    put_tables(memory);
    memcpy(memory + GUEST_CODE, guest_code, sizeof(guest_code));
    struct kvm_run *run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
    if (run == MAP_FAILED)
        return errno;
    failed = set_registers(cpu);
    return failed ? failed : run_guest(cpu, run);
}
#else
static int try_guest(int kvm, int vm)
{
    autoclose int cpu = ioctl(vm, KVM_CREATE_VCPU, 0);

    (void)kvm;
    return cpu < 0 ? errno : 0;
}
#endif

static int try_kvm(const void *arg)
{
    autoclose int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    (void)arg;
    if (kvm < 0)
        return errno;
    if (ioctl(kvm, KVM_GET_API_VERSION, 0) != 12)
        return EPROTO;
    autoclose int vm = ioctl(kvm, KVM_CREATE_VM, 0);
    return vm < 0 ? errno : try_guest(kvm, vm);
}

void probe_kvm(const struct probe_world *world, struct probe_result *out)
{
    int failed = probe_child(try_kvm, NULL, 3000);

    (void)world;
    if (!failed) {
        probe_found(out, "runs a guest at full speed");
        return;
    }
    probe_found(out, "%s",
                failed == ENOENT     ? "no /dev/kvm"
                : failed == KVM_SLOW ? "/dev/kvm interprets guests instead of running them"
                : failed > 0         ? strerrordesc_np(failed)
                                     : "a guest does not run");
    probe_say(out, PROBE_LOST, "virtual machines are emulated: as safe, but slow",
              failed == EACCES ? "add the user to the group kvm"
                               : "enable virtualisation (nested, when this is a guest itself)");
}
