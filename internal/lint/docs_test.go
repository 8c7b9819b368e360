package lint

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// checkPackageComments wants one comment per package, in the form that go doc
// and its readers expect.
func checkPackageComments(s source) (problems []string) {
	pkgs := s.packages()
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		files := pkgs[dir]
		want := "Package " + files[0].ast.Name.Name + " "
		if files[0].ast.Name.Name == "main" {
			want = "Command " + path.Base(dir) + " "
		}
		comments := 0
		for _, f := range files {
			if text := f.ast.Doc.Text(); text != "" {
				comments++
				if !strings.HasPrefix(text, want) {
					problems = append(problems, s.problem(f.ast.Package, "the package comment does not start with %q", want))
				}
			}
		}
		if comments != 1 {
			problems = append(problems, s.problem(files[0].ast.Package, "%d comments for package %s, want one", comments, dir))
		}
	}
	return problems
}

// checkExported wants a comment on everything that is exported at the top
// level, and on the exported methods of exported types. One comment may stand
// over a group of constants or variables that belong together, and one over
// the variants of a function for several systems.
func checkExported(s source) (problems []string) {
	pkgs := s.packages()
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		var all []declared
		documented := map[string]bool{}
		for _, f := range pkgs[dir] {
			for _, d := range declarations(f) {
				all = append(all, d)
				documented[d.name] = documented[d.name] || d.comment != ""
			}
		}
		for _, d := range all {
			if ast.IsExported(d.id.Name) && !documented[d.name] {
				problems = append(problems, s.problem(d.id.Pos(), "%s has no comment", d.name))
			}
		}
	}
	return problems
}

// declared is a name at the top level of a package.
type declared struct {
	name    string // of a method with its type in front
	id      *ast.Ident
	comment string
}

// declarations returns what a file declares, without the methods of types that
// are not exported.
func declarations(f file) (all []declared) {
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			recv := receiver(d)
			switch {
			case d.Recv == nil:
				all = append(all, declared{d.Name.Name, d.Name, d.Doc.Text()})
			case ast.IsExported(recv):
				all = append(all, declared{recv + "." + d.Name.Name, d.Name, d.Doc.Text()})
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				all = append(all, specified(d, spec)...)
			}
		}
	}
	return all
}

func specified(d *ast.GenDecl, spec ast.Spec) (all []declared) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		comment := spec.Doc.Text() + spec.Comment.Text()
		if !d.Lparen.IsValid() { // a group of types shares nothing that a comment could say
			comment += d.Doc.Text()
		}
		all = append(all, declared{spec.Name.Name, spec.Name, comment})
	case *ast.ValueSpec:
		for _, id := range spec.Names {
			all = append(all, declared{id.Name, id, d.Doc.Text() + spec.Doc.Text() + spec.Comment.Text()})
		}
	}
	return all
}

func TestPackageComments(t *testing.T) { report(t, checkPackageComments(load(t))) }
func TestExported(t *testing.T)        { report(t, checkExported(load(t))) }

func TestPackageCommentsFindsProblems(t *testing.T) {
	expect(t, []bad{
		{"good", "p/a.go", "// Package p is good.\npackage p", ""},
		{"good command", "cmd/x/a.go", "// Command x is good.\npackage main", ""},
		{"test", "p/a_test.go", "package p", ""},
		{"none", "p/a.go", "package p", "p/a.go:1: 0 comments for package p"},
		{"detached", "p/a.go", "// Package p is far away.\n\npackage p", "p/a.go:3: 0 comments for package p"},
		{"other start", "p/a.go", "// This is p.\npackage p", "p/a.go:2: the package comment does not start"},
	}, checkPackageComments)

	s, err := parse(map[string]string{"p/a.go": "// Package p is one.\npackage p", "p/b.go": "// Package p is two.\npackage p"})
	if err != nil {
		t.Fatal(err)
	}
	expectOne(t, checkPackageComments(s), "p/a.go:2: 2 comments for package p")
}

func TestExportedFindsProblems(t *testing.T) {
	expect(t, []bad{
		{"good", "a.go", "package p\n// F is good.\nfunc F() {}\n// T too.\ntype T int\n// All.\nconst (\nA = 1\nB = 2\n)", ""},
		{"line comment", "a.go", "package p\nvar V int // V is a variable", ""},
		{"own", "a.go", "package p\nfunc f() {}\ntype t int\nfunc (t) M() {}", ""},
		{"test", "a_test.go", "package p\nfunc F() {}", ""},
		{"function", "a.go", "package p\nfunc F() {}", "a.go:2: F has no comment"},
		{"directive only", "a.go", "package p\n//go:noinline\nfunc F() {}", "a.go:3: F has no comment"},
		{"method", "a.go", "package p\nfunc (t *T[K]) M() {}", "a.go:2: T.M has no comment"},
		{"type", "a.go", "package p\ntype T int", "a.go:2: T has no comment"},
		{"type in a group", "a.go", "package p\n// Types.\ntype (\nT int\n)", "a.go:4: T has no comment"},
		{"constant", "a.go", "package p\nconst (\n// A is.\nA = 1\nB = 2\n)", "a.go:5: B has no comment"},
		{"variable", "a.go", "package p\nvar V int", "a.go:2: V has no comment"},
	}, checkExported)

	s, err := parse(map[string]string{
		"a_linux.go":  "package p\n// F is documented here.\nfunc F() {}",
		"a_darwin.go": "package p\nfunc F() {}\nfunc G() {}",
	})
	if err != nil {
		t.Fatal(err)
	}
	expectOne(t, checkExported(s), "a_darwin.go:3: G has no comment")
}
