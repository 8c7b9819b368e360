package notify

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Events come one at a time and in order, those that a delivery causes, too.
func TestOrder(t *testing.T) {
	var q Queue
	q.Configure(nil, true)
	var got []int
	var listen func(int)
	listen = func(i int) {
		got = append(got, i) // the race detector sees two at a time
		if i < 3 {
			Post(&q, listen, 10*i, slog.LevelInfo, nil, "more")
			q.Deliver() // by the one who is at it
		}
	}
	for i := range 5 {
		Post(&q, listen, i+1, slog.LevelInfo, nil, "event")
	}
	if len(got) != 0 {
		t.Fatal("delivered before it was asked for")
	}
	q.Deliver()
	if want := []int{1, 2, 3, 4, 5, 10, 20}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				Post(&q, listen, 100, slog.LevelInfo, nil, "event")
				q.Deliver()
			}
		})
	}
	wg.Wait()
	if len(got) != 7+400 {
		t.Errorf("%d events", len(got))
	}
}

func TestLog(t *testing.T) {
	var q Queue
	Post[any](&q, func(any) { t.Error("nobody listens") }, nil, slog.LevelInfo, nil, "dropped")
	q.Deliver()
	if q.On() {
		t.Error("on before it was configured")
	}
	var log bytes.Buffer
	q.Configure(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), false)
	Post(&q, nil, 0, slog.LevelInfo, nil, "fine", slog.Int("n", 1))
	Post(&q, nil, 0, slog.LevelInfo, errors.New("oh"), "failed", slog.Int("n", 2))
	Post(&q, nil, 0, slog.LevelError, errors.New("oh"), "worse")
	q.Deliver()
	want := "level=INFO msg=fine n=1\nlevel=WARN msg=failed n=2 error=oh\nlevel=ERROR msg=worse error=oh\n"
	if got := log.String(); got != want {
		t.Errorf("got %s", got)
	}
	var first []string
	for _, what := range strings.Fields("a b a b c") {
		first = append(first, fmt.Sprint(q.First(what)))
	}
	if got := strings.Join(first, " "); got != "true true false false true" {
		t.Error(got)
	}
}
