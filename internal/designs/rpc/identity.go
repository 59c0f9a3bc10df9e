package rpc

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// What travels with each call besides its message.
const (
	callerKey  = "gq-caller"     // name of the calling service
	requestKey = "gq-request-id" // joins the log lines of one client request
)

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID takes the id the caller sent along, or draws one.
func withRequestID(ctx context.Context) context.Context {
	id := incoming(ctx, requestKey)
	if id == "" {
		var raw [8]byte
		_, _ = rand.Read(raw[:]) // never fails
		id = hex.EncodeToString(raw[:])
	}
	return context.WithValue(ctx, requestIDKey{}, id)
}

// withIdentity sends along who calls and for which request.
func withIdentity(ctx context.Context, caller string) context.Context {
	if id := requestID(ctx); id != "" {
		return metadata.AppendToOutgoingContext(ctx, callerKey, caller, requestKey, id)
	}
	return metadata.AppendToOutgoingContext(ctx, callerKey, caller)
}

// callerOf is the name the caller gave itself, or where it calls from.
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
