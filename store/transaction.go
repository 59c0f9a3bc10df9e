package store

// Transaction is a transaction that is somebody else's: an application's own, in
// the database that a store keeps its jobs in. What is written through it exists
// if and only if the transaction commits, and nobody else sees it before. A store
// that has such a thing makes one of what its driver calls a transaction; the
// application begins and ends it.
//
// An error, as opposed to that of an item,
// leaves the transaction as it was before the call, unless the connection is lost.
type Transaction interface {
	Writer
	Changer
}
