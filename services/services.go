// Package services holds the six services of design A, one package each. They call each
// other only through gRPC: no package here imports another, and cmd/gqlab runs each in
// its own process.
package services
