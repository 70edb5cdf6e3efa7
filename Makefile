# flatq. The lines with two # are what `make` alone prints.

## make run        serve the line door on 127.0.0.1:1234 (PORT=...), after installing what it needs
## make test       ShellCheck and the quick tests, in minutes, after installing what they need
##                 (TESTS=..., some of them; SEED=..., other chances than the usual ones)
## make test-all   all tests; half an hour (TESTS=..., SEED=...)
## make lint       ShellCheck alone
## make bench      measure, beside redis-cli, sqlite3, dirq, beanstalkd and others; .bench/ has
##                 JSON and a plot (ROWS=..., some of it; PARENT=COMMIT, also that flatq)
## make pipeline   a busy little spool, its tables and a report with plots, on Spark, after
##                 installing what that needs
## make lessons    the course: how queues fail, step by step, and its pictures in .lessons/
## make lesson     one of them (N=03)
## make crash      the crash laboratory: a sample that takes about an hour on 2 processors (ALL=1,
##                 everything: days; SEED=..., another sample); ^C shows what was found so far
## make install    bin/flatq, libexec/flatq, the man page, completion, and systemd's units, below
##                 PREFIX=/usr/local (and DESTDIR)
## make uninstall  remove these again
## make deb        a Debian package of the same, with the Python package, pages and the units'
##                 user: .deb/flatq_VERSION_all.deb (DEB=.deb)
## make tables     write the table of verbs in the README anew from the headers of the verbs
## make clean      remove what the others left in this directory

PREFIX = /usr/local
DESTDIR =
PORT = 1234
PYTHON = python3
TESTS =
SEED =
ALL =
ROWS =
PARENT =
DEB = .deb

VERSION = $(shell sed -n 's/^flatq_version=//p' lib/flatq)
LIBEXEC = $(PREFIX)/libexec/flatq
MANPAGE = $(PREFIX)/share/man/man1/flatq.1
ZSH = site-functions
COMPLETION = bash:bash-completion/completions/flatq zsh:zsh/$(ZSH)/_flatq \
  fish:fish/vendor_completions.d/flatq.fish
UNITS = flatq@.socket flatq@.service flatq-work@.service
UNITDIR = $(PREFIX)/lib/systemd/system
VENV = .venv/bin/python

help:
	@printf 'flatq %s\n\n' '$(VERSION)'; sed -n 's/^## //p' Makefile

run:
	@tests/bin/need run
	@exec tests/bin/serve '$(PORT)'

# Made anew where its Python is gone, as after a new release of the system, or where other versions
# are pinned
venv:
	@cmp -s tests/requirements.txt .venv/made && $(VENV) -c 'import pytest' 2>/dev/null || { \
	  printf 'flatq: making .venv\n' && rm -rf .venv && $(PYTHON) -m venv .venv && \
	  $(VENV) -m pip install -q --disable-pip-version-check -r tests/requirements.txt && \
	  cp tests/requirements.txt .venv/made; }

test test-all:
	@PYTHON='$(PYTHON)' tests/bin/need $@
	@$(MAKE) -s venv
	@[ $@ = test ] || cmp -s tests/requirements-all.txt .venv/made-all || { \
	  $(VENV) -m pip install -q --disable-pip-version-check -r tests/requirements-all.txt && \
	  cp tests/requirements-all.txt .venv/made-all; }
	@FLATQ_SEED='$(SEED)'; [ -n "$$FLATQ_SEED" ] && export FLATQ_SEED || unset FLATQ_SEED; \
	  exec tests/bin/run $(if $(filter test-all,$@),--all) $(TESTS)

lint:
	@PYTHON='$(PYTHON)' tests/bin/need venv
	@$(MAKE) -s venv
	@exec tests/bin/lint .venv/bin/shellcheck

# Without .venv: rivals in Python are left out, and the bench says so
bench:
	@PYTHON='$(PYTHON)' tests/bin/need bench
	@$(MAKE) -s venv || printf 'flatq: no .venv: measured without what PyPI has\n'
	@python=$(VENV); [ -x "$$python" ] || python=$(PYTHON); \
	  exec "$$python" tests/bench/bench.py $(if $(PARENT),--parent '$(PARENT)') $(ROWS)

crash:
	@PYTHON='$(PYTHON)' tests/bin/need test
	@$(MAKE) -s venv
	@PYTHONPATH=tests exec $(VENV) -m crash $(if $(ALL),--all) $(if $(SEED),--seed '$(SEED)')

pipeline:
	@PYTHON='$(PYTHON)' tests/bin/need pipeline
	@$(MAKE) -s venv
	@exec tests/bin/pipeline

lessons:
	@exec tests/bin/lesson

lesson:
	@exec tests/bin/lesson "$(N)"

tables:
	@exec $(PYTHON) tests/support/headers.py README.md

# bin/flatq is one exec: the verbs find their files beside themselves. The man page is the verbs'
# headers.
install:
	mkdir -p '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/man/man1'
	for file in lib/* lib/*/* lib/*/*/*; do \
	  [ -f "$$file" ] || continue; \
	  case $$file in *.md | lib/completion/* | lib/man/* | lib/systemd/*) continue ;; esac; \
	  to='$(DESTDIR)$(LIBEXEC)/'"$${file#lib/}"; \
	  if [ -x "$$file" ]; then mode=755; else mode=644; fi; \
	  mkdir -p "$${to%/*}" && cp "$$file" "$$to.new" && chmod $$mode "$$to.new" && \
	  mv "$$to.new" "$$to" || exit; \
	done
	printf '#!/bin/sh\nexec '\''%s/flatq'\'' "$$@"\n' '$(LIBEXEC)' >'$(DESTDIR)$(PREFIX)/bin/flatq'
	chmod 755 '$(DESTDIR)$(PREFIX)/bin/flatq'
	cd lib && awk -v libexec='$(LIBEXEC)' -v version='$(VERSION)' -f man/flatq.awk flatq \
	  $$(sed -n "s/^verbs_[a-z]*='\(.*\)'/\1/p" flatq) \
	  handler beanstalk small-stalk http \
	  >'$(DESTDIR)$(MANPAGE)'
	chmod 644 '$(DESTDIR)$(MANPAGE)'
	for pair in $(COMPLETION); do \
	  to='$(DESTDIR)$(PREFIX)/share/'"$${pair#*:}"; \
	  mkdir -p "$${to%/*}" && cp "lib/completion/flatq.$${pair%%:*}" "$$to" && \
	  chmod 644 "$$to" || exit; \
	done
	mkdir -p '$(DESTDIR)$(UNITDIR)'
	for unit in $(UNITS); do \
	  to='$(DESTDIR)$(UNITDIR)/'"$$unit"; \
	  sed -e 's|/usr/local/libexec/flatq|$(LIBEXEC)|' \
	    -e 's|/usr/local/bin/flatq|$(PREFIX)/bin/flatq|' "lib/systemd/$$unit" >"$$to" && \
	  chmod 644 "$$to" || exit; \
	done

uninstall:
	rm -rf '$(DESTDIR)$(LIBEXEC)'
	rm -f '$(DESTDIR)$(PREFIX)/bin/flatq' '$(DESTDIR)$(MANPAGE)'
	for pair in $(COMPLETION); do rm -f '$(DESTDIR)$(PREFIX)/share/'"$${pair#*:}"; done
	for unit in $(UNITS); do rm -f '$(DESTDIR)$(UNITDIR)/'"$$unit"; done

deb:
	@exec tests/bin/deb '$(VERSION)' '$(DEB)'

clean:
	rm -rf .venv .bench .deb .pipeline .lessons .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help run venv test test-all lint bench crash pipeline lessons lesson tables install \
  uninstall deb clean
