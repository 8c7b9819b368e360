package main

import "math"

// poissonInterval returns the least and the greatest count of the central 95 %
// of a Poisson distribution with the given mean: its 2.5 % and 97.5 %
// quantiles. A sum of many rare, independent events is Poisson; the false
// positives of a filter are binomial, which is narrower by less than the rate.
func poissonInterval(mean float64) (low, high uint64) {
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
