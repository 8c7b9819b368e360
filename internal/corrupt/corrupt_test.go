package corrupt

import (
	"errors"
	"fmt"
	"testing"
)

func TestLocate(t *testing.T) {
	err := fmt.Errorf("reading: %w", At(7, "checksum", uint32(0xab), uint32(1)))
	located := In(err, "000001.sst", 4096)
	const want = "corrupt data: 000001.sst @4103: checksum: want 0xab, got 0x1"
	if located.Error() != want {
		t.Errorf("got %q, want %q", located, want)
	}
	if !errors.Is(located, ErrCorrupt) || !errors.Is(err, ErrCorrupt) {
		t.Error("errors.Is does not find ErrCorrupt")
	}
	if again := In(located, "other", 1); again.Error() != want {
		t.Errorf("a located error was moved: %v", again)
	}
	if other := errors.New("x"); In(other, "f", 0) != other || In(nil, "f", 0) != nil {
		t.Error("errors that are no corruption must pass unchanged")
	}
}
