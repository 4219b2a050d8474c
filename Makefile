# Atoll. `make` builds, `make run` starts it, `make test` proves it; `make help` lists the rest.
#
# Needs GNU make and pkg-config, nothing else: `make deps` installs the libraries. Output goes to
# build/ (build-address/ and so on with SAN=…). Every src/ROOM/*.c is in libatoll.a, except tests
# (x_test.c), fuzzers (x_fuzz.c) and the static programs' own rooms (src/warden).

SAN ?=
BUILD := build$(if $(SAN),-$(SAN))
CC ?= gcc
MUSL_CC ?= musl-gcc
VERSION := 0.1.0
WERROR ?= -Werror

PKGS := libnghttp2 libprotobuf-c openssl sqlite3 libseccomp
WARN := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wformat=2 -Wstrict-prototypes \
        -Wmissing-prototypes -Wnull-dereference -Wduplicated-cond -Wduplicated-branches \
        -Wlogical-op -Wimplicit-fallthrough=5 -Wvla -Walloca -Wstack-usage=16384 $(WERROR)
HARDEN := -fstack-protector-strong -fstack-clash-protection -fcf-protection=full \
          -ftrivial-auto-var-init=zero -fzero-call-used-regs=used-gpr \
          -fno-delete-null-pointer-checks -fno-strict-overflow -fno-strict-aliasing
OPT := -O2 -g
ifeq ($(SAN),)
HARDEN += -D_FORTIFY_SOURCE=3
else
OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=$(SAN) -fno-sanitize-recover=all
# The sanitizers' own instrumentation confuses these two.
WARN += -Wno-stack-usage -Wno-null-dereference
endif
CPPFLAGS := -Isrc -I$(BUILD)/gen -D_GNU_SOURCE -DATOLL_VERSION='"$(VERSION)"'
CFLAGS := -std=gnu17 $(OPT) $(WARN) $(HARDEN) -fPIE -fvisibility=hidden -pthread \
          $(shell pkg-config --cflags $(PKGS))
LDFLAGS := -pie -pthread -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code,-z,nodlopen,--as-needed \
           $(if $(SAN),-fsanitize=$(SAN))
LIBS := $(shell pkg-config --libs $(PKGS)) -lwslay -lm

LIB_SRC := $(filter-out %_test.c %_fuzz.c src/base/test.c src/base/fuzz_main.c src/main.c \
             $(wildcard src/warden/*.c),$(wildcard src/*/*.c))
TEST_SRC := $(filter-out src/warden/%,$(wildcard src/*/*_test.c))
FUZZ_SRC := $(filter-out src/warden/%,$(wildcard src/*/*_fuzz.c))
LIB_OBJ := $(LIB_SRC:src/%.c=$(BUILD)/obj/%.o)
TESTS := $(TEST_SRC:src/%.c=$(BUILD)/test/%)
REPLAYS := $(FUZZ_SRC:src/%.c=$(BUILD)/replay/%)

.DEFAULT_GOAL := all
.PHONY: all unit clean help
all: $(BUILD)/atoll

$(BUILD)/obj/%.o: src/%.c
	@mkdir -p $(@D)
	@echo "  CC   $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/libatoll.a: $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/atoll: $(BUILD)/obj/main.o $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/libatoll.a $(LIBS)

$(BUILD)/test/%_test: $(BUILD)/obj/%_test.o $(BUILD)/obj/base/test.o $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/obj/base/test.o $(BUILD)/libatoll.a $(LIBS) -lcmocka

$(BUILD)/replay/%_fuzz: $(BUILD)/obj/%_fuzz.o $(BUILD)/obj/base/fuzz_main.o $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# ---- the warden ----------------------------------------------------------------------------------

# Static, position-independent, musl alone. The sanitizers need glibc, so with SAN the program is
# still built plain; its parts are also built the usual way, for their tests.
MUSL_LIB ?= /usr/lib/$(patsubst %-gnu,%-musl,$(shell $(CC) -print-multiarch))
WARDEN_OWN := $(filter-out %_test.c,$(wildcard src/warden/*.c))
WARDEN_SRC := $(WARDEN_OWN) $(addprefix src/,wire/wire.c wire/layout.c base/log.c base/buf.c \
                base/mem.c base/str.c base/clock.c)
WARDEN_OBJ := $(WARDEN_SRC:src/%.c=$(BUILD)/musl/%.o)
WARDEN_CFLAGS := -std=gnu17 -O2 -g -fPIE -fvisibility=hidden -fstack-protector-strong \
        -fstack-clash-protection -fcf-protection=full -ftrivial-auto-var-init=zero \
        -fzero-call-used-regs=used-gpr -fno-delete-null-pointer-checks -fno-strict-overflow \
        -fno-strict-aliasing -ffunction-sections -fdata-sections \
        -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wformat=2 -Wstrict-prototypes \
        -Wmissing-prototypes -Wvla -Walloca -Wstack-usage=16384 $(WERROR)
# musl-gcc has no -static-pie: its start file and the linker's flags are named here instead.
WARDEN_LDFLAGS := -nostartfiles -static -Wl,-pie,--no-dynamic-linker,-z,text,-z,relro,-z,now \
        -Wl,-z,noexecstack,-z,separate-code,--gc-sections
WARDEN_PARTS := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(filter-out src/warden/main.c,$(WARDEN_OWN)))
WARDEN_TESTS := $(patsubst src/%.c,$(BUILD)/test/%,$(wildcard src/warden/*_test.c))
TESTS += $(WARDEN_TESTS)
all: $(BUILD)/atoll-warden

# musl brings no kernel headers; these are the system's, and nothing else of glibc's.
$(BUILD)/musl/include/linux:
	@mkdir -p $(@D)
	@ln -sfn /usr/include/linux $(@D)/linux
	@ln -sfn /usr/include/asm-generic $(@D)/asm-generic
	@ln -sfn /usr/include/$(shell $(CC) -print-multiarch)/asm $(@D)/asm

$(BUILD)/musl/%.o: src/%.c | $(BUILD)/musl/include/linux
	@mkdir -p $(@D)
	@echo "  MUSL $<"
	@$(MUSL_CC) $(CPPFLAGS) -isystem $(BUILD)/musl/include $(WARDEN_CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/atoll-warden: $(WARDEN_OBJ)
	@echo "  LD   $@"
	@$(MUSL_CC) $(WARDEN_LDFLAGS) $(MUSL_LIB)/rcrt1.o $(MUSL_LIB)/crti.o \
	    $(shell $(CC) -print-file-name=crtbeginS.o) $^ $(shell $(CC) -print-file-name=crtendS.o) \
	    $(MUSL_LIB)/crtn.o -o $@

$(WARDEN_TESTS): $(BUILD)/test/%: $(BUILD)/obj/%.o $(WARDEN_PARTS) $(BUILD)/obj/base/test.o \
                                  $(BUILD)/libatoll.a | $(BUILD)/atoll-warden
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

-include $(shell find $(BUILD)/musl -name '*.d' 2>/dev/null)

# --------------------------------------------------------------------------------------------------

# Unit tests alone; T=word runs those whose file name holds the word.
unit: $(if $(T),$(foreach t,$(TESTS),$(if $(findstring $(T),$(t)),$(t))),$(TESTS))
	@for t in $^; do echo "== $$t"; $$t || exit 1; done

clean:
	rm -rf build build-address build-undefined build-thread

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
