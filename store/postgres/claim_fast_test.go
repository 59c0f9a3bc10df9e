package postgres_test

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// cutter is a proxy between a store and its database. Once armed, it forwards the next
// statements that contain a word, waits for their commit, and closes the connection before
// it forwards any of the answer, or at the part of the answer that is to be lost.
type cutter struct {
	word, lost []byte
	armed, cut atomic.Bool
}

// newCutter returns a cutter and the URL that goes through it.
func newCutter(t *testing.T, to, word string) (c *cutter, through string) {
	t.Helper()
	c = &cutter{word: []byte(word)}
	return c, between(t, to, c.serve)
}

// between puts a proxy between a store and its database. It returns the URL of the proxy,
// which calls serve with both ends of each connection.
func between(t *testing.T, to string, serve func(client, server net.Conn)) (through string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	socket := ".s.PGSQL." + query.Get("port")
	target := filepath.Join(query.Get("host"), socket)
	dir, err := os.MkdirTemp("", "gq") //nolint:usetesting // the name of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("unix", target)
				if err != nil {
					return
				}
				defer server.Close()
				serve(client, server)
			}()
		}
	}()
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	return u.String()
}

func (c *cutter) serve(client, server net.Conn) {
	var deaf atomic.Bool
	go func() {
		defer client.Close()
		answer := make([]byte, 1<<16)
		var kept []byte // the answer that will be cut
		for {
			n, err := server.Read(answer)
			switch {
			case err != nil:
				return
			case deaf.Load():
				if kept = append(kept, answer[:n]...); !bytes.Contains(kept, []byte("COMMIT\x00")) {
					continue
				}
				if i := bytes.Index(kept, c.lost); i > 0 {
					_, _ = client.Write(kept[:i]) // otherwise all of it is lost
				}
				c.cut.Store(true)
				return
			}
			if _, err := client.Write(answer[:n]); err != nil {
				return
			}
		}
	}()
	asked := make([]byte, 1<<16)
	for {
		n, err := client.Read(asked)
		if err != nil {
			return
		}
		if bytes.Contains(asked[:n], c.word) && c.armed.CompareAndSwap(true, false) {
			deaf.Store(true)
		}
		if _, err := server.Write(asked[:n]); err != nil {
			return
		}
	}
}

// TestClaimWhoseAnswerIsLost loses all or part of the answer to a claim that commits. The
// claim must still return its jobs, complete with their data.
func TestClaimWhoseAnswerIsLost(t *testing.T) {
	for name, lost := range map[string]string{
		"all": "", "the second job": "second-type", "what was changed": "changed-value",
	} {
		t.Run(name, func(t *testing.T) { claimWithoutAnswer(t, lost) })
	}
}

func claimWithoutAnswer(t *testing.T, lost string) {
	t.Helper()
	c, through := newCutter(t, pgtest.Database(t), "claimed-by")
	c.lost = []byte(lost)
	s := open(t, through, store.Config{})
	defer s.Close()
	plain, changed := newSpec("q"), newSpec("q")
	changed.Type = "second-type"
	plain.Payload = gq.Payload{Data: []byte("payload"), ContentType: "text/plain"}
	mustInsert(t, s, plain, changed)
	meta := changed.Metadata
	meta.Tags = map[string]string{"changed": "changed-value"}
	update := prioritising(changed.ID, meta.Priority)
	update.Metadata = &meta
	if out, err := s.Update(t.Context(), []store.Update{update}); err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	c.armed.Store(true)
	claim := claimFrom("q", 2)
	claim.Worker, claim.Parts = "claimed-by", gq.WithPayload|gq.WithCheckpoint
	claimed, err := s.Claim(t.Context(), []store.Claim{claim})
	if err != nil || len(claimed[0].Jobs) != 2 {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	if !c.cut.Load() {
		t.Fatal("no answer was lost")
	}
	jobs := claimed[0].Jobs
	if got := jobs[0]; got.State.ID != plain.ID || string(got.Spec.Payload.Data) != "payload" || got.State.Version != 1 {
		t.Errorf("the first job is %+v", got)
	}
	if got := jobs[1]; got.State.ID != changed.ID || got.Metadata.Tags["changed"] != "changed-value" {
		t.Errorf("the second job is %+v", got)
	}
}
