package compaction

import (
	"bytes"
	"fmt"
	"testing"

	"sievedb/internal/keys"
)

func TestPickL0(t *testing.T) {
	runPictures(t, []picture{{
		name: "empty tree",
	}, {
		name: "too few tables",
		tree: `L0 3 a-f
		       L0 2 a-f
		       L0 1 a-f`,
	}, {
		name: "four tables go to the bottom of an empty tree",
		tree: `L0 4 a-f
		       L0 3 a-f
		       L0 2 a-f
		       L0 1 a-f`,
		want: "l0: L0[4 3 2 1] -> L6 bottommost",
	}, {
		name: "tables that overlap through others go together",
		tree: `L0 5 e-g
		       L0 4 c-e
		       L0 3 x-z
		       L0 2 a-d
		       L0 1 a-b`,
		want: "l0: L0[5 4 2 1] -> L6 bottommost",
	}, {
		name: "invariant 3: newest first by sequence number, not by file number",
		tree: `L0 1 a-f seq=40-49
		       L0 9 a-f seq=10-19
		       L0 3 a-f seq=30-39
		       L0 4 a-f seq=20-29`,
		want: "l0: L0[1 3 4 9] -> L6 bottommost",
	}, {
		name: "the oldest table moves if nothing overlaps it",
		tree: `L0 4 m-n
		       L0 3 k-l
		       L0 2 a-f
		       L0 1 g-h`,
		want: "l0: L0[1] -> L6 move bottommost",
	}, {
		name: "a newer table that overlaps is taken along",
		tree: `L0 4 m-n
		       L0 3 k-l
		       L0 2 a-g
		       L0 1 g-h`,
		want: "l0: L0[2 1] -> L6 bottommost",
	}, {
		name: "tables of the base level that overlap",
		tree: `L0 8 c-f
		       L0 7 c-f
		       L0 6 c-f
		       L0 5 c-f
		       L6 1 a-b
		       L6 2 c-d
		       L6 3 f-h
		       L6 4 i-j`,
		want: "l0: L0[8 7 6 5] + L6[2 3] -> L6 bottommost",
	}, {
		name: "the base level rises with the data",
		tree: `L0 8 c-f
		       L0 7 c-f
		       L0 6 c-f
		       L0 5 c-f
		       L6 1 a-z size=4000`,
		want: "l0: L0[8 7 6 5] -> L5",
	}, {
		name: "never past a level that holds data",
		tree: `L0 9 c-f
		       L0 8 c-f
		       L0 7 c-f
		       L0 6 c-f
		       L0 5 c-f
		       L4 1 a-c
		       L6 2 a-z`,
		want: "l0: L0[9 8 7 6 5] + L4[1] -> L4",
	}, {
		name: "a small table joins its small neighbour instead of moving",
		tree: `L0 8 m-n size=5
		       L0 7 k-l
		       L0 6 i-j
		       L0 5 p-q size=5
		       L6 1 a-b size=5
		       L6 2 c-d size=24
		       L6 3 x-z size=5`,
		want: "l0: L0[5] + L6[2] -> L6 bottommost",
	}, {
		name: "a large table does not",
		tree: `L0 8 m-n size=5
		       L0 7 k-l
		       L0 6 i-j
		       L0 5 p-q size=25
		       L6 2 c-d size=24`,
		want: "l0: L0[5] -> L6 move bottommost",
	}, {
		name: "nor one beside a large one",
		tree: `L0 8 m-n size=5
		       L0 7 k-l
		       L0 6 i-j
		       L0 5 p-q size=5
		       L6 1 a-b size=5
		       L6 2 c-d size=25`,
		want: "l0: L0[5] -> L6 move bottommost",
	}, {
		name: "a table that would be rewritten at once does not move",
		tree: `L0 4 m-n
		       L0 3 k-l
		       L0 2 a-f
		       L0 1 g-h del=10`,
		want: "l0: L0[1] -> L6 bottommost",
	}, {
		name: "a snapshot that needs its tombstones lets it move",
		tree: `L0 4 m-n
		       L0 3 k-l
		       L0 2 a-f
		       L0 1 g-h del=10 seq=1-2`,
		oldest: 1,
		want:   "l0: L0[1] -> L6 move bottommost",
	}})
}

func TestPickBesideRunning(t *testing.T) {
	runPictures(t, []picture{{
		name: "invariant 20: the oldest group overlaps what runs, the other does not",
		tree: `L0 9 x-z
		       L0 8 x-z
		       L0 7 x-z
		       L0 6 x-z
		       L0 5 a-c`,
		running: "L0-L6 c-f",
		want:    "l0: L0[9 8 7 6] -> L6 bottommost",
	}, {
		name: "tables on their way out do not count",
		tree: `L0 4 x-z
		       L0 3 a-c
		       L0 2 a-c
		       L0 1 a-c`,
		running: "L0-L6 a-c",
	}, {
		name: "the base level came down: not below entries that are still coming",
		tree: `L0 9 a-f
		       L0 8 a-f
		       L0 7 a-f
		       L0 6 a-f`,
		running: "L0-L5 c-d",
	}, {
		name: "a running compaction of the base level",
		tree: `L0 9 a-f
		       L0 8 a-f
		       L0 7 a-f
		       L0 6 a-f
		       L5 1 a-f
		       L6 2 a-f size=4000`,
		running: "L5-L6 a-f",
	}, {
		name: "deeper ones are no hindrance",
		tree: `L0 9 a-f
		       L0 8 a-f
		       L0 7 a-f
		       L0 6 a-f
		       L4 1 a-f size=400
		       L5 2 a-f size=4000
		       L6 3 a-f size=40000`,
		running: "L5-L6 a-f",
		want:    "l0: L0[9 8 7 6] + L4[1] -> L4",
	}, {
		name: "the cheapest table is taken, so the next",
		tree: `L5 1 a-b size=200
		       L5 2 c-d size=200
		       L5 3 e-f size=200
		       L6 4 a-b size=3000
		       L6 5 c-d size=1000
		       L6 6 e-f size=2000`,
		running: "L6-L6 c-c",
		want:    "size: L5[3] + L6[6] -> L6 bottommost",
	}, {
		name: "the worker kept for level 0 leaves the rest alone",
		tree: `L5 1 a-b size=700
		       L6 4 a-b size=4000`,
		l0Only: true,
	}})
}

func TestPickSize(t *testing.T) {
	runPictures(t, []picture{{
		name: "below its target",
		tree: `L5 1 a-b size=399
		       L6 4 a-b size=4000`,
	}, {
		name: "at its target",
		tree: `L5 1 a-b size=400
		       L6 4 a-b size=4000`,
		want: "size: L5[1] + L6[4] -> L6 bottommost",
	}, {
		name: "least rewriting for what comes down",
		tree: `L5 1 a-b size=200
		       L5 2 c-d size=200
		       L5 3 e-f size=100
		       L6 4 a-b size=2000
		       L6 5 c-d size=1500
		       L6 6 e-f size=1000`,
		want: "size: L5[2] + L6[5] -> L6 bottommost",
	}, {
		name: "the oldest of equals",
		tree: `L5 9 a-b size=200
		       L5 2 c-d size=200
		       L5 3 e-f size=200
		       L6 4 a-b size=2000
		       L6 5 c-d size=2000
		       L6 6 e-f size=2000`,
		want: "size: L5[2] + L6[5] -> L6 bottommost",
	}, {
		name: "tombstones count for what they hide",
		tree: `L5 1 a-b size=200
		       L5 2 c-d size=200 del=2
		       L5 3 e-f size=200
		       L6 4 a-b size=2000
		       L6 5 c-d size=2000
		       L6 6 e-f size=2000`,
		want: "size: L5[2] + L6[5] -> L6 bottommost",
	}, {
		name: "tables beside it come along for nothing",
		tree: `L5 1 a-b size=100
		       L5 2 d-e size=300
		       L5 3 f-g size=100
		       L5 4 h-k size=100
		       L6 5 a-g size=2000
		       L6 6 h-z size=3000`,
		want: "size: L5[1 2 3] + L6[5] -> L6 bottommost",
	}, {
		name: "but not beyond the bound of a compaction",
		tree: `L5 1 a-b size=100
		       L5 2 d-e size=4000
		       L5 3 f-g size=100
		       L6 5 a-z size=4800`,
		want: "size: L5[2] + L6[5] -> L6 bottommost",
	}, {
		name: "nothing to rewrite: a trivial move",
		tree: `L5 1 a-b size=300
		       L5 2 d-e size=300
		       L6 5 a-c size=4000`,
		want: "size: L5[2] -> L6 move bottommost",
	}, {
		name: "a move that would overlap too much below is a rewrite",
		tree: `L4 1 a-z size=401
		       L6 4 a-h size=20000
		       L6 5 i-z size=20000`,
		want: "size: L4[1] -> L5",
	}, {
		name: "a move that would not",
		tree: `L4 1 a-z size=430
		       L6 4 a-h size=5000
		       L6 5 A-Z size=38000`,
		want: "size: L4[1] -> L5 move",
	}, {
		name: "the most overfull level first",
		tree: `L4 1 a-z size=500
		       L5 2 a-z size=9000
		       L6 4 a-z size=40000`,
		want: "size: L5[2] + L6[4] -> L6 bottommost",
	}, {
		name: "the data shrank: a level above the base drains",
		tree: `L4 1 a-c size=10
		       L6 2 a-z`,
		want: "size: L4[1] -> L5 move",
	}})
}

func TestPickReclaim(t *testing.T) {
	runPictures(t, []picture{{
		name: "tombstones sink when that frees enough",
		tree: `L5 1 a-c n=100 del=60
		       L6 2 a-b size=400
		       L6 3 d-z size=4000`,
		want: "tombstones: L5[1] + L6[2] -> L6 bottommost",
	}, {
		name: "not when it costs too much",
		tree: `L5 1 a-c n=100 del=20
		       L6 2 a-b size=400
		       L6 3 d-z size=4000`,
	}, {
		name: "few tombstones over large values are worth it",
		tree: `L5 1 a-c n=100 del=20
		       L6 2 a-b size=400 n=40
		       L6 3 d-z size=4000 n=400`,
		want: "tombstones: L5[1] + L6[2] -> L6 bottommost",
	}, {
		name: "what is urgent comes first",
		tree: `L4 5 a-c n=100 del=60
		       L5 1 a-c size=500
		       L6 2 a-c size=4000
		       L6 3 d-z size=4000`,
		want: "size: L4[5] + L5[1] -> L5",
	}, {
		name: "from level 0 too",
		tree: `L0 3 a-c n=100 del=100 size=40
		       L6 2 a-b size=400`,
		want: "tombstones: L0[3] + L6[2] -> L6 bottommost",
	}, {
		name: "nothing below: rewritten in place",
		tree: `L6 2 a-b del=10
		       L6 3 c-d del=9`,
		want: "dead entries: L6[2] -> L6 bottommost",
	}, {
		name: "obsolete versions of a snapshot that is gone",
		tree: `L6 2 a-b old=50 seq=1-100
		       L6 3 c-d old=50 seq=1-101
		       L6 4 e-f old=50 seq=1-100`,
		oldest: 100,
		want:   "dead entries: L6[2] -> L6 bottommost",
	}, {
		name: "a snapshot still needs them",
		tree: `L6 2 a-b old=50 seq=1-100 del=50`,
		// The snapshot sees all but one entry, which could be the newest version.
		oldest: 99,
	}, {
		name: "neighbours go together",
		tree: `L6 1 a-b
		       L6 2 c-d del=20
		       L6 3 e-f old=20
		       L6 4 g-h del=20
		       L6 5 i-j
		       L6 6 k-l del=20`,
		want: "dead entries: L6[2 3 4] -> L6 bottommost",
	}, {
		name: "but not one with something below",
		tree: `L5 1 a-b del=50
		       L5 2 c-d del=50
		       L6 3 c-d size=4000`,
		want: "dead entries: L5[1] -> L5 bottommost",
	}, {
		name: "in place in a higher level, where nothing is below",
		tree: `L5 1 a-b del=50
		       L6 2 c-d size=4000`,
		want: "dead entries: L5[1] -> L5 bottommost",
	}, {
		name: "not beside a compaction that brings more",
		tree: `L6 2 a-b del=50
		       L6 3 c-d`,
		running: "L5-L6 b-c",
	}})
}

func TestPickManual(t *testing.T) {
	all := func() *Manual { return &Manual{Keys: keys.AllKeys(), Seq: 100, Before: 100} }
	some := all()
	some.Keys = keys.Range{Lo: []byte("c"), Hi: []byte("d")}
	again := all()
	again.RewriteAll = true
	tree := `L0 9 a-f
	         L0 8 x-z
	         L4 7 a-c size=600
	         L4 6 d-z size=600
	         L5 5 a-f size=4000
	         L5 4 g-z size=4000
	         L6 3 a-z size=40000`
	runPictures(t, []picture{{
		name: "from the top, whatever the count", tree: tree, manual: all(),
		want: "manual: L0[8] + L4[6] -> L4",
	}, {
		name: "the rest of level 0 beside it", tree: tree, manual: all(), running: "L0-L4 d-z",
	}, {
		name: "one range", manual: some,
		tree: `L5 1 a-b
		       L5 2 d-e
		       L5 3 f-g
		       L6 4 a-z`,
		want: "manual: L5[2] + L6[4] -> L6 bottommost",
	}, {
		name: "neighbours go together", manual: all(),
		tree: `L5 1 a-b
		       L5 2 d-e
		       L5 3 f-g
		       L6 4 a-c
		       L6 5 d-z`,
		want: "manual: L5[1 2 3] + L6[4 5] -> L6 bottommost",
	}, {
		name: "and move together", manual: all(),
		tree: `L5 1 a-b
		       L5 2 d-e`,
		want: "manual: L5[1 2] -> L6 move bottommost",
	}, {
		name: "as many as one compaction may take", manual: all(),
		tree: `L5 1 a-b size=1000
		       L5 2 d-e size=1000
		       L5 3 f-g size=1000
		       L6 4 a-c size=2000
		       L6 5 d-z size=2001`,
		want: "manual: L5[1] + L6[4] -> L6 bottommost",
	}, {
		name: "what was written later stays", manual: all(),
		tree: `L0 101 a-b
		       L5 102 a-b seq=101-200
		       L6 4 a-z`,
	}, {
		name: "the output of an earlier step goes on", manual: all(),
		tree: `L5 102 a-b seq=100-200
		       L6 4 a-z`,
		want: "manual: L5[102] + L6[4] -> L6 bottommost",
	}, {
		name: "then dead entries of the bottom level", manual: all(),
		tree: `L6 1 a-b
		       L6 2 c-d del=1
		       L6 3 e-f old=1
		       L6 100 g-h del=1`,
		want: "manual: L6[2 3] -> L6 bottommost",
	}, {
		name: "or all of it", manual: again,
		tree: `L6 1 a-b
		       L6 2 c-d
		       L6 100 g-h`,
		want: "manual: L6[1 2] -> L6 bottommost",
	}, {
		name: "no move of a table that would be rewritten at once", manual: again,
		tree: `L5 2 c-d`,
		want: "manual: L5[2] -> L6 bottommost",
	}, {
		name: "wait for level 0 before the levels below", manual: all(), running: "L0-L6 a-z",
		tree: `L0 2 c-d
		       L6 1 a-b del=1`,
	}})
}

func TestManualDoneWaitsForRunning(t *testing.T) {
	v := parseTree(t, `L0 2 c-d
	                   L6 1 a-b`)
	m := Manual{Keys: keys.AllKeys(), Seq: 2, Before: 3}
	if m.Done(v, pictureConfig) {
		t.Error("done, although level 0 has a table")
	}
	if !m.Done(parseTree(t, `L6 2 c-d`), pictureConfig) {
		t.Error("not done, although all is at the bottom")
	}
	m.Keys = keys.Range{Lo: []byte("x"), ToEnd: true}
	if !m.Done(v, pictureConfig) {
		t.Error("not done, although no table overlaps the range")
	}
}

func TestPlanDetails(t *testing.T) {
	p := picture{tree: `L4 1 c-m size=411
	                    L5 2 a-d size=300
	                    L5 3 x-z size=300
	                    L6 4 a-b size=20000
	                    L6 5 c-f size=20000
	                    L6 6 n-z size=1000`}
	plan, ok := p.pick(t)
	if !ok {
		t.Fatal("no plan")
	}
	if want := "size: L4[1] + L5[2] -> L5"; planText(&plan) != want {
		t.Fatalf("got %s, want %s", planText(&plan), want)
	}
	if got, want := fmt.Sprint(fileNums(plan.Grandparents)), "[4 5]"; got != want {
		t.Errorf("grandparents %s, want %s", got, want)
	}
	r := plan.Reservation
	if r.StartLevel != 4 || r.OutputLevel != 5 || string(r.Keys.Lo) != "a" || string(r.Keys.Hi) != "m" || r.Keys.ToEnd {
		t.Errorf("reservation %+v", r)
	}
	// 711 bytes make four tables of about 200.
	if got, want := plan.TargetTableBytes, uint64(711/4+200/64+1); got != want {
		t.Errorf("target table %d bytes, want %d", got, want)
	}
	if got, want := plan.MaxGrandparentBytes, uint64(25*200); got != want {
		t.Errorf("grandparents at most %d bytes, want %d", got, want)
	}
	if plan.InputBytes() != 711 || plan.ZeroSeq() {
		t.Errorf("input %d bytes, zero seq %v; want 711, false", plan.InputBytes(), plan.ZeroSeq())
	}
}

func TestReservationOverlaps(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"L0-L5 a-f", "L0-L5 f-g", true},
		{"L0-L5 a-f", "L0-L5 g-h", false},
		{"L0-L5 a-f", "L5-L6 b-c", true},
		{"L0-L4 a-f", "L5-L6 b-c", false},
		{"L0-L6 a-f", "L3-L4 b-c", true},
		{"L6-L6 a-f", "L5-L6 b-c", true},
	} {
		a, b := parseRunning(t, test.a)[0], parseRunning(t, test.b)[0]
		if a.Overlaps(b) != test.want || b.Overlaps(a) != test.want {
			t.Errorf("%s and %s: overlap %v and %v, want %v", test.a, test.b, a.Overlaps(b), b.Overlaps(a), test.want)
		}
	}
}

func TestHull(t *testing.T) {
	v := parseTree(t, `L0 3 c-d
	                   L0 2 a-b
	                   L0 1 b-z`)
	if r := hull(v.Levels[0]...); !bytes.Equal(r.Lo, []byte("a")) || !bytes.Equal(r.Hi, []byte("z")) {
		t.Errorf("got %s-%s, want a-z", r.Lo, r.Hi)
	}
}
