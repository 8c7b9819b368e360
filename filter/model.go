package filter

import "math"

// ExpectedRate returns the false-positive rate that a filter of a kind with
// millibits thousandths of a bit per key has on average, for many keys. Sizes
// outside [MinMillibits, MaxMillibits] are taken as the nearest bound. For
// KindNone it is 1, for KindFuse 2^-8 whatever the size.
//
// For KindStandard it is (1-e^(-k/b))^k for b bits per key and k probes.
//
// For KindBlocked it costs half a millisecond: callers that need it often keep
// the result. It is the exact model of a filter cut into blocks of 512 bits
// (after Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom
// Filters", 2007). The keys of a block follow a Poisson distribution with mean
// λ = 512/b. d[x] is the probability that k·j probes, j keys with k each, leave
// x of the 512 bits set; one more probe makes
//
//	d[x] = d[x]·x/512 + d[x-1]·(513-x)/512
//
// and the rate is Σ_j Poisson(λ,j) · Σ_x d[x]·(x/512)^k. The formula of the
// standard filter would be 15 % low at 10 bits per key and 66 % low at 20.
func ExpectedRate(kind Kind, millibits uint32) float64 {
	millibits = min(max(millibits, MinMillibits), MaxMillibits)
	switch kind {
	case KindBlocked:
		return modelRate(millibits, probesFor(millibits))
	case KindStandard:
		k := float64(standardProbesFor(millibits))
		return math.Pow(-math.Expm1(-1000*k/float64(millibits)), k)
	case KindFuse:
		return fuseRate
	}
	return 1
}

// realisedRate is the rate that the field of a filter gives.
func (k Kind) realisedRate(field []byte, probes uint8) float64 {
	switch k {
	case KindStandard:
		return realisedStandardRate(field, probes)
	case KindFuse:
		return fuseRate
	}
	return realisedBlockedRate(field, probes)
}

// modelRate is the model of KindBlocked for any number of probes.
func modelRate(millibits uint32, k uint8) float64 {
	lambda := blockBits * 1000 / float64(millibits)

	var power, d [blockBits + 1]float64
	for x := range power {
		power[x] = fillPower(x, blockBits, k)
	}
	d[0] = 1
	// Loads beyond the mean plus 12 standard deviations and 40 weigh less than
	// 1e-20 altogether.
	last := int(lambda + 12*math.Sqrt(lambda) + 40)
	logLambda, logPoisson := math.Log(lambda), -lambda
	rate := 0.0
	for j := range last + 1 {
		if j > 0 {
			for range k {
				throw(&d)
			}
			logPoisson += logLambda - math.Log(float64(j))
		}
		sum := 0.0
		for x, p := range d {
			sum += p * power[x]
		}
		rate += math.Exp(logPoisson) * sum
	}
	return rate
}

// throw advances the distribution of set bits by one probe.
func throw(d *[blockBits + 1]float64) {
	for x := blockBits; x > 0; x-- {
		d[x] = d[x]*float64(x)/blockBits + d[x-1]*float64(blockBits+1-x)/blockBits
	}
	d[0] = 0
}
