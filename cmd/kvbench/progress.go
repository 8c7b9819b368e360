package main

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
)

// progress shows bars on a terminal, and nothing elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// bar starts a bar that is full at n. Errors of drawing it are of no interest.
func (p *progress) bar(label string, n int64) *progressbar.ProgressBar {
	return progressbar.NewOptions64(n,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetVisibility(p.terminal),
		progressbar.OptionSetDescription(label),
		progressbar.OptionSetWidth(24),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(65e6),
		progressbar.OptionClearOnFinish(),
	)
}
