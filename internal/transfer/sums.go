package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"

	"github.com/gopherqueue/gq/store"
)

// Sum counts the items of a kind and adds up their hashes. It does not depend on the
// order of the items, which differs between stores.
type Sum struct {
	Count  uint64
	Hi, Lo uint64 // sum of the first 16 bytes of each item's SHA-256, modulo 2^128
}

func (s *Sum) add(item []byte) {
	h := sha256.Sum256(item)
	var carry uint64
	s.Count++
	s.Lo, carry = bits.Add64(s.Lo, binary.BigEndian.Uint64(h[8:]), 0)
	s.Hi, _ = bits.Add64(s.Hi, binary.BigEndian.Uint64(h[:]), carry)
}

// Checksum returns the sum as text.
func (s Sum) Checksum() string { return fmt.Sprintf("%016x%016x", s.Hi, s.Lo) }

// Sums has the sum of each kind.
type Sums [kinds]Sum

func (s *Sums) of(k kind) *Sum { return &s[k-1] }

func (s *Sums) add(items *store.Items) {
	var b []byte
	visit(items, func(k kind, appendTo func([]byte) []byte) {
		b = appendTo(b[:0])
		s.of(k).add(b)
	})
}

// Named is the sum of one kind with its name.
type Named struct {
	Name     string `json:"kind"`
	Count    uint64 `json:"count"`
	Checksum string `json:"checksum"`
}

// Named lists the sums in the order of their kinds.
func (s *Sums) Named() []Named {
	all := make([]Named, 0, kinds)
	for k := kindPool; k <= kindEnded; k++ {
		all = append(all, Named{k.String(), s.of(k).Count, s.of(k).Checksum()})
	}
	return all
}

// MarshalJSON encodes the list of named sums.
func (s Sums) MarshalJSON() ([]byte, error) { return json.Marshal(s.Named()) }

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *Sums) UnmarshalJSON(b []byte) error {
	var all []Named
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	if len(all) != kinds {
		return fmt.Errorf("%d kinds, want %d", len(all), kinds)
	}
	for i, n := range all {
		sum := Sum{Count: n.Count}
		if n.Name != kind(i+1).String() || len(n.Checksum) != 32 {
			return fmt.Errorf("sum of %q: not one of a kind", n.Name)
		}
		if _, err := fmt.Sscanf(n.Checksum, "%16x%16x", &sum.Hi, &sum.Lo); err != nil {
			return fmt.Errorf("sum of %s: %w", n.Name, err)
		}
		s[i] = sum
	}
	return nil
}

// difference lists the sums that differ.
func (s *Sums) difference(want Sums) string {
	var all []string
	for k := kindPool; k <= kindEnded; k++ {
		got, want := s.of(k), want.of(k)
		switch {
		case got.Count != want.Count:
			all = append(all, fmt.Sprintf("%d %s, want %d", got.Count, k, want.Count))
		case *got != *want:
			all = append(all, fmt.Sprintf("%s with checksum %s, want %s", k, got.Checksum(), want.Checksum()))
		}
	}
	return strings.Join(all, "; ")
}
