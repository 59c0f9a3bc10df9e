package rpc

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Metadata sent with each call.
const (
	callerKey  = "gq-caller"     // name of the calling service
	requestKey = "gq-request-id" // correlates the log lines of one client request
)

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID uses the caller's request id, or draws one.
func withRequestID(ctx context.Context) context.Context {
	id := incoming(ctx, requestKey)
	if id == "" {
		var raw [8]byte
		_, _ = rand.Read(raw[:]) // never fails
		id = hex.EncodeToString(raw[:])
	}
	return context.WithValue(ctx, requestIDKey{}, id)
}

// withIdentity adds the caller's name and the request id to a call.
func withIdentity(ctx context.Context, caller string) context.Context {
	if id := requestID(ctx); id != "" {
		return metadata.AppendToOutgoingContext(ctx, callerKey, caller, requestKey, id)
	}
	return metadata.AppendToOutgoingContext(ctx, callerKey, caller)
}

// callerOf returns the caller's name, or its address.
func callerOf(ctx context.Context) string {
	if name := incoming(ctx, callerKey); name != "" {
		return name
	}
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

func incoming(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}
