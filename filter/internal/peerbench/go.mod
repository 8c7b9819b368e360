module sievedb/filter/internal/peerbench

go 1.26.0

require (
	github.com/FastFilter/xorfilter v0.5.1
	github.com/bits-and-blooms/bloom/v3 v3.7.1
	github.com/cespare/xxhash/v2 v2.3.0
	sievedb v0.0.0
)

require github.com/bits-and-blooms/bitset v1.24.2 // indirect

replace sievedb => ../../..
