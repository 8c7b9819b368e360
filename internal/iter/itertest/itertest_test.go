package itertest

import (
	"errors"
	"fmt"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

func someEntries() []Entry {
	var entries []Entry
	for i := range 40 {
		for seq := keys.SeqNum(i % 3); seq > 0; seq-- {
			k := keys.Make(fmt.Appendf(nil, "key%02d", i), seq, keys.KindPut)
			entries = append(entries, Entry{Key: k, Value: fmt.Appendf(nil, "%s", k)})
		}
	}
	return entries
}

func TestCheckAcceptsTheModel(t *testing.T) {
	for name, want := range map[string][]Entry{"empty": nil, "one": someEntries()[:1], "many": someEntries()} {
		t.Run(name, func(t *testing.T) {
			Check(t, func() iter.Iterator { return NewSlice(want) }, want)
			Check(t, func() iter.Iterator { return NewPoisoned(NewSlice(want)) }, want)
			Check(t, func() iter.Iterator { return NewFailing(NewSlice(want), -1, nil) }, want)
		})
	}
}

// faulty is an iterator with one fault.
type faulty struct {
	*Slice
	fault string
	kept  []byte
}

func (f *faulty) Next() bool {
	if f.fault == "next revives" && !f.Valid() {
		return f.First()
	}
	return f.Slice.Next()
}

func (f *faulty) Prev() bool {
	return f.Slice.Prev() && (f.fault != "prev skips" || f.pos != 7 || f.Slice.Prev())
}

func (f *faulty) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	f.kept = userKey
	if f.fault == "seek ignores the trailer" {
		trailer = ^keys.Trailer(0)
	}
	return f.Slice.SeekGE(userKey, trailer)
}

func (f *faulty) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	ok := f.Slice.SeekLT(userKey, trailer)
	if f.fault == "seek is inclusive" && f.pos+1 < len(f.entries) &&
		keys.Compare(f.entries[f.pos+1].Key, keys.InternalKey{UserKey: userKey, Trailer: trailer}) == 0 {
		return f.Slice.at(f.pos + 1)
	}
	return ok
}

func (f *faulty) Key() keys.InternalKey {
	k := f.Slice.Key()
	if f.fault == "keeps the seek key" && f.kept != nil && f.pos == 0 {
		k.UserKey = f.kept
	}
	return k
}

func (f *faulty) Value() []byte {
	if f.fault == "wrong value" && f.pos == len(f.entries)-1 {
		return nil
	}
	return f.Slice.Value()
}

func (f *faulty) Valid() bool {
	return f.Slice.Valid() || f.fault == "valid at the end" && f.pos == len(f.entries)
}

func (f *faulty) Error() error {
	if f.fault == "error" {
		return errors.New("broken")
	}
	return nil
}

func (f *faulty) Close() error {
	if err := f.Slice.Close(); err != nil || f.fault != "second close" || f.closes < 2 {
		return err
	}
	return errors.New("already closed")
}

func TestCheckFindsFaults(t *testing.T) {
	want := someEntries()
	for _, fault := range []string{"next revives", "prev skips", "seek ignores the trailer", "seek is inclusive",
		"keeps the seek key", "wrong value", "valid at the end", "error", "second close"} {
		err := check(func() iter.Iterator { return &faulty{Slice: NewSlice(want), fault: fault} }, want, Rand(t))
		if err == nil {
			t.Errorf("fault %q was not found", fault)
		} else {
			t.Logf("%s: %v", fault, err)
		}
	}
	if err := check(func() iter.Iterator { return NewSlice(want[:len(want)-1]) }, want, Rand(t)); err == nil {
		t.Error("a missing entry was not found")
	}
	if err := check(func() iter.Iterator { return NewSlice(want) }, want[:len(want)-1], Rand(t)); err == nil {
		t.Error("an additional entry was not found")
	}
}

func TestFailing(t *testing.T) {
	boom := errors.New("boom")
	f := NewFailing(NewSlice(someEntries()), 2, boom)
	if !f.First() || !f.Next() || f.Error() != nil || f.Failed() {
		t.Fatal("failed too early")
	}
	if f.Next() || f.Valid() || f.First() || f.Error() != boom || !f.Failed() {
		t.Fatal("did not fail, or recovered")
	}
}

func TestPoisonedOverwrites(t *testing.T) {
	p := NewPoisoned(NewSlice(someEntries()))
	p.First()
	k, v := p.Key().UserKey, p.Value()
	kept, keptValue := string(k), string(v)
	if p.Last(); string(k) == kept || string(v) == keptValue {
		t.Error("memory of the entry before is still intact")
	}
	k, v = p.Key().UserKey, p.Value()
	kept, keptValue = string(k), string(v)
	if p.Next(); string(k) == kept || string(v) == keptValue {
		t.Error("memory of the last entry is still intact after the end")
	}
}
