package sievedb

import (
	"fmt"
	"strconv"
	"strings"

	"sievedb/internal/keys"
)

// The files of a store:
//
//	CURRENT          names the manifest in force
//	MANIFEST-000007  the log of edits
//	000012.wal       a segment of the write-ahead log
//	000015.sst       a table
//	LOCK             held by the process that has the store open
//
// Numbers are file numbers: of all kinds together, never used twice.
const lockName = "LOCK"

func tableName(num keys.FileNum) string { return fmt.Sprintf("%06d.sst", num) }

type fileKind uint8

const (
	kindOther fileKind = iota // not a name that the store gives
	kindTable
	kindSegment
	kindManifest
	kindTemp // a replacement that was not renamed
)

// parseName tells what file has this base name. Only names that it would give
// itself are recognised, so that the sweep of obsolete files touches no others.
func parseName(name string) (kind fileKind, num keys.FileNum) {
	digits, isManifest := strings.CutPrefix(name, "MANIFEST-")
	switch {
	case isManifest:
		kind = kindManifest
	case strings.HasSuffix(name, ".sst"):
		kind, digits = kindTable, strings.TrimSuffix(name, ".sst")
	case strings.HasSuffix(name, ".wal"):
		kind, digits = kindSegment, strings.TrimSuffix(name, ".wal")
	case name == "CURRENT.tmp":
		return kindTemp, 0
	default:
		return kindOther, 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || fmt.Sprintf("%06d", n) != digits {
		return kindOther, 0
	}
	return kind, keys.FileNum(n)
}
