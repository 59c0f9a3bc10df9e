// Package compress is middleware that compresses large payloads, results and checkpoints with
// gzip.
//
//	client, err := gq.Open(ctx, url, gq.Use(compress.Middleware(), encrypt.Middleware(keys)))
//
// Compress before you encrypt: what is encrypted cannot be compressed. Jobs that are unique by
// fields of their payload need a key instead, unless the payload is small.
package compress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gopherqueue/gq"
)

// ContentType is the content type of compressed payloads.
const ContentType = "application/vnd.gopherqueue.gzip"

// Least is the size from which data is compressed.
const Least = 1 << 10

// ErrDamaged comes wrapped in a [gq.PermanentError].
var ErrDamaged = errors.New("compressed content is damaged")

// mark begins compressed data. The length of the content type and the content type follow, then
// the data as gzip.
var mark = []byte("gqz1")

// Middleware compresses data of at least [Least] bytes if that makes it smaller.
func Middleware() gq.Middleware { return gq.Middleware{Seal: seal, Unseal: unseal} }

func seal(_ context.Context, d gq.Data) (gq.Data, error) {
	if len(d.Bytes) < Least || len(d.ContentType) > 255 {
		return d, nil
	}
	var out bytes.Buffer
	out.Write(mark)
	out.WriteByte(byte(len(d.ContentType)))
	out.WriteString(d.ContentType)
	w := gzip.NewWriter(&out) // its header has no time: the same data gives the same bytes
	if _, err := w.Write(d.Bytes); err != nil {
		return d, err
	}
	if err := w.Close(); err != nil {
		return d, err
	}
	if out.Len() >= len(d.Bytes) {
		return d, nil
	}
	d.Bytes = out.Bytes()
	if d.Part == gq.WithPayload {
		d.ContentType = ContentType
	}
	return d, nil
}

func unseal(_ context.Context, d gq.Data) (gq.Data, error) {
	rest, marked := bytes.CutPrefix(d.Bytes, mark)
	switch payload := d.Part == gq.WithPayload; {
	case payload && d.ContentType != ContentType, !payload && !marked:
		return d, nil
	case !marked || len(rest) < 1 || len(rest) < 1+int(rest[0]):
		return d, gq.Permanent(ErrDamaged, "damaged_content")
	}
	original, rest := string(rest[1:1+rest[0]]), rest[1+rest[0]:]
	r, err := gzip.NewReader(bytes.NewReader(rest))
	if err != nil {
		return d, gq.Permanent(fmt.Errorf("%w: %w", ErrDamaged, err), "damaged_content")
	}
	data, err := io.ReadAll(io.LimitReader(r, gq.MaxPayloadBytes+1))
	if err == nil && len(data) > gq.MaxPayloadBytes {
		err = fmt.Errorf("more than %d bytes", gq.MaxPayloadBytes)
	}
	if err != nil {
		return d, gq.Permanent(fmt.Errorf("%w: %w", ErrDamaged, err), "damaged_content")
	}
	d.Bytes, d.ContentType = slices.Clip(data), original
	return d, nil
}
