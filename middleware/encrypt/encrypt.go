// Package encrypt is middleware that encrypts what a program stores in a queue: payloads,
// results, checkpoints with the results of steps, and the values of signals. Neither the server
// nor its database can read them or change them unnoticed.
//
//	keys, err := encrypt.NewKeys(
//		encrypt.Key{ID: "2026-11", Secret: current}, // encrypts and decrypts
//		encrypt.Key{ID: "2026-05", Secret: previous}, // decrypts
//	)
//	client, err := gq.Open(ctx, url, gq.Use(encrypt.Middleware(keys)))
//	w := worker.New(client, worker.Config{})
//
// The worker uses the middleware of its client, so handlers see plain arguments, and so do
// [gq.Kind.Wait] and [gq.Client.Get].
//
// # What is stored
//
// An envelope has a mark, the id of the key, a nonce, and the content encrypted with
// XAES-256-GCM: AES-256-GCM under a key derived for each nonce of 192 bits, so one key serves any
// number of jobs. The associated data binds a payload to the type of its job, and a result or a
// checkpoint to the id of its job; content that was moved elsewhere is not accepted. It is not
// bound to a queue, because operators move jobs between queues. An envelope has 46 bytes more
// than its content, besides the id of the key and the content type.
//
// Everything else stays readable: type, queue, keys, tags, metadata, sizes, times and the
// messages of errors. Do not put secrets there.
//
// # Rotating keys
//
// Add the new key at the end of the list of every process first, so that all can decrypt with it;
// then move it to the front. Remove the old key when no job, result or schedule is left that was
// stored under it. Nothing is encrypted again: the payload of a job never changes. Set schedules
// again to store them under the new key.
//
// A worker without the key of a job fails the attempt with a temporary error ([ErrUnknownKey]), so
// that the job runs once the key has arrived, or on another worker, as long as it has attempts
// left. Content that was damaged or moved is a permanent error ([ErrDamaged]), and so is content
// that is not encrypted at all ([ErrPlain], unless [AcceptPlain] is given).
//
// # Idempotency and uniqueness
//
// The nonce is random. A submission with an idempotency key, a workflow with an id, a signal and a
// schedule use a nonce that depends on the content instead, so that the queue recognizes a repetition; who
// reads the database can then see that two such contents are equal. A repetition under another
// key is other content to the queue: it returns the existing job and [gq.ErrKeyReused].
//
// Jobs that are unique by fields of their payload ([gq.UniqueBy]) need [BlindIndex]: the server
// cannot read the fields, so the middleware replaces them with a keyed hash.
package encrypt

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// ContentType is the content type of encrypted payloads.
const ContentType = "application/vnd.gopherqueue.encrypted"

// Errors of decryption. They come wrapped in a [gq.TemporaryError] or a [gq.PermanentError].
var (
	ErrUnknownKey = errors.New("encrypted with a key that this process does not have")
	ErrDamaged    = errors.New("encrypted content was damaged, or belongs to another job")
	ErrPlain      = errors.New("content is not encrypted")
)

// Key is a secret with a name.
type Key struct {
	ID     string // 1 to 64 bytes; stored with everything that is encrypted
	Secret []byte // 32 random bytes
}

// Keys are the keys of a program. They never change; a program that reloads its keys opens
// another client.
type Keys struct {
	primary *key
	byID    map[string]*key
}

// key is a secret with what is derived from it.
type key struct {
	id      string
	sealing *xaes
	nonces  []byte // for nonces that depend on the content
}

// NewKeys checks keys. The first one encrypts; all of them decrypt. The error is a
// [gq.InvalidError] with every fault.
func NewKeys(first Key, others ...Key) (*Keys, error) {
	k := &Keys{byID: map[string]*key{}}
	var faults []gq.Fault
	for i, given := range append([]Key{first}, others...) {
		at := fmt.Sprintf("keys[%d]", i)
		if n := len(given.ID); n == 0 || n > 64 {
			faults = append(faults, gq.Fault{Field: at + ".id", Problem: fmt.Sprintf("has %d bytes; give it 1 to 64", n)})
		}
		if n := len(given.Secret); n != 32 {
			faults = append(faults, gq.Fault{Field: at + ".secret", Problem: fmt.Sprintf("has %d bytes; it needs 32 random ones, for example from openssl rand", n)})
			continue
		}
		if bytes.Count(given.Secret, given.Secret[:1]) == 32 {
			faults = append(faults, gq.Fault{Field: at + ".secret", Problem: "is the same byte 32 times, not random"})
		}
		if k.byID[given.ID] != nil {
			faults = append(faults, gq.Fault{Field: at + ".id", Problem: fmt.Sprintf("%q is the id of another key; every key needs its own", given.ID)})
		}
		made, err := newKey(given)
		if err != nil {
			return nil, err
		}
		k.byID[given.ID] = made
		if i == 0 {
			k.primary = made
		}
	}
	if len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults}
	}
	return k, nil
}

func newKey(k Key) (*key, error) {
	derive := func(use string) ([]byte, error) {
		return hkdf.Key(sha256.New, k.Secret, nil, "gopherqueue encrypt "+use, 32)
	}
	secret, err := derive("content")
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	nonces, err := derive("nonces")
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	sealing, err := newXAES(secret)
	if err != nil {
		return nil, err
	}
	return &key{id: k.ID, sealing: sealing, nonces: nonces}, nil
}

// IDs returns the ids of the keys, sorted.
func (k *Keys) IDs() []string { return slices.Sorted(maps.Keys(k.byID)) }

// Option changes what the middleware does.
type Option func(*middleware)

// AcceptPlain also reads content that is not encrypted, while a program begins to encrypt. Leave
// it out afterwards: without it nobody who can write to the database can slip in a payload.
func AcceptPlain() Option { return func(m *middleware) { m.acceptPlain = true } }

// BlindIndex lets jobs be unique by fields of their payload: instead of the fields the queue gets
// an HMAC-SHA256 of their values under this secret of 32 bytes or more. It must stay the same
// when keys are rotated, or jobs submitted before and after are not seen as equal.
func BlindIndex(secret []byte) Option { return func(m *middleware) { m.index = bytes.Clone(secret) } }

type middleware struct {
	keys        *Keys
	acceptPlain bool
	index       []byte
}

// Middleware encrypts and decrypts with keys.
func Middleware(keys *Keys, options ...Option) gq.Middleware {
	m := &middleware{keys: keys}
	for _, set := range options {
		set(m)
	}
	return gq.Middleware{Submit: m.submit, Seal: m.seal, Unseal: m.unseal}
}

// submit replaces the fields that jobs are unique by.
func (m *middleware) submit(next gq.SubmitFunc) gq.SubmitFunc {
	return func(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
		for i := range specs {
			s := &specs[i]
			if len(s.Unique.Fields) == 0 {
				continue
			}
			if len(m.index) < 32 {
				return nil, &gq.InvalidError{Faults: []gq.Fault{{
					Field: "unique.fields", Problem: "the queue cannot read fields of an encrypted payload; give encrypt.Middleware a BlindIndex of at least 32 bytes, or use a key (gq.Key)",
				}}}
			}
			plain := *s
			if plain.Payload.ContentType == "" {
				plain.Payload.ContentType = gq.JSON
			}
			name, err := machine.UniqueName(&plain)
			if err != nil {
				return nil, err
			}
			mac := hmac.New(sha256.New, m.index)
			fmt.Fprintf(mac, "%d %s %s", len(s.Type), s.Type, name)
			s.Key.Name, s.Unique.Fields = "blind:"+hex.EncodeToString(mac.Sum(nil)), nil
		}
		return next(ctx, specs)
	}
}

// The form of an envelope: mark, length of the key's id, id, nonce, sealed content. The content of
// a payload begins with the length of its content type and the content type.
var mark = []byte("gqe1")

// bound returns the associated data: what the content belongs to.
func bound(d *gq.Data) []byte {
	if d.Part == gq.WithPayload {
		return []byte("payload\x00" + d.Type)
	}
	part := "result"
	if d.Part == gq.WithCheckpoint {
		part = "checkpoint"
	}
	return []byte(part + "\x00" + d.Job.String())
}

func (m *middleware) seal(_ context.Context, d gq.Data) (gq.Data, error) {
	k := m.keys.primary
	content := d.Bytes
	if d.Part == gq.WithPayload {
		if len(d.ContentType) > 255 {
			return d, &gq.InvalidError{Faults: []gq.Fault{{Field: "payload.content_type", Problem: "has more than 255 bytes"}}}
		}
		content = slices.Concat([]byte{byte(len(d.ContentType))}, []byte(d.ContentType), d.Bytes)
	}
	about := bound(&d)
	var nonce [nonceSize]byte
	if d.Repeatable {
		mac := hmac.New(sha256.New, k.nonces)
		fmt.Fprintf(mac, "%d ", len(about))
		mac.Write(about)
		mac.Write(content)
		copy(nonce[:], mac.Sum(nil))
	} else if _, err := rand.Read(nonce[:]); err != nil {
		return d, err
	}
	out := make([]byte, 0, len(mark)+1+len(k.id)+nonceSize+len(content)+tagSize)
	out = append(out, mark...)
	out = append(out, byte(len(k.id)))
	out = append(out, k.id...)
	out = append(out, nonce[:]...)
	sealed, err := k.sealing.seal(out, nonce[:], content, about)
	if err != nil {
		return d, err
	}
	d.Bytes = sealed
	if d.Part == gq.WithPayload {
		d.ContentType = ContentType
	}
	return d, nil
}

func (m *middleware) unseal(_ context.Context, d gq.Data) (gq.Data, error) {
	rest, ok := bytes.CutPrefix(d.Bytes, mark)
	if d.Part == gq.WithPayload {
		ok = ok && d.ContentType == ContentType
	}
	switch {
	case ok:
	case m.acceptPlain, d.Part == gq.WithPayload && string(d.Bytes) == "null": // what a job without a payload has
		return d, nil
	case d.ContentType == ContentType:
		return d, damaged()
	default:
		return d, gq.Permanent(ErrPlain, "not_encrypted")
	}
	if len(rest) < 1 || len(rest) < 1+int(rest[0])+nonceSize+tagSize {
		return d, damaged()
	}
	id, rest := string(rest[1:1+rest[0]]), rest[1+rest[0]:]
	k := m.keys.byID[id]
	if k == nil {
		return d, gq.Temporary(fmt.Errorf("key %.64q: %w", id, ErrUnknownKey))
	}
	content, err := k.sealing.open(rest[:nonceSize], rest[nonceSize:], bound(&d))
	if err != nil {
		return d, damaged()
	}
	if d.Part != gq.WithPayload {
		d.Bytes = content
		return d, nil
	}
	if len(content) < 1 || len(content) < 1+int(content[0]) {
		return d, damaged()
	}
	d.ContentType, d.Bytes = string(content[1:1+content[0]]), content[1+content[0]:]
	return d, nil
}

func damaged() error { return gq.Permanent(ErrDamaged, "damaged_content") }
