package check

import (
	"errors"
	"fmt"
	"strings"

	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/corrupt"
)

// Problem is something that is wrong with a file. Offset is -1 where there is
// none.
type Problem struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Text   string `json:"problem"`
}

// String prints the problem on one line.
func (p *Problem) String() string {
	if p.Offset < 0 {
		return fmt.Sprintf("PROBLEM %s: %s", p.File, p.Text)
	}
	return fmt.Sprintf("PROBLEM %s @%d: %s", p.File, p.Offset, p.Text)
}

// ProblemOf turns an error about a file of that base name into a problem.
func ProblemOf(file string, err error) *Problem {
	if c, ok := errors.AsType[*corrupt.Error](err); ok && c.File != "" {
		return &Problem{c.File, c.Offset, fmt.Sprintf("%s: want %s, got %s", c.What, c.Want, c.Got)}
	}
	return &Problem{file, -1, strings.ReplaceAll(err.Error(), "\n", "; ")}
}

// GapProblems are what could not be read of a log, and what the disk could not.
func GapProblems(f *decode.File, gaps []decode.Gap) (found []*Problem) {
	for _, g := range gaps {
		found = append(found, gapProblem(f.Name, g))
	}
	if f.Err() != nil {
		found = append(found, ProblemOf(f.Name, f.Err()))
	}
	return found
}

func gapProblem(name string, g decode.Gap) *Problem {
	p := ProblemOf(name, g.Cause)
	p.Text = fmt.Sprintf("bytes %d to %d: %s", g.Offset, g.End, p.Text)
	if g.Torn {
		p.Text += "; nothing says that this was ever durable"
	}
	return p
}
