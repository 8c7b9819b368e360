package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// childEnv makes a test process the program itself, with these arguments, one a
// line.
const childEnv = "FRONTIER_CHILD"

func TestMain(m *testing.M) {
	args, child := os.LookupEnv(childEnv)
	if !child {
		os.Exit(m.Run())
	}
	os.Args = append(os.Args[:1], strings.Split(args, "\n")...)
	main()
	os.Exit(0)
}

func child(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	return cmd
}

// program runs to its end.
func program(t *testing.T, args ...string) string {
	t.Helper()
	out, err := child(t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

const urls = 20_000

// checkCrawl wants the store in dir to hold the whole web, done by so many runs.
func checkCrawl(t *testing.T, dir string, runs int) {
	t.Helper()
	w := web{pages: urls}
	f, err := openFrontier(dir, w)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for page := range urls {
		if ok, err := f.db.Has(urlKey(w.url(page))); !ok || err != nil {
			t.Fatalf("%s is lost: %v", w.url(page), err)
		}
	}
	done, unfinished, err := f.audit()
	if err != nil || unfinished != 0 || len(done) != runs {
		t.Fatalf("%d are not done, %v are, want them done by %d runs: %v", unfinished, done, runs, err)
	}
	total := 0
	for n := range maps.Values(done) {
		total += n
	}
	if total != urls {
		t.Fatalf("%d URLs, want %d", total, urls)
	}
}

// A process that dies after 7,000 URLs, without closing anything, is followed
// by one that does the rest.
func TestRestart(t *testing.T) {
	t.Parallel() // it waits for syncs, mostly
	dir := filepath.Join(t.TempDir(), "crawl")
	size := fmt.Sprint("-urls=", urls)
	out := program(t, size, "-dir="+dir, "-stop-after=7000")
	if !strings.Contains(out, "dying") {
		t.Fatalf("the first run did not stop:\n%s", out)
	}
	out += program(t, size, "-dir="+dir)
	if !strings.Contains(out, fmt.Sprintf("all %d URLs are done, each once", urls)) {
		t.Fatalf("no end in sight:\n%s", out)
	}
	checkCrawl(t, dir, 2)
}

// Processes are killed in the middle of their work, and the last one ends it.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "crawl")
	size := fmt.Sprint("-urls=", urls)
	const killed = 3
	for range killed {
		cmd := child(t, size, "-dir="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if lines.Scan() {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); err == nil || !strings.HasPrefix(lines.Text(), "finished") {
			t.Fatalf("the child was to be killed: %v, %q\n%s", err, lines.Text(), &stderr)
		}
	}
	t.Log(program(t, size, "-dir="+dir))
	checkCrawl(t, dir, killed+1)
}

// Every page is found from page 0, and nothing that is not a page.
func TestWeb(t *testing.T) {
	for _, pages := range []int{1, 2, 3, 1000} {
		w := web{pages: pages}
		found := map[string]bool{w.url(0): true}
		for todo := []string{w.url(0)}; len(todo) > 0; todo = todo[1:] {
			links, err := w.fetch(todo[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, link := range links {
				if !found[link] {
					found[link] = true
					todo = append(todo, link)
				}
			}
		}
		if len(found) != pages {
			t.Errorf("%d pages are found, want %d", len(found), pages)
		}
	}
	for _, url := range []string{"", "https://site000.example/page/1000000", web{}.url(5) + "x"} {
		if _, err := (web{pages: 10}).fetch(url); err == nil {
			t.Errorf("fetched %q", url)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range []string{"-urls=0", "-workers=0", "-stop-after=-1", "-stop-after=1", "crawl"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
	c, err := parse(nil)
	if err != nil || c.urls != 20_000 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A store that holds the crawl of another web is left alone.
func TestAnotherWeb(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run([]string{"-urls=100", "-dir=" + dir}, &out); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-urls=101", "-dir=" + dir}, &out); err == nil || !strings.Contains(err.Error(), "100 URLs, not of 101") {
		t.Fatal(err)
	}
	if lines := slices.Collect(strings.Lines(out.String())); lines[len(lines)-1] != "all 100 URLs are done, each once\n" {
		t.Fatal(out.String())
	}
}
