package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath is the import path of the root package.
const modulePath = "sievedb"

// file is one parsed Go file.
type file struct {
	path string // slash-separated, from the root of the module
	src  []byte
	ast  *ast.File
}

func (f file) dir() string  { return path.Dir(f.path) } // "." is the root
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }
func (f file) isCmd() bool {
	return strings.HasPrefix(f.path, "cmd/") || strings.HasPrefix(f.path, "examples/")
}

// imports returns the import path of each name that the file imports.
func (f file) imports() map[string]string {
	names := map[string]string{}
	for _, spec := range f.ast.Imports {
		p := importPath(spec)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	return names
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser lets no such path through
	}
	return p
}

// source is the Go files of a module, sorted by path.
type source struct {
	fset  *token.FileSet
	files []file
}

// parse builds a source from the contents of its files.
func parse(contents map[string]string) (source, error) {
	s := source{fset: token.NewFileSet()}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		src := []byte(contents[name])
		tree, err := parser.ParseFile(s.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return s, err
		}
		s.files = append(s.files, file{path: name, src: src, ast: tree})
	}
	return s, nil
}

// problem words a finding so that an editor can jump to it.
func (s source) problem(pos token.Pos, format string, args ...any) string {
	p := s.fset.Position(pos)
	return fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...))
}

// library returns the files that end up in a user's program: neither tests nor
// commands.
func (s source) library() []file {
	return slices.DeleteFunc(slices.Clone(s.files), func(f file) bool { return f.isTest() || f.isCmd() })
}

// packages returns the files of each directory, without tests.
func (s source) packages() map[string][]file {
	pkgs := map[string][]file{}
	for _, f := range s.files {
		if !f.isTest() {
			pkgs[f.dir()] = append(pkgs[f.dir()], f)
		}
	}
	return pkgs
}

// root returns the directory of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the root of the module is not where it is expected: %v", err)
	}
	return dir
}

// contents reads the files with this suffix, those of nested modules, too: the
// rules hold there as well. It leaves out what the go command leaves out:
// testdata, and names that start with . or _.
func contents(t *testing.T, suffix string) map[string]string {
	t.Helper()
	dir, found := root(t), map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")
		if d.IsDir() {
			if hidden || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if hidden || !strings.HasSuffix(name, suffix) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		found[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// load parses the module that this test is part of.
func load(t *testing.T) source {
	t.Helper()
	s, err := parse(contents(t, ".go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.packages()["."]) == 0 {
		t.Fatal("no Go files in the root package")
	}
	return s
}

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// bad is a source that breaks one rule, and the start of what the rule says.
// An empty want is a source that keeps the rule.
type bad struct {
	name, file, src, want string
}

// expect shows that a rule finds what it should find, and nothing else.
func expect(t *testing.T, cases []bad, rule func(source) []string) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, err := parse(map[string]string{c.file: c.src})
			if err != nil {
				t.Fatal(err)
			}
			expectOne(t, rule(s), c.want)
		})
	}
}

func expectOne(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("got %q, want no problem", got)
	case want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want)):
		t.Errorf("got %q, want one problem that starts %q", got, want)
	}
}
