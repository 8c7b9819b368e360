package compaction

import (
	"fmt"
	"strings"
	"testing"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
)

// pictureConfig has numbers to reckon with: the base level holds at least 400
// bytes, a table there 100, one of the next level 200.
var pictureConfig = Config{
	MemtableBytes: 100, L0Tables: 4, Ratio: 10,
	BaseTableBytes: 100, MaxTableBytes: 800, MaxTargetTables: 25,
}

// parseTree reads a picture of a tree, one table a line:
//
//	L5 12 a-f size=100 seq=3-9 n=100 del=50 old=10
//	L5 13 g-m) rd=1
//
// that is level, file number and user keys, of which the last is exclusive before
// a parenthesis, and ~ is no end. The rest may be left out: size is
// 100 bytes, seq the file number, n (entries) the size, del (tombstones), rd
// (range tombstones) and old (versions of a user key beyond its first) zero.
func parseTree(t *testing.T, picture string) *manifest.Version {
	t.Helper()
	edit := &manifest.Edit{}
	for line := range strings.Lines(picture) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var level int
		var file, old uint64
		scan(t, fields[0], "L%d", &level)
		scan(t, fields[1], "%d", &file)
		m := &manifest.TableMeta{FileNum: keys.FileNum(file), SizeBytes: 100}
		m.SmallestSeq, m.LargestSeq = keys.SeqNum(file), keys.SeqNum(file)
		r := parseRange(t, fields[2])
		m.Smallest, m.Largest, m.LargestExclusive, m.ToEnd = r.Lo, r.Hi, r.HiExclusive, r.ToEnd
		for _, field := range fields[3:] {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "size":
				scan(t, value, "%d", &m.SizeBytes)
			case "seq":
				scan(t, value, "%d-%d", &m.SmallestSeq, &m.LargestSeq)
			case "n":
				scan(t, value, "%d", &m.Entries)
			case "del":
				scan(t, value, "%d", &m.Deletes)
			case "rd":
				scan(t, value, "%d", &m.RangeDeletes)
			case "old":
				scan(t, value, "%d", &old)
			default:
				t.Fatalf("unknown field %q in %q", field, line)
			}
		}
		if m.Entries == 0 {
			m.Entries = m.SizeBytes
		}
		m.UserKeys = m.Entries - old
		edit.Added = append(edit.Added, manifest.LevelTable{Level: level, Meta: m})
	}
	v, err := (&manifest.Version{}).Apply(edit)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// parseRunning reads reservations such as "L0-L5 a-f, L5-L6 x-z".
func parseRunning(t *testing.T, picture string) []Reservation {
	t.Helper()
	var out []Reservation
	for part := range strings.SplitSeq(picture, ",") {
		fields := strings.Fields(part)
		if len(fields) == 0 {
			continue
		}
		var r Reservation
		scan(t, fields[0], "L%d-L%d", &r.StartLevel, &r.OutputLevel)
		r.Keys = parseRange(t, fields[1])
		out = append(out, r)
	}
	return out
}

func parseRange(t *testing.T, s string) keys.Range {
	t.Helper()
	lo, hi, ok := strings.Cut(s, "-")
	if !ok {
		t.Fatalf("not a range: %q", s)
	}
	hi, exclusive := strings.CutSuffix(hi, ")")
	if hi == "~" {
		return keys.Range{Lo: []byte(lo), ToEnd: true}
	}
	return keys.Range{Lo: []byte(lo), Hi: []byte(hi), HiExclusive: exclusive}
}

func scan(t *testing.T, s, format string, into ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(s, format, into...); err != nil {
		t.Fatalf("%q is not %q: %v", s, format, err)
	}
}

// picture is a tree and the pick that it must lead to.
type picture struct {
	name    string
	tree    string
	running string
	oldest  keys.SeqNum // oldest snapshot; zero means none
	l0Only  bool
	manual  *Manual
	want    string // the plan in text; empty: none
}

func (p picture) pick(t *testing.T) (Plan, bool) {
	t.Helper()
	in := Input{
		Config:         pictureConfig,
		Running:        parseRunning(t, p.running),
		OldestSnapshot: p.oldest,
		L0Only:         p.l0Only,
	}
	if p.oldest == 0 {
		in.OldestSnapshot = keys.MaxSeqNum
	}
	v := parseTree(t, p.tree)
	if p.manual != nil {
		return PickManual(v, in, *p.manual)
	}
	return Pick(v, in)
}

// planText prints a plan in one line:
//
//	size: L5[12] + L6[3 4] -> L6 bottommost
func planText(p *Plan) string {
	s := fmt.Sprintf("%v: L%d%v", p.Reason, p.StartLevel, fileNums(p.Inputs[0]))
	if len(p.Inputs[1]) > 0 {
		s += fmt.Sprintf(" + L%d%v", p.OutputLevel, fileNums(p.Inputs[1]))
	}
	s += fmt.Sprintf(" -> L%d", p.OutputLevel)
	if p.TrivialMove {
		s += " move"
	}
	if p.Bottommost {
		s += " bottommost"
	}
	return s
}

func fileNums(tables []*manifest.TableMeta) []keys.FileNum {
	var nums []keys.FileNum
	for _, t := range tables {
		nums = append(nums, t.FileNum)
	}
	return nums
}

func runPictures(t *testing.T, pictures []picture) {
	for _, p := range pictures {
		t.Run(p.name, func(t *testing.T) {
			plan, ok := p.pick(t)
			got := ""
			if ok {
				got = planText(&plan)
			}
			if got != p.want {
				t.Errorf("tree:%s\nrunning: %s\ngot:  %s\nwant: %s", p.tree, p.running, got, p.want)
			}
		})
	}
}
