package taskwork

// Owner returns the index, below n, of the node that owns a job id or a key: the 64-bit
// FNV-1a hash modulo n.
func Owner(id string, n int) int {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	for i := range len(id) {
		hash ^= uint64(id[i])
		hash *= prime
	}
	return int(hash % uint64(n))
}
