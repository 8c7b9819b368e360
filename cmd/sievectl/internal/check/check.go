// Package check says everything that can be said of a store without opening
// it.
//
//	report, err := check.Dir("db")
//	for _, p := range report.Problems { … }
//
// It only reads, one file after the other, with the store's own readers and,
// where those stop at the first problem, with those of package decode. Nothing
// here is safe for concurrent use.
package check

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// Report is what Dir found.
type Report struct {
	Dir      string     `json:"dir"`
	Manifest string     `json:"manifest"` // its name; empty if it cannot be used
	LastSeq  uint64     `json:"last_seq"` // in tables, as the manifest has it
	Levels   []*Level   `json:"levels"`
	Segments []*Segment `json:"segments"`
	Sampled  int        `json:"keys_sampled"` // for the order of their versions
	Problems []*Problem `json:"problems"`
	Notes    []string   `json:"notes"`
}

// Level sums up the tables of a level, those without a known one as level
// -1.
type Level struct {
	Level   int    `json:"level"`
	Tables  int    `json:"tables"`
	Bytes   uint64 `json:"bytes"`
	Entries uint64 `json:"entries"`
	Deletes uint64 `json:"deletes"`
	Filter  Rate   `json:"filter"`
}

// Segment sums up a segment.
type Segment struct {
	Name     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Sealed   bool   `json:"sealed"`
	Records  int    `json:"records"`
	Ops      int    `json:"operations"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// checker is the state of one check.
type checker struct {
	*Report
	state  *manifest.State // nil if the manifest cannot be used
	tables []*checkedTable // that can be read, newest run first
}

// Dir checks the store in dir. An error says that there is nothing to check.
func Dir(dir string) (*Report, error) {
	c := &checker{Report: &Report{Dir: dir, // empty lists are [] in JSON
		Levels: []*Level{}, Segments: []*Segment{}, Problems: []*Problem{}, Notes: []string{}}}
	names, err := vfs.OS().List(dir)
	if err != nil {
		return nil, err
	}
	c.checkManifest(names)
	if c.state == nil && !slices.ContainsFunc(names, isStoreFile) {
		return nil, fmt.Errorf("%s: %s: there is no store", dir, c.Problems[0].Text)
	}
	if c.state != nil {
		for level, metas := range c.state.Version.Levels {
			for _, m := range metas {
				c.checkTable(level, fmt.Sprintf("%06d.sst", m.FileNum), m)
			}
		}
		last := c.state.LastSeq
		for _, s := range c.state.Segments {
			c.checkSegment(s, &last)
		}
		c.checkOrder()
	}
	c.checkFiles(names)
	return c.Report, nil
}

func isStoreFile(name string) bool {
	_, isTable := decode.ParseNum(name, ".sst")
	_, isSegment := decode.ParseNum(name, ".wal")
	_, isManifest := manifest.ParseManifestName(name)
	return isTable || isSegment || isManifest || name == manifest.CurrentName
}

func (c *checker) problem(file string, err error) {
	c.Problems = append(c.Problems, ProblemOf(file, err))
}

func (c *checker) problemf(file, format string, args ...any) {
	c.Problems = append(c.Problems, &Problem{file, -1, fmt.Sprintf(format, args...)})
}

func (c *checker) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// checkManifest loads the manifest; if it cannot, it looks for all that is
// wrong with it.
func (c *checker) checkManifest(names []string) {
	st, err := manifest.Load(vfs.OS(), c.Dir)
	if err == nil {
		c.state, c.Manifest, c.LastSeq = st, manifest.ManifestName(st.ManifestNum), uint64(st.LastSeq)
		c.noteTornEdit(st.ManifestNum)
		return
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("there is no such file")
	}
	c.problem(manifest.CurrentName, err)
	for _, name := range names {
		num, ok := manifest.ParseManifestName(name)
		if !ok {
			continue
		}
		f, err := decode.OpenFile(filepath.Join(c.Dir, name))
		if err != nil {
			c.problem(name, err)
			continue
		}
		gaps, err := decode.WalkManifest(f, num, func(*decode.Edit) error { return nil })
		if err != nil {
			c.problem(name, err)
		}
		for _, p := range GapProblems(f, gaps) {
			if first := c.Problems[0]; p.File != first.File || p.Offset != first.Offset {
				c.Problems = append(c.Problems, p)
			}
		}
	}
}

// noteTornEdit notes what a manifest that can be loaded has behind its edits.
func (c *checker) noteTornEdit(num keys.FileNum) {
	f, err := decode.OpenFile(filepath.Join(c.Dir, c.Manifest))
	if err != nil {
		c.problem(c.Manifest, err)
		return
	}
	gaps, err := decode.WalkManifest(f, num, func(*decode.Edit) error { return nil })
	if err != nil {
		c.problem(c.Manifest, err)
	}
	for _, g := range gaps {
		c.note("%s, bytes %d to %d: torn by a crash; the next process that opens the store leaves them out", c.Manifest, g.Offset, g.End)
	}
}

// checkFiles looks for files that the manifest does not list. Without a
// manifest, each table and segment is checked by itself.
func (c *checker) checkFiles(names []string) {
	for _, name := range names {
		table, isTable := decode.ParseNum(name, ".sst")
		segment, isSegment := decode.ParseNum(name, ".wal")
		_, isManifest := manifest.ParseManifestName(name)
		switch {
		case c.state == nil && isTable:
			c.checkTable(-1, name, nil)
		case c.state == nil && isSegment:
			var last keys.SeqNum
			c.checkSegment(manifest.Segment{FileNum: segment}, &last)
		case c.state == nil, name == "LOCK", name == manifest.CurrentName:
		case isTable && c.lists(table), isSegment && slices.ContainsFunc(c.state.Segments, func(s manifest.Segment) bool { return s.FileNum == segment }),
			isManifest && name == c.Manifest:
		case isTable, isSegment, isManifest, name == manifest.CurrentTempName:
			c.note("%s is not part of the store; the next process that opens it removes it", name)
		default:
			c.note("%s is not a file that the store makes", name)
		}
	}
}

func (c *checker) lists(table keys.FileNum) bool {
	for _, metas := range c.state.Version.Levels {
		if slices.ContainsFunc(metas, func(m *manifest.TableMeta) bool { return m.FileNum == table }) {
			return true
		}
	}
	return false
}

// checkSegment checks a segment. last is the largest sequence number before it.
func (c *checker) checkSegment(s manifest.Segment, last *keys.SeqNum) {
	info := &Segment{Name: wal.SegmentName(s.FileNum), Sealed: s.Sealed}
	c.Segments = append(c.Segments, info)
	f, err := decode.OpenFile(filepath.Join(c.Dir, info.Name))
	if err != nil {
		c.problem(info.Name, err)
		return
	}
	info.Bytes = f.Size
	h, err := decode.ReadSegmentHeader(f)
	if err != nil {
		c.problem(info.Name, err)
	}
	if err != nil && !errors.Is(err, corrupt.ErrCorrupt) {
		return
	}
	gaps, err := decode.WalkSegment(f, s.FileNum, f.Size, func(b *decode.Batch) error {
		info.Records++
		info.Ops += len(b.Ops)
		if len(b.Ops) == 0 {
			return nil
		}
		if info.LastSeq == 0 {
			info.FirstSeq = uint64(b.Seq)
		}
		if c.state != nil && b.LastSeq() > c.state.LastSeq && b.Seq <= *last || uint64(b.Seq) <= info.LastSeq {
			c.Problems = append(c.Problems, &Problem{info.Name, b.Offset,
				fmt.Sprintf("sequence numbers from %d on, behind %d", b.Seq, max(uint64(*last), info.LastSeq))})
		}
		info.LastSeq = uint64(b.LastSeq())
		*last = max(*last, b.LastSeq())
		return nil
	})
	if err != nil {
		c.problem(info.Name, err)
	}
	for _, g := range gaps {
		if g.Torn && !s.Sealed {
			c.note("%s, bytes %d to %d: torn by a crash; the next process that opens the store cuts off what is from there on", info.Name, g.Offset, g.End)
			break
		}
		c.Problems = append(c.Problems, gapProblem(info.Name, g))
	}
	if f.Err() != nil {
		c.problem(info.Name, f.Err())
	}
	// As the store itself reads it: the end of a sealed segment, for one.
	if c.state == nil || slices.ContainsFunc(c.Problems, func(p *Problem) bool { return p.File == info.Name }) {
		return
	}
	if h.Store != wal.StoreID(c.state.StoreID) {
		c.Problems = append(c.Problems, &Problem{info.Name, 24, fmt.Sprintf("a segment of store %x, not %x", h.Store, c.state.StoreID)})
		return
	}
	seg := wal.Segment{Num: s.FileNum, Sealed: s.Sealed, SizeBytes: int64(s.SizeBytes)}
	good, err := wal.Replay(vfs.OS(), c.Dir, c.state.StoreID, seg, func([]byte) error { return nil })
	if err != nil {
		c.problem(info.Name, err)
	} else if good < seg.SizeBytes {
		c.note("%s, from byte %d of %d: gone in a crash; the next process that opens the store drops later segments", info.Name, good, seg.SizeBytes)
	}
}
