package workload

import "math/rand/v2"

// Values gives each version of each key a value that does not compress and is
// known again.
type Values struct {
	pool []byte
	size int
}

const valuePool = 1 << 20

// NewValues returns values of sizeBytes bytes each.
func NewValues(sizeBytes int, seed uint64) Values {
	var s [32]byte
	for i := range 8 {
		s[i] = byte(seed >> (8 * i))
	}
	v := Values{make([]byte, valuePool+sizeBytes), sizeBytes}
	_, _ = rand.NewChaCha8(s).Read(v.pool) // never fails
	return v
}

// Of returns a version of the value of the i-th stored key. It belongs to v.
func (v Values) Of(i int, version uint32) []byte {
	// An odd factor reaches every offset, and neighbours are far apart.
	at := (uint32(i)*2654435761 + version*40503) % valuePool
	return v.pool[at:][:v.size]
}
