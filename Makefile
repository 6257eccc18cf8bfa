# The commands of this project. Each is a script in scripts/, which says what it does and what it reads.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up test quick lint bench soak e2e release image playground playground-down setup-build setup-test setup-kind clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

up: ## three masters on this machine, in the foreground (ARGS go to `moonkeeper up`)
	@scripts/up $(ARGS)

test: ## everything; installs what it needs into the cache folder first
	@scripts/test

quick: ## three minutes at most: format, clippy, unit tests, one test with a real client
	@scripts/test --quick

lint: ## format, clippy, rustdoc, dependencies, Python and shell, edges in src, language, spelling, links
	@scripts/setup-test python
	@scripts/lint

bench: ## measurements: ARGS=compare (also without), clients, failover, replication, stalls, and what goes to that program; ARGS=report
	@scripts/bench $(ARGS)

soak: ## long tests, SOAK_SECONDS (3600) each; ARGS names parts: fuzz engine differential simulator faults client e2e
	@scripts/soak $(ARGS)

e2e: ## the operator on a real Kubernetes: kind where it runs, else one of our own, and says which (ARGS go to pytest)
	@scripts/e2e $(ARGS)

release: ## the program as it ships, and its symbols in a file beside it (ARGS: a folder)
	@scripts/release $(ARGS)

image: ## the container image: docker, podman, buildah, or an archive (ARGS)
	@scripts/image $(ARGS)

playground: ## a Kubernetes on this machine with an operator and three masters, left running
	@scripts/playground up

playground-down: ## end it
	@scripts/playground down

setup-build: ## check tools and disk space, install Debian packages
	@scripts/setup-build

setup-test: ## setup-build, then the Mooncake package, etcd, and Kubernetes into the cache folder
	@scripts/setup-test

setup-kind: ## setup-test, then kind with a Docker engine and a node image, for machines that have none and can pull none
	@scripts/setup-kind

clean: ## remove what cargo built here (the cache folder's target)
	@bash -c 'source scripts/lib.sh && rm -rf "$$CARGO_TARGET_DIR"'
