package native

import (
	"context"
	"crypto/tls"
	"net"
)

type connKey struct{}

// WithConn lets event streams know their connection. It is for the ConnContext of an
// [net/http.Server].
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// streamBuffer is what the system may keep for a subscriber. By itself it keeps
// megabytes: a subscriber that reads nothing would be written to all that time, at
// the expense of everybody else, before it is noticed that it is slow.
const streamBuffer = 64 << 10

// boundBuffer bounds what the system keeps for the connection of a context.
func boundBuffer(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if s, ok := c.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = s.SetWriteBuffer(streamBuffer) // it is only slower to be noticed
	}
}
