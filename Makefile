# make help lists the targets. Every test installs or downloads what it needs by itself; see CONTRIBUTING.md.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)
FUZZTIME ?= 20s
# A package below this statement coverage (percent) fails make cover.
COVER_BAR  ?= 85
COVER_PKGS := ./internal/relay ./internal/dispatch ./internal/table ./internal/lifecycle

LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the static binary bin/cdc-relay
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/cdc-relay ./cmd/cdc-relay

.PHONY: demo
demo: ## run the demonstration: a throwaway Postgres, a shop, the relay and its status page
	$(GO) run ./cmd/cdc-relay demo

.PHONY: test
test: ## run all tests on real servers, with the race detector
	$(GO) test -race -count=1 -timeout 30m ./...

.PHONY: test-short
test-short: ## run the tests that take seconds, not minutes
	$(GO) test -short -count=1 ./...

.PHONY: cover
cover: ## measure the coverage of the core packages and hold it against the bar
	GO='$(GO)' .ci/cover $(COVER_BAR) $(COVER_PKGS)

.PHONY: lint
lint: ## check the form (gofmt, go vet, golangci-lint)
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted with gofmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(LINT) run

.PHONY: fuzz
fuzz: ## run each fuzz test for FUZZTIME (20s)
	@git ls-files '*_test.go' | xargs grep -H '^func Fuzz' | sed 's|/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*| \1|' | \
	while read -r package name; do \
		echo "== $$package $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "./$$package" || exit 1; \
	done

.PHONY: ci
ci: lint test ## what has to hold before a change is merged

.PHONY: clean
clean: ## remove what the targets built
	rm -rf bin build
