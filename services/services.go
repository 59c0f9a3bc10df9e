// Package services holds the six services of design A, a package each. They know
// each other only through gRPC: no package here imports another, and cmd/gq
// starts each in a process of its own.
package services
