package native

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// line counts writes and their sizes.
type line struct {
	net.Conn
	writes  int
	got     bytes.Buffer
	refuses error
}

func (l *line) Write(b []byte) (int, error) {
	if l.refuses != nil {
		return 0, l.refuses
	}
	l.writes++
	return l.got.Write(b)
}

func (l *line) SetWriteDeadline(time.Time) error { return nil }

// What is written while a connection is corked arrives complete and in order, in few
// writes; later writes are immediate.
func TestCork(t *testing.T) {
	l := &line{}
	c := &corked{Conn: l}
	var want strings.Builder
	write := func(n int) {
		t.Helper()
		text := strings.Repeat(string(rune('a'+want.Len()%26)), n)
		want.WriteString(text)
		if k, err := c.Write([]byte(text)); k != n || err != nil {
			t.Fatal(k, err)
		}
	}
	write(10)
	c.cork()
	for range 1000 {
		write(300)
	}
	write(corkRoom + 1)
	write(5)
	before := l.writes
	if err := c.uncork(time.Second); err != nil {
		t.Fatal(err)
	}
	if l.writes != before+1 || l.writes > 1+1000*300/(corkRoom-300)+4 {
		t.Errorf("%d writes, %d of them in the end", l.writes, l.writes-before)
	}
	write(7)
	if l.got.String() != want.String() {
		t.Errorf("%d bytes arrived, want %d in their order", l.got.Len(), want.Len())
	}
	l.refuses = errors.New("cut")
	c.cork()
	write(3)
	if err := c.uncork(time.Second); !errors.Is(err, l.refuses) {
		t.Errorf("a line that is cut: %v", err)
	}
}
