package workload

import "testing"

// Each number comes once, whatever their count is, and few come where they
// would in order.
func TestShuffled(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 99, 255, 256, 257, 1 << 14, 1<<16 + 1} {
		s := newShuffled(n, 42, 1)
		seen := make([]bool, n)
		fixed, rising := 0, 0
		last := uint64(0)
		for i := range n {
			x := s.at(i)
			if x >= uint64(n) || seen[x] {
				t.Fatalf("of %d numbers, %d is out of range or twice", n, x)
			}
			seen[x] = true
			if x == uint64(i) {
				fixed++
			}
			if x > last {
				rising++
			}
			last = x
		}
		if n > 1000 && (fixed > 20 || rising < n*4/10 || rising > n*6/10) {
			t.Errorf("of %d numbers, %d are at their place, and %d greater than the one before", n, fixed, rising)
		}
	}
}
