package postgres

import (
	"encoding/binary"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// The body of a job is its part that never changes: payload and spec. It moves with the
// job from table to table, because looking it up elsewhere costs more than writing it
// again. A payload of more than maxMoved bytes stays in gq.blob.

// maxMoved is the size, in bytes, of the largest payload that moves with its job.
const maxMoved = 1024

// appendBody appends the body of a job: twice the length of the payload, the payload, and
// the spec without payload and id. If the payload is in gq.blob there is a 1 in its place.
func appendBody(b []byte, spec *gq.Spec) ([]byte, error) {
	lean, payload := *spec, spec.Payload.Data
	lean.ID, lean.Payload.Data = gq.JobID{}, nil
	if isApart(spec) {
		b = append(b, 1)
	} else {
		b = append(binary.AppendUvarint(b, uint64(len(payload))<<1), payload...)
	}
	return codec.AppendSpec(&lean, b)
}

// isApart reports whether the payload of a job is in gq.blob.
func isApart(spec *gq.Spec) bool { return len(spec.Payload.Data) > maxMoved }

// splitBody returns the parts of a body. The payload is nil if it is empty or in gq.blob.
func splitBody(body []byte) (payload, spec []byte, apart bool, err error) {
	head, n := binary.Uvarint(body)
	size := head >> 1
	if n <= 0 || size > uint64(len(body)-n) {
		return nil, nil, false, fmt.Errorf("its body is broken: %w", gq.ErrCorrupt)
	}
	end := n + int(size)
	if size > 0 {
		payload = body[n:end:end]
	}
	return payload, body[end:], head&1 == 1, nil
}

// specOf decodes the spec of a row, once. Only the spec of a new row has the payload.
func (r *row) specOf() (*gq.Spec, error) {
	if r.parsed != nil {
		return r.parsed, nil
	}
	return r.specInto(new(gq.Spec))
}

// typ returns the type of a job without decoding the rest of its spec. It returns known, without
// allocating, if it is equal.
func (r *row) typ(known string) string {
	if r.parsed != nil {
		return r.parsed.Type
	}
	_, data, _, err := splitBody(r.body)
	if err != nil {
		return "" // whoever needs the spec reports it
	}
	typ, _ := codec.SkimSpecType(data, known)
	return typ
}

// specInto is specOf with the memory for the spec. It keeps the queue and type there if they are
// equal, which saves allocations.
func (r *row) specInto(spec *gq.Spec) (*gq.Spec, error) {
	_, data, _, err := splitBody(r.body)
	if err == nil {
		err = codec.Decode(spec, data)
	}
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", r.state.ID, err)
	}
	spec.ID = r.state.ID
	r.parsed = spec
	return spec, nil
}
