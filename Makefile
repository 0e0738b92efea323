# pqtx: build, test, install.  GNU make.
#
#   make                                  the libraries, in build/
#   make demo                             the stampede, on a throw-away server
#   make bench bench-count                speed beside libpq by hand and peers; exact costs (Linux)
#   make check                            every test; the live ones on a throw-away server
#   make check SANITIZE=address,undefined the same under sanitizers (or SANITIZE=thread)
#   make check-valgrind check-analyzer check-tidy check-format
#   make install prefix=/usr DESTDIR=dir  libraries, headers, manual pages, pkg-config
#   make dist distcheck                   the release archive, and a trial of it
#
# SHARED=0 or STATIC=0 leaves one library out, WERROR=1 makes warnings errors, HARDEN= leaves the
# hardening flags out, V=1 shows the commands, DEMO_ARGS= goes to the stampede, BENCH_TABLES= names
# the tables of the benchmark.  CC, CPPFLAGS, CFLAGS and LDFLAGS are yours.
#
# Out of tree: make -f /path/to/Makefile, or run /path/to/configure there.  ./configure is
# optional: it checks the system and writes config.mk, which overrides the defaults below.

srcdir   := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
makefile := $(firstword $(MAKEFILE_LIST))

prefix       = /usr/local
exec_prefix  = $(prefix)
libdir       = $(exec_prefix)/lib
includedir   = $(prefix)/include
datarootdir  = $(prefix)/share
mandir       = $(datarootdir)/man
pkgconfigdir = $(libdir)/pkgconfig

INSTALL      = install
PKG_CONFIG   = pkg-config
PG_CONFIG    = pg_config
CLANG_FORMAT = clang-format
VALGRIND     = valgrind -q --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=99
CFLAGS      ?= -O2 -g
SHARED       = 1
STATIC       = 1

-include config.mk

ifndef PQ_LIBS
PQ_CFLAGS := $(shell $(PKG_CONFIG) --cflags libpq 2>/dev/null || \
	{ dir=`$(PG_CONFIG) --includedir 2>/dev/null` && echo -I$$dir; })
PQ_LIBS   := $(shell $(PKG_CONFIG) --libs libpq 2>/dev/null || \
	{ dir=`$(PG_CONFIG) --libdir 2>/dev/null` && echo -L$$dir -lpq; })
ifndef PQ_LIBS
$(warning libpq was not found: tests/setup make installs it, or set PQ_CFLAGS and PQ_LIBS)
endif
endif
CHECK_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags check)
CHECK_LIBS   ?= $(shell $(PKG_CONFIG) --libs check)

# The public header is the one place that states the version.
version := $(shell awk '/define PQTX_VERSION_M[AI]|define PQTX_VERSION_P/ \
	{ v = v s $$3; s = "." } END { print v }' $(srcdir)/include/pqtx.h)
# Binary interface number: raised when, and only when, an old program would break.
abi     := 0

# Floors, from the ground up, with a / between them: a file includes only what stands before it,
# and on the last floor no file includes another.
floors := size name fork wait status value error clock observer options backoff budget statement \
          guard finding fault / quote prepared batch wire blocker hosts backend connect proof ticket \
          / turn gate lend pool session takeover prometheus \
          / resolver action attempt lead blame fly call commit claim report tx table pipeline \
          savepoint / doubt retry loop handle run one each \
          / names ready verdict counter many line pile parcel \
          / update lock rowlock insert once leader diagnose schema resolve serializable shard group \
          tally version

headers  := $(srcdir)/include/pqtx.h $(sort $(wildcard $(srcdir)/include/pqtx/*.h))
sources  := $(sort $(wildcard $(srcdir)/lib/*.c))
examples := $(sort $(wildcard $(srcdir)/examples/*.c))
checks   := $(sort $(wildcard $(srcdir)/tests/check_*.c))
support  := $(sort $(wildcard $(srcdir)/tests/support*.c))
manuals  := $(sort $(wildcard $(srcdir)/man/*.[37]))

comma := ,
hash  := \#
BUILD := build
B     := $(BUILD)$(if $(SANITIZE),/$(subst $(comma),+,$(SANITIZE)))

# ---- Flags

# $(call takes,flags): the flags, if the compiler knows them.
takes = $(shell echo '$(hash)include <stdio.h>' | \
	$(CC) -O2 -Werror $(1) -S -o - -x c - >/dev/null 2>&1 && echo '$(1)')
hardening := $(foreach flag,-fstack-protector-strong -fstack-clash-protection -fcf-protection, \
	$(call takes,$(flag)))
# Fortified calls want an optimizer, confuse sanitizers, and may be chosen by who builds.
ifeq ($(SANITIZE)$(findstring _FORTIFY_SOURCE,$(CPPFLAGS) $(CFLAGS)),)
ifneq ($(filter-out -O0,$(lastword $(filter -O%,$(CFLAGS)))),)
hardening += $(or $(call takes,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3), \
	$(call takes,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
endif
endif
HARDEN := $(strip $(hardening))

WARNINGS = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wformat=2 -Wwrite-strings -Wvla $(if $(filter 1,$(WERROR)),-Werror)

ifdef SANITIZE
sanitize := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
export UBSAN_OPTIONS ?= print_stacktrace=1
export CK_TIMEOUT_MULTIPLIER ?= 5
endif

static := $(B)/libpqtx.a
ifneq ($(findstring darwin,$(shell $(CC) -dumpmachine)),)
  link        := libpqtx.dylib
  soname      := libpqtx.$(abi).dylib
  shared      := $(B)/libpqtx.$(subst $() ,.,$(abi) $(wordlist 2,3,$(subst ., ,$(version)))).dylib
  symbols     := $(B)/exports.list
  link_shared  = -dynamiclib -install_name $(libdir)/$(soname) \
                 -current_version $(version) -Wl,-exported_symbols_list,$(symbols)
  library     := $(static)
else
  link        := libpqtx.so
  soname      := libpqtx.so.$(abi)
  shared      := $(B)/$(subst $() ,.,$(soname) $(wordlist 2,3,$(subst ., ,$(version))))
  symbols     := $(B)/exports.map
  link_shared  = -shared -Wl,-soname,$(soname) -Wl,--version-script,$(symbols) \
                 $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs)
  harden_link := $(if $(HARDEN),$(addprefix -Wl$(comma)-z$(comma),relro now noexecstack))
  library     := $(if $(filter 0,$(SHARED)),$(static),$(B)/$(link))
endif

# Examples are linked as a user would link them; they find the library beside them.
link_library := $(if $(filter %.a,$(library)),$(library), \
	-L$(B) -lpqtx -Wl$(comma)-rpath$(comma)'$$ORIGIN/..')

flags      = -std=c11 -pthread -I$(srcdir)/include $(PQ_CFLAGS) $(WARNINGS) $(HARDEN) $(sanitize) \
             $(CPPFLAGS) $(CFLAGS)
test_flags = -I$(srcdir)/lib $(CHECK_CFLAGS)
ldflags    = $(harden_link) $(LDFLAGS)

# ---- Libraries

# Compiler lines are long: one word and the file stand for them, unless V=1.
say = $(if $(V),,@echo '  $(1) $@' && )

objects := $(sources:$(srcdir)/%.c=$(B)/%.o)

all: $(if $(filter 0,$(STATIC)),,$(static)) $(if $(filter 0,$(SHARED)),,$(B)/$(link))

# Touched when the compiler or its flags are not those of the last run.
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@echo "$(subst ",\",$(CC) $(flags))" | cmp -s - $@ || echo "$(subst ",\",$(CC) $(flags))" > $@

# One set of objects: position independent, so that the archive can go into a shared object too.
$(B)/lib/%.o: $(srcdir)/lib/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(flags) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(static): $(objects)
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $^

$(shared): $(objects) $(symbols)
	$(call say,LD)$(CC) $(flags) $(link_shared) $(ldflags) -o $@ $(objects) $(PQ_LIBS)

$(B)/$(soname): $(shared)
	@ln -sf $(<F) $@

$(B)/$(link): $(B)/$(soname)
	@ln -sf $(<F) $@

# lib/exports.txt lists every exported symbol once; both linkers read what is made of it.
$(B)/exports.map: $(srcdir)/lib/exports.txt
	@mkdir -p $(@D)
	@sort -k2,2V -k1,1 $< | awk ' \
	    function finish() { if (node) print base ? "} PQTX_" base ";" : "local:\n    *;\n};" } \
	    /^pqtx/ && $$2 != node { finish(); base = node; node = $$2; \
	        print "PQTX_" node " {\nglobal:" } \
	    /^pqtx/ { print "    " $$1 ";" } \
	    END { finish() }' > $@

$(B)/exports.list: $(srcdir)/lib/exports.txt
	@mkdir -p $(@D)
	@awk '/^pqtx/ { print "_" $$1 }' $< > $@

# ---- Examples and tests

programs := $(examples:$(srcdir)/%.c=$(B)/%)
tests    := $(checks:$(srcdir)/%.c=$(B)/%)
helpers  := $(support:$(srcdir)/%.c=$(B)/%.o)
live     := $(filter $(B)/tests/check_live_%,$(tests))
cluster  := $(filter $(B)/tests/check_cluster_%,$(tests))
pooler   := $(filter $(B)/tests/check_pooler_%,$(tests))
tls      := $(filter $(B)/tests/check_tls_%,$(tests))
unit     := $(filter-out $(live) $(cluster) $(pooler) $(tls),$(tests))

# Seconds: to hang is a failure, to be slow is none.
export CK_DEFAULT_TIMEOUT ?= 60

$(B)/examples/%: $(srcdir)/examples/%.c $(library) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(flags) -MMD -MP -o $@ $< $(ldflags) $(link_library) $(PQ_LIBS)

# Tests reach inside the library, so they take the archive.
$(helpers): $(B)/%.o: $(srcdir)/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(flags) $(test_flags) -MMD -MP -c -o $@ $<

$(B)/tests/%: $(srcdir)/tests/%.c $(helpers) $(static) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(flags) $(test_flags) -MMD -MP -o $@ $< $(helpers) $(static) $(ldflags) \
	    $(PQ_LIBS) $(CHECK_LIBS)

examples: $(programs)
tests: $(tests)

demo: $(B)/examples/stampede
	@$(srcdir)/tests/with-server $< $(DEMO_ARGS)

check: check-floors check-header check-symbols check-hardening check-man check-configure \
       check-install check-unit check-live check-cluster check-pooler check-tls

check-unit: $(unit)
	@$(srcdir)/tests/run-each $^

# Every example is run as well, with these arguments.
stampede_args := -t 4 -s 50 -d 1
payment_args  := -l
whoblocks_args := -d
doctor_args    := -d
example_runs  := $(foreach program,$(programs),"$(strip $(program) $($(notdir $(program))_args))")

# Of the benchmark nothing is measured here: every contestant shows that it still does its work.
bench_trial := $(if $(findstring linux,$(shell $(CC) -dumpmachine)),$(B)/tests/bench)
bench_args  := hot decide transfer upsert
bench_run   := $(if $(bench_trial),"env BENCH_SECONDS=0.001 BENCH_ROUNDS=1 BENCH_LINKS=unix \
	$(bench_trial) $(bench_args)")

check-live: $(live) $(programs) $(bench_trial)
	@$(srcdir)/tests/with-server $(srcdir)/tests/run-each $(live) $(example_runs) $(bench_run)

# With a standby, behind a pooler, by TLS; where those cannot be had, exit status 77, they are left
# out.
check-cluster: $(cluster)
	@$(srcdir)/tests/with-cluster $(srcdir)/tests/run-each $^ || [ $$? -eq 77 ]

# The live ones as well (POOLED=0 leaves them out), but for those that talk to the server itself
# anyway, or take too long to be run twice.  check_pooler_prepare is for a pooler of one's own
# choice: see there.
direct := open hosts notice handle guard prepare trace_pipeline flight cut cut_flight fault syscall \
          orphan server storm leader diagnose schema counter many shard trap group tally scarce gate \
          serializable
pooled := $(filter-out %/check_pooler_prepare,$(pooler)) \
          $(if $(filter 0,$(POOLED)),,$(filter-out $(direct:%=$(B)/tests/check_live_%),$(live)))
check-pooler: $(pooled)
	@$(srcdir)/tests/with-pooler $(srcdir)/tests/run-each $^ || [ $$? -eq 77 ]

check-tls: $(tls)
	@$(srcdir)/tests/with-tls $(srcdir)/tests/run-each $^ || [ $$? -eq 77 ]

check-header:
	@CC="$(CC)" CXX="$(CXX)" PQ_CFLAGS="$(PQ_CFLAGS)" $(srcdir)/tests/check-header $(srcdir)/include

check-symbols: $(static) $(B)/$(link)
ifdef SANITIZE
	@echo "check-symbols: not with sanitizers, skipped"
else
	@$(srcdir)/tests/check-symbols $(srcdir)/lib/exports.txt $^ $(headers)
endif

check-hardening: $(B)/$(link) $(programs)
ifneq ($(SANITIZE)$(if $(HARDEN),,empty),)
	@echo "check-hardening: not with sanitizers or without HARDEN, skipped"
else
	@CC="$(CC)" HARDEN="$(HARDEN)" $(srcdir)/tests/check-hardening $^
endif

check-floors:
	@awk -v floors="$(floors)" -f $(srcdir)/tests/check-floors $(srcdir)/lib/*.[ch]

check-man:
	@$(srcdir)/tests/check-man $(srcdir)/lib/exports.txt $(manuals)
	@CC="$(CC)" PKG_CONFIG="$(PKG_CONFIG)" $(srcdir)/tests/check-man-code

check-configure:
	@CC="$(CC)" PKG_CONFIG="$(PKG_CONFIG)" PG_CONFIG="$(PG_CONFIG)" \
	    $(srcdir)/tests/check-configure $(srcdir)

check-install: all
	+@CC="$(CC)" CFLAGS="$(sanitize) $(CFLAGS)" LDFLAGS="$(LDFLAGS)" PKG_CONFIG="$(PKG_CONFIG)" \
	    VERSION=$(version) $(srcdir)/tests/check-install $(B)/stage $(MAKE) -f $(makefile)

# A process for each of its hundreds of tests would take too long here.
check-valgrind: $(filter-out %/check_fake_flight,$(unit))
	@CK_TIMEOUT_MULTIPLIER=20 RUN_UNDER="$(VALGRIND)" $(srcdir)/tests/run-each $^

check-valgrind-live: $(live)
	@CK_TIMEOUT_MULTIPLIER=20 RUN_UNDER="$(VALGRIND)" \
	    $(srcdir)/tests/with-server $(srcdir)/tests/run-each $^

# One file at a time, with gcc whatever CC is.
check-analyzer:
	@for file in $(sources); do echo "analyzing $$file"; \
	    gcc $(filter-out -Werror,$(flags)) -Werror -fanalyzer -S -o - $$file >/dev/null || exit 1; done

# A waiting thread stands in its queue with a variable of its own stack, which cppcheck dislikes.
check-tidy:
	@for file in $(sources); do echo "tidying $$file"; \
	    clang-tidy --quiet $$file -- -std=c11 -I$(srcdir)/include $(PQ_CFLAGS) 2>/dev/null || \
	    exit 1; done
	cppcheck --quiet --std=c11 --enable=warning,portability,performance \
	    --suppress=autoVariables --error-exitcode=1 -I$(srcdir)/include $(srcdir)/lib

check-format:
	@$(CLANG_FORMAT) --dry-run -Werror $(headers) $(wildcard $(srcdir)/lib/*.[ch] \
	    $(srcdir)/examples/*.[ch] $(srcdir)/tests/*.[ch] $(srcdir)/tests/*.cc)

# ---- Benchmark (Linux)

# Linked as a user's program is; bench_pool reaches inside, and bench_malloc is preloaded.  libpqxx
# is one of the contestants where it is installed.
bench_alone := $(B)/tests/bench_pool $(B)/tests/bench_malloc.so
bench_parts := $(patsubst $(srcdir)/%.c,$(B)/%.o,$(filter-out %/bench_pool.c %/bench_malloc.c, \
	$(sort $(wildcard $(srcdir)/tests/bench*.c))))
bench_pqxx  := $(shell $(PKG_CONFIG) --exists libpqxx 2>/dev/null && command -v $(CXX) >/dev/null && \
	echo $(B)/tests/bench_pqxx.o)
bench_flags  = -std=c++17 -Wall -Wextra $(PQ_CFLAGS) `$(PKG_CONFIG) --cflags libpqxx` $(sanitize) \
               $(CPPFLAGS) $(CFLAGS)

$(bench_parts): $(B)/%.o: $(srcdir)/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(flags) -MMD -MP -c -o $@ $<

$(B)/tests/bench_pqxx.o: $(srcdir)/tests/bench_pqxx.cc $(B)/flags
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(bench_flags) -MMD -MP -c -o $@ $<

$(B)/tests/bench: $(bench_parts) $(bench_pqxx) $(library)
	$(call say,LD)$(CC) $(flags) -o $@ $(bench_parts) $(bench_pqxx) $(ldflags) $(link_library) \
	    $(PQ_LIBS) $(if $(bench_pqxx),-lpqxx -lstdc++) -lm

$(B)/tests/bench_pool: $(srcdir)/tests/bench_pool.c $(static) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(flags) -I$(srcdir)/lib -MMD -MP -o $@ $< $(static) $(ldflags) $(PQ_LIBS)

$(B)/tests/bench_malloc.so: $(srcdir)/tests/bench_malloc.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(flags) -fPIC -shared -MMD -MP -o $@ $< $(ldflags) -ldl

# BENCH_SECONDS, BENCH_ROUNDS and BENCH_LINKS come from the environment: see tests/bench.c.
bench: $(B)/tests/bench $(B)/tests/bench_pool
	@rm -rf $(B)/bench && mkdir -p $(B)/bench
	@BENCH_DATA=$(B)/bench $(srcdir)/tests/with-bench-server $(srcdir)/tests/run-each \
	    "$(B)/tests/bench $(BENCH_TABLES)" $(B)/tests/bench_pool
	@$(srcdir)/tests/bench-plot $(B)/bench

bench-count: $(B)/tests/bench $(B)/tests/bench_malloc.so
ifdef SANITIZE
	@echo "bench-count: not with sanitizers, skipped"
else
	@$(srcdir)/tests/with-bench-server $(srcdir)/tests/bench-count $(B)/tests \
	    $(or $(BENCH_TABLES),one decide transfer upsert)
endif

# ---- Installing

# Paths in pqtx.pc follow its prefix where they can, so that an installed tree can be moved.
movable = $(patsubst $(prefix)/%,$${prefix}/%,$(1))

install: all
	$(INSTALL) -d $(DESTDIR)$(libdir) $(DESTDIR)$(includedir)/pqtx $(DESTDIR)$(pkgconfigdir) \
	    $(DESTDIR)$(mandir)/man3 $(DESTDIR)$(mandir)/man7
	$(INSTALL) -m 644 $(firstword $(headers)) $(DESTDIR)$(includedir)
	$(INSTALL) -m 644 $(wordlist 2,99,$(headers)) $(DESTDIR)$(includedir)/pqtx
ifneq ($(STATIC),0)
	$(INSTALL) -m 644 $(static) $(DESTDIR)$(libdir)
endif
ifneq ($(SHARED),0)
	$(INSTALL) -m 755 $(shared) $(DESTDIR)$(libdir)
	ln -sf $(notdir $(shared)) $(DESTDIR)$(libdir)/$(soname)
	ln -sf $(soname) $(DESTDIR)$(libdir)/$(link)
endif
	sed -e 's|@prefix@|$(prefix)|' -e 's|@libdir@|$(call movable,$(libdir))|' \
	    -e 's|@includedir@|$(call movable,$(includedir))|' -e 's|@version@|$(version)|' \
	    -e 's|@private@|$(if $(filter 0,$(SHARED)),,.private)|' \
	    -e 's|@threads@|$(if $(filter 0,$(SHARED)), -pthread)|' \
	    $(srcdir)/lib/pqtx.pc.in > $(DESTDIR)$(pkgconfigdir)/pqtx.pc
	for page in $(manuals); do \
	    $(INSTALL) -m 644 $$page $(DESTDIR)$(mandir)/man$${page##*.} || exit 1; done
	$(call aliases,echo ".so man3/$$page" > "$$alias")

# A page documents a family; each further name in its NAME section gets a page that points there.
aliases = for file in $(filter %.3,$(manuals)); do page=$$(basename $$file); \
	for name in $$(sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z_0-9]*\).*/\1/p' $$file); do \
	alias=$(DESTDIR)$(mandir)/man3/$$name.3; [ $$name.3 = $$page ] || $(1); done; done

uninstall:
	$(call aliases,rm -f "$$alias")
	rm -f $(foreach page,$(notdir $(manuals)), \
	    $(DESTDIR)$(mandir)/man$(subst .,,$(suffix $(page)))/$(page))
	rm -f $(headers:$(srcdir)/include/%=$(DESTDIR)$(includedir)/%)
	-rmdir $(DESTDIR)$(includedir)/pqtx
	rm -f $(DESTDIR)$(pkgconfigdir)/pqtx.pc
	rm -f $(addprefix $(DESTDIR)$(libdir)/,$(notdir $(static) $(shared)) $(soname) $(link))

# ---- Releasing

$(srcdir)/configure: $(srcdir)/configure.ac $(srcdir)/include/pqtx.h
	cd $(srcdir) && autoconf && rm -rf autom4te.cache

ifneq ($(wildcard config.status),)
config.mk: config.status
	./config.status
endif

release := pqtx-$(version)

# What is committed, and configure, so that a user needs no autoconf.  Of one commit it is always
# the same, byte for byte.
dist: $(srcdir)/configure
	git -C $(srcdir) -c tar.umask=022 archive --prefix=$(release)/ --add-file=configure HEAD \
	    | gzip -n9 > $(release).tar.gz

trial := $(BUILD)/trial
# What the archive is tried by; check-unit is the short form.
TRIAL_CHECK = check

distcheck: dist
	@[ ! -d $(trial) ] || chmod -R u+w $(trial)
	rm -rf $(trial) && mkdir -p $(trial)/b
	git clone -q $(srcdir) $(trial)/again
	umask 077 && export TZ=Asia/Tokyo GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=tar.umask \
	    GIT_CONFIG_VALUE_0=user && $(MAKE) -C $(trial)/again dist
	cmp $(release).tar.gz $(trial)/again/$(release).tar.gz
	tar xzf $(release).tar.gz -C $(trial) && chmod -R a-w $(trial)/$(release)
	cd $(trial) && find $(release) | sort > before
	cd $(trial)/b && ../$(release)/configure --prefix=/opt/pqtx \
	    && $(MAKE) BUILD=build && $(MAKE) BUILD=build $(TRIAL_CHECK) \
	    && $(MAKE) BUILD=build install DESTDIR=$$PWD/stage \
	    && $(MAKE) BUILD=build uninstall DESTDIR=$$PWD/stage \
	    && ! find stage ! -type d | grep . && rm -rf stage \
	    && $(MAKE) BUILD=build distclean && ! find . ! -type d | grep .
	cd $(trial) && find $(release) | sort | diff before -
	chmod -R u+w $(trial) && rm -rf $(trial)
	@echo "$(release).tar.gz can be made again, builds, passes its tests, installs and cleans up"

clean:
	rm -rf $(BUILD)

distclean: clean
	rm -rf config.mk config.log config.status
	@[ ! -L Makefile ] || rm -f Makefile

.PHONY: FORCE all bench bench-count check check-analyzer check-cluster check-configure \
        check-floors check-format check-hardening check-header check-install check-live check-man \
        check-pooler check-symbols check-tidy check-tls check-unit check-valgrind \
        check-valgrind-live clean demo dist distcheck distclean examples install tests uninstall
.DELETE_ON_ERROR:

-include $(objects:.o=.d) $(helpers:.o=.d) $(tests:=.d) $(programs:=.d) \
         $(bench_parts:.o=.d) $(bench_pqxx:.o=.d) $(bench_alone:=.d)
