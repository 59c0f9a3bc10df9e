package gq

import "time"

// Backup describes a generation of a backup of an embedded store; see gq backup now.
type Backup struct {
	Generation  string    // its name; later ones sort after earlier ones
	Time        time.Time // when it was taken
	LastEvent   uint64    // the newest event in it, or an earlier one if others were being committed
	Files       int
	Bytes       int64
	CopiedFiles int // those that no earlier generation had
	CopiedBytes int64
	Removed     int // generations that were removed
}
