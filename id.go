package gq

import (
	"encoding/hex"
	"fmt"
)

// JobID identifies a job for ever: a version 4 UUID that the system assigns at
// submission and that no client can choose. The zero value is no job.
type JobID [16]byte

// NewJobID makes a job id out of 16 random bytes by setting the version and
// variant bits.
func NewJobID(random [16]byte) JobID { return JobID(uuidBits(random)) }

// ParseJobID reads the canonical text form: 8-4-4-4-12 hexadecimal digits.
func ParseJobID(s string) (JobID, error) {
	b, ok := parseUUID(s)
	if !ok || b == ([16]byte{}) {
		return JobID{}, &InvalidError{Faults: []Fault{{"id", fmt.Sprintf("%.64q is not a UUID", s)}}}
	}
	return JobID(b), nil
}

// IsZero reports whether id is no job.
func (id JobID) IsZero() bool { return id == JobID{} }

// Valid reports whether id is a version 4 UUID of the RFC 4122 variant.
func (id JobID) Valid() bool { return id[6]>>4 == 4 && id[8]>>6 == 2 }

func (id JobID) String() string { return formatUUID(id) }

// MarshalText is the canonical text form; the zero id is empty.
func (id JobID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (id *JobID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = JobID{}
		return nil
	}
	parsed, err := ParseJobID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// LeaseID is the token of one lease, and so of one attempt. It fences: a write
// about a running job must carry the newest one. It does not authorise.
type LeaseID string

// NewLeaseID makes a lease id in UUID form out of 16 bytes that no other lease
// of the store was made of.
func NewLeaseID(unique [16]byte) LeaseID { return LeaseID(formatUUID(uuidBits(unique))) }

func uuidBits(b [16]byte) [16]byte {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return b
}

func formatUUID(b [16]byte) string {
	var out [36]byte
	hex.Encode(out[0:8], b[0:4])
	hex.Encode(out[9:13], b[4:6])
	hex.Encode(out[14:18], b[6:8])
	hex.Encode(out[19:23], b[8:10])
	hex.Encode(out[24:36], b[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// parseUUID accepts either case.
func parseUUID(s string) (b [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return b, false
	}
	n := 0
	for i := 0; i < 36; {
		if s[i] == '-' {
			i++
			continue
		}
		hi, lo := hexDigit(s[i]), hexDigit(s[i+1])
		if hi < 0 || lo < 0 {
			return b, false
		}
		b[n] = byte(hi<<4 | lo)
		n++
		i += 2
	}
	return b, true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
