// Package stats has the few distributions that the reports of kvbench need.
// All functions are pure and safe for concurrent use.
//
//	low, high := stats.Wilson(hits, asked, stats.Z(0.95))
package stats

import "math"

// PoissonInterval returns the least and the greatest count of the central 95 %
// of a Poisson distribution with the given mean: its 2.5 % and 97.5 %
// quantiles. A sum of many rare, independent events is Poisson; the false
// positives of a filter are binomial, which is narrower by less than the rate.
func PoissonInterval(mean float64) (low, high uint64) {
	if !(mean > 0) {
		return 0, 0
	}
	// Ten standard deviations below, the mass is far under 1e-20.
	k := uint64(max(0, math.Floor(mean-10*math.Sqrt(mean))))
	low, high = math.MaxUint64, k
	for sum := 0.0; ; k++ {
		logFactorial, _ := math.Lgamma(float64(k) + 1)
		sum += math.Exp(float64(k)*math.Log(mean) - mean - logFactorial)
		if sum >= 0.025 {
			low = min(low, k)
		}
		// The second condition ends the sum even if rounding keeps it below.
		if sum >= 0.975 || float64(k) > mean+10*math.Sqrt(mean)+10 {
			return min(low, k), k
		}
	}
}

// Z returns how many standard deviations to both sides of the mean hold the
// share of a normal distribution, 0 < share < 1.
func Z(share float64) float64 { return math.Sqrt2 * math.Erfinv(share) }

// Together returns the confidence that each of n intervals needs so that all of
// them hold at once with the given one (Bonferroni).
func Together(confidence float64, n int) float64 {
	return 1 - (1-confidence)/float64(max(n, 1))
}

// Wilson returns the interval of the share behind hits out of n, both of which
// are exact, within z standard deviations (Wilson, "Probable Inference, the Law
// of Succession, and Statistical Inference", 1927). Unlike the mean plus and
// minus z deviations it holds for shares near zero. Of nothing asked it is
// [0, 1].
func Wilson(hits, n uint64, z float64) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	count, p := float64(n), float64(hits)/float64(n)
	middle := (p + z*z/(2*count)) / (1 + z*z/count)
	half := z / (1 + z*z/count) * math.Sqrt(p*(1-p)/count+z*z/(4*count*count))
	low, high = max(0, middle-half), min(1, middle+half)
	if hits == 0 {
		low = 0 // rounding may leave a little
	}
	if hits == n {
		high = 1
	}
	return low, high
}

// Mean returns the mean of values and the variance of that mean.
func Mean(values []float64) (mean, variance float64) {
	n := float64(len(values))
	if n == 0 {
		return 0, 0
	}
	for _, v := range values {
		mean += v / n
	}
	if n < 2 {
		return mean, 0
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / (n - 1) / n
	}
	return mean, variance
}

// RatioInterval returns mean(b)/mean(a) with its 95 % confidence interval, from
// samples of both (Welch's degrees of freedom, the delta method for the
// logarithm of the ratio). It reports false where there is too little to say
// so: fewer than three samples, or a mean that is not positive.
func RatioInterval(a, b []float64) (ratio, low, high float64, ok bool) {
	meanA, varA := Mean(a)
	meanB, varB := Mean(b)
	if len(a) < 3 || len(b) < 3 || !(meanA > 0 && meanB > 0) {
		return 0, 0, 0, false
	}
	ratio = meanB / meanA
	relA, relB := varA/(meanA*meanA), varB/(meanB*meanB)
	all := relA + relB
	if all == 0 {
		return ratio, ratio, ratio, true
	}
	freedom := all * all / (relA*relA/float64(len(a)-1) + relB*relB/float64(len(b)-1))
	half := studentT(freedom) * math.Sqrt(all)
	return ratio, ratio * math.Exp(-half), ratio * math.Exp(half), true
}

// studentT returns the 97.5 % quantile of Student's distribution, by the
// expansion of Cornish and Fisher around the normal one; it is within 1 % from
// four degrees of freedom on.
func studentT(freedom float64) float64 {
	const z = 1.959964
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*freedom) + (5*z5+16*z3+3*z)/(96*freedom*freedom) +
		(3*z7+19*z5+17*z3-15*z)/(384*freedom*freedom*freedom)
}
