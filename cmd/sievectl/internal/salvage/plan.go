package salvage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// plan is what is to be used of the old store.
type plan struct {
	dir    string
	report *Report

	// whole says that the manifest was read to an end that is sure: what it
	// lists is the store, and nothing else is.
	whole   bool
	store   *[16]byte // nil if it is not known
	lastSeq keys.SeqNum
	// tables are those to use, by number; Meta is nil where only the file is
	// known.
	tables   map[keys.FileNum]manifest.LevelTable
	removed  map[keys.FileNum]bool // tables that an edit removed, also to move them
	segments map[keys.FileNum]manifest.Segment
	oldest   keys.FileNum // segment that is still needed
}

// makePlan reads the manifest as far as that goes, and lists the files.
func makePlan(dir string, report *Report) (*plan, error) {
	p := &plan{dir: dir, report: report,
		tables: map[keys.FileNum]manifest.LevelTable{}, removed: map[keys.FileNum]bool{},
		segments: map[keys.FileNum]manifest.Segment{},
	}
	names, err := vfs.OS().List(dir)
	if err != nil {
		return nil, err
	}
	st, err := manifest.Load(vfs.OS(), dir)
	if err == nil {
		err = behind(st, names, func(name string) int64 {
			info, _ := vfs.OS().Stat(filepath.Join(dir, name)) // what cannot be read is reported when it is
			return info.SizeBytes
		})
	}
	var version *manifest.VersionError
	switch {
	case err == nil:
		p.take(st)
	case errors.As(err, &version):
		return nil, err
	default:
		if err := p.takeWhatIsLeft(names, err); err != nil {
			return nil, err
		}
	}
	p.addFiles(names)
	if !p.whole && len(p.tables)+len(p.segments) == 0 {
		return nil, fmt.Errorf("%s holds neither a table nor a WAL segment", dir)
	}
	return p, nil
}

// behind returns an error if the manifest, which can be loaded, knows less than
// the directory. Either there is a segment that it has not heard of with records, which
// no segment gets before an edit names it; or a file that it lists is gone, and there is one
// that may stand for it, a table that it does not list, or such a segment. It has lost its last edits, at the end of one, where nothing vouched for them; alone, a
// missing file is just that. Whether such a table is younger than the edits that are
// left its number does not tell: a flush takes it before others write theirs.
func behind(st *manifest.State, names []string, size func(name string) int64) error {
	missing := func(name string) bool { return !slices.Contains(names, name) }
	listed := map[keys.FileNum]bool{}
	var gone string
	for level := range st.Version.Levels {
		for _, t := range st.Version.Levels[level] {
			listed[t.FileNum] = true
			if name := fmt.Sprintf("%06d.sst", t.FileNum); missing(name) {
				gone = name
			}
		}
	}
	newest := keys.FileNum(0)
	for _, s := range st.Segments {
		newest = s.FileNum
		if name := wal.SegmentName(s.FileNum); missing(name) {
			gone = name
		}
	}
	for _, name := range names {
		table, isTable := decode.ParseNum(name, ".sst")
		segment, isSegment := decode.ParseNum(name, ".wal")
		unknown := isSegment && segment > newest
		switch {
		case unknown && size(name) > wal.HeaderLen:
			return fmt.Errorf("the manifest lacks its last edits: it does not know %s, which has records", name)
		case gone != "" && (unknown || isTable && !listed[table]):
			return fmt.Errorf("the manifest lacks its last edits: it knows %s, which is gone, but not %s", gone, name)
		}
	}
	return nil
}

// take plans what a whole manifest says.
func (p *plan) take(st *manifest.State) {
	p.whole, p.store, p.lastSeq = true, &st.StoreID, st.LastSeq
	for level, tables := range st.Version.Levels {
		for _, t := range tables {
			p.tables[t.FileNum] = manifest.LevelTable{Level: level, Meta: t}
		}
	}
	for _, s := range st.Segments {
		p.segments[s.FileNum] = s
	}
}

// takeWhatIsLeft plans with the edits that can be read, since the manifest
// cannot be loaded because of cause.
func (p *plan) takeWhatIsLeft(names []string, cause error) error {
	var candidates []keys.FileNum // of manifests, the best first
	for _, name := range names {
		if num, ok := manifest.ParseManifestName(name); ok {
			candidates = append(candidates, num)
		}
	}
	slices.Sort(candidates)
	slices.Reverse(candidates)
	durable := int64(0)
	current, err := decode.ReadCurrent(p.dir)
	if err == nil {
		candidates, durable = []keys.FileNum{current.Manifest}, current.DurableBytes
	} else {
		p.report.lose(manifest.CurrentName, 0, 0, err)
	}
	used := false
	for i := 0; i < len(candidates) && !used; i++ {
		if used, err = p.takeManifest(candidates[i], durable); err != nil {
			return err
		}
	}
	if !used {
		p.report.lose("MANIFEST", 0, 0, "none can be read")
	}
	if len(p.report.Losses) == 0 { // its edits can be read, but do not fit
		p.report.lose("MANIFEST", 0, 0, cause)
	}
	p.report.note("without a whole manifest, all tables and segments are used that are there and that no edit removed; " +
		"if others had replaced one of them, old values and deleted keys may be back")
	return nil
}

// takeManifest plans with the edits of manifest num, and reports whether there
// were any. durable is how many bytes it should have at least.
func (p *plan) takeManifest(num keys.FileNum, durable int64) (used bool, err error) {
	name := manifest.ManifestName(num)
	f, err := decode.OpenFile(filepath.Join(p.dir, name))
	if err != nil {
		p.report.lose(name, 0, durable, err)
		return false, nil
	}
	h, err := decode.ReadManifestHeader(f)
	switch {
	case err == nil:
		p.store = &h.Store
	case !errors.Is(err, corrupt.ErrCorrupt):
		return false, err
	default:
		p.report.damaged(err)
	}
	gaps, err := decode.WalkManifest(f, num, func(e *decode.Edit) error {
		used = true
		p.apply(&e.Edit)
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, g := range gaps {
		p.report.lose(name, g.Offset, g.End, g.Cause)
	}
	if f.Size < durable {
		p.report.lose(name, f.Size, durable, fmt.Sprintf("the manifest is cut to %d bytes", f.Size))
	}
	for n := range p.segments {
		if n < p.oldest {
			delete(p.segments, n)
		}
	}
	return used, nil
}

// apply does what an edit says, whether or not it fits those before it.
func (p *plan) apply(e *manifest.Edit) {
	p.lastSeq = max(p.lastSeq, e.LastSeq)
	p.oldest = max(p.oldest, e.OldestSegment)
	for _, n := range e.AddedSegments {
		p.segments[n] = manifest.Segment{FileNum: n}
	}
	for _, s := range e.EndedSegments {
		p.segments[s.FileNum] = manifest.Segment(s)
	}
	for _, t := range e.Removed {
		delete(p.tables, t.FileNum)
		p.removed[t.FileNum] = true
	}
	for _, t := range e.Added {
		p.tables[t.Meta.FileNum] = t
	}
}

// addFiles adds the files that the manifest does not list, or notes that they
// are not used.
func (p *plan) addFiles(names []string) {
	for _, name := range names {
		table, isTable := decode.ParseNum(name, ".sst")
		segment, isSegment := decode.ParseNum(name, ".wal")
		_, tableListed := p.tables[table]
		_, segmentListed := p.segments[segment]
		switch {
		case isTable && tableListed, isSegment && segmentListed:
		case isTable && !p.whole && !p.removed[table]:
			p.tables[table] = manifest.LevelTable{}
		case isSegment && !p.whole && segment >= p.oldest:
			p.segments[segment] = manifest.Segment{FileNum: segment}
		case isTable, isSegment:
			p.report.note("%s is not part of the store, and not used", name)
		}
	}
}
