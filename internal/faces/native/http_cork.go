package native

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// corking is a ResponseWriter whose connection, once it is taken over, can be
// corked.
type corking struct {
	http.ResponseWriter
	conn *corked // once it is taken over
}

// Hijack takes the connection over.
func (c *corking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.conn = &corked{Conn: conn}
	return c.conn, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(c.conn)), nil
}

// corked is a connection that can gather what is written: whoever sends many
// messages would otherwise make a system call for each.
type corked struct {
	net.Conn

	mu       sync.Mutex
	gathered *[]byte // nil while nothing is gathered; guarded by mu
}

// corkRoom is up to how much is gathered, and corks are the rooms.
const corkRoom = 64 << 10

var corks = sync.Pool{New: func() any {
	room := make([]byte, 0, corkRoom)
	return &room
}}

// cork gathers from now on.
func (c *corked) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathered == nil {
		c.gathered = corks.Get().(*[]byte)
	}
}

// uncork writes what was gathered, within a time.
func (c *corked) uncork(within time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	err := c.flushLocked()
	*c.gathered = (*c.gathered)[:0] // what was not written is lost with the connection
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

// Write gathers or writes.
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
