package match

// Words returns the first n random words of a seed.
func Words(s Seed, n int) []uint64 {
	stream := words{seed: s}
	list := make([]uint64, n)
	for i := range list {
		list[i] = stream.next()
	}
	return list
}

// Uniform and Lowest are the functions of these names.
var (
	Uniform = uniform
	Lowest  = lowest[int]
)

// Age returns the weight of a time.
func (p *Priority) Age(t int64) int64 { return p.age(t) }

// MatchUnchecked is [Match] for an input that is known to be valid.
func MatchUnchecked(in *Input) Result { return newRound(in).run() }

// Looked returns how often the round of an input considers a provider for a job.
func Looked(in *Input) int {
	r := newRound(in)
	r.run()
	return r.looked
}

// FirstOfPairs returns the first bytes of the pair hashes of jobs with a provider, as a
// round computes them; with plainly, without the shortcut through the digest's state.
func FirstOfPairs(s Seed, provider string, jobs []string, plainly bool) (list []uint64) {
	p := newPairs(s)
	if plainly {
		p.digest = nil
	}
	p.of(provider)
	for _, j := range jobs {
		list = append(list, p.first(j))
	}
	return list
}

// StateIsDigest reports whether the fast hash is used.
var StateIsDigest = stateIsDigest
