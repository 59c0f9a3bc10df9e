package codec

import "time"

// Reader reads records that contain encodings of this package: numbers, bytes and
// instants. After the first fault it returns zeros and keeps the error, which is
// [gq.ErrCorrupt].
type Reader struct{ d decoder }

// NewReader returns a reader of b. Its results may alias b.
func NewReader(b []byte) Reader { return Reader{decoder{b: b}} }

// Err returns the first fault.
func (r *Reader) Err() error { return r.d.err }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.d.b) }

// Fail sets the error, unless there is one already, and skips the rest.
func (r *Reader) Fail(err error) {
	if r.d.err == nil {
		r.d.err = err
	}
	r.d.b = nil
}

// Take reads n bytes.
func (r *Reader) Take(n uint64) []byte { return r.d.take(n) }

// Byte reads a byte.
func (r *Reader) Byte() byte { return r.d.byte() }

// Uvarint reads a number in its shortest form.
func (r *Reader) Uvarint() uint64 { return r.d.uvarint() }

// Bytes reads bytes preceded by their length.
func (r *Reader) Bytes() []byte { return r.d.bytes() }

// Instant reads nanoseconds since 1970 in 8 bytes; 0 is the zero time.
func (r *Reader) Instant() time.Time {
	n := int64(r.d.fixed())
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// End fails if bytes are left.
func (r *Reader) End() {
	if r.d.err == nil && len(r.d.b) > 0 {
		r.d.fail("record too long")
	}
}
