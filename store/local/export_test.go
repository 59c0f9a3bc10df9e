package local

// ForgetIDs lets a store keep no ids of folded jobs in memory.
func ForgetIDs(o Options) Options {
	o.keptIDs = -1
	return o
}
