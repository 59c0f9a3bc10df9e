package native

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// corking is a ResponseWriter whose connection can be corked once it is hijacked.
type corking struct {
	http.ResponseWriter
	conn *corked // nil until hijacked
}

// Hijack implements [http.Hijacker].
func (c *corking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.conn = &corked{Conn: conn}
	return c.conn, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(c.conn)), nil
}

// corked is a connection that can buffer writes, so that many messages need only one
// system call.
type corked struct {
	net.Conn

	mu       sync.Mutex
	gathered *[]byte // nil while not corked; guarded by mu
}

// corkRoom is the size of a write buffer. corks pools the buffers.
const corkRoom = 64 << 10

var corks = sync.Pool{New: func() any {
	room := make([]byte, 0, corkRoom)
	return &room
}}

// cork starts buffering.
func (c *corked) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathered == nil {
		c.gathered = corks.Get().(*[]byte)
	}
}

// uncork writes the buffer before a deadline and stops buffering.
func (c *corked) uncork(within time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	err := c.flushLocked()
	*c.gathered = (*c.gathered)[:0] // on error the connection is lost anyway
	corks.Put(c.gathered)
	c.gathered = nil
	if err != nil {
		return err
	}
	return c.SetWriteDeadline(time.Time{})
}

func (c *corked) flushLocked() error {
	_, err := c.Conn.Write(*c.gathered)
	*c.gathered = (*c.gathered)[:0]
	return err
}

// Write buffers or writes b.
func (c *corked) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathered == nil {
		return c.Conn.Write(b)
	}
	if len(*c.gathered)+len(b) > corkRoom {
		if err := c.flushLocked(); err != nil {
			return 0, err
		}
	}
	if len(b) > corkRoom {
		return c.Conn.Write(b)
	}
	*c.gathered = append(*c.gathered, b...)
	return len(b), nil
}
