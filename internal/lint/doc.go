// Package lint holds the rules of docs/design.md that a compiler does not
// know: which package may import which, how large files, functions and
// packages may grow, where goroutines start, what a library never does to its
// host process, and what must be documented. It has tests only:
//
//	go test -count=1 ./internal/lint/
//
// The import table is read from docs/design.md, so that page and code cannot
// differ. Each rule is a pure function from parsed source to a list of
// problems, and has a test that shows it finding one.
package lint
