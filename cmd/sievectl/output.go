package main

import (
	"encoding/json"
	"fmt"
	"io"

	"sievedb/cmd/sievectl/internal/check"
)

// output prints what the commands find.
type output struct {
	w    io.Writer
	json bool
}

// line prints v: on lines of text, or as one object whose only field is what.
func (o *output) line(what string, v fmt.Stringer) error {
	var err error
	if o.json {
		err = json.NewEncoder(o.w).Encode(map[string]any{what: v})
	} else {
		_, err = fmt.Fprintln(o.w, v)
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// document prints v: as text, or as JSON of several lines.
func (o *output) document(v fmt.Stringer) error {
	if !o.json {
		_, err := io.WriteString(o.w, v.String())
		return err
	}
	e := json.NewEncoder(o.w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// problems prints problems and returns the error that makes the exit code.
func (o *output) problems(where string, found []*check.Problem) error {
	for _, p := range found {
		if err := o.line("problem", p); err != nil {
			return err
		}
	}
	return damage(where, len(found))
}

// damage is the error of a command that found n problems, nil for none.
func damage(where string, n int) error {
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: one problem found", where)
	}
	return fmt.Errorf("%s: %d problems found", where, n)
}
