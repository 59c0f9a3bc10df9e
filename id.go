package gq

import (
	"encoding/hex"
	"fmt"
)

// JobID identifies a job: a version 4 UUID that the queue assigns at submission. The zero
// value is no job.
type JobID [16]byte

// ParseJobID parses the text of an id, such as a part of a URL: 8-4-4-4-12 hexadecimal digits.
func ParseJobID(text string) (id JobID, err error) {
	if err = id.UnmarshalText([]byte(text)); err == nil && id.IsZero() {
		err = &InvalidError{Faults: []Fault{{"id", `"" is not a UUID`}}}
	}
	return id, err
}

// IsZero reports whether id is the zero value.
func (id JobID) IsZero() bool { return id == JobID{} }

// Valid reports whether id is a version 4 UUID of the RFC 4122 variant.
func (id JobID) Valid() bool { return id[6]>>4 == 4 && id[8]>>6 == 2 }

func (id JobID) String() string { return formatUUID(id) }

// MarshalText returns the canonical text form. That of the zero id is empty.
func (id JobID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// AppendText appends the text of MarshalText.
func (id JobID) AppendText(b []byte) ([]byte, error) {
	if id.IsZero() {
		return b, nil
	}
	text := uuidText(id)
	return append(b, text[:]...), nil
}

// UnmarshalText parses the text of MarshalText: 8-4-4-4-12 hexadecimal digits.
func (id *JobID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = JobID{}
		return nil
	}
	parsed, ok := parseUUID(text, true)
	if !ok || parsed == ([16]byte{}) {
		return &InvalidError{Faults: []Fault{{"id", fmt.Sprintf("%.64q is not a UUID", text)}}}
	}
	*id = parsed
	return nil
}

// LeaseID identifies a lease, and with it one attempt. It is a fencing token: calls about a
// leased job must carry the newest one. It is not a credential.
type LeaseID string

// UUID returns the 16 bytes of a lease id in canonical UUID form. Matching uses lease ids
// that are not UUIDs; for them ok is false.
func (id LeaseID) UUID() (raw [16]byte, ok bool) { return parseUUID(string(id), false) }

func formatUUID(b [16]byte) string {
	out := uuidText(b)
	return string(out[:])
}

func uuidText(b [16]byte) (out [36]byte) {
	hex.Encode(out[0:8], b[0:4])
	hex.Encode(out[9:13], b[4:6])
	hex.Encode(out[14:18], b[6:8])
	hex.Encode(out[19:23], b[8:10])
	hex.Encode(out[24:36], b[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return out
}

// parseUUID parses the text form, in lower case or also in upper case.
func parseUUID[T string | []byte](s T, upper bool) (b [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return b, false
	}
	bad := byte(0)
	for i, at := range [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		hi, lo := hexValues[s[at]], hexValues[s[at+1]]
		bad |= hi | lo
		b[i] = hi<<4 | lo&15
	}
	if upper {
		bad &^= upperCase
	}
	return b, bad < 16
}

// hexValues has the value of each hexadecimal digit, with upperCase set for A to F. Other
// characters have the top bit set.
var hexValues = func() (v [256]byte) {
	for i := range v {
		v[i] = 0x80
	}
	for i := range 10 {
		v['0'+i] = byte(i)
	}
	for i := range 6 {
		v['a'+i] = byte(10 + i)
		v['A'+i] = byte(10+i) | upperCase
	}
	return v
}()

const upperCase = 0x40
