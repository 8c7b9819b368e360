package main

import (
	"fmt"
	"strconv"
	"strings"
)

// web is a web of numbered pages. Page 0 leads to all of them: each links to
// two of a binary tree, and to some anywhere.
type web struct{ pages int }

const sites = 1000

// linksAnywhere is how many links a page has beside those of the tree: most
// lead to pages that are known already or will be found by others, too.
const linksAnywhere = 6

func (web) url(page int) string {
	return fmt.Sprintf("https://site%03d.example/page/%d", mix(uint64(page))%sites, page)
}

// fetch returns the links of a page.
func (w web) fetch(url string) (links []string, err error) {
	_, digits, _ := strings.Cut(url, "/page/")
	page, err := strconv.Atoi(digits)
	if err != nil || page < 0 || page >= w.pages || w.url(page) != url {
		return nil, fmt.Errorf("no such page: %s", url)
	}
	for child := 2*page + 1; child <= 2*page+2 && child < w.pages; child++ {
		links = append(links, w.url(child))
	}
	for i := range uint64(linksAnywhere) {
		links = append(links, w.url(int(mix(uint64(page)<<8|i)%uint64(w.pages))))
	}
	return links, nil
}

// mix scatters numbers: the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
