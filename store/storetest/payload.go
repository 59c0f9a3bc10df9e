package storetest

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var payloadCases = []Case{
	{
		Name:   "Payload/Bytes",
		Clause: "a payload is read back byte for byte, whatever it is",
		Covers: []string{"J-123", "J-127"},
		run:    payloadBytes,
	},
	{
		Name:   "Payload/Size",
		Clause: "a payload of exactly the limit is accepted and one byte more is ErrInvalid, naming the payload",
		Covers: []string{"J-124"},
		run:    payloadSize,
	},
	{
		Name:   "Payload/Limit",
		Clause: "the configured limit counts, not the default, up to 16 MiB",
		Covers: []string{"J-125"},
		run:    payloadLimit,
	},
	{
		Name:   "Payload/Immutable",
		Clause: "nothing that happens to a job changes its payload",
		Covers: []string{"J-128"},
		run:    payloadImmutable,
	},
	{
		Name:   "Payload/Copied",
		Clause: "a store keeps what was submitted, not the caller's memory",
		run:    payloadCopied,
	},
	{
		Name:   "Payload/Parts",
		Clause: "blobs are read only where they were asked for",
		run:    payloadParts,
	},
}

func binary(data []byte) setting {
	return func(s *gq.Spec) { s.Payload = gq.Payload{Data: data, ContentType: "application/octet-stream"} }
}

// noise returns n random bytes, with every byte value if there is room.
func (e *env) noise(n int) []byte {
	b := make([]byte, n)
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(e.random.Uint32())
	}
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	for i := range min(n, 256) {
		b[i] = byte(i)
	}
	return b
}

func payloadBytes(e *env) {
	payloads := []gq.Payload{
		{Data: nil, ContentType: "application/octet-stream"},
		{Data: []byte{0}, ContentType: "application/octet-stream"},
		{Data: e.noise(300), ContentType: "application/octet-stream"},
		{Data: e.noise(70_000), ContentType: "application/x-noise"},
		{Data: []byte(" {\"b\": 1.0, \"a\": [1e400, 12345678901234567890, \"\\u0000\"],\n\t\"a\":\"twice\" } "), ContentType: gq.JSON},
		{Data: []byte("\"\\ud800\""), ContentType: gq.JSON},
		{Data: []byte("not JSON at all"), ContentType: "text/plain"},
		{Data: []byte("line\r\nline\x00\u2028"), ContentType: "text/plain; charset=utf-8"},
	}
	var specs []gq.Spec
	for _, p := range payloads {
		specs = append(specs, e.spec(func(s *gq.Spec) { s.Payload = p }))
	}
	e.each(specs...)
	claimed := e.claim(100, with(gq.WithPayload))
	if len(claimed) != len(specs) {
		e.Fatalf("claimed %d jobs, want %d", len(claimed), len(specs))
	}
	for i, s := range specs {
		for how, got := range map[string]gq.Payload{"read": e.get(s.ID).Spec.Payload, "claimed": claimed[i].Spec.Payload} {
			if !bytes.Equal(got.Data, s.Payload.Data) || got.ContentType != s.Payload.ContentType {
				e.Errorf("payload %d as %s: %d bytes of %q (%.40q), want %d bytes of %q (%.40q)", i, how,
					len(got.Data), got.ContentType, got.Data, len(s.Payload.Data), s.Payload.ContentType, s.Payload.Data)
			}
		}
	}
}

func payloadSize(e *env) {
	most := e.spec(binary(e.noise(1 << 20)))
	e.insert(most)
	if got := e.get(most.ID).Spec.Payload.Data; !bytes.Equal(got, most.Payload.Data) {
		e.Errorf("a payload of 1 MiB is read back as %d other bytes", len(got))
	}
	more := e.spec(binary(make([]byte, 1<<20+1)))
	if got := e.refused(gq.ErrInvalid, more).fields(); !slices.Contains(got, "payload") {
		e.Errorf("the error names %q, want payload", got)
	}
	e.absent("a job with a payload that is too large", more.ID)
}

func payloadLimit(e *env) {
	e.open(func(c *store.Config) {
		c.Limits = machine.DefaultLimits()
		c.Limits.PayloadBytes = gq.MaxPayloadBytes
	})
	most := e.spec(binary(e.noise(gq.MaxPayloadBytes)))
	e.insert(most)
	if got := e.get(most.ID).Spec.Payload.Data; !bytes.Equal(got, most.Payload.Data) {
		e.Errorf("a payload of 16 MiB is read back as %d other bytes", len(got))
	}
	e.refused(gq.ErrInvalid, e.spec(binary(make([]byte, gq.MaxPayloadBytes+1))))
}

func payloadImmutable(e *env) {
	spec := e.spec(binary(e.noise(1000)))
	e.insert(spec)
	want := e.get(spec.ID).Spec
	e.updated(store.Update{
		Ref: byID(spec.ID), Apply: updating(gq.PriorityHigh),
		Metadata: &gq.Metadata{Priority: gq.PriorityHigh, Tags: map[string]string{"a": "b"}},
	})
	j := e.one(with(gq.WithPayload))
	e.equal("the spec after an update of the metadata", j.Spec, want)
	s := e.fail(j, temporary)
	e.clock.Set(s.RunAt)
	j = e.one(with(gq.WithPayload))
	e.equal("the spec in the second attempt", j.Spec, want)
	e.complete(j)
	e.equal("the spec of the finished job", e.get(spec.ID).Spec, want)
}

func payloadCopied(e *env) {
	spec := e.spec(binary([]byte("original")), func(s *gq.Spec) { s.Metadata.Tags = map[string]string{"tag": "original"} })
	data, tags := spec.Payload.Data, spec.Metadata.Tags
	e.insert(spec)
	copy(data, "scribble")
	tags["tag"] = "scribble"
	j := e.get(spec.ID)
	if string(j.Spec.Payload.Data) != "original" || j.Metadata.Tags["tag"] != "original" {
		e.Errorf("after the caller reused its memory the job reads %q and %v", j.Spec.Payload.Data, j.Metadata.Tags)
	}
}

func payloadParts(e *env) {
	spec := e.spec(binary([]byte("payload")))
	e.insert(spec)
	j := e.one()
	if len(j.Spec.Payload.Data) != 0 {
		e.Errorf("a claim that asked for no parts got the payload %q", j.Spec.Payload.Data)
	}
	ref := j.State.Lease.Ref()
	e.updated(store.Update{Ref: byID(spec.ID), Apply: beating(ref, machine.Report{CheckpointBytes: 10}), Checkpoint: []byte("checkpoint")})
	e.updated(store.Update{Ref: byID(spec.ID), Apply: completing(ref, []byte("result")), Result: []byte("result")})
	for parts := range allParts + 1 {
		j := e.find(byID(spec.ID), parts).Job
		for _, blob := range []struct {
			name string
			part gq.Parts
			got  []byte
		}{
			{"payload", gq.WithPayload, j.Spec.Payload.Data},
			{"result", gq.WithResult, j.Result},
			{"checkpoint", gq.WithCheckpoint, j.Checkpoint},
		} {
			want := ""
			if parts&blob.part != 0 {
				want = blob.name
			}
			if string(blob.got) != want {
				e.Errorf("Get with parts %03b: the %s reads %q, want %q", parts, blob.name, blob.got, want)
			}
		}
		if j.Spec.Payload.ContentType != "application/octet-stream" || j.Spec.Type != "work" {
			e.Errorf("Get with parts %03b: the rest of the spec is missing: %+v", parts, j.Spec)
		}
	}
}
