package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"sievedb/cmd/kvbench/engines/internal/store"
	"sievedb/cmd/kvbench/engines/internal/trial"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/versus"
)

// run makes all repetitions of all settings. If its context ends, it returns
// what was measured so far together with the error.
func (c *contest) run(ctx context.Context, m *meter.Meter) (result *versus.Result, err error) {
	keys, err := c.NewKeys()
	if err != nil {
		return nil, err
	}
	c.scaleTo(keys)
	result = &versus.Result{Setup: versus.Setup{
		Keyset: keys.Name, Seed: c.Seed, Keys: keys.Stored, KeyBytes: keys.KeyBytes, ValueBytes: c.ValueBytes,
		CacheBytes: c.Options.CacheBytes, MemtableBytes: c.Options.MemtableBytes, BitsPerKey: c.bits,
		Repetitions: c.repetitions, Machine: report.ThisMachine(),
	}}
	var names []string
	for _, e := range store.Engines() {
		if e.Name == versus.Baseline || slices.Contains(c.peers, e.Name) {
			names = append(names, e.Name)
			result.Setup.Engines = append(result.Setup.Engines, versus.Engine{Name: e.Name, Version: versionOf(e.Module), Note: e.Note})
		}
	}
	temp, err := os.MkdirTemp("", "kvbench-engines-")
	if err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()

	for _, setting := range c.settings {
		for i := range c.repetitions {
			p := m.Phase(fmt.Sprintf("%s, repetition %d of %d", setting, i+1, c.repetitions), int64(len(names)*len(trial.Names())))
			err = c.repetition(ctx, result, setting, i, names, temp, p)
			p.Done()
			if err != nil {
				if ctx.Err() == nil || len(result.Settings) == 0 {
					return nil, err
				}
				result.Interrupted = true
				result.Complete()
				return result, err
			}
		}
	}
	result.Complete()
	return result, nil
}

// repetition makes each workload on each engine once, on new stores. The engine
// that begins is another one each time.
func (c *contest) repetition(ctx context.Context, result *versus.Result, setting string, i int, names []string, temp string, p *meter.Phase) (err error) {
	k := i % len(names)
	order := slices.Concat(names[k:], names[:k])
	children := map[string]*child{}
	defer func() {
		for _, ch := range children {
			err = errors.Join(err, ch.end(ctx))
		}
	}()
	for _, name := range order {
		config := c.Config
		config.Options.Tuned = setting == "tuned"
		config.Dir = filepath.Join(temp, name)
		if err := os.Mkdir(config.Dir, 0o700); err != nil {
			return err
		}
		ch, err := start(ctx, name, &config)
		if err != nil {
			return err
		}
		children[name] = ch
	}
	footprints := map[string]versus.Footprint{}
	for _, workload := range trial.Names() {
		for _, name := range order {
			p.Extra(func() string { return name + ": " + workload })
			reply, err := children[name].ask(ctx, trial.Request{Workload: workload})
			if err != nil {
				return err
			}
			p.Add(1)
			if reply.Sample != nil {
				result.Add(setting, *reply.Sample)
			}
			f := footprints[name]
			f.Engine = name
			switch workload {
			case trial.Load:
				f.LoadedBytes = reply.DiskBytes
			case trial.Compact:
				f.CompactedBytes = reply.DiskBytes
				result.Footprint(setting, f)
			}
			footprints[name] = f
		}
	}
	return nil
}

// child is the process that an engine runs in.
type child struct {
	name    string
	dir     string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	replies *json.Decoder
	stderr  bytes.Buffer // what it said at its end
	failed  bool         // a request, which is known then
}

func start(ctx context.Context, name string, config *trial.Config) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ch := &child{name: name, dir: config.Dir, cmd: exec.CommandContext(ctx, self, serveArgument)}
	ch.cmd.Stderr = &ch.stderr
	stdout, err := ch.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if ch.stdin, err = ch.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	ch.replies = json.NewDecoder(stdout)
	if err := ch.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the process for %s: %w", name, err)
	}
	if _, err := ch.ask(ctx, trial.Request{Engine: name, Config: config}); err != nil {
		return nil, errors.Join(err, ch.end(ctx))
	}
	return ch, nil
}

// ask makes one request and waits for its reply.
func (ch *child) ask(ctx context.Context, q trial.Request) (reply trial.Reply, err error) {
	if err = json.NewEncoder(ch.stdin).Encode(q); err == nil {
		err = ch.replies.Decode(&reply)
	}
	switch {
	case ctx.Err() != nil: // then it was killed
		err = ctx.Err()
	case reply.Error != "":
		err = fmt.Errorf("%s: %s", ch.name, reply.Error)
	case err != nil: // it died without a reply
		err = fmt.Errorf("during %q: %w", q.Workload, ch.wait())
	}
	ch.failed = ch.failed || err != nil
	return reply, err
}

// wait waits for the end of the process. The error has its last words.
func (ch *child) wait() error {
	if err := ch.cmd.Wait(); err != nil {
		said, _, _ := strings.Cut(ch.stderr.String(), "\n")
		return fmt.Errorf("%s: the process ended: %w: %s", ch.name, err, said)
	}
	return fmt.Errorf("%s: the process ended", ch.name)
}

// end lets the process close its store, and removes that.
func (ch *child) end(ctx context.Context) (err error) {
	_ = ch.stdin.Close() // it may be gone
	if ch.cmd.ProcessState == nil {
		if ended := ch.wait(); ctx.Err() == nil && !ch.failed && !ch.cmd.ProcessState.Success() {
			err = ended
		}
	}
	return errors.Join(err, os.RemoveAll(ch.dir))
}

// versionOf returns the version of a module that this program was built with.
func versionOf(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, d := range info.Deps {
		if d.Path == module && d.Replace == nil {
			return d.Version
		}
	}
	return "this checkout"
}
