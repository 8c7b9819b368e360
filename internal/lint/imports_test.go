package lint

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// table says which packages of the module each package may import: directories
// from the root, which is ".". everything stands for all packages but those
// that help tests.
type table map[string][]string

const everything = "all"

// rowStart begins a row of the table: its first cell, then the two others.
var rowStart = regexp.MustCompile("^\\| (?:`([a-z0-9/]+)`|(root)) \\| [^|]+ \\| ([^|]+) \\|$")

// parseTable reads the import table of docs/design.md. Its last column names
// packages by their last element; "–" is none.
func parseTable(page string) (table, error) {
	const header = "| package | one sentence | may import (inside the module) |"
	_, rest, ok := strings.Cut(strings.ReplaceAll(page, "\r\n", "\n"), header+"\n|---|---|---|\n")
	if !ok {
		return nil, fmt.Errorf("no table under %q", header)
	}
	cells, dirs := map[string]string{}, map[string]string{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		m := rowStart.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			return nil, fmt.Errorf("a row that is not understood: %q", line)
		}
		dir := m[1]
		if m[2] == "root" {
			dir = "."
		}
		short := shortName(dir)
		if dirs[short] != "" {
			return nil, fmt.Errorf("two rows are called %s", short)
		}
		cells[dir], dirs[short] = strings.TrimSpace(m[3]), dir
	}
	allowed := table{}
	for dir, cell := range cells {
		allowed[dir] = nil
		switch cell {
		case "–":
			continue
		case everything:
			allowed[dir] = []string{everything}
			continue
		}
		for name := range strings.SplitSeq(cell, ", ") {
			if dirs[name] == "" {
				return nil, fmt.Errorf("the row of %s names %q, which has no row", dir, name)
			}
			allowed[dir] = append(allowed[dir], dirs[name])
		}
	}
	return allowed, nil
}

func shortName(dir string) string {
	if dir == "." {
		return "root"
	}
	return path.Base(dir)
}

// helpsTests reports whether a package is for tests only, by its name.
func helpsTests(dir string) bool { return strings.HasSuffix(dir, "test") }

// row returns the package whose row holds for dir: its own, or that of the
// command of which it is an internal part.
func (allowed table) row(dir string) string {
	if _, ok := allowed[dir]; ok {
		return dir
	}
	if command, _, ok := strings.Cut(dir, "/internal/"); ok && strings.HasPrefix(command, "cmd/") {
		return command
	}
	return dir
}

func (allowed table) permits(from, to string) bool {
	from = allowed.row(from)
	if slices.Contains(allowed[from], allowed.row(to)) || strings.HasPrefix(from, "cmd/") && allowed.row(to) == from {
		return true
	}
	return slices.Contains(allowed[from], everything) && !helpsTests(to)
}

// checkImports holds the table in both directions: no package without a row,
// no import that its row does not name, no row without a package. What tests
// import is their own business.
func checkImports(s source, allowed table) (problems []string) {
	pkgs := s.packages()
	for _, dir := range slices.Sorted(maps.Keys(allowed)) {
		if len(pkgs[dir]) == 0 {
			problems = append(problems, fmt.Sprintf("docs/design.md: the import table has a row for %s, which has no Go files", shortName(dir)))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		if _, ok := allowed[allowed.row(dir)]; !ok {
			problems = append(problems, s.problem(pkgs[dir][0].ast.Package, "package %s has no row in the import table of docs/design.md", dir))
			continue
		}
		for _, f := range pkgs[dir] {
			for _, spec := range f.ast.Imports {
				to, ok := insideModule(importPath(spec))
				if ok && !allowed.permits(dir, to) {
					problems = append(problems, s.problem(spec.Pos(), "the import table of docs/design.md lets %s not import %s", shortName(dir), to))
				}
			}
		}
	}
	return problems
}

// insideModule returns the directory of a package of this module.
func insideModule(importPath string) (dir string, ok bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// dependencies are the modules that a user's program gets with the library.
var dependencies = []string{
	"github.com/cespare/xxhash/v2",
	"github.com/golang/snappy",
	"github.com/google/btree",
}

// checkDependencies holds the three-dependency rule, and "no cgo". The package
// golang.org/x/sys is for files that only Windows builds.
func checkDependencies(s source) (problems []string) {
	for _, f := range s.library() {
		for _, spec := range f.ast.Imports {
			p := importPath(spec)
			host, _, _ := strings.Cut(p, "/")
			_, inside := insideModule(p)
			onWindows := strings.HasPrefix(p, "golang.org/x/sys/") && strings.HasSuffix(f.path, "_windows.go")
			switch {
			case p == "C":
				problems = append(problems, s.problem(spec.Pos(), "cgo"))
			case inside || onWindows || slices.Contains(dependencies, p):
			case strings.Contains(host, "."):
				problems = append(problems, s.problem(spec.Pos(), "%s is not one of the library's dependencies", p))
			}
		}
	}
	return problems
}

func TestImports(t *testing.T) {
	allowed, err := parseTable(contents(t, ".md")["docs/design.md"])
	if err != nil {
		t.Fatal("docs/design.md:", err)
	}
	report(t, checkImports(load(t), allowed))
}

func TestDependencies(t *testing.T) { report(t, checkDependencies(load(t))) }

const tableHead = "| package | one sentence | may import (inside the module) |\n|---|---|---|\n"

func TestImportsFindsProblems(t *testing.T) {
	allowed, err := parseTable("# Title\n" + tableHead +
		"| `internal/low` | one | – |\n| `cmd/tool` | reports | root |\n| `cmd/tool/more` | more | tool |\n| `high` | two | low |\n| `high/hightest` | helps | low, high |\n| root | all | all |\nafter\n")
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]string{
		"internal/low/a.go":      "package low",
		"internal/low/a_test.go": `package low; import _ "sievedb/high"`,
		"high/a.go":              `package high; import _ "sievedb/internal/low"`,
		"high/hightest/a.go":     `package hightest; import _ "sievedb/high"`,
		"db.go":                  `package sievedb; import _ "sievedb/internal/low"`,
		"cmd/tool/more/a.go":     "package main",
		"cmd/tool/a.go":          `package main; import _ "sievedb/cmd/tool/internal/part"`,
	}
	for _, c := range []struct{ name, file, src, want string }{
		{"nothing", "db.go", good["db.go"], ""},
		{"upwards", "internal/low/a.go", `package low; import _ "sievedb/high"`, "internal/low/a.go:1: the import table"},
		{"the root", "high/a.go", `package high; import _ "sievedb"`, "high/a.go:1: the import table"},
		{"test helper", "db.go", `package sievedb; import _ "sievedb/high/hightest"`, "db.go:1: the import table"},
		{"part of a command", "cmd/tool/internal/part/a.go", `package part; import _ "sievedb"`, ""},
		{"part of a command goes deeper", "cmd/tool/internal/part/a.go", `package part; import _ "sievedb/internal/low"`, "cmd/tool/internal/part/a.go:1: the import table"},
		{"part of another command", "cmd/tool/more/internal/part/a.go", `package part; import _ "sievedb/cmd/tool/internal/part"`, ""},
		{"part of another command without leave", "cmd/tool/a.go", `package main; import _ "sievedb/cmd/tool/more/internal/part"`, "cmd/tool/a.go:1: the import table"},
		{"no row", "extra/a.go", "package extra", "extra/a.go:1: package extra has no row"},
		{"no package", "high/a.go", "", "docs/design.md: the import table has a row for high,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := maps.Clone(good)
			files[c.file] = c.src
			if c.src == "" {
				delete(files, c.file)
			}
			s, err := parse(files)
			if err != nil {
				t.Fatal(err)
			}
			expectOne(t, checkImports(s, allowed), c.want)
		})
	}
}

func TestParseTableRejects(t *testing.T) {
	for name, page := range map[string]string{
		"no table":     "# Title\n",
		"odd row":      tableHead + "| vfs | without backquotes | – |\n",
		"unknown name": tableHead + "| `vfs` | files | disk |\n",
		"same name":    tableHead + "| `a/x` | one | – |\n| `b/x` | two | – |\n",
	} {
		if got, err := parseTable(page); err == nil {
			t.Errorf("%s: parsed as %v, want an error", name, got)
		}
	}
}

func TestDependenciesFindsProblems(t *testing.T) {
	const sys = `package p; import _ "golang.org/x/sys/windows"`
	expect(t, []bad{
		{"allowed", "filter/a.go", `package p; import _ "github.com/cespare/xxhash/v2"`, ""},
		{"standard library", "a.go", `package p; import _ "encoding/binary"`, ""},
		{"in a test", "a_test.go", `package p; import _ "pgregory.net/rapid"`, ""},
		{"in a command", "cmd/x/a.go", `package main; import _ "github.com/spf13/cobra"`, ""},
		{"sys on windows", "vfs/a_windows.go", sys, ""},
		{"sys elsewhere", "vfs/a.go", sys, "vfs/a.go:1: golang.org/x/sys/windows is not"},
		{"a fourth", "vfs/a.go", `package p; import _ "go.uber.org/zap"`, "vfs/a.go:1: go.uber.org/zap is not"},
		{"cgo", "a.go", `package p; import "C"`, "a.go:1: cgo"},
	}, checkDependencies)
}
