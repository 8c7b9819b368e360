// Package kernel asks the operating system about reads and memory, and makes it forget what
// it has read. All functions are safe for concurrent use.
//
//	m := kernel.Start()
//	…
//	counted := m.Stop()
package kernel

import "sievedb/cmd/kvbench/internal/report"

// Meter remembers what the kernel had counted.
type Meter struct {
	before report.Kernel
	ok     bool
}

// Start begins to count.
func Start() Meter {
	before, ok := counts()
	return Meter{before, ok}
}

// Stop returns what was counted since, nil where the kernel does not tell.
func (m Meter) Stop() *report.Kernel {
	after, ok := counts()
	if !ok || !m.ok {
		return nil
	}
	return &report.Kernel{ReadCalls: after.ReadCalls - m.before.ReadCalls, ReadBytes: after.ReadBytes - m.before.ReadBytes}
}
