package page

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sievedb/cmd/kvbench/internal/growth"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/results"
	"sievedb/cmd/kvbench/internal/versus"
)

// runs are the golden results of the packages report and versus.
func runs(t *testing.T) (all []report.Run) {
	t.Helper()
	for _, name := range []string{"report/lookups", "report/sweep", "report/ops", "report/crash", "versus/engines", "growth/growth"} {
		run, err := results.Read(filepath.Join("..", filepath.Dir(name), "testdata", filepath.Base(name)+".json"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, run)
	}
	return all
}

func write(t *testing.T, all []report.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, all); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var (
	tag       = regexp.MustCompile(`<(/?)([a-zA-Z][a-zA-Z0-9]*)[^>]*?(/?)>`)
	reference = regexp.MustCompile(`(?i)(src|href)=|url\(|@import|<script|<link|<iframe|<object|\son[a-z]+=`)
)

// The page is whole, has a chart for each thing that it should show, and asks
// nothing of anybody.
func TestPage(t *testing.T) {
	html := write(t, runs(t))
	checkBalanced(t, html)
	if at := reference.FindString(strings.ReplaceAll(html, `xmlns="http://www.w3.org/2000/svg"`, "")); at != "" {
		t.Errorf("the page has %q, which may load something", at)
	}
	for _, want := range []string{
		"Disk reads without and with filters", "False-positive rate against bits per key", "Level by level: predicted and measured",
		"The tree", "How long lookups take", "The same memory, spent in different ways", "How long operations take", "Amplification over time",
		"prefers-color-scheme:dark", "@media print", "Filters avoided 99.00 %", "LOST: 2 acknowledged batches",
		"Times as long as sievedb, tuned alike", "Times as long as sievedb, out of the box", "other is FASTER",
		"Lookup time against the number of keys", "Lookups of present keys a second against readers",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if n := strings.Count(html, "<svg "); n != 5+2+3+2+3 {
		t.Errorf("%d charts, want 15", n)
	}
	if n := strings.Count(html, `class="interval"`); n < 3+3+3 {
		t.Errorf("%d intervals, want one for each level, twice, and each point of the sweep", n)
	}
	for _, bad := range []string{"NaN", "ZgotmplZ", "%!"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if again := write(t, runs(t)); again != html {
		t.Error("the same results make another page")
	}
}

// checkBalanced checks that each element that is opened is closed.
func checkBalanced(t *testing.T, html string) {
	t.Helper()
	var open []string
	for _, m := range tag.FindAllStringSubmatch(html, -1) {
		name := m[2]
		switch {
		case m[3] == "/" || name == "meta" || name == "br":
		case m[1] == "":
			open = append(open, name)
		case len(open) == 0 || open[len(open)-1] != name:
			t.Fatalf("</%s> closes %v", name, open)
		default:
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("never closed: %v", open)
	}
}

// What comes from a file of results is text, not markup.
func TestPageEscapes(t *testing.T) {
	const evil = `<script>alert("1")</script>`
	run := &report.Ops{Setup: report.OpsSetup{Command: evil, Workload: evil, Mix: evil}, Kinds: []report.Kind{{Op: evil}}}
	if html := write(t, []report.Run{run}); strings.Contains(html, "<script>") {
		t.Error("the page runs what a name says")
	}
}

func TestPageOfLittle(t *testing.T) {
	for _, run := range []report.Run{new(report.Lookups), new(report.Sweep), new(report.Ops), new(report.Crash), new(versus.Result), new(growth.Result)} {
		checkBalanced(t, write(t, []report.Run{run}))
	}
	checkBalanced(t, write(t, nil))
}

// As files, the charts are those of the page, each under a name of its own.
func TestFigures(t *testing.T) {
	all, err := Figures(append(runs(t), runs(t)[5]))
	if err != nil {
		t.Fatal(err)
	}
	html := write(t, runs(t))
	names := map[string]bool{}
	for _, x := range all {
		_, body, _ := strings.Cut(string(x.SVG), "</style>")
		if names[x.Name] || !strings.Contains(html, strings.TrimSpace(body)) {
			t.Errorf("%s is there twice, or no chart of the page", x.Name)
		}
		names[x.Name] = true
	}
	for _, name := range []string{"lookup-time-against-the-number-of-keys.svg", "lookup-time-against-the-number-of-keys-2.svg", "lookups-of-absent-keys-a-second-against-readers.svg"} {
		if !names[name] {
			t.Errorf("no %s: %v", name, names)
		}
	}
	if len(all) != 15+3 {
		t.Errorf("%d charts, want 18", len(all))
	}
}

// Where there is a browser, it draws the page, light and dark: each element has
// the colour that the style sheet gives it.
func TestScreenshot(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no Chromium here; the structure of the page is what TestPage checks")
	}
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(write(t, runs(t))), 0o644); err != nil {
		t.Fatal(err)
	}
	for scheme, colours := range map[string]map[string]string{
		"1": {"page": "f6f7f9", "card": "ffffff", "with filters": "2563c9", "without": "c2560c"},
		"0": {"page": "12161d", "card": "1a2029", "with filters": "79a9ff", "without": "ff9d57"},
	} {
		dots := screenshot(t, browser, file, "--blink-settings=preferredColorScheme="+scheme)
		for name, colour := range colours {
			if dots[colour] < 20 {
				t.Errorf("scheme %s: the screenshot has %d dots of %s, the colour of %q", scheme, dots[colour], colour, name)
			}
		}
	}
}

// screenshot returns how many dots of each colour a page has, of one in 16.
func screenshot(t *testing.T, browser, file, setting string) map[string]int {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shot := filepath.Join(dir, "page.png")
	out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", setting,
		"--user-data-dir="+filepath.Join(dir, "profile"), "--window-size=1200,1600", "--screenshot="+shot, "file://"+file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	colours := map[string]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y += 4 {
		for x := b.Min.X; x < b.Max.X; x += 4 {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[fmt.Sprintf("%02x%02x%02x", r>>8, g>>8, b>>8)]++
		}
	}
	return colours
}
