package compress_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/gqtest"
	"github.com/gopherqueue/gq/middleware/compress"
	"github.com/gopherqueue/gq/worker"
)

var shout = gq.NewKind[string, string]("shout")

// Large arguments and results are small in the store and whole in the program.
func TestCompress(t *testing.T) {
	q := gqtest.New(t)
	c := q.Client.With(compress.Middleware())
	w := worker.New(c, worker.Config{})
	worker.HandleResult(w, shout, func(_ context.Context, job *worker.Job[string]) (string, error) {
		return strings.ToUpper(job.Args), nil
	})
	for _, text := range []string{"small", strings.Repeat("large ", 10_000)} {
		id, err := shout.Submit(t.Context(), c, text, gq.Key(text[:3]))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := shout.Submit(t.Context(), c, text, gq.Key(text[:3])); err != nil || again != id {
			t.Errorf("the same submission again: %s, %v, want %s", again, err, id)
		}
		if ok, err := w.RunOne(t.Context()); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if got, err := shout.Wait(t.Context(), c, id); err != nil || got != strings.ToUpper(text) {
			t.Errorf("the result has %d bytes, %v", len(got), err)
		}
		j, err := q.Client.Get(t.Context(), id, gq.WithPayload|gq.WithResult)
		if err != nil || len(j.Spec.Payload.Data) > 1000 || len(j.Result) > 1000 {
			t.Errorf("stored %d and %d bytes, %v", len(j.Spec.Payload.Data), len(j.Result), err)
		}
		if large := len(text) > 100; large != (j.Spec.Payload.ContentType == compress.ContentType) {
			t.Errorf("%d bytes are stored as %s", len(text), j.Spec.Payload.ContentType)
		}
	}
}

func TestDamage(t *testing.T) {
	m := compress.Middleware()
	noise := make([]byte, 10_000)
	_, _ = rand.Read(noise)
	d := gq.Data{Part: gq.WithPayload, Bytes: noise, ContentType: gq.OctetStream}
	if got, err := m.Seal(t.Context(), d); err != nil || !bytes.Equal(got.Bytes, noise) || got.ContentType != gq.OctetStream {
		t.Errorf("what cannot be compressed became %d bytes of %s, %v", len(got.Bytes), got.ContentType, err)
	}
	d.Bytes = make([]byte, 10_000)
	sealed, err := m.Seal(t.Context(), d)
	if err != nil || len(sealed.Bytes) >= 10_000 {
		t.Fatal(len(sealed.Bytes), err)
	}
	for n := range sealed.Bytes {
		cut := sealed
		cut.Bytes = sealed.Bytes[:n]
		if _, err := m.Unseal(t.Context(), cut); !errors.Is(err, compress.ErrDamaged) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	bomb, err := m.Seal(t.Context(), gq.Data{Part: gq.WithResult, Bytes: make([]byte, gq.MaxPayloadBytes+1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Unseal(t.Context(), bomb); !errors.Is(err, compress.ErrDamaged) {
		t.Errorf("more than a payload may have: %v", err)
	}
}
