package local

import (
	"math/bits"
	"slices"
	"sort"
)

// numbers is an ordered set of sequence numbers. They are dense, and come and go
// roughly in order, so it is a list of bitmaps from the smallest number to the largest.
type numbers struct {
	blocks []block // ascending, none of them empty
	last   int     // the block that was used last
}

// blockBits is how many numbers a block covers.
const blockBits = 512

type block struct {
	base  uint64 // its first number divided by blockBits
	words [blockBits / 64]uint64
	used  int
}

// find returns where a block is, or where to insert it.
func (n *numbers) find(base uint64) (at int, found bool) {
	if n.last < len(n.blocks) && n.blocks[n.last].base == base {
		return n.last, true
	}
	if end := len(n.blocks); end > 0 && n.blocks[end-1].base < base {
		return end, false
	}
	at = sort.Search(len(n.blocks), func(i int) bool { return n.blocks[i].base >= base })
	return at, at < len(n.blocks) && n.blocks[at].base == base
}

// add adds a number, which must not be present.
func (n *numbers) add(number uint64) {
	base := number / blockBits
	at, found := n.find(base)
	if !found {
		n.blocks = slices.Insert(n.blocks, at, block{base: base})
	}
	b := &n.blocks[at]
	b.words[number%blockBits/64] |= 1 << (number % 64)
	b.used++
	n.last = at
}

// remove removes a number, which must be present.
func (n *numbers) remove(number uint64) {
	at, _ := n.find(number / blockBits)
	b := &n.blocks[at]
	b.words[number%blockBits/64] &^= 1 << (number % 64)
	n.last = at
	b.used--
	switch {
	case b.used > 0:
	case at == 0: // as numbers mostly go
		n.blocks = n.blocks[1:]
	default:
		n.blocks = slices.Delete(n.blocks, at, at+1)
	}
}

// ascend visits the numbers from one up, until visit returns false.
func (n *numbers) ascend(from uint64, visit func(uint64) bool) {
	at, _ := n.find(from / blockBits)
	for i := at; i < len(n.blocks); i++ {
		b := &n.blocks[i]
		for w, word := range b.words {
			for first := b.base*blockBits + uint64(w)*64; word != 0; word &= word - 1 {
				if number := first + uint64(bits.TrailingZeros64(word)); number >= from && !visit(number) {
					return
				}
			}
		}
	}
}

// descend visits the numbers below one downwards, until visit returns false.
func (n *numbers) descend(below uint64, visit func(uint64) bool) {
	at, found := n.find(below / blockBits)
	if !found {
		at--
	}
	for i := at; i >= 0; i-- {
		b := &n.blocks[i]
		for w := len(b.words) - 1; w >= 0; w-- {
			first := b.base*blockBits + uint64(w)*64
			for word := b.words[w]; word != 0; {
				top := 63 - bits.LeadingZeros64(word)
				word &^= 1 << top
				if number := first + uint64(top); number < below && !visit(number) {
					return
				}
			}
		}
	}
}
