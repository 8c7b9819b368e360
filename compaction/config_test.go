package compaction

import (
	"fmt"
	"testing"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
)

func TestLevelTargets(t *testing.T) {
	for _, test := range []struct {
		name, tree string
		base       int
		targets    [manifest.NumLevels]uint64
		debt       uint64
	}{
		{name: "empty", base: 6, targets: [7]uint64{6: 400}},
		{name: "just one level", tree: "L6 1 a-z size=3999", base: 6, targets: [7]uint64{6: 3999}},
		{name: "two", tree: "L6 1 a-z size=4000", base: 5, targets: [7]uint64{5: 400, 6: 4000}},
		{name: "three", tree: "L6 1 a-z size=40009", base: 4, targets: [7]uint64{4: 400, 5: 4000, 6: 40009}},
		{
			name: "all six, and no more", tree: "L6 1 a-z size=400000000", base: 1,
			targets: [7]uint64{1: 4000, 2: 40_000, 3: 400_000, 4: 4_000_000, 5: 40_000_000, 6: 400_000_000},
		},
		{
			// All 500 bytes of level 3 have to pass three levels; in the last one 600
			// come to lie on 400.
			name: "shrunk", tree: "L3 2 a-z size=500\nL5 3 a-z size=100\nL6 1 a-z size=400", base: 3,
			targets: [7]uint64{6: 400}, debt: 500 + (500 + 100) + (600 + 400),
		},
		{
			name: "too large", tree: "L5 2 a-z size=800\nL6 1 a-z size=4000", base: 5,
			targets: [7]uint64{5: 400, 6: 4000}, debt: 400 + 2000,
		},
		{
			name: "level 0", tree: "L0 5 a-z\nL0 4 a-z\nL0 3 a-z\nL0 2 a-z\nL6 1 a-z size=600", base: 6,
			targets: [7]uint64{6: 600}, debt: 400 + 600,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := parseTree(t, test.tree)
			base, targets := LevelTargets(v, pictureConfig)
			if base != test.base || targets != test.targets {
				t.Errorf("got base %d %v, want %d %v", base, targets, test.base, test.targets)
			}
			if debt := Debt(v, pictureConfig); debt != test.debt {
				t.Errorf("debt %d, want %d", debt, test.debt)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	base, targets := LevelTargets(&manifest.Version{}, Config{})
	if base != 6 || targets[6] != 128<<20 {
		t.Errorf("base %d of %d bytes, want 6 of 128 MiB", base, targets[6])
	}
	c := Config{}.withDefaults()
	for i, want := range []uint64{8, 16, 32, 64, 64} {
		if got := c.tableBytes(2+i, 2); got != want<<20 {
			t.Errorf("table %d below the base level: %d bytes, want %d MiB", i, got, want)
		}
	}
}

// tables10000 is a tree of 10,000 tables at rest, or with one level too large.
func tables10000(b *testing.B, tooLarge bool) *manifest.Version {
	edit := &manifest.Edit{}
	file := keys.FileNum(1)
	add := func(level, n int, size uint64, deletes uint64) {
		for i := range n {
			width := uint32(1<<31) / uint32(n)
			lo := uint32(i) * width
			edit.Added = append(edit.Added, manifest.LevelTable{Level: level, Meta: &manifest.TableMeta{
				FileNum: file, SizeBytes: size, Smallest: simKey(lo), Largest: simKey(lo + width - 1),
				SmallestSeq: keys.SeqNum(file), LargestSeq: keys.SeqNum(file),
				Entries: size / 128, UserKeys: size / 128, Deletes: deletes,
			}})
			file++
		}
	}
	add(6, 7000, 64<<20, 0)
	add(5, 2000, 64<<20*7000/2000/10, 9000)
	add(4, 1000, 64<<20*7000/1000/100, 700)
	if tooLarge {
		for _, t := range edit.Added[7000:9000] {
			t.Meta.SizeBytes = t.Meta.SizeBytes * 11 / 10
		}
	}
	v, err := (&manifest.Version{}).Apply(edit)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func BenchmarkPick10000Tables(b *testing.B) {
	for _, tooLarge := range []bool{false, true} {
		b.Run(fmt.Sprintf("tooLarge=%v", tooLarge), func(b *testing.B) {
			v := tables10000(b, tooLarge)
			in := Input{OldestSnapshot: keys.MaxSeqNum}
			plan, ok := Pick(v, in)
			if ok != tooLarge || ok && plan.StartLevel != 5 {
				b.Fatalf("picked %v %s", ok, planText(&plan))
			}
			b.ReportAllocs()
			for b.Loop() {
				Pick(v, in)
			}
		})
	}
}
