package native

import (
	"context"
	"crypto/tls"
	"net"
)

type connKey struct{}

// WithConn makes the connection available to event streams. Use it as ConnContext of an
// [net/http.Server].
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// streamBuffer is the kernel's send buffer for a subscriber. The default is megabytes: it
// would take long to notice a subscriber that reads nothing, and writing to it meanwhile
// would slow down everybody else.
const streamBuffer = 64 << 10

// boundBuffer limits the kernel's send buffer of the connection in ctx.
func boundBuffer(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if s, ok := c.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = s.SetWriteBuffer(streamBuffer) // on failure, a slow subscriber is only detected later
	}
}
