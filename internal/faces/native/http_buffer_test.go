//go:build unix

package native

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// metered is a server connection that counts the bytes written to it.
type metered struct {
	*net.TCPConn
	written atomic.Int64
	once    sync.Once
	closed  chan struct{}
}

func (c *metered) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

func (c *metered) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.TCPConn.Close()
}

type meteredListener struct {
	net.Listener
	accepted chan *metered
}

func (l meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &metered{TCPConn: c.(*net.TCPConn), closed: make(chan struct{})}
	l.accepted <- m
	return m, nil
}

// A subscriber that reads nothing is cut off after few bytes: filling the kernel's
// buffers for thousands of them would delay everybody else.
func TestASubscriberThatDoesNotReadIsWrittenLittle(t *testing.T) {
	const most = 1 << 20
	for name, request := range map[string]string{
		"SSE":       "GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\n\r\n",
		"WebSocket": "GET /v1/events/ws?after=0 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNewsroom(t, EventLimits{Slow: time.Second, Stuck: time.Second})
			for range 15 { // about 6 MB of events
				n.submit(1000, "a")
			}
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := meteredListener{inner, make(chan *metered, 1)}
			server := &http.Server{Handler: n.http, ConnContext: WithConn}
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			defer func() { server.Close(); <-served }()
			c, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.(*net.TCPConn).SetReadBuffer(32 << 10); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprint(c, request); err != nil {
				t.Fatal(err)
			}
			conn := <-l.accepted
			select {
			case <-conn.closed:
			case <-time.After(patience):
				t.Fatal("it was not cut off")
			}
			if got := conn.written.Load(); got == 0 || got > most {
				t.Errorf("it was written %d bytes, want at most %d", got, most)
			}
		})
	}
}
