# Atoll. `make run` starts it, `make test` proves it, `make help` lists the rest.
#
# GNU make and pkg-config, nothing to install first: `make deps` brings the libraries. Output goes
# to build/; variants that must not mix have their own (build-address/ with SAN=address). Every
# src/ROOM/*.c is in libatoll.a, except tests (x_test.c), fuzzers (x_fuzz.c) and the rooms of the
# static programs (src/warden, src/init), which have their own block below.

SAN ?=
BUILD := build$(if $(SAN),-$(SAN))
CC := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
CLANG ?= clang-14
MUSL_CC ?= musl-gcc
PYTHON ?= /usr/bin/python3
VERSION := 0.1.0
WERROR ?= -Werror
JOBS ?= $(shell nproc)

# ---- flags ---------------------------------------------------------------------------------------

PKGS := libcares libnghttp2 libprotobuf-c openssl sqlite3 libseccomp zlib libzstd liblzma
WARN := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wformat=2 -Wstrict-prototypes \
        -Wmissing-prototypes -Wnull-dereference -Wduplicated-cond -Wduplicated-branches \
        -Wlogical-op -Wimplicit-fallthrough=5 -Wvla -Walloca -Wstack-usage=16384 $(WERROR)
HARDEN := -fstack-protector-strong -fstack-clash-protection -fcf-protection=full \
          -ftrivial-auto-var-init=zero -fzero-call-used-regs=used-gpr \
          -fno-delete-null-pointer-checks -fno-strict-overflow -fno-strict-aliasing
OPT := -O2 -g
SAN_LINK := $(if $(SAN),-fsanitize=$(SAN))
ifeq ($(SAN),)
HARDEN += -D_FORTIFY_SOURCE=3
else ifeq ($(SAN),fuzz)
# libFuzzer is clang's; it knows other warnings, and the hardening would only slow the search.
CC := $(CLANG)
OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
       -fno-sanitize-recover=all
WARN := -Wall -Wextra -Wno-unknown-warning-option -Wno-missing-field-initializers
HARDEN :=
SAN_LINK := -fsanitize=address,undefined
else ifeq ($(SAN),analyze)
# gcc's own analyzer; what is built is thrown away. gcc 12 does not know that a cleanup attribute
# frees, closes or reads: the checks about leaks would name every autofree, and LeakSanitizer does
# that work at run time.
OPT := -O1 -fanalyzer -Wno-analyzer-malloc-leak -Wno-analyzer-file-leak -DATOLL_ANALYZE
WARN := -Wall $(WERROR)
SAN_LINK :=
else
OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=$(SAN) -fno-sanitize-recover=all
# The sanitizers' own instrumentation confuses these two.
WARN += -Wno-stack-usage -Wno-null-dereference -Wno-maybe-uninitialized
endif
CPPFLAGS := -Isrc -I$(BUILD)/gen -D_GNU_SOURCE -DATOLL_VERSION='"$(VERSION)"'
# Asked for once and only when something is compiled: `make run` on a bare machine has no pkg-config
# before it has installed it.
PKG_CFLAGS = $(eval PKG_CFLAGS := $$(shell pkg-config --cflags $(PKGS)))$(PKG_CFLAGS)
PKG_LIBS = $(eval PKG_LIBS := $$(shell pkg-config --libs $(PKGS)))$(PKG_LIBS)
CFLAGS = -std=gnu17 $(OPT) $(WARN) $(HARDEN) -fPIE -fvisibility=hidden -pthread $(PKG_CFLAGS) \
         $(EXTRA_CFLAGS)
LDFLAGS := -pie -pthread -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code,-z,nodlopen,--as-needed \
           $(SAN_LINK)
# libarchive is linked in: of it only tar and three decompressors are used, and the shared one would
# bring an XML parser and a megabyte of tables into every start of every command.
LIBS = -l:libarchive.a $(PKG_LIBS) -lwslay -lm

# ---- sources -------------------------------------------------------------------------------------

LIB_SRC := $(filter-out %_test.c %_fuzz.c src/base/test.c src/base/fuzz_main.c src/main.c \
             $(wildcard src/warden/*.c src/init/*.c src/client/*.c),$(wildcard src/*/*.c))
TEST_SRC := $(filter-out src/warden/%,$(wildcard src/*/*_test.c))
FUZZ_SRC := $(filter-out src/warden/%,$(wildcard src/*/*_fuzz.c))
LIB_OBJ := $(LIB_SRC:src/%.c=$(BUILD)/obj/%.o)
TESTS := $(TEST_SRC:src/%.c=$(BUILD)/test/%)
REPLAYS := $(FUZZ_SRC:src/%.c=$(BUILD)/replay/%)
FUZZERS := $(FUZZ_SRC:src/%.c=$(BUILD)/fuzz/%)
# What `all` makes, and what else the tests need; the blocks below add to these.
PROGRAMS := $(BUILD)/atoll $(BUILD)/atoll-server
TEST_PROGRAMS :=
# Libraries that one test alone needs, by its stem.
LIBS_json_peer_test := -ljansson
LIBS_h1_peer_test := -lhttp_parser
LIBS_h1_fuzz := -lhttp_parser

# T=word keeps the tests whose path holds the word.
some = $(if $(T),$(foreach x,$1,$(if $(findstring $(T),$x),$x)),$1)
# A make below this one uses all cores, unless this one was told how many. (The recipes begin with +
# because make does not see $(MAKE) in here, and would not share its jobs.)
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

.DEFAULT_GOAL := all
.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all FORCE
all: ## build everything into build/

# ---- the dashboard -------------------------------------------------------------------------------

# Bundled once for all variants, embedded compressed. Without npm a page that says so takes its
# place, and the next make tries again.
WEB_SRC := $(shell find web -type f -not -path '*/node_modules/*' 2>/dev/null)
WEB_OUT := build/web
$(WEB_OUT)/.made: $(WEB_SRC) tools/build-web $(if $(wildcard $(WEB_OUT)/FALLBACK),FORCE)
	@echo "  WEB  $(WEB_OUT)"
	@tools/build-web $(WEB_OUT)
	@touch $@
$(BUILD)/gen/assets.S: $(WEB_OUT)/.made tools/embed-assets
	@tools/embed-assets $(WEB_OUT) $(BUILD)/gen
$(BUILD)/gen/assets_table.c: $(BUILD)/gen/assets.S ;
$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.S
	@mkdir -p $(@D)
	@$(CC) -c $< -o $@
ifneq ($(wildcard src/http/assets.h),)
LIB_OBJ += $(BUILD)/obj/gen/assets.o $(BUILD)/obj/gen/assets_table.o
endif

# ---- what building needs --------------------------------------------------------------------------

# Looked for once, before anything fails for the want of it. `make run` and `make test` install it.
BUILD_TOOLS := $(CC) $(MUSL_CC) pkg-config protoc-c
build/.tools:
	@mkdir -p $(@D)
	@missing=; for tool in $(foreach t,$(BUILD_TOOLS),$(lastword $(t))); do \
	    command -v "$$tool" >/dev/null 2>&1 || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ] && ! pkg-config --exists $(PKGS); then missing=" libraries of $(PKGS)"; fi; \
	if [ -n "$$missing" ]; then echo "Building needs what is not installed:$$missing" >&2; \
	    echo "\`make deps\` installs the packages." >&2; exit 1; fi
	@touch $@

# ---- messages of remote calls --------------------------------------------------------------------

# Structs and descriptors for C by protoc-c, which does not know `optional` of proto3: it reads a copy
# in which such a field is what the protocol makes of it, a choice of one ("field_is"). The files
# themselves are embedded as descriptors, for server reflection.
PROTOS := $(patsubst proto/%,%,$(shell find proto -name '*.proto' | sort))
PROTO_OPTIONAL := s/^\( *\)optional \([a-z0-9]*\) \([a-z0-9_]*\) = \([0-9]*\);/\1oneof \3_is { \2 \3 = \4; }/
PROTO_HEADERS := $(PROTOS:%.proto=$(BUILD)/gen/pb/%.pb-c.h)
$(BUILD)/gen/proto/%.proto: proto/%.proto | build/.tools
	@mkdir -p $(@D)
	@sed '$(PROTO_OPTIONAL)' $< > $@
$(BUILD)/gen/proto/%.proto: tests/proto/%.proto | build/.tools
	@mkdir -p $(@D)
	@sed '$(PROTO_OPTIONAL)' $< > $@
$(BUILD)/gen/pb/%.pb-c.c $(BUILD)/gen/pb/%.pb-c.h: $(BUILD)/gen/proto/%.proto
	@mkdir -p $(BUILD)/gen/pb
	@echo "  PB   $*.proto"
	@protoc-c -I$(BUILD)/gen/proto --c_out=$(BUILD)/gen/pb $<
$(BUILD)/obj/pb/%.o: $(BUILD)/gen/pb/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) $(CFLAGS) -w -MMD -MP -c $< -o $@
$(BUILD)/gen/protos.pb: $(PROTOS:%=proto/%) | build/.tools
	@mkdir -p $(@D)
	@protoc-c -Iproto --descriptor_set_out=$@ $^
$(BUILD)/gen/protos.S: $(BUILD)/gen/protos.pb Makefile
	@printf '%s\n' '.section .rodata' '.global protos_begin, protos_size' \
	    '.hidden protos_begin, protos_size' 'protos_begin: .incbin "$<"' '1: .balign 8' \
	    'protos_size: .quad 1b - protos_begin' \
	    '.section .note.GNU-stack,"",%progbits' > $@
CPPFLAGS += -isystem $(BUILD)/gen/pb
LIB_OBJ += $(PROTOS:%.proto=$(BUILD)/obj/pb/%.pb-c.o) $(BUILD)/obj/gen/protos.o
# The first build knows no dependencies yet.
PROTO_USERS := $(wildcard $(addsuffix /*.c,$(addprefix src/,api link agent cli daemon)))
$(PROTO_USERS:src/%.c=$(BUILD)/obj/%.o): | $(PROTO_HEADERS)

# ---- compile and link ----------------------------------------------------------------------------

# Rewritten only when it would change, so that new flags or a removed file rebuild what they must.
define stamp
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$1)' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$1)' > $@
endef
$(BUILD)/flags: FORCE | build/.tools
	$(call stamp,$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LIBS))
$(BUILD)/objects: FORCE
	$(call stamp,$(LIB_OBJ))

$(BUILD)/obj/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC   $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/libatoll.a: $(LIB_OBJ) $(BUILD)/objects
	@rm -f $@
	@ar rcs $@ $(filter %.o,$^)

$(BUILD)/atoll-server: $(BUILD)/obj/main.o $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/libatoll.a $(LIBS)

# The command line without the libraries of the server: it starts in a third of the time. Compression
# (of binary patches) is linked in for the same reason.
CLIENT_OBJ := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(wildcard src/client/*.c)) $(BUILD)/obj/client/commands.o
$(BUILD)/obj/client/commands.o: src/cli/commands.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC   $< (client)"
	@$(CC) $(CPPFLAGS) -DATOLL_CLIENT $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/atoll: $(CLIENT_OBJ) $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $(CLIENT_OBJ) $(BUILD)/libatoll.a -l:libz.a

$(BUILD)/test/%_test: $(BUILD)/obj/%_test.o $(BUILD)/obj/base/test.o $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/obj/base/test.o $(BUILD)/libatoll.a $(LIBS) -lcmocka \
	    $(LIBS_$(notdir $*)_test)

$(BUILD)/replay/%_fuzz: $(BUILD)/obj/%_fuzz.o $(BUILD)/obj/base/fuzz_main.o $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(LIBS_$(notdir $*)_fuzz)

$(BUILD)/fuzz/%_fuzz: $(BUILD)/obj/%_fuzz.o $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS) $(LIBS_$(notdir $*)_fuzz)

# ---- the warden and the init ---------------------------------------------------------------------

# Static, position-independent, musl alone. The sanitizers need glibc, so with SAN the programs are
# still built plain; their parts are also built the usual way, for their tests, and only there with
# the hooks that make a step fail or leave a guard out (ATOLL_FAULTS).
MULTIARCH = $(eval MULTIARCH := $$(shell $(MUSL_CC) -print-multiarch))$(MULTIARCH)
MUSL_LIB ?= /usr/lib/$(patsubst %-gnu,%-musl,$(MULTIARCH))
WARDEN_OWN := $(filter-out %_test.c %_fuzz.c,$(wildcard src/warden/*.c))
WARDEN_SRC := $(WARDEN_OWN) $(addprefix src/,wire/wire.c wire/layout.c wire/box.c seccomp/seccomp.c \
                base/log.c base/signals.c base/show.c base/buf.c base/mem.c base/str.c base/clock.c)
WARDEN_OBJ := $(WARDEN_SRC:src/%.c=$(BUILD)/musl/%.o) $(BUILD)/musl/init_image.o
INIT_OWN := $(filter-out %_test.c %_fuzz.c,$(wildcard src/init/*.c))
INIT_SRC := $(INIT_OWN) src/wire/init.c $(filter-out %_test.c %_fuzz.c,$(wildcard src/tree/*.c))
INIT_OBJ := $(INIT_SRC:src/%.c=$(BUILD)/musl/%.o)
MUSL_CFLAGS := -std=gnu17 -O2 -g -fPIE -fvisibility=hidden -fstack-protector-strong \
        -fstack-clash-protection -fcf-protection=full -ftrivial-auto-var-init=zero \
        -fzero-call-used-regs=used-gpr -fno-delete-null-pointer-checks -fno-strict-overflow \
        -fno-strict-aliasing -ffunction-sections -fdata-sections \
        -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wformat=2 -Wstrict-prototypes \
        -Wmissing-prototypes -Wvla -Walloca -Wstack-usage=16384 $(WERROR)
# musl-gcc has no -static-pie: its start file and the linker's flags are named here instead.
MUSL_LDFLAGS := -nostartfiles -static -Wl,-pie,--no-dynamic-linker,-z,text,-z,relro,-z,now \
        -Wl,-z,noexecstack,-z,separate-code,--gc-sections
WARDEN_PARTS := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(filter-out src/warden/main.c,$(WARDEN_OWN)))
WARDEN_TESTS := $(patsubst src/%.c,$(BUILD)/test/%,$(wildcard src/warden/*_test.c))
TESTS += $(WARDEN_TESTS)
PROGRAMS += $(BUILD)/atoll-warden $(BUILD)/atoll-init

# musl brings no kernel headers; these are the system's, and nothing else of glibc's.
$(BUILD)/musl/include/linux:
	@mkdir -p $(@D)
	@ln -sfn /usr/include/linux $(@D)/linux
	@ln -sfn /usr/include/asm-generic $(@D)/asm-generic
	@ln -sfn /usr/include/$(MULTIARCH)/asm $(@D)/asm

$(BUILD)/musl/flags: FORCE | build/.tools
	$(call stamp,$(MUSL_CC) $(CPPFLAGS) $(MUSL_CFLAGS) $(MUSL_LDFLAGS) $(WARDEN_OBJ) $(INIT_OBJ))
$(BUILD)/musl/%.o: src/%.c $(BUILD)/musl/flags | $(BUILD)/musl/include/linux
	@mkdir -p $(@D)
	@echo "  MUSL $<"
	@$(MUSL_CC) $(CPPFLAGS) -isystem $(BUILD)/musl/include $(MUSL_CFLAGS) -MMD -MP -c $< -o $@

# The init is run from memory, without its symbols: the smaller, the faster.
$(BUILD)/musl/init_image.o: src/warden/init_image.S $(BUILD)/atoll-init
	@strip -o $(BUILD)/musl/init.stripped $(BUILD)/atoll-init
	@$(CC) -DINIT_FILE='"$(BUILD)/musl/init.stripped"' -c $< -o $@

musl_link = @echo "  LD   $@"; $(MUSL_CC) $(MUSL_LDFLAGS) $(MUSL_LIB)/rcrt1.o $(MUSL_LIB)/crti.o \
    $$($(MUSL_CC) -print-file-name=crtbeginS.o) $^ $$($(MUSL_CC) -print-file-name=crtendS.o) \
    $(MUSL_LIB)/crtn.o -o $@
$(BUILD)/atoll-warden: $(WARDEN_OBJ)
	$(musl_link)
$(BUILD)/atoll-init: $(INIT_OBJ)
	$(musl_link)

# What the tests run inside of sandboxes.
$(BUILD)/probe: tests/escape/probe.c | $(BUILD)/musl/include/linux
	@echo "  MUSL $<"
	@$(MUSL_CC) -D_GNU_SOURCE -isystem $(BUILD)/musl/include -std=gnu17 -O1 -Wall -Wextra $(WERROR) \
	    -static -o $@ $<
TEST_PROGRAMS += $(BUILD)/probe

# For the test of an upgrade: the same programs as of another release, by their init's version.
OTHER := $(BUILD)/other
$(OTHER)/link.o: src/box/link.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) -DINIT_VERSION=1 $(CFLAGS) -MMD -MP -c $< -o $@
$(OTHER)/init_link.o: src/init/link.c $(BUILD)/musl/flags | $(BUILD)/musl/include/linux
	@mkdir -p $(@D)
	@$(MUSL_CC) $(CPPFLAGS) -DINIT_VERSION=1 -isystem $(BUILD)/musl/include $(MUSL_CFLAGS) -MMD -MP \
	    -c $< -o $@
$(OTHER)/atoll: $(BUILD)/obj/main.o $(OTHER)/link.o $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)
$(OTHER)/atoll-init: $(filter-out %/init/link.o,$(INIT_OBJ)) $(OTHER)/init_link.o
	$(musl_link)
$(OTHER)/init_image.o: src/warden/init_image.S $(OTHER)/atoll-init
	@strip -o $(OTHER)/init.stripped $(OTHER)/atoll-init
	@$(CC) -DINIT_FILE='"$(OTHER)/init.stripped"' -c $< -o $@
$(OTHER)/atoll-warden: $(filter-out %/init_image.o,$(WARDEN_OBJ)) $(OTHER)/init_image.o
	$(musl_link)
TEST_PROGRAMS += $(OTHER)/atoll $(OTHER)/atoll-warden

# A server that answers before it has committed, to prove that the crash tests see it.
LIAR := $(BUILD)/liar
$(LIAR)/%.o: src/store/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) -DATOLL_LAZY_COMMIT $(CFLAGS) -MMD -MP -c $< -o $@
$(LIAR)/atoll: $(BUILD)/obj/main.o $(LIAR)/store.o $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)
$(LIAR)/atoll-warden: $(BUILD)/atoll-warden
	@mkdir -p $(@D)
	@cp $< $@
$(BUILD)/test/store/crash_liar_test: $(LIAR)/crash_test.o $(LIAR)/store.o $(BUILD)/obj/base/test.o \
                                     $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka
TEST_PROGRAMS += $(LIAR)/atoll $(LIAR)/atoll-warden
TESTS += $(BUILD)/test/store/crash_liar_test

# Programs whose guards can be left out one by one, to prove that each is needed (base/guard.h): an egress process
# and an unpacker, a warden, and a process 1 for the tests of the warden that are named here.
UNGUARDED := $(BUILD)/unguarded
UNGUARDED_OBJ := $(patsubst %,$(UNGUARDED)/%.o,box conn dial http judge reach self tunnel)
$(UNGUARDED)/%.o: src/egress/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) -DATOLL_UNGUARDED $(CFLAGS) -MMD -MP -c $< -o $@
UNGUARDED_IMAGE := $(patsubst %,$(UNGUARDED)/image/%.o,inspect layer name stream)
$(UNGUARDED)/image/%.o: src/image/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) -DATOLL_UNGUARDED $(CFLAGS) -MMD -MP -c $< -o $@
$(UNGUARDED)/atoll: $(BUILD)/obj/main.o $(UNGUARDED_OBJ) $(UNGUARDED_IMAGE) $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)
TEST_PROGRAMS += $(UNGUARDED)/atoll
$(UNGUARDED)/musl/%.o: src/%.c $(BUILD)/musl/flags | $(BUILD)/musl/include/linux
	@mkdir -p $(@D)
	@$(MUSL_CC) $(CPPFLAGS) -DATOLL_UNGUARDED -isystem $(BUILD)/musl/include $(MUSL_CFLAGS) -MMD -MP -c $< -o $@
$(UNGUARDED)/atoll-init: $(INIT_SRC:src/%.c=$(UNGUARDED)/musl/%.o)
	$(musl_link)
$(UNGUARDED)/init_image.o: src/warden/init_image.S $(UNGUARDED)/atoll-init
	@strip -o $(UNGUARDED)/init.stripped $(UNGUARDED)/atoll-init
	@$(CC) -DINIT_FILE='"$(UNGUARDED)/init.stripped"' -c $< -o $@
$(UNGUARDED)/atoll-warden: $(WARDEN_SRC:src/%.c=$(UNGUARDED)/musl/%.o) $(UNGUARDED)/init_image.o
	$(musl_link)
TEST_PROGRAMS += $(UNGUARDED)/atoll-warden
UNGUARDED_TESTS := $(patsubst %,$(BUILD)/test/warden/%_test,guards limits rootless)
$(UNGUARDED_TESTS): $(UNGUARDED)/init_image.o
$(filter-out $(UNGUARDED_TESTS),$(WARDEN_TESTS)): $(BUILD)/musl/init_image.o

# (Private: what these are made from, the stamp of the flags above all, must not see it.)
$(WARDEN_PARTS) $(WARDEN_TESTS:$(BUILD)/test/%=$(BUILD)/obj/%.o): private CPPFLAGS += -DATOLL_FAULTS -DATOLL_UNGUARDED
$(WARDEN_TESTS): $(BUILD)/test/%: $(BUILD)/obj/%.o $(WARDEN_PARTS) $(BUILD)/obj/base/test.o $(BUILD)/libatoll.a \
                                  | $(BUILD)/atoll-warden $(UNGUARDED)/atoll-warden $(BUILD)/probe
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

# ---- programs that tests talk to -------------------------------------------------------------------

# testd: a server for protocol peers. screen: what our terminal shows, to compare with others. rules, creds: policies
# and sealed secrets for the egress process.
PEERS := testd screen rules creds
TEST_PROGRAMS += $(PEERS:%=$(BUILD)/%)

$(PEERS:%=$(BUILD)/obj/%.o): $(BUILD)/obj/%.o: tests/peers/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC   $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(PEERS:%=$(BUILD)/%): $(BUILD)/%: $(BUILD)/obj/%.o $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# ---- the codec of remote calls, for tests against others' ---------------------------------------------

TEST_PROGRAMS += $(BUILD)/codec $(BUILD)/gen/types.pb

$(BUILD)/gen/types.pb: tests/proto/types.proto
	@mkdir -p $(@D)
	@protoc-c -Itests/proto --descriptor_set_out=$@ $<
$(BUILD)/obj/codec.o: tests/peers/codec.c $(BUILD)/flags | $(BUILD)/gen/pb/types.pb-c.h
	@mkdir -p $(@D)
	@echo "  CC   $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/codec: $(BUILD)/obj/codec.o $(BUILD)/obj/pb/types.pb-c.o $(BUILD)/libatoll.a
	@echo "  LD   $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# ---- the system call filter ----------------------------------------------------------------------

# tools/gen-seccomp runs here, while building: it compiles src/seccomp/policy.c into blob.h.
# numbers.h is what the system's headers say the numbers are, for the test of that table.
HOST_CC ?= gcc
GEN_SECCOMP := $(BUILD)/host/gen-seccomp
SECCOMP_GEN := $(BUILD)/gen/seccomp/blob.h $(BUILD)/gen/seccomp/numbers.h

$(GEN_SECCOMP): tools/gen-seccomp.c $(addprefix src/seccomp/,policy.c compile.c page.c policy.h \
                  compile.h page.h seccomp.h) $(addprefix src/base/,err.c mem.c err.h mem.h auto.h)
	@mkdir -p $(@D)
	@echo "  HOST $@"
	@$(HOST_CC) -std=gnu17 -O1 -g -Wall -Wextra $(WERROR) -Isrc -D_GNU_SOURCE -o $@ \
	    $(filter %.c,$^) -lcrypto

$(BUILD)/gen/seccomp/blob.h: $(GEN_SECCOMP)
	@mkdir -p $(@D)
	@$< header > $@
$(BUILD)/gen/seccomp/numbers.h: tools/gen-seccomp-numbers
	@mkdir -p $(@D)
	@$< $(HOST_CC) > $@
# The first build knows no dependencies yet.
$(patsubst src/%.c,$(BUILD)/obj/%.o,$(wildcard src/seccomp/*.c)): $(SECCOMP_GEN)
$(BUILD)/musl/seccomp/seccomp.o $(UNGUARDED)/musl/seccomp/seccomp.o: $(BUILD)/gen/seccomp/blob.h

.PHONY: docs-seccomp
docs: docs-seccomp
docs-seccomp: $(GEN_SECCOMP)
	@mkdir -p docs
	@$< page > docs/seccomp.md

# ---- everything --------------------------------------------------------------------------------

.PHONY: programs test-programs unit-programs replay-programs fuzz-programs
all: programs
programs: $(PROGRAMS)
unit-programs: $(call some,$(TESTS))
replay-programs: $(call some,$(REPLAYS))
test-programs: $(PROGRAMS) $(TEST_PROGRAMS) $(TESTS) $(REPLAYS)
fuzz-programs: $(call some,$(FUZZERS))

# ---- run -----------------------------------------------------------------------------------------

.PHONY: run deps deps-test deps-bench deps-check
run: ## install what is needed, build, and serve on 127.0.0.1:8080 (ARGS="--listen …")
	@tools/serve --check $(ARGS)
	+@$(SUBMAKE) deps
	+@$(SUBMAKE) all
	@exec tools/serve $(BUILD)/atoll serve $(ARGS)

deps: ## install the packages that building and running need
	@tools/deps build run
deps-test:
	@tools/deps build run test
deps-bench:
	@tools/deps build run test bench
deps-check:
	@tools/deps build run test check

# ---- test ----------------------------------------------------------------------------------------

RUN_TESTS = $(PYTHON) tools/run-tests --build $(BUILD)
.PHONY: test unit replay e2e crash
test: deps-test ## install what tests need, build, and run all of them
	+@$(SUBMAKE) test-programs
	@$(RUN_TESTS) --unit $(TESTS) --replay $(REPLAYS) --e2e

unit: ## unit tests alone; T=word runs those whose path holds the word
	+@$(SUBMAKE) unit-programs
	@$(RUN_TESTS) --unit $(call some,$(TESTS))

replay: ## the fuzzers' corpora, without a fuzzer
	+@$(SUBMAKE) replay-programs
	@$(RUN_TESTS) --replay $(call some,$(REPLAYS))

e2e: ## end-to-end tests alone; T=word
	+@$(SUBMAKE) programs $(TEST_PROGRAMS)
	@$(RUN_TESTS) --e2e $(T)

crash: ## kill -9 at random instants under load; CYCLES=200
	+@$(SUBMAKE) programs
	@$(PYTHON) tests/crash/crash.py --bin $(BUILD)/atoll --cycles $(or $(CYCLES),200)

FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: ## each fuzzer for 60 s (FUZZ_SECONDS, T=word)
	@tools/deps build check
	+@$(SUBMAKE) SAN=fuzz fuzz-programs
	@$(PYTHON) tools/run-fuzz --seconds $(FUZZ_SECONDS) --jobs $(JOBS) \
	    $(call some,$(FUZZ_SRC:src/%.c=build-fuzz/fuzz/%))

BENCH ?= full
.PHONY: bench bench-programs
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	@$(CC) -D_GNU_SOURCE -std=gnu17 -O2 -Wall -Wextra -o $@ $<
$(BUILD)/bench/box: tests/bench/box.c $(filter-out %/main.o %/supervise.o,$(WARDEN_OBJ)) \
                    $(BUILD)/musl/wire/init.o
	@mkdir -p $(@D)
	@$(MUSL_CC) $(CPPFLAGS) -isystem $(BUILD)/musl/include -std=gnu17 -O2 -Wall -Wextra -static -o $@ $^
$(BUILD)/bench/screen: tests/bench/screen.c $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@$(CC) -Isrc -D_GNU_SOURCE -std=gnu17 -O2 -Wall -Wextra -o $@ $^ -lvterm -lm
$(BUILD)/bench/decide: tests/bench/decide.c $(BUILD)/libatoll.a
	@mkdir -p $(@D)
	@$(CC) -Isrc -D_GNU_SOURCE -std=gnu17 -O2 -Wall -Wextra -o $@ $^
bench-programs: $(addprefix $(BUILD)/bench/,append fanout box screen tunnel decide kept) $(BUILD)/rules
bench: deps-bench ## measure against peers, side by side (BENCH=quick)
	+@$(SUBMAKE) all bench-programs
	@$(PYTHON) tests/bench/run --build $(BUILD) $(if $(filter quick,$(BENCH)),--quick)

# ---- check ---------------------------------------------------------------------------------------

.PHONY: check
check: deps-check ## layers, style, static analysis, binaries, docs; every check proven to fail
	+@$(SUBMAKE) all
	@$(PYTHON) tools/run-checks $(PROGRAMS) $(if $(T),--only $(T))

# ---- install -------------------------------------------------------------------------------------

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBEXECDIR ?= $(PREFIX)/libexec/atoll
SHAREDIR ?= $(PREFIX)/share
UNITDIR ?= $(PREFIX)/lib/systemd/system
INSTALL ?= install

# Where `atoll` looks for the server program, and `atoll serve` for the warden, when they are not
# beside it.
$(BUILD)/libexec: FORCE
	$(call stamp,$(LIBEXECDIR))
$(BUILD)/obj/base/program.o: $(BUILD)/libexec
$(BUILD)/obj/base/program.o: private CPPFLAGS += -DATOLL_LIBEXEC='"$(LIBEXECDIR)"'

.PHONY: dist install uninstall
install: all ## install below PREFIX (/usr/local), DESTDIR before it: programs, manuals, unit, completions
	@$(INSTALL) -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBEXECDIR) $(DESTDIR)$(UNITDIR)
	@$(INSTALL) -m 755 $(BUILD)/atoll $(DESTDIR)$(BINDIR)/atoll
	@$(INSTALL) -m 755 $(BUILD)/atoll-server $(BUILD)/atoll-warden $(DESTDIR)$(LIBEXECDIR)
	@for unit in atoll.service atoll-agent.service; do \
	    sed 's|@BINDIR@|$(BINDIR)|' deploy/$$unit > $(DESTDIR)$(UNITDIR)/$$unit; \
	    chmod 644 $(DESTDIR)$(UNITDIR)/$$unit; done
	@for page in $(notdir $(wildcard man/*.[1-8])); do \
	    $(INSTALL) -D -m 644 man/$$page $(DESTDIR)$(SHAREDIR)/man/man$${page##*.}/$$page; done
	@$(INSTALL) -d $(DESTDIR)$(SHAREDIR)/bash-completion/completions \
	    $(DESTDIR)$(SHAREDIR)/zsh/site-functions $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d
	@$(BUILD)/atoll completion bash > $(DESTDIR)$(SHAREDIR)/bash-completion/completions/atoll
	@$(BUILD)/atoll completion zsh > $(DESTDIR)$(SHAREDIR)/zsh/site-functions/_atoll
	@$(BUILD)/atoll completion fish > $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/atoll.fish
	@echo "installed below $(DESTDIR)$(PREFIX)"

uninstall: ## remove what install put there; state and settings stay
	@rm -f $(DESTDIR)$(BINDIR)/atoll $(DESTDIR)$(LIBEXECDIR)/atoll-server \
	    $(DESTDIR)$(LIBEXECDIR)/atoll-warden \
	    $(DESTDIR)$(UNITDIR)/atoll.service $(DESTDIR)$(UNITDIR)/atoll-agent.service \
	    $(DESTDIR)$(SHAREDIR)/bash-completion/completions/atoll \
	    $(DESTDIR)$(SHAREDIR)/zsh/site-functions/_atoll \
	    $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/atoll.fish \
	    $(foreach page,$(notdir $(wildcard man/*.[1-8])), \
	        $(DESTDIR)$(SHAREDIR)/man/man$(subst .,,$(suffix $(page)))/$(page))
	@rmdir $(DESTDIR)$(LIBEXECDIR) 2>/dev/null || true

# ---- docs, clean, help ---------------------------------------------------------------------------

.PHONY: docs clean help
docs: all ## write the generated reference pages, and the generated part of the SDKs
	@tools/docs $(BUILD)/atoll write
	@tools/gen-sdk $(BUILD)/atoll write

# What git knows, and the dashboard ready to be embedded: builds without Node.
DIST = atoll-$(VERSION)
dist: $(WEB_OUT)/.made ## a tarball of the sources with the dashboard built: build/atoll-VERSION.tar.gz
	@test ! -e $(WEB_OUT)/FALLBACK || { echo "the dashboard could not be built here" >&2; exit 1; }
	@rm -rf build/dist && mkdir -p build/dist/$(DIST)
	@git archive HEAD | tar -x -C build/dist/$(DIST)
	@cp -R $(WEB_OUT) build/dist/$(DIST)/web/prebuilt && rm -f build/dist/$(DIST)/web/prebuilt/.made
	@tar -C build/dist --owner=0 --group=0 -czf build/$(DIST).tar.gz $(DIST)
	@rm -rf build/dist
	@echo "  DIST build/$(DIST).tar.gz"

clean: ## remove everything that was built
	rm -rf build build-*/

# For tools that compile by themselves: how a file of ours is compiled, without gcc's own warnings.
.PHONY: print-flags analyze
print-flags:
	@echo '-std=gnu17 $(subst ','\'',$(CPPFLAGS)) $(PKG_CFLAGS)'
# CMSG_FIRSTHDR is NULL only without room for a header, which the line above it makes.
build-analyze/obj/wire/wire.o: private EXTRA_CFLAGS := -Wno-analyzer-null-dereference
# With SAN=analyze: every object, nothing linked.
analyze: $(LIB_OBJ) $(BUILD)/obj/main.o

help:
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
	@echo '  SAN=address|undefined|thread: a variant in its own build directory'

-include $(shell find $(addprefix $(BUILD)/,obj musl other liar unguarded) -name '*.d' 2>/dev/null)
