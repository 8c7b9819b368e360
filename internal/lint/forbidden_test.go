package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// checkGoroutines lets only DB.spawn start a goroutine, with a method named Go
// (of sync.WaitGroup). Close can wait for all of them because there is one
// place where they start.
func checkGoroutines(s source) (problems []string) {
	for _, f := range s.library() {
		for _, decl := range f.ast.Decls {
			spawner := f.dir() == "." && isSpawner(decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					problems = append(problems, s.problem(n.Pos(), "a go statement; use DB.spawn"))
				case *ast.SelectorExpr:
					if n.Sel.Name == "Go" && !spawner {
						problems = append(problems, s.problem(n.Pos(), "a use of a method Go; use DB.spawn"))
					}
				}
				return true
			})
		}
	}
	return problems
}

func isSpawner(decl ast.Decl) bool {
	fn, ok := decl.(*ast.FuncDecl)
	return ok && fn.Name.Name == "spawn" && receiver(fn) == "DB"
}

// receiver returns the name of the type that fn is a method of, or "".
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// forbidden are the functions and variables with which a library ends or
// litters its host process. A name that ends in * stands for all that start so.
var forbidden = map[string][]string{
	"fmt":     {"Print*"},
	"log":     {"Fatal*", "Panic*", "Print*"},
	"os":      {"Exit", "Stdout", "Stderr"},
	"runtime": {"Goexit"},
	"syscall": {"Exit"},
}

var forbiddenBuiltins = []string{"panic", "print", "println"}

// checkForbidden holds "no panic, exit or print below cmd/".
func checkForbidden(s source) (problems []string) {
	for _, f := range s.library() {
		imports := f.imports()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && slices.Contains(forbiddenBuiltins, id.Name) {
					problems = append(problems, s.problem(n.Pos(), "a call of %s; return an error", id.Name))
				}
			case *ast.SelectorExpr:
				id, ok := n.X.(*ast.Ident)
				if ok && slices.ContainsFunc(forbidden[imports[id.Name]], func(p string) bool { return matches(p, n.Sel) }) {
					problems = append(problems, s.problem(n.Pos(), "a use of %s.%s; return an error", id.Name, n.Sel.Name))
				}
			case *ast.ImportSpec:
				if n.Name != nil && n.Name.Name == "." {
					problems = append(problems, s.problem(n.Pos(), "an import into the file's own names hides what is used"))
				}
			}
			return true
		})
	}
	return problems
}

// wallClock are the methods that make a number or a date of a time.
var wallClock = []string{"Unix", "UnixNano", "UnixMicro", "UnixMilli", "Date", "Clock", "YearDay", "UTC", "AppendFormat", "MarshalBinary"}

// checkClock holds "the wall clock is not read": without these methods, times are
// only subtracted from each other and compared, for which they carry the monotonic
// clock, and a clock that somebody sets changes nothing.
func checkClock(s source) (problems []string) {
	for _, f := range s.library() {
		if !slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"time"` }) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(wallClock, sel.Sel.Name) {
					problems = append(problems, s.problem(n.Pos(), "a call of %s; the wall clock may be set", sel.Sel.Name))
				}
			}
			return true
		})
	}
	return problems
}

func matches(pattern string, name *ast.Ident) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name.Name, prefix)
	}
	return name.Name == pattern
}

func TestGoroutines(t *testing.T) { report(t, checkGoroutines(load(t))) }
func TestForbidden(t *testing.T)  { report(t, checkForbidden(load(t))) }
func TestClock(t *testing.T)      { report(t, checkClock(load(t))) }

func TestSpawnerIsThere(t *testing.T) {
	for _, f := range load(t).packages()["."] {
		if slices.ContainsFunc(f.ast.Decls, isSpawner) {
			return
		}
	}
	t.Error("no method spawn of DB in the root: the rule about goroutines names one that is not there")
}

func TestGoroutinesFindsProblems(t *testing.T) {
	expect(t, []bad{
		{"spawner", "db.go", "package p; func (db *DB) spawn(f func()) { db.workers.Go(f) }", ""},
		{"test", "a_test.go", "package p; func f() { go f() }", ""},
		{"command", "cmd/x/a.go", "package main; func f() { go f() }", ""},
		{"example", "examples/x/a.go", "package main; func f() { go f() }", ""},
		{"statement", "wal/a.go", "package p\nfunc f() { go f() }", "wal/a.go:2: a go statement"},
		{"statement in the spawner", "db.go", "package p\nfunc (db *DB) spawn(f func()) { go f() }", "db.go:2: a go statement"},
		{"in a closure of a variable", "a.go", "package p\nvar f = func() { go f() }", "a.go:2: a go statement"},
		{"wait group", "a.go", "package p\nfunc f(wg W) { wg.Go(nil) }", "a.go:2: a use of a method Go"},
		{"method value", "a.go", "package p\nfunc f(wg W) { h := wg.Go; h(nil) }", "a.go:2: a use of a method Go"},
		{"another spawn", "wal/a.go", "package p\nfunc (db *DB) spawn() { db.wg.Go(nil) }", "wal/a.go:2: a use of a method Go"},
		{"spawn of another type", "a.go", "package p\nfunc (x T) spawn() { x.wg.Go(nil) }", "a.go:2: a use of a method Go"},
	}, checkGoroutines)
}

func TestForbiddenFindsProblems(t *testing.T) {
	body := func(imports, statement string) string {
		return "package p\nimport (" + imports + ")\nfunc f() { " + statement + " }"
	}
	expect(t, []bad{
		{"error", "a.go", body(`"fmt"`, `_ = fmt.Errorf("x")`), ""},
		{"own name", "a.go", body(`"sievedb/os"`, `os.Exit(1)`), ""},
		{"test", "a_test.go", body("", `panic(1)`), ""},
		{"command", "cmd/x/a.go", body(`"os"`, `os.Exit(1)`), ""},
		{"panic", "a.go", body("", `panic(1)`), "a.go:3: a call of panic"},
		{"panic in brackets", "a.go", body("", `(panic)(1)`), "a.go:3: a call of panic"},
		{"println", "a.go", body("", `println()`), "a.go:3: a call of println"},
		{"fatal", "a.go", body(`"log"`, `log.Fatalf("x")`), "a.go:3: a use of log.Fatalf"},
		{"exit", "vfs/a.go", body(`"os"`, `os.Exit(1)`), "vfs/a.go:3: a use of os.Exit"},
		{"exit under another name", "a.go", body(`system "os"`, `system.Exit(1)`), "a.go:3: a use of system.Exit"},
		{"exit as a value", "a.go", body(`"os"`, `f := os.Exit; f(1)`), "a.go:3: a use of os.Exit"},
		{"print", "a.go", body(`"fmt"`, `fmt.Println()`), "a.go:3: a use of fmt.Println"},
		{"stderr", "a.go", body(`"os"`, `_ = os.Stderr`), "a.go:3: a use of os.Stderr"},
		{"dot import", "a.go", body(`. "os"`, `Exit(1)`), "a.go:2: an import into"},
	}, checkForbidden)
}

func TestClockFindsProblems(t *testing.T) {
	expect(t, []bad{
		{"difference", "a.go", "package p\nimport \"time\"\nfunc f(t time.Time) { time.Since(t) }", ""},
		{"test", "a_test.go", "package p\nimport \"time\"\nfunc f() { time.Now().Unix() }", ""},
		{"number", "a.go", "package p\nimport \"time\"\nfunc f() { time.Now().UnixNano() }", "a.go:3: a call of UnixNano"},
		{"no time", "a.go", "package p\nfunc f(x T) { x.Date() }", ""},
	}, checkClock)
}
