//go:build !unix

package sys

import "math"

func MaxOpenFiles() int { return math.MaxInt }
