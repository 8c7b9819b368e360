package latency

import (
	"reflect"
	"testing"
	"time"

	"sievedb/cmd/kvbench/internal/report"
)

func TestRecorder(t *testing.T) {
	r := New(40)
	if l := r.Latency(); !reflect.DeepEqual(l, report.Latency{}) {
		t.Errorf("of nothing: %+v", l)
	}
	for i := range 45 {
		r.Record(time.Duration(i) * time.Microsecond)
	}
	r.Record(time.Hour) // taken for a minute
	l := r.Latency()
	if len(l.SliceMeansNs) != 23 || l.SliceMeansNs[1] != 2500 || l.MaxNs < 59e9 || l.P50Ns < 21_900 || l.P50Ns > 23_100 {
		t.Errorf("%+v", l)
	}
}

// Recorders that worked side by side have one distribution, and parts that are
// the means of theirs.
func TestMerge(t *testing.T) {
	var all []*Recorder
	for i := range 3 {
		r := New(100 - i)
		for range 100 - i {
			r.Record(time.Duration(1+i) * time.Microsecond)
		}
		all = append(all, r)
	}
	l := Merge(all).Latency()
	if len(l.SliceMeansNs) != 20 || l.SliceMeansNs[7] != 2000 || l.MaxNs < 3000 || l.Quantiles[0].Ns > 1000 || l.P50Ns < 1999 || l.P50Ns > 2001 {
		t.Errorf("%+v", l)
	}
	if l := Merge(nil).Latency(); !reflect.DeepEqual(l, report.Latency{}) {
		t.Errorf("of nothing: %+v", l)
	}
}

// A series of unknown length has a distribution and no parts.
func TestUnknownLength(t *testing.T) {
	r := New(0)
	for range 100 {
		r.Record(time.Microsecond)
	}
	if l := r.Latency(); len(l.SliceMeansNs) != 0 || l.P50Ns < 999 || l.P50Ns > 1001 {
		t.Errorf("%+v", l)
	}
}
