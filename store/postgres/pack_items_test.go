package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/gopherqueue/gq"
)

// TestItems stores items of all kinds of likeness and reads them again.
func TestItems(t *testing.T) {
	for range 2000 {
		n := 1 + rand.IntN(blockSize)
		first := randomBytes(rand.IntN(300))
		var items [][]byte
		var group []int
		mask := uint64(0)
		for bits.OnesCount64(mask) < n {
			mask |= 1 << rand.IntN(blockSize)
		}
		for i := range n {
			items, group = append(items, alike(first)), append(group, i)
		}
		body := appendItems(nil, items, group)
		data := appendItems(binary.BigEndian.AppendUint64(nil, mask), items, group)
		seq := int64(7<<32 | 64*rand.Int64N(100))
		left := mask & rand.Uint64()
		members := int64(left)
		i := 0
		rest := mask
		err := eachMember(seq+int64(bits.TrailingZeros64(left)), &members, body, data, nil, func(got int64, body, data []byte) error {
			for bitOf(got) != rest&-rest {
				if left&(rest&-rest) != 0 {
					t.Fatalf("member %d was left out", bits.TrailingZeros64(rest))
				}
				rest &= rest - 1
				i++
			}
			if blockOf(got) != seq || !bytes.Equal(body, items[i]) || !bytes.Equal(data, items[i]) {
				t.Fatalf("item %d of %d is %x and %x, want %x", i, n, body, data, items[i])
			}
			rest &= rest - 1
			i++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if left&rest != 0 {
			t.Fatalf("members %b were not read", left&rest)
		}
		broken := bytes.Clone(data[:8+rand.IntN(len(data)-8)])
		if len(broken) > 8 && rand.IntN(2) == 0 {
			broken[8+rand.IntN(len(broken)-8)] ^= byte(1 + rand.IntN(255))
		}
		all := int64(mask)
		err = eachMember(seq, &all, nil, broken, nil, func(int64, []byte, []byte) error { return nil })
		if err != nil && !errors.Is(err, gq.ErrCorrupt) {
			t.Fatalf("broken items: %v", err)
		}
	}
}

func appendItems(b []byte, items [][]byte, group []int) []byte {
	first := items[group[0]]
	b = appendFirst(b, first)
	for _, k := range group[1:] {
		b = appendItem(b, first, items[k])
	}
	return b
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// alike returns a copy of b with a few changes, or something else.
func alike(b []byte) []byte {
	b = bytes.Clone(b)
	for range rand.IntN(4) {
		switch at := rand.IntN(len(b) + 1); rand.IntN(4) {
		case 0:
			b = append(b[:at:at], append(randomBytes(rand.IntN(5)), b[at:]...)...)
		case 1:
			b = b[:at]
		case 2:
			b = b[at:]
		default:
			copy(b[at:], randomBytes(rand.IntN(20)))
		}
	}
	return b
}
