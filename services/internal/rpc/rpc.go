// Package rpc is how nodes of the task queue serve and call each other over gRPC:
// deadlines, retries, panics, identity, health, reflection and a log line for every
// answer that is not OK.
//
// There is no transport security and no authentication: the task queue's designs
// are an experiment on a trusted network.
package rpc

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// baseName returns the method without the name of its service.
func baseName(fullMethod string) string {
	return fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]
}

// Downstream returns the error to answer with after a call to another service failed.
// Errors about the request pass unchanged; if the other service is broken, down or
// unknown, the error is UNAVAILABLE.
func Downstream(service string, err error) error {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	switch s.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.ResourceExhausted,
		codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		return s.Err()
	default:
		return status.Errorf(codes.Unavailable, "%s service: %s", service, s.Message())
	}
}

// outward returns the error as clients may see it. Unclassified errors become INTERNAL,
// and their text stays in the log.
func outward(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Internal, "internal error")
}

// Clip shortens a client's text to at most n bytes of whole characters.
func Clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
