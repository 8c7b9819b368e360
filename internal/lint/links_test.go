package lint

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	link       = regexp.MustCompile(`\]\(([^()\s]+)(?: "[^"]*")?\)`)
	inlineCode = regexp.MustCompile("`[^`]*`")
	heading    = regexp.MustCompile(`^#{1,6} +(.+)$`)
)

// checkLinks wants every relative link of a page to lead to a file, and its
// fragment to a heading of that page. exists tells whether there is a file or
// directory with a slash-separated path from the root.
func checkLinks(pages map[string]string, exists func(name string) bool) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for i, line := range prose(pages[name]) {
			for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
				if strings.Contains(m[1], ":") {
					continue // a scheme: of another site
				}
				target, fragment, _ := strings.Cut(m[1], "#")
				to := name
				if target != "" {
					to = path.Join(path.Dir(name), target)
				}
				page, isPage := pages[to]
				switch {
				case !exists(to):
					problems = append(problems, fmt.Sprintf("%s:%d: the link to %s leads nowhere", name, i+1, m[1]))
				case fragment != "" && isPage && !slices.Contains(anchors(page), fragment):
					problems = append(problems, fmt.Sprintf("%s:%d: %s has no heading #%s", name, i+1, to, fragment))
				}
			}
		}
	}
	return problems
}

// prose returns the lines of a page, those of fenced code blocks empty.
func prose(page string) []string {
	lines := strings.Split(strings.ReplaceAll(page, "\r\n", "\n"), "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return lines
}

// anchors returns the fragments that GitHub gives the headings of a page:
// lower case, punctuation dropped, spaces to hyphens.
func anchors(page string) (fragments []string) {
	for _, line := range prose(page) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		fragments = append(fragments, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return fragments
}

func TestLinks(t *testing.T) {
	dir, pages := root(t), contents(t, ".md")
	report(t, checkLinks(pages, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil
	}))
	for _, name := range []string{"README.md", "docs/design.md", "docs/format.md"} {
		if pages[name] == "" {
			t.Errorf("%s: no such page", name)
		}
	}
}

func TestLinksFindsProblems(t *testing.T) {
	const other = "# Other page\n\n## 2. Its `code`, too\n\n```\n# not a heading\n```\n"
	for _, c := range []struct{ name, page, want string }{
		{"file", "[a](other.md) and [b](../vfs)", ""},
		{"heading", "[a](other.md#2-its-code-too)", ""},
		{"elsewhere", "[a](https://example.org/x)", ""},
		{"in code", "`m[1](x)`\n```\n[a](b)\n```\n", ""},
		{"no file", "text\n[a](gone.md)", "docs/a.md:2: the link to gone.md"},
		{"no file with a title", `[a](gone.md "title")`, "docs/a.md:1: the link to gone.md"},
		{"no heading", "[a](other.md#gone)", "docs/a.md:1: docs/other.md has no heading"},
		{"heading in code", "[a](other.md#not-a-heading)", "docs/a.md:1: docs/other.md has no heading"},
		{"own heading", "# A\n[a](#b)", "docs/a.md:2: docs/a.md has no heading"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pages := map[string]string{"docs/a.md": c.page, "docs/other.md": other}
			exists := func(name string) bool { return pages[name] != "" || name == "vfs" }
			expectOne(t, checkLinks(pages, exists), c.want)
		})
	}
}
