// Package services holds the six services of design A, one package each. They call each
// other only through gRPC: no package here imports another, and services/cmd/gqlab runs
// each in its own process.
//
// It is the root of the laboratory's module, which has design B, the load generator and
// the comparison of the designs below internal.
package services
