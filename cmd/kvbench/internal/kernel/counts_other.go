//go:build !linux

package kernel

import "sievedb/cmd/kvbench/internal/report"

// counts has nothing to ask here.
func counts() (report.Kernel, bool) { return report.Kernel{}, false }
