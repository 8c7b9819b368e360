// Package chart draws the charts of kvbench's page as SVG, from numbers alone:
// the same input gives the same bytes. Colours come from Style, which the page
// that holds them has, through the classes s1 to s4 of series and those of the
// axes; a file of its own carries it. All functions are pure and safe for concurrent use.
//
//	svg, err := (&chart.Plot{Title: "Rate", Series: series}).SVG()
package chart

import (
	"fmt"
	"math"
	"strconv"
)

// Tick is a marked place of an axis.
type Tick struct {
	At    float64
	Label string
}

// TicksAt marks the numbers themselves.
func TicksAt(numbers []int) (ticks []Tick) {
	for _, n := range numbers {
		ticks = append(ticks, Tick{float64(n), short(float64(n))})
	}
	return ticks
}

// Axis says how numbers become places.
type Axis struct {
	Label string
	// Log makes equal ratios equal distances; what is not positive has no place.
	Log bool
	// Ticks replaces the ticks that the axis would choose.
	Ticks []Tick
	// Min and Max are part of the axis in any case; both zero says nothing. A
	// linear axis holds zero unless they are set.
	Min, Max float64
	// Unit follows each number.
	Unit string
}

// scale maps [lo, hi] to pixels.
type scale struct {
	log         bool
	lo, hi      float64
	first, last float64 // pixels of lo and hi
}

// newScale returns a scale that holds all values that have a place.
func (a *Axis) newScale(values []float64, first, last float64) scale {
	s := scale{log: a.Log, lo: math.Inf(1), hi: math.Inf(-1), first: first, last: last}
	add := func(v float64) {
		if a.place(v) {
			s.lo, s.hi = min(s.lo, v), max(s.hi, v)
		}
	}
	for _, v := range values {
		add(v)
	}
	if a.Min != 0 || a.Max != 0 {
		add(a.Min)
		add(a.Max)
	} else {
		add(0) // has no place on a logarithmic axis
	}
	if s.lo > s.hi { // nothing to show
		s.lo, s.hi = 1, 10
	}
	if s.lo == s.hi {
		s.hi = s.lo + max(1, math.Abs(s.lo))
	}
	return s
}

// largest bounds what is shown, and 1/largest what is on a logarithmic axis:
// nothing measured is beyond, and the arithmetic of ticks stays exact enough.
const largest = 1e15

// place reports whether v can be shown.
func (a *Axis) place(v float64) bool {
	return math.Abs(v) <= largest && (!a.Log || v >= 1/largest) // so that NaN is refused, too
}

func (s *scale) pixel(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return s.first + (v-lo)/(hi-lo)*(s.last-s.first)
}

// ticks returns marks at round numbers.
func (a *Axis) ticks(s scale) []Tick {
	if a.Ticks != nil {
		return a.Ticks
	}
	var ticks []Tick
	add := func(v float64) {
		if v >= s.lo*(1-1e-9) && v <= s.hi*(1+1e-9) {
			ticks = append(ticks, Tick{v, short(v) + a.Unit})
		}
	}
	if a.Log {
		decades := math.Log10(s.hi / s.lo)
		for e := math.Floor(math.Log10(s.lo)); e <= math.Ceil(math.Log10(s.hi)); e++ {
			add(math.Pow(10, e))
			if decades < 2.5 {
				add(2 * math.Pow(10, e))
				add(5 * math.Pow(10, e))
			}
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10((s.hi-s.lo)/4)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (s.hi-s.lo)/(step*f) <= 6 {
			step *= f
			break
		}
	}
	first := math.Ceil(s.lo/step-1e-9) + 0 // never the negative zero
	for i := first; i*step <= s.hi+1e-9*step && i < first+10; i++ {
		ticks = append(ticks, Tick{i * step, short(i*step) + a.Unit})
	}
	return ticks
}

// short writes a number in few characters.
func short(v float64) string {
	for _, u := range []struct {
		from float64
		unit string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		from := u.from
		if u.unit == "k" {
			from = 1e3
		}
		if math.Abs(v) >= u.from {
			return strconv.FormatFloat(v/from, 'g', 4, 64) + u.unit
		}
	}
	if v != 0 && math.Abs(v) < 1e-4 {
		return strconv.FormatFloat(v, 'e', 0, 64)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}

// px writes a place with one decimal: finer is not seen, and coarser moves.
func px(v float64) string { return fmt.Sprintf("%.1f", v) }
