package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"sievedb/cmd/kvbench/engines/internal/store"
	"sievedb/cmd/kvbench/internal/versus"
)

// Request is what a process that serves is told: first which engine, then one
// workload after the other.
type Request struct {
	Engine   string  `json:"engine,omitempty"`
	Config   *Config `json:"config,omitempty"`
	Workload string  `json:"workload,omitempty"`
}

// Reply is its answer to each request.
type Reply struct {
	Sample    *versus.Sample `json:"sample,omitempty"` // nil if the engine has no such workload
	DiskBytes uint64         `json:"disk_bytes"`
	Error     string         `json:"error,omitempty"`
}

// Serve runs a trial for another process, until there are no more requests or
// one fails.
func Serve(r io.Reader, w io.Writer) (err error) {
	requests, replies := json.NewDecoder(r), json.NewEncoder(w)
	var t *Trial
	defer func() {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for {
		var q Request
		if err := requests.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		var reply Reply
		if t == nil {
			t, err = begin(&q)
		} else if reply.Sample, err = t.Run(q.Workload); err == nil {
			reply.DiskBytes, err = t.DiskBytes()
		}
		if err != nil {
			reply.Error = err.Error()
		}
		if err := replies.Encode(reply); err != nil {
			return fmt.Errorf("replying: %w", err)
		}
		if err != nil {
			return err
		}
	}
}

func begin(q *Request) (*Trial, error) {
	engines := store.Engines()
	i := slices.IndexFunc(engines, func(e store.Engine) bool { return e.Name == q.Engine })
	if i < 0 || q.Config == nil {
		return nil, fmt.Errorf("no engine %q, or no configuration", q.Engine)
	}
	return New(engines[i], q.Config)
}
