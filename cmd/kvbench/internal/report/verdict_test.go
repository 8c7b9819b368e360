package report

import (
	"bytes"
	"strings"
	"testing"

	"sievedb"
)

// The figures of the golden report, computed by hand.
func TestArithmetic(t *testing.T) {
	r := fixedLookups()
	without, with := uint64(49_000+69_000+98_000), uint64(492+692+982)
	if r.Absent.Without.BlocksRead != without || r.Absent.With.BlocksRead != with {
		t.Errorf("disk reads %d and %d, want %d and %d", r.Absent.Without.BlocksRead, r.Absent.With.BlocksRead, without, with)
	}
	if want := 100 * (1 - float64(with)/float64(without)); r.ReadsAvoidedPercent < want-1e-9 || r.ReadsAvoidedPercent > want+1e-9 {
		t.Errorf("avoided %v, want %v", r.ReadsAvoidedPercent, want)
	}
	p := r.Prediction
	if p.Expected.Expected != 2190 || p.BlocksFetched != 512+712+1002 || p.Measured != 2226 || !p.Checked || !p.OK {
		t.Errorf("prediction %+v", p)
	}
	if r.Load.Levels != 3 || len(r.Levels) != 3 || len(r.Levels[0].TableSizes) != 1 {
		t.Errorf("%d levels, %+v listed", r.Load.Levels, r.Levels)
	}
	if c := r.Cost; c.FileBytes != 2000+112_500+1_135_500 || c.BitsPerKey != 10 || c.PresentSavedBlocks < 0.8949 || c.PresentSavedBlocks > 0.8951 {
		t.Errorf("cost %+v", c)
	}
}

func TestPredictionVerdict(t *testing.T) {
	for _, x := range []struct {
		expected                float64
		read, cache, unfiltered uint64
		checked, ok             bool
	}{
		{1000, 799, 0, 0, true, false},
		{1000, 800, 0, 0, true, true},
		{1000, 700, 100, 0, true, true}, // fetched is what counts, not read
		{1000, 1200, 0, 0, true, true},
		{1000, 1201, 0, 0, true, false},
		{1000, 1000, 201, 0, true, false},
		{1000, 1500, 0, 500, true, true}, // tables without a filter predict nothing
		{999.9, 1300, 0, 0, false, true},
		{999.9, 0, 0, 0, false, true},
		{0, 0, 0, 0, false, true},
		{5000, 0, 0, 0, true, false},
	} {
		p := NewPrediction(sievedb.FilterCounts{ExpectedFalsePositives: x.expected, BlocksRead: x.read, BlocksCached: x.cache, Unfiltered: x.unfiltered})
		if p.Checked != x.checked || p.OK != x.ok {
			t.Errorf("%+v: checked %v, ok %v", x, p.Checked, p.OK)
		}
	}
}

// A run that ended early compares lookups, not totals.
func TestPassesOfDifferentLength(t *testing.T) {
	r := fixedLookups()
	r.Absent.With.Lookups /= 4
	r.Absent.With.BlocksRead /= 4
	r.Interrupted = true
	r.Complete(1, Build{})
	if r.ReadsAvoidedPercent < 98.9 || r.ReadsAvoidedPercent > 99.1 {
		t.Errorf("avoided %v, want about 99", r.ReadsAvoidedPercent)
	}
	var b bytes.Buffer
	if err := Write(&b, r, Text); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"INTERRUPTED", "in 100,000 and 25,000 lookups"} {
		if !strings.Contains(b.String(), says) {
			t.Errorf("the report does not say %q:\n%s", says, b.String())
		}
	}
}

func TestVerdicts(t *testing.T) {
	change := func(f func(r *Lookups)) *Lookups {
		r := fixedLookups()
		f(r)
		r.Complete(r.Cost.MemoryBytes, Build{})
		return r
	}
	for name, x := range map[string]struct {
		r    *Lookups
		says string
	}{
		"as it is":     {fixedLookups(), "Filters pay for absent keys (2.138 disk reads saved a lookup) and for present ones (0.895"},
		"all cached":   {change(func(r *Lookups) { r.Absent.Without.BlocksRead, r.Absent.With.BlocksRead = 100, 1 }), "DO NOT PAY here: an absent key costs 0.001"},
		"too few bits": {change(func(r *Lookups) { r.Absent.With.BlocksRead = 190_000 }), "hardly pay here: 88 %"},
		"one run": {change(func(r *Lookups) {
			r.Present.With.BlocksRead = r.Present.Without.BlocksRead
			r.Present.With.MeanNs = r.Present.Without.MeanNs + 100
		}), "DO NOT PAY if fewer than about 1.5 %"},
		"one run, no slower": {change(func(r *Lookups) { r.Present.With.BlocksRead = r.Present.Without.BlocksRead }), "DO NOT PAY for present ones"},
		"no filters":         {change(func(r *Lookups) { r.Levels = nil }), "there are none"},
		"nothing measured":   {change(func(r *Lookups) { r.Absent.With = Pass{} }), "cannot be said"},
	} {
		if got := x.r.Verdict(); !strings.Contains(got, x.says) {
			t.Errorf("%s: %q does not say %q", name, got, x.says)
		}
	}
	o := fixedOps()
	if got := o.Verdict(); !strings.Contains(got, "saved 500 block reads, 0.250 an operation") {
		t.Errorf("%q", got)
	}
	o.Kinds = o.Kinds[1:]
	if got := o.Verdict(); !strings.Contains(got, "DID NOT PAY here: neither writes") {
		t.Errorf("%q", got)
	}
}

// A point is judged by what theory says for the bits that were built.
func TestSweepVerdict(t *testing.T) {
	s := fixedSweep()
	if s.OK || s.Inside != 3 || !s.Points[3].Inside || !s.Points[0].Inside || !s.Points[1].Inside || s.Points[2].Inside {
		t.Errorf("%+v", s)
	}
	s.Points = s.Points[:2]
	s.Complete()
	if !s.OK || !strings.HasPrefix(s.Headline(), "Theory holds") {
		t.Errorf("%+v", s)
	}
}

func TestCrashVerdict(t *testing.T) {
	c := fixedCrash()
	if c.OK || c.Lost != 2 || c.Kept != 1 {
		t.Errorf("%+v", c)
	}
	c.Setup.Synced = false
	if c.Complete(); !c.OK || c.Lost != 2 {
		t.Errorf("unsynced: %+v", c)
	}
	c.Setup.Synced, c.Kills = true, c.Kills[:1]
	if c.Complete(); !c.OK || c.Lost != 0 {
		t.Errorf("nothing lost: %+v", c)
	}
}
