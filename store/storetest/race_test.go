//go:build race

package storetest

// raceEnabled says that the race detector is on, which makes everything several times slower.
const raceEnabled = true
