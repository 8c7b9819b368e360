package lint

import (
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Budgets, as docs/design.md section 8 states them. Files and functions are
// counted with all their lines, since that is what a reader scrolls through.
// Packages are counted in lines of code, neither blank nor comment, since a
// budget must not be saved by leaving out documentation.
const (
	fileLines        = 600
	functionLines    = 100
	rootCodeLines    = 4000
	sstableCodeLines = 2000
	packageCodeLines = 1000
)

func packageBudget(dir string) int {
	switch dir {
	case ".":
		return rootCodeLines
	case "sstable":
		return sstableCodeLines
	}
	return packageCodeLines
}

func checkFileSizes(s source) (problems []string) {
	for _, f := range s.files {
		if n := s.fset.File(f.ast.FileStart).LineCount(); n > fileLines {
			problems = append(problems, fmt.Sprintf("%s:%d: the file has %d lines, at most %d", f.path, fileLines+1, n, fileLines))
		}
	}
	return problems
}

func checkFunctionSizes(s source) (problems []string) {
	for _, f := range s.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || strings.HasSuffix(f.path, "_test.go") { // tables of cases are data
				continue
			}
			n := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1
			if n > functionLines {
				problems = append(problems, s.problem(fn.Pos(), "%s has %d lines, at most %d", fn.Name.Name, n, functionLines))
			}
		}
	}
	return problems
}

func checkPackageSizes(s source) (problems []string) {
	pkgs := s.packages()
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		n := 0
		for _, f := range pkgs[dir] {
			n += codeLines(f.src)
		}
		if budget := packageBudget(dir); n > budget {
			problems = append(problems, fmt.Sprintf("%s: the package has %d lines of code, at most %d", dir, n, budget))
		}
	}
	return problems
}

// codeLines counts the lines that hold at least a part of a token.
func codeLines(src []byte) int {
	fset := token.NewFileSet()
	tf := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(tf, src, nil, 0) // leaves comments out
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return len(lines)
		case tok == token.SEMICOLON && lit == "\n":
			continue // made up by the scanner
		}
		first := tf.Line(pos)
		for i := range 1 + strings.Count(lit, "\n") {
			lines[first+i] = true
		}
	}
}

func TestFileSizes(t *testing.T)     { report(t, checkFileSizes(load(t))) }
func TestFunctionSizes(t *testing.T) { report(t, checkFunctionSizes(load(t))) }
func TestPackageSizes(t *testing.T)  { report(t, checkPackageSizes(load(t))) }

// TestBudgetsAreDocumented keeps section 8 and the constants together.
func TestBudgetsAreDocumented(t *testing.T) {
	_, section, _ := strings.Cut(contents(t, ".md")["docs/design.md"], "\n## 8. ")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, want := range []string{
		fmt.Sprintf("cap %s;", thousands(fileLines)),
		fmt.Sprintf("cap %s,", thousands(functionLines)),
		fmt.Sprintf("root ≤ %s,", thousands(rootCodeLines)),
		fmt.Sprintf("`sstable` ≤ %s,", thousands(sstableCodeLines)),
		fmt.Sprintf("other packages ≤ %s:", thousands(packageCodeLines)),
	} {
		if !strings.Contains(section, want) {
			t.Errorf("section 8 of docs/design.md does not say %q", want)
		}
	}
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func TestSizesFindProblems(t *testing.T) {
	statements := func(n int) string { return strings.Repeat("x++\n", n) }
	// A function of n lines begins on line 2 of a file of n+1 lines.
	function := func(n int) string { return "package p\nfunc F(x int) {\n" + statements(n-2) + "}\n" }
	t.Run("files", func(t *testing.T) {
		expect(t, []bad{
			{"at the cap", "a.go", function(fileLines - 1), ""},
			{"above the cap", "a.go", function(fileLines), "a.go:601: the file has 601 lines"},
			{"test above the cap", "a_test.go", function(fileLines), "a_test.go:601: the file has 601 lines"},
		}, checkFileSizes)
	})
	t.Run("functions", func(t *testing.T) {
		expect(t, []bad{
			{"at the cap", "a.go", function(functionLines), ""},
			{"above the cap", "a.go", function(functionLines + 1), "a.go:2: F has 101 lines"},
		}, checkFunctionSizes)
	})
	t.Run("packages", func(t *testing.T) {
		comments := strings.Repeat("// c\n\n", packageCodeLines)
		expect(t, []bad{
			{"at the budget", "vfs/a.go", comments + function(packageCodeLines-1), ""},
			{"above the budget", "vfs/a.go", function(packageCodeLines), "vfs: the package has 1001 lines of code"},
			{"tests do not count", "vfs/a_test.go", function(packageCodeLines), ""},
			{"sstable", "sstable/a.go", function(sstableCodeLines), "sstable: the package has 2001 lines of code"},
			{"root", "a.go", function(rootCodeLines), ".: the package has 4001 lines of code"},
		}, checkPackageSizes)
	})
}

func TestCodeLines(t *testing.T) {
	const src = "// Package p.\n\npackage p\n\n/* one\ntwo */\nvar s = `a\n\nb` // c\n\n// d\n"
	if got, want := codeLines([]byte(src)), 4; got != want { // package, and a string of three lines
		t.Errorf("codeLines = %d, want %d", got, want)
	}
}
