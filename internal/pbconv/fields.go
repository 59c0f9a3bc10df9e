package pbconv

import (
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gopherqueue/gq"
)

// fieldReader decodes the fields of a message one after the other.
type fieldReader struct {
	field  protowire.Number
	kind   protowire.Type
	number uint64 // of a varint or fixed64
	data   []byte // of a text, bytes or message
	odd    bool   // a field is not as expected
}

// next reads a field and returns the data after it.
func (r *fieldReader) next(data []byte) []byte {
	tag, n := protowire.ConsumeVarint(data)
	if n < 0 || tag>>3 == 0 || tag>>3 > uint64(protowire.MaxValidNumber) {
		return r.stop()
	}
	r.field, r.kind = protowire.Number(tag>>3), protowire.Type(tag&7)
	data = data[n:]
	switch r.kind {
	case protowire.VarintType:
		r.number, n = protowire.ConsumeVarint(data)
	case protowire.Fixed64Type:
		r.number, n = protowire.ConsumeFixed64(data)
	case protowire.BytesType:
		r.data, n = protowire.ConsumeBytes(data)
	default:
		n = protowire.ConsumeFieldValue(r.field, r.kind, data)
	}
	if n < 0 {
		return r.stop()
	}
	return data[n:]
}

func (r *fieldReader) stop() []byte {
	*r = fieldReader{odd: true}
	return nil
}

func (r *fieldReader) expect(kind protowire.Type) {
	if r.kind != kind {
		r.odd = true
	}
}

func (r *fieldReader) uint() uint64 {
	r.expect(protowire.VarintType)
	return r.number
}

func (r *fieldReader) int() int { return int(r.uint()) }

func (r *fieldReader) fixed() uint64 {
	r.expect(protowire.Fixed64Type)
	return r.number
}

func (r *fieldReader) time() time.Time { return instant(int64(r.fixed())) }

func (r *fieldReader) bytes() []byte {
	r.expect(protowire.BytesType)
	return r.data
}

// message returns the data of a message that must not occur twice.
func (r *fieldReader) message(before []byte) []byte {
	if before != nil {
		r.odd = true
	}
	return r.bytes()
}

// text returns a text. It does not allocate if the text is the same as last.
func (r *fieldReader) text(last string) string {
	b := r.bytes()
	if string(b) == last {
		return last
	}
	if !utf8.Valid(b) {
		r.odd = true
	}
	return string(b)
}

func (r *fieldReader) id() (id gq.JobID) {
	if id.UnmarshalText(r.bytes()) != nil {
		r.odd = true
	}
	return id
}

func enumOf[G ~uint8](r *fieldReader, last G) G {
	n := r.uint()
	if n > uint64(last) {
		r.odd = true
	}
	return G(n)
}

// openMessage begins a nested message and closeMessage ends it; at is where its content
// begins.
func openMessage(b []byte, field protowire.Number) (_ []byte, at int) {
	b = append(protowire.AppendTag(b, field, protowire.BytesType), 0, 0) // most lengths take two bytes
	return b, len(b)
}

func closeMessage(b []byte, at int) []byte {
	n := uint64(len(b) - at)
	if n >= 1<<7 && n < 1<<14 {
		b[at-2], b[at-1] = byte(n)|0x80, byte(n>>7)
		return b
	}
	var length [10]byte
	return slices.Replace(b, at-2, at, protowire.AppendVarint(length[:0], n)...)
}

func appendUint(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func appendFixed(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), n)
}

func appendInstant(b []byte, field protowire.Number, t time.Time) []byte {
	return appendFixed(b, field, uint64(nanos(t)))
}

func appendData(b []byte, field protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), data)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendID(b []byte, field protowire.Number, id gq.JobID) []byte {
	if id.IsZero() {
		return b
	}
	b, _ = id.AppendText(append(protowire.AppendTag(b, field, protowire.BytesType), 36)) // never fails
	return b
}
