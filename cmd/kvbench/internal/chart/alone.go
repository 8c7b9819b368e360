package chart

import (
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

// Style is the style sheet of the charts, for the page that holds them: their
// colours, light and dark, and their classes.
//
//go:embed chart.css
var Style string

// aloneStyle is what a page gives a chart beside Style.
const aloneStyle = `svg{background:var(--card);font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
`

// StandAlone makes a file of a chart that one of the functions here drew. It
// has a size of its own, and follows the reader's light or dark setting where
// it is shown as a picture, too.
func StandAlone(svg template.HTML) ([]byte, error) {
	head, rest, ok := strings.Cut(string(svg), ">")
	var w, h int
	if _, err := fmt.Sscanf(head, `<svg class="chart" viewBox="0 0 %d %d"`, &w, &h); err != nil || !ok {
		return nil, fmt.Errorf("not a chart of this package: %.60q", head)
	}
	return fmt.Appendf(nil, "%s width=\"%d\" height=\"%d\">\n<style>\n%s%s</style>%s", head, w, h, Style, aloneStyle, rest), nil
}
