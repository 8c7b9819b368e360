package offheap

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"sievedb/internal/invariants"
)

const mib = 1 << 20

// owner is what buffers belong to; inner is a part of it that readers may hold.
type owner struct {
	memory *Memory
	inner  struct{ next *owner }
}

// testPool returns a pool of heap memory, with the number of buffers given back.
func testPool() (p *pool, returned *int) {
	returned = new(int)
	return &pool{
		mapRegion: func(n int, _ bool) []byte { return make([]byte, n) },
		giveBack:  func([]byte) { *returned++ },
		keep:      2 * maxWarmBytes,
	}, returned
}

func newOwner(p *pool) *owner {
	o := &owner{}
	o.memory = newIn(p, o, SmallPages)
	return o
}

// expect checks what the pool holds, in bytes, once collections have freed what is
// unreachable.
func expect(t *testing.T, p *pool, want Stats) {
	t.Helper()
	var got Stats
	for range 1000 {
		p.mu.Lock()
		got = p.stats
		p.mu.Unlock()
		if got == want {
			return
		}
		runtime.GC()
	}
	t.Fatalf("the pool holds %+v, want %+v", got, want)
}

func TestSizes(t *testing.T) {
	p, _ := testPool()
	o := newOwner(p)
	granted := int64(0)
	for _, c := range []struct{ n, taken int }{
		{0, 0}, {8, 0}, {MinBytes - 1, 0}, {MinBytes, MinBytes}, {MinBytes + 1, 2 * MinBytes},
		{MaxBytes/2 + 1, MaxBytes}, {MaxBytes, MaxBytes}, {MaxBytes + 1, 0},
	} {
		buf := o.memory.Alloc(c.n)
		if granted += int64(c.taken); len(buf) != c.n || p.stats.Granted != granted {
			t.Errorf("%d bytes: %d of them, %d granted, want %d", c.n, len(buf), p.stats.Granted, granted)
		}
		if c.taken > 0 && cap(buf) != c.n {
			t.Errorf("%d bytes: capacity %d", c.n, cap(buf))
		}
		if uintptr(unsafe.Pointer(unsafe.SliceData(buf)))%8 != 0 {
			t.Errorf("%d bytes: not aligned", c.n)
		}
	}
	if buf := (*Memory)(nil).Alloc(mib); len(buf) != mib {
		t.Errorf("no Memory: %d bytes", len(buf))
	}
	runtime.KeepAlive(o)
}

// Buffers of all classes lie apart.
func TestBuffersLieApart(t *testing.T) {
	p, _ := testPool()
	o := newOwner(p)
	var bufs [][]byte
	for round := range 3 {
		for class := range numClasses {
			for range 20 >> class {
				bufs = append(bufs, o.memory.Alloc(int(classBytes(class))))
			}
		}
		for i, buf := range bufs {
			fill(buf, byte(i))
		}
		for i, buf := range bufs {
			if bytes.Count(buf, []byte{byte(i)}) != len(buf) {
				t.Fatalf("round %d: buffer %d was overwritten", round, i)
			}
			if i%2 == 0 {
				o.memory.Free(buf)
			}
		}
		for i := len(bufs) - 1; i >= 0; i-- {
			if i%2 == 0 {
				bufs = append(bufs[:i], bufs[i+1:]...)
			}
		}
	}
	runtime.KeepAlive(o)
}

func fill(buf []byte, b byte) { copy(buf, bytes.Repeat([]byte{b}, len(buf))) }

// What is free stays resident up to a bound, is given out again last in first
// out, and no more is mapped than was once in use at the same time.
func TestReuse(t *testing.T) {
	p, returned := testPool()
	o := newOwner(p)
	const n = 80
	bufs := make([][]byte, n)
	for range 3 {
		for i := range bufs {
			bufs[i] = o.memory.Alloc(mib)
		}
		expect(t, p, Stats{Mapped: n * mib, Granted: n * mib})
		for _, buf := range bufs {
			o.memory.Free(buf)
			o.memory.Free(buf) // which it does not own any more
		}
		expect(t, p, Stats{Mapped: n * mib, Warm: maxWarmBytes})
	}
	if want := 3 * (n - maxWarmBytes/mib); *returned != want {
		t.Errorf("%d buffers were given back, want %d", *returned, want)
	}
	last := bufs[maxWarmBytes/mib-1]
	if next := o.memory.Alloc(mib); &next[0] != &last[0] {
		t.Error("not the last one that was freed")
	}
	*returned = 0
	p.keepWarm(10*mib - p.keep)
	expect(t, p, Stats{Mapped: n * mib, Granted: mib, Warm: 10 * mib})
	if want := maxWarmBytes/mib - 1 - 10; *returned != want {
		t.Errorf("%d buffers were given back, want %d", *returned, want)
	}
	for range n - 1 {
		o.memory.Alloc(mib)
	}
	expect(t, p, Stats{Mapped: n * mib, Granted: n * mib})
	runtime.KeepAlive(o)
}

// Whoever holds a part of the owner holds the memory.
func TestFreedWithItsOwner(t *testing.T) {
	p, _ := testPool()
	o := newOwner(p)
	buf := o.memory.Alloc(mib)
	fill(buf, 'x')
	inner := &o.inner
	inner.next = o // a cycle holds nothing
	o = nil
	for range 3 {
		runtime.GC()
	}
	expect(t, p, Stats{Mapped: regionBytes, Granted: mib})
	if bytes.Count(buf, []byte("x")) != len(buf) {
		t.Error("the buffer changed")
	}
	runtime.KeepAlive(inner)
	expect(t, p, Stats{Mapped: regionBytes, Warm: mib})
	if invariants.Enabled && bytes.Count(buf, []byte{0xdb}) != len(buf) {
		t.Error("a freed buffer looks as if it were not")
	}
}

func TestRetired(t *testing.T) {
	(*Memory)(nil).Retire()
	p, _ := testPool()
	o := newOwner(p)
	o.memory.Alloc(mib)
	o.memory.Retire()
	o.memory.Retire()
	expect(t, p, Stats{Mapped: regionBytes, Granted: mib, Retired: mib})
	runtime.KeepAlive(o)
	expect(t, p, Stats{Mapped: regionBytes, Warm: mib})
}

func TestNothingToMap(t *testing.T) {
	p, _ := testPool()
	p.mapRegion = func(int, bool) []byte { return nil }
	o := newOwner(p)
	buf := o.memory.Alloc(mib)
	if len(buf) != mib {
		t.Fatalf("%d bytes", len(buf))
	}
	o.memory.Free(buf)
	o.memory.Retire()
	runtime.KeepAlive(o)
	expect(t, p, Stats{})
}

// Owners that want huge pages have regions of their own, which are asked for in such once
// enough is mapped in small ones; neither kind gets what the other had.
func TestHugePages(t *testing.T) {
	p, _ := testPool()
	var asked []bool
	p.mapRegion = func(n int, huge bool) []byte {
		asked = append(asked, huge)
		return make([]byte, n)
	}
	small, huge := newOwner(p), &owner{}
	huge.memory = newIn(p, huge, HugePages)
	for _, m := range []*Memory{huge.memory, small.memory, huge.memory, small.memory, huge.memory} {
		m.Alloc(regionBytes)
	}
	if want := []bool{false, false, true, false, true}; !slices.Equal(asked, want) {
		t.Errorf("regions asked for in huge pages: %v, want %v", asked, want)
	}
	buf := huge.memory.Alloc(regionBytes)
	huge.memory.Free(buf)
	small.memory.Alloc(regionBytes)
	if want := []bool{false, false, true, false, true, true, false}; !slices.Equal(asked, want) {
		t.Errorf("regions asked for in huge pages: %v, want %v", asked, want)
	}
	if again := huge.memory.Alloc(regionBytes); &again[0] != &buf[0] {
		t.Error("not the one that was freed")
	}
	// What is left of a region goes to smaller buffers in pages of the same kind.
	part := huge.memory.Alloc(mib)
	huge.memory.Alloc(regionBytes)
	next := huge.memory.Alloc(mib)
	if a := uintptr(unsafe.Pointer(&next[0])) - uintptr(unsafe.Pointer(&part[0])); a >= regionBytes {
		t.Error("not from the rest of the region")
	}
	if first := &small.memory.Alloc(2 * mib)[0]; uintptr(unsafe.Pointer(first))-uintptr(unsafe.Pointer(&part[0])) < regionBytes {
		t.Error("small pages from a region of huge ones")
	}
	runtime.KeepAlive(small)
	runtime.KeepAlive(huge)
}

// A slice that outlives its buffer reads something, whatever became of that.
func TestStaleSliceDoesNotFault(t *testing.T) {
	const cold = 8
	const n = maxWarmBytes/mib + cold
	gone := make(chan []byte, n)
	p := &pool{mapRegion: mapRegion, keep: maxWarmBytes, giveBack: func(b []byte) {
		giveBack(b)
		gone <- b
	}}
	o := newOwner(p)
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i] = o.memory.Alloc(mib)
		fill(bufs[i], 'x')
	}
	granted := p.stats.Granted
	o = nil
	expect(t, p, Stats{Mapped: p.stats.Mapped, Warm: min(granted, maxWarmBytes)})
	if granted == 0 {
		t.Skip("all memory is the heap's")
	}
	for range cold { // they go after they are counted
		<-gone
	}
	zeros := 0
	for _, buf := range bufs {
		if bytes.Count(buf, []byte{0}) == len(buf) {
			zeros++
		}
	}
	if zeros != cold {
		t.Errorf("the pages of %d buffers are gone, want %d", zeros, cold)
	}
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		name                                    string
		granted, survived, retired, fresh, live int64
		want                                    bool
	}{
		{"nothing", 0, 0, 0, 0, 0, false},
		{"little retired", 64 * mib, 64 * mib, 15 * mib, 15 * mib, 0, false},
		{"much retired", 64 * mib, 64 * mib, 16 * mib, 16 * mib, 0, true},
		{"as much as before, still held", 64 * mib, 64 * mib, 32 * mib, 0, 0, false},
		{"freed meanwhile", 64 * mib, 64 * mib, 8 * mib, 32 * mib, 0, false},
		{"a large heap", 512 * mib, 512 * mib, 64 * mib, 64 * mib, 129 * mib, false},
		{"its half", 512 * mib, 512 * mib, 64 * mib, 64 * mib, 128 * mib, true},
		{"little growth", 127 * mib, 0, 0, 0, 0, false},
		{"growth", 128 * mib, 0, 0, 0, 0, true},
		{"growth beside much", 399 * mib, 200 * mib, 0, 0, 0, false},
		{"doubled", 400 * mib, 200 * mib, 0, 0, 0, true},
		{"growth beside a large heap", 400 * mib, 200 * mib, 0, 0, 401 * mib, false},
	} {
		p, _ := testPool()
		p.stats.Granted, p.stats.Retired, p.fresh, p.survived = c.granted, c.retired, c.fresh, c.survived
		if got := p.due(c.live); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if c.want && p.due(c.live) {
			t.Errorf("%s: due again at once", c.name)
		}
	}
}
