# The ways into the tree. `make help` lists them; each is a script in scripts/ or one cargo line.

.DEFAULT_GOAL := help
.PHONY: help demo install test fuzz vm-test model sanitize-fiber lint fmt schema check bench-record bench-read bench-cost bench-bill bench-diff bench-fiber lab-page web web-test python-test bench-view setup test-peers dist

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## install what is missing, build, and explain a sample program that makes every kind of switch
	@scripts/demo.sh

install: ## build the optimised program and install it (PREFIX=/usr/local)
	@scripts/install.sh

test: ## install what is missing and run every test, the privileged ones too when it may
	@scripts/test.sh $(ARGS)

test-peers: ## exports, read back by the peers' own readers (needs node, pip, npm, git, perl; some root)
	@scripts/test-peers.sh

fuzz: ## damaged input of every kind, for as long as you like (ARGS="stream http --seconds 3600 --seed 7")
	@scripts/fuzz.sh $(ARGS)

vm-test: ## other kernels, emulated, no root; which ones: KERNELS, see scripts/vm-test --help
	@scripts/vm-test $(KERNELS)

model: ## swtch-fiber's protocols between threads, run in every order (loom)
	@fiber/model.sh

sanitize-fiber: ## the tests of swtch-fiber under AddressSanitizer, valgrind and Miri (ARGS=miri)
	@fiber/sanitize.sh $(ARGS)

lint: ## formatting, clippy, rustdoc, the project's own checks, licences
	@scripts/lint.sh

fmt: ## format Rust and, with clang-format, the eBPF C
	cargo fmt --all
	@command -v clang-format >/dev/null || { echo "clang-format is not installed: C left as it is"; exit 0; }; \
	find crates -path '*/src/bpf/*' \( -name '*.c' -o -name '*.h' \) -exec clang-format -i {} +

schema: ## write docs/SCHEMA.md and docs/schemas/ anew from the code
	SWTCH_BLESS=1 cargo test --locked -p swtch-store --test schema_page
	SWTCH_BLESS=1 cargo test --locked -p swtch-report --lib words
	@scripts/python.sh schemas

check: ## rooms, names and links in the docs, licences (part of lint)
	cargo run --locked --quiet -p xtask -- check

bench-record: ## what recording costs, beside perf and libbpf-tools (ARGS="--rounds 5 --json FILE")
	@scripts/bench-record.sh $(ARGS)

bench-read: ## how long reports of a trace of 10 million switches take, and how much memory (ARGS="--switches 1000000")
	@scripts/bench-read.sh $(ARGS)

bench-cost: ## are the prices of switches right? beside peers, false alarms, coverage (ARGS="--part peers --rounds 9")
	@scripts/bench-cost.sh $(ARGS)

bench-bill: ## is a bill right? three programs with many and with few switches, against the clock (as root)
	@scripts/bench-bill.sh $(ARGS)

bench-diff: ## does swtch diff find a known change, and claim none between equals? real recordings (as root, half an hour; ARGS="--rounds 2" for less)
	@scripts/bench-diff.sh $(ARGS)

bench-fiber: ## what a switch of swtch-fiber costs, beside other schedulers, or while recorded (ARGS="--only yield --json FILE", ARGS=--recorded)
	@fiber/bench.sh $(ARGS)

web: ## the viewer's page, into web/dist: build swtch anew afterwards to have it inside
	@scripts/web.sh build

web-test: ## the page's tests, without a browser and in Chromium
	@scripts/web.sh test

python-test: ## the tests of the Python package (python/)
	@scripts/python.sh test

bench-view: ## how fast a trace of 10 million switches is drawn (ARGS="--switches 1000000")
	@scripts/web.sh bench $(ARGS)

lab-page: ## make all experiments here, and put answers and figures into docs/lab/ (ARGS="quantum claims")
	@scripts/lab-page.sh $(ARGS)

dist: ## packages in target/packages, for x86-64 and arm64: .tar.gz, .deb, .rpm, Python wheel (ARGS="--test --crates --image --compare", see the script)
	@scripts/dist.sh $(ARGS)

setup: ## install what building needs and this machine lacks
	@scripts/setup.sh
