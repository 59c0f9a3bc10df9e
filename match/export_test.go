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

// MatchUnchecked is [Match] for an input that is known to be valid.
func MatchUnchecked(in *Input) Result { return matchValid(in) }

// Looked returns how often the round of an input considers a provider for a job.
func Looked(in *Input) int {
	r := newRound(in)
	r.run()
	return r.looked
}

// HashesOf returns the hashes that the round of an input compares, by provider and job.
func HashesOf(in *Input) map[[2]string]uint64 {
	r := newRound(in)
	r.run()
	hashes := make(map[[2]string]uint64)
	for place, known := range r.hashes {
		for row, h := range known {
			if h != 0 {
				hashes[[2]string{r.candidates[row].job.ID, r.order[place].ID}] = h
			}
		}
	}
	return hashes
}
