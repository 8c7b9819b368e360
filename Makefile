# Everything a change needs is in .ci/run; these are its parts, and what takes
# too long for it.

FUZZTIME ?= 30s
BENCHTIME ?= 1s

.PHONY: ci test race lint fuzz damage bench peers long crash faults overload big

ci:
	bash .ci/run

test:
	go test ./...

race:
	go test -race ./...

lint:
	bash .ci/run gofmt vet staticcheck lint tidy

# Each target in turn, FUZZTIME long.
fuzz:
	bash .ci/fuzz $(FUZZTIME)

# Damage to every byte, and every length, of each file of a store: what opening,
# reading, check and repair make of it, counted. Some minutes.
damage:
	go test -count=1 -timeout=2h -run='^TestDamage$$' -v ./cmd/sievectl -sievectl.damage

bench:
	go test -run='^$$' -bench=. -benchmem -benchtime=$(BENCHTIME) ./...

# Package filter beside the filters of others: ratios of one run, and the targets
# that they are held against.
peers:
	go -C filter/internal/peerbench test -count=1 -run='^TestRatios$$' -v .

# The model test with a million operations, a million lookups explained, and as
# many operations with filters of each kind beside none. Then the rates of all
# kinds of filters, for all families of keys.
long:
	go test -count=1 -timeout=2h -run='^(TestModel|TestExplainIsGet|TestFiltersChangeNoAnswer)$$' . -sievedb.ops=1000000
	go test -count=1 -timeout=2h -run='^TestRateMatrix$$' ./filter -sievedb.ops=6400

# What docs/durability.md says of crashes: a store crashed before a hundred
# thousand calls of the file system, under load before a fourth as many, and two
# hundred kills of a process that writes.
crash:
	GOGC=300 go test -count=1 -timeout=2h -v -run='^(TestCrash.*|TestKill)$$' . -sievedb.crashes=100000 -sievedb.kills=200

# Each call that a store makes of its file system fails, in eight ways, and the
# disk is full at each of some thousand bytes: five to ten minutes.
faults:
	go test -count=1 -timeout=2h -run='^(TestFaultAtEveryCall|TestDiskFullAtEveryByte)$$' -v . -sievedb.ops=1000000

# Five minutes of writes faster than compactions can follow. Needs 1 GB of disk in
# TMPDIR.
overload:
	go test -count=1 -timeout=1h -run='^TestOverload$$' -v . -sievedb.ops=1000000

# Ten million keys: open in two seconds, 400 MB of memory. Needs 4 GB of disk in
# TMPDIR and some minutes.
big:
	go test -count=1 -timeout=1h -tags=big -run='^TestBig$$' -v .
