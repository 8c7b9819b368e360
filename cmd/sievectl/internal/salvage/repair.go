package salvage

import (
	"bytes"
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"sievedb"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// Repair makes a new store in dst, which must not exist or be empty, out of
// what can be read of the store in src, which it only reads. An error says that
// dst is not what it should be, if anything is there; damage of src is no
// error but in the report.
func Repair(src, dst string) (*Report, error) {
	return repair(src, dst, &sievedb.Options{MustBeNew: true})
}

// repair is Repair with the options of the new store.
func repair(src, dst string, o *sievedb.Options) (*Report, error) {
	if err := checkDest(src, dst); err != nil {
		return nil, err
	}
	r := &Report{Source: src, Dest: dst, // empty lists are [] in JSON
		Files: []*FileReport{}, Losses: []*Loss{}, Damage: []string{}, Notes: []string{}}
	p, err := makePlan(src, r)
	if err != nil {
		return nil, err
	}
	tables, err := p.openTables()
	if err != nil {
		return nil, err
	}
	segments, err := p.readSegments()
	if err != nil {
		return nil, err
	}
	m := merge{report: r, unknown: map[keys.Kind]uint64{}}
	m.start(append(tables, segments))
	if err := m.write(dst, o); err != nil {
		return nil, fmt.Errorf("%s is not complete: %w", dst, err)
	}
	for _, kind := range slices.Sorted(maps.Keys(m.unknown)) {
		r.lose(src, 0, 0, fmt.Sprintf("keys left out because this program does not understand their newest entry, of kind %s: %d", kind, m.unknown[kind]))
	}
	if r.MaybeStale > 0 {
		r.note("%d of the keys written lie where a table lost something: they may have an older value, or have been deleted", r.MaybeStale)
	}
	if r.lostRecords() {
		r.note("records of the WAL are lost: any key may have an older value, or have been deleted, and batches may be there in part")
	}
	return r, nil
}

// checkDest refuses a directory that is not new or empty, or that lies in src.
func checkDest(src, dst string) error {
	from, err := filepath.EvalSymlinks(src)
	if err != nil {
		return err
	}
	if from, err = filepath.Abs(from); err != nil {
		return err
	}
	to, err := filepath.Abs(dst)
	if err != nil {
		return err
	}
	// The part of dst that exists may lead to src through a link.
	for parent := to; parent != filepath.Dir(parent); parent = filepath.Dir(parent) {
		if real, err := filepath.EvalSymlinks(parent); err == nil {
			to = filepath.Join(real, to[len(parent):])
			break
		}
	}
	if rel, err := filepath.Rel(from, to); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("%s lies in %s, which must not be changed", dst, src)
	}
	entries, err := os.ReadDir(dst)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", dst)
	}
	return nil
}

// merge yields all entries of its sources in order, as a heap of those that
// have any left.
type merge struct {
	sources []*source
	report  *Report
	deletes *rangedel.Set // the range tombstones of all sources
	lost    []*KeyRange   // ranges of losses that may hold keys yet to come
	unknown map[keys.Kind]uint64
}

func (m *merge) Len() int      { return len(m.sources) }
func (m *merge) Swap(i, j int) { m.sources[i], m.sources[j] = m.sources[j], m.sources[i] }

// Less puts the newer entry of a user key first. Where numbers are equal, both
// are zero, or a file was copied: then the level decides, and the younger file.
func (m *merge) Less(i, j int) bool {
	a, b := m.sources[i], m.sources[j]
	return cmp.Or(keys.Compare(a.entries[0].InternalKey, b.entries[0].InternalKey),
		cmp.Compare(a.level, b.level), cmp.Compare(b.num, a.num)) < 0
}

// Push is part of heap.Interface; nothing is ever added.
func (m *merge) Push(any) {}

// Pop is part of heap.Interface.
func (m *merge) Pop() any {
	m.sources = m.sources[:len(m.sources)-1]
	return nil
}

func (m *merge) start(sources []*source) {
	var tombstones []rangedel.Tombstone
	for _, s := range sources {
		s.lost = func(r *KeyRange) { m.lost = append(m.lost, r) }
		for _, l := range s.own {
			m.lost = append(m.lost, l.Keys)
		}
		tombstones = append(tombstones, s.deletes...)
		if s.table != nil {
			tombstones = rangedel.AppendTombstones(tombstones, s.table.RangeDels.Spans())
		}
		if s.fill(); len(s.entries) > 0 {
			m.sources = append(m.sources, s)
		}
	}
	m.deletes = rangedel.NewSet(rangedel.Fragment(tombstones, nil))
	heap.Init(m)
}

// next returns the next entry and the level that it is from, or false. An
// entry stays valid.
func (m *merge) next() (e decode.Entry, level int, ok bool) {
	if len(m.sources) == 0 {
		return e, 0, false
	}
	s := m.sources[0]
	e, s.entries = s.entries[0], s.entries[1:]
	if s.fill(); len(s.entries) > 0 {
		heap.Fix(m, 0)
	} else {
		heap.Pop(m)
	}
	return e, s.level, true
}

// batchBytes is what is written at once, in bytes.
const batchBytes = 1 << 20

// write writes the newest version of each user key to a new store.
func (m *merge) write(dst string, o *sievedb.Options) (err error) {
	db, err := sievedb.Open(dst, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	b := db.NewBatch()
	var last []byte
	first := true
	for e, level, ok := m.next(); ok; e, level, ok = m.next() {
		if !first && bytes.Equal(e.UserKey, last) {
			continue // an older version
		}
		first, last = false, e.UserKey
		if !m.take(e, level) {
			continue
		}
		b.Put(e.UserKey, e.Value)
		if b.SizeBytes() < batchBytes {
			continue
		}
		if err := db.Apply(b, sievedb.SyncNever); err != nil {
			return err
		}
		b.Reset()
	}
	return db.Apply(b, sievedb.SyncAlways)
}

// take reports whether the newest version of a key is to be written, and
// counts.
func (m *merge) take(e decode.Entry, level int) bool {
	switch kind := e.Trailer.Kind(); kind {
	case keys.KindPut:
	case keys.KindDelete:
		return false
	default:
		m.unknown[kind]++
		return false
	}
	if m.deletes.Covering(e.UserKey, keys.MaxSeqNum) > e.Trailer.SeqNum() {
		return false
	}
	m.report.KeysWritten++
	m.report.BytesWritten += uint64(len(e.UserKey) + len(e.Value))
	m.lost = slices.DeleteFunc(m.lost, func(r *KeyRange) bool { return r.passed(e.UserKey) })
	if slices.ContainsFunc(m.lost, func(r *KeyRange) bool { return r.level <= level && r.holds(e.UserKey) }) {
		m.report.MaybeStale++
	}
	return true
}
